"""From the text of a description to a `Spec`, or to one line that says where it goes wrong.

Codes: L1 a character that belongs nowhere, L2 a word in the wrong place, L3 a value that cannot be.
What is well said and yet impossible is for the type checker (`check.py`).
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import msgspec
from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken, v_args
from lark.exceptions import VisitError
from lark.tree import Meta
from msgspec.structs import replace

from nemesis.processors.parallelism.spec import (
    DIMS,
    INFERRED,
    Dim,
    Fabric,
    FabricKind,
    Force,
    Scope,
    Spec,
    Term,
)
from nemesis.schemas.errors import NemesisError

TEXT_MAX: Final = 500
"""Characters; the longest published description has fewer than 100."""
NUMBER_MAX: Final = 10_000_000
"""No degree, batch or count comes near; larger ones are slips."""

GRAMMAR: Final = r"""
    spec: term ("+" term)* (";" option ("," option)*)?
    term: DIM degree ["v"i NAT] ["_" wish]
    degree: NAT | STAR
    wish: fabric [force]
    fabric: KIND [NAT] ["/" "d"i NAT] [tier]
    tier: "@" SCOPE NAT
    force: HARD | SOFT [NAT "s"i]
    option: FLAG -> flag | COUNT "=" NAT -> count | ORDER "=" NAME -> order
    FLAG: "sp"i
    COUNT: "mbs"i | "gbs"i | "spare"i
    ORDER: "order"i
    DIM: "TP"i | "CP"i | "EP"i | "ETP"i | "PP"i | "DP"i | "FSDP"i | "DPR"i
    KIND: "NVL"i | "IB"i | "ROCE"i | "EFA"i | "PCIE"i | "ANY"i
    SCOPE: "t"i | "g"i
    STAR: "*"
    HARD: "!"
    SOFT: "?"
    NAT: /[0-9]+/
    NAME: /[a-z][a-z0-9-]*/i
    %ignore " "
