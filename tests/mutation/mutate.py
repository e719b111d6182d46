"""mutmut, with operators that it lacks: dropped statements, negated conditions, lost results.

A script of its own and no module of `tests`: the tests that judge a mutant must import the copy of
`tests` in mutants/, so the original must not be loaded before them.
"""

from collections.abc import Iterable

import libcst as cst
from mutmut.__main__ import cli
from mutmut.mutation.mutators import mutation_operators
from mutmut.runners.harness import PytestRunner
from mutmut.state import state
from mutmut.workers import isolation


def dropped(node: cst.Expr) -> Iterable[cst.Pass]:
    """A call for its effect is forgotten; an expression of a docstring has no effect."""
    if isinstance(node.value, cst.Call | cst.Await):
        yield cst.Pass()


def negated(node: cst.If | cst.While | cst.CompIf) -> Iterable[cst.CSTNode]:
    """A condition means its opposite; comparisons are swapped by mutmut itself."""
    if not isinstance(node.test, cst.Comparison | cst.UnaryOperation):
        wrapped = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        yield node.with_changes(test=cst.UnaryOperation(cst.Not(), wrapped))


def lost(node: cst.Return) -> Iterable[cst.Return]:
    """A result is forgotten."""
    if node.value is not None and not (
        isinstance(node.value, cst.Name) and node.value.value == "None"
    ):
        yield node.with_changes(
            value=cst.Name("None"), whitespace_after_return=cst.SimpleWhitespace(" ")
        )


mutation_operators.extend(  # type: ignore[attr-defined]
    [
        (cst.Expr, dropped),
        (cst.If, negated),
        (cst.While, negated),
        (cst.CompIf, negated),
        (cst.Return, lost),
    ]
)


class FastestFirst(PytestRunner):
    """Most mutants die in a test of milliseconds: the slow ones need not look for them first."""

    def _pytest_args_regular_run(self, tests: Iterable[str]) -> list[str]:
        durations = state().duration_by_test
        return super()._pytest_args_regular_run(
            sorted(tests, key=lambda test: (durations.get(test, 0), test))
        )


if __name__ == "__main__":
    isolation.PytestRunner = FastestFirst  # type: ignore[attr-defined]
    cli()