"""

_SPELT: Final = {
    "DIM": "one of " + ", ".join(DIMS),
    "KIND": "NVL, IB, ROCE, EFA, PCIE or ANY",
    "FLAG": "sp",
    "COUNT": "mbs, gbs, spare",
    "ORDER": "order",
    "NAT": "a number",
    "NAME": "the name of an order",
    "SCOPE": '"t" or "g"',
    "STAR": '"*"',
    "HARD": '"!"',
    "SOFT": '"?"',
    "PLUS": '"+"',
    "SEMICOLON": '";"',
    "COMMA": '","',
    "EQUAL": '"="',
    "SLASH": '"/d"',
    "$END": "the end",
    "UNDERSCORE": '"_"',
    "AT": '"@"',
}
_COUNTS: Final = {"mbs": "micro_batch", "gbs": "global_batch", "spare": "spares"}
Span = tuple[int, int]
"""From and to, in characters."""
Spans = Mapping[str, Span]
"""By part (`0` for the first term, `0.fabric`, `global_batch`): where it stands."""
_Part = tuple[str, Any, Span]


class BadSpecError(NemesisError):
    """A description that is not in the language."""

    exit_code = 2

    def __init__(self, spec_code: str, at: int, text: str, problem: str) -> None:
        super().__init__(
            f"{spec_code} at {at} of {text!r}: {problem}",
            hint="docs/scheduling.md has the grammar; an example: TP8_NVL18+PP4_IB2",
        )
        self.spec_code: Final = spec_code
        self.at: Final = at
        """Characters before the place."""
        self.problem: Final = problem


class Parsed(msgspec.Struct, frozen=True):
    """A description and where its parts stand in the text."""

    text: str
    spec: Spec
    spans: Spans


def parse(text: str) -> Spec:
    """The description that a text is.

    Raises:
        BadSpecError: it is not in the language; names code, place and what was expected.
    """
    return read(text).spec


def read(text: str) -> Parsed:
    """The description that a text is, with the places of its parts.

    Raises:
        BadSpecError: it is not in the language; names code, place and what was expected.
    """
    if len(text) > TEXT_MAX:
        shown = text[:40] + "..."
        raise BadSpecError("L1", 40, shown, f"{len(text)} characters, at most {TEXT_MAX} are read")
    try:
        found = _Reader(text).transform(_PARSER.parse(text))
    except UnexpectedCharacters as error:
        at = error.pos_in_stream or 0
        problem = f"{text[at]!r} is not expected here, but {_expected(error.allowed or ())}"
        raise BadSpecError("L1", at, text, problem) from error
    except UnexpectedToken as error:
        at = len(text) if error.token.type == "$END" else (error.token.start_pos or 0)
        what = "the end" if at == len(text) else repr(str(error.token))
        problem = f"{what} is not expected here, but {_expected(error.accepts)}"
        raise BadSpecError("L2", at, text, problem) from error
    except VisitError as error:
        raise error.orig_exc from error
    return cast(Parsed, found)


def _expected(names: Iterable[str]) -> str:
    return " or ".join(sorted({_SPELT.get(name, f'"{name.lower()}"') for name in names}))


_PARSER: Final = Lark(GRAMMAR, parser="lalr", start="spec", propagate_positions=True)


@v_args(inline=True)
class _Reader(Transformer[Token, Any]):
    """Builds a `Spec` from the leaves up."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def _bad(self, at: int | None, problem: str) -> BadSpecError:
        return BadSpecError("L3", at or 0, self._text, problem)

    def _number(self, token: Token, what: str) -> int:
        digits = token.lstrip("0")
        if not digits:
            raise self._bad(token.start_pos, f"{what} must be at least 1")
        if len(digits) > 8 or int(digits) > NUMBER_MAX:
            raise self._bad(token.start_pos, f"{what} must be at most {NUMBER_MAX}")
        return int(digits)

    def spec(self, *parts: _Part) -> Parsed:
        terms: list[Term] = []
        options: dict[str, Any] = {}
        spans: dict[str, Span] = {}
        for name, value, span in parts:
            if name == "term":
                spans[str(len(terms))], inner = span, value[1]
                if inner:
                    spans[f"{len(terms)}.fabric"] = inner
                terms.append(value[0])
            elif name in options:
                raise self._bad(span[0], f"{self._text[slice(*span)]!r} is said twice")
            else:
                options[name], spans[name] = value, span
        inferred = [at for at, term in enumerate(terms) if term.degree == INFERRED]
        if len(inferred) > 1:
            at = spans[str(inferred[1])][0]
            raise self._bad(at, 'one "*" at most: only one degree can be inferred')
        return Parsed(self._text, Spec(terms=tuple(terms), **options), spans)

    @v_args(inline=True, meta=True)
    def term(
        self,
        meta: Meta,
        name: Token,
        degree: int,
        chunks: Token | None,
        wish: tuple[Fabric, Span] | None,
    ) -> _Part:
        dim = cast(Dim, name.upper())
        if degree == INFERRED and dim not in ("DP", "FSDP"):
            raise self._bad(name.start_pos, f'"*" is for DP and FSDP, not for {dim}')
        if chunks is not None and dim != "PP":
            raise self._bad(chunks.start_pos, f"only a pipeline has chunks (PP4v2), not {dim}")
        count = 1 if chunks is None else self._number(chunks, "v")
        own, place = wish or (None, None)
        return "term", (Term(dim, degree, count, own), place), (meta.start_pos, meta.end_pos)

    def degree(self, token: Token) -> int:
        return INFERRED if token.type == "STAR" else self._number(token, "a degree")

    @v_args(inline=True, meta=True)
    def wish(
        self, meta: Meta, fabric: Fabric, force: tuple[Force, int] | None
    ) -> tuple[Fabric, Span]:
        if force is not None:
            fabric = replace(fabric, force=force[0], wait_s=force[1])
        return fabric, (meta.start_pos, meta.end_pos)

    def fabric(
        self,
        kind: Token,
        count: Token | None,
        width: Token | None,
        tier: tuple[Scope, int] | None,
    ) -> Fabric:
        if width is not None and kind.upper() != "NVL":
            problem = f"the width of an NVLink domain is for NVL, not for {kind.upper()}"
            raise self._bad(width.start_pos, problem)
        scope, level = tier or ("t", 0)
        return Fabric(
            kind=cast(FabricKind, kind.upper()),
            link_count=0 if count is None else self._number(count, "a number of links"),
            width=0 if width is None else self._number(width, "the width of a domain"),
            scope=scope,
            tier=level,
        )

    def tier(self, scope: Token, level: Token) -> tuple[Scope, int]:
        return ("g" if scope.lower() == "g" else "t"), self._number(level, "a tier")

    def force(self, mark: Token, wait: Token | None = None) -> tuple[Force, int]:
        wait_s = 0 if wait is None else self._number(wait, "a wait")
        return ("hard" if mark.type == "HARD" else "soft"), wait_s

    @v_args(inline=True, meta=True)
    def flag(self, meta: Meta, _: Token) -> _Part:
        return "sequence_parallel", True, (meta.start_pos, meta.end_pos)

    @v_args(inline=True, meta=True)
    def count(self, meta: Meta, name: Token, value: Token) -> _Part:
        number = self._number(value, name.lower())
        return _COUNTS[name.lower()], number, (meta.start_pos, meta.end_pos)

    @v_args(inline=True, meta=True)
    def order(self, meta: Meta, _: Token, value: Token) -> _Part:
        return "order", value.lower(), (meta.start_pos, meta.end_pos)
