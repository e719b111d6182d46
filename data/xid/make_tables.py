"""Make the tables of Xid, SXid and NVLink5 errors of processors/attribution/ from the catalogues.

Run `python data/xid/make_tables.py` after a change of a catalogue; `--check` says by its exit
status whether the tables are up to date.
"""

import json
import sys
import textwrap
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
PROCESSORS: Final = HERE.parent.parent / "processors" / "attribution"
WIDTH: Final = 100

XID_HEAD: Final = '''"""NVIDIA's Xid codes. Made by data/xid/make_tables.py; edit the catalogue."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Xid(NamedTuple):
    """What NVIDIA says of an Xid."""

    meaning: str
    immediate: str
    """NVIDIA's bucket: what to do at once."""
    investigate: str
    """NVIDIA's bucket: what to look into afterwards."""


'''
NVLINK5_HEAD: Final = '''"""NVLink5 errors. Made by data/xid/make_tables.py; edit the catalogue."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Nvlink5Rule(NamedTuple):
    """How one interrupt of an NVLink5 unit is to be taken."""

    unit: str
    info_mask: int
    info: int
    """Bits of the first register, as drivers from r575 on lay them out."""
    old_info_mask: int
    old_info: int
    """The same for drivers before r575."""
    resolutions: Mapping[int, str]
    """By the value of the second register; ANY_STATUS where none is told apart."""


ANY_STATUS: Final = -1

'''
SXID_HEAD: Final = '''"""NVSwitch errors. Made by data/xid/make_tables.py; edit the catalogue."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Sxid(NamedTuple):
    """What NVIDIA says of an SXid."""

    meaning: str
    potentially_fatal: bool
    """To the port or to the partition behind it."""
    always_fatal: bool
    """To the whole fabric of the node."""


'''


def xid_table() -> str:
    """The text of processors/attribution/xid_table.py."""
    xids = _load("xid_catalog.json")["xids"]
    _agree(xids, _load("oci_xid_catalog.json")["xid_error_catalog"])
    lines = ["XIDS: Final[Mapping[int, Xid]] = {"]
    for xid in sorted(xids, key=lambda each: each["code"]):
        meaning = xid["desc"].partition(" -- ")[0]
        values = (meaning, xid["immediate"], xid["investigatory"])
        lines += _entry(f"{xid['code']}: Xid", [_quoted(value) for value in values])
    return XID_HEAD + "\n".join([*lines, "}", ""])


def nvlink5_table() -> str:
    """The text of processors/attribution/nvlink5_table.py."""
    rules = _load("oci_xid_catalog.json")["nvl5_decoding_rules"]
    lines = ["# fmt: off", "NVLINK5_RULES: Final[Mapping[int, tuple[Nvlink5Rule, ...]]] = {"]
    for code in sorted(rules, key=int):
        lines.append(f"    {code}: (")
        grouped: dict[tuple[str, ...], dict[str, str]] = {}
        for rule in rules[code]:
            new, old = (
                _bits(rule["intr_info_binary_r575"]),
                _bits(rule["intr_info_binary_pre_r575"]),
            )
            resolutions = grouped.setdefault((_quoted(rule["mnemonic"]), *new, *old), {})
            for status in rule["error_status_hex"] or [None]:
                key = "ANY_STATUS" if status is None else f"0x{int(status, 16):08X}"
                resolutions[key] = rule["resolution"]
        for head, resolutions in grouped.items():
            listed = ", ".join(f"{key}: {_quoted(value)}" for key, value in resolutions.items())
            lines += [f"        Nvlink5Rule({head[0]},", f"            {', '.join(head[1:])}, {{"]
            lines += textwrap.wrap(
                listed, WIDTH, initial_indent=" " * 12, subsequent_indent=" " * 12
            )
            lines.append("        }),")
        lines.append("    ),")
    return NVLINK5_HEAD + "\n".join([*lines, "}", "# fmt: on", ""])


def sxid_table() -> str:
    """The text of processors/attribution/sxid_table.py."""
    lines = ["SXIDS: Final[Mapping[int, Sxid]] = {"]
    for sxid in sorted(_load("sxid_catalog.json")["sxids"], key=lambda each: each["sxid"]):
        fatal = (str(sxid["potential_fatal"]), str(sxid["always_fatal"]))
        lines += _entry(f"{sxid['sxid']}: Sxid", [_quoted(sxid["name"]), *fatal])
    return SXID_HEAD + "\n".join([*lines, "}", ""])


def _load(name: str) -> Any:
    return json.loads((HERE / name).read_text(encoding="utf-8"))


def _agree(xids: list[dict[str, Any]], others: dict[str, dict[str, str]]) -> None:
    ours = {str(xid["code"]): xid["immediate"] for xid in xids}
    theirs = {code: other["action"] for code, other in others.items()}
    differing = {
        code: (bucket, theirs.get(code))
        for code, bucket in ours.items()
        if bucket and theirs.get(code) not in (bucket, None)
    }
    if differing:
        sys.exit(f"the catalogues disagree: {differing}")


def _bits(pattern: str) -> tuple[str, str]:
    """(mask, value) of a pattern of 0, 1 and - for any, most significant bit first."""
    mask = int("".join("0" if bit == "-" else "1" for bit in pattern), 2)
    return f"0x{mask:08X}", f"0x{int(pattern.replace('-', '0'), 2):08X}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _entry(head: str, values: list[str]) -> list[str]:
    """One entry as the formatter would print it."""
    pad = " " * 4
    line = f"{pad}{head}({', '.join(values)}),"
    if len(line) <= WIDTH:
        return [line]
    inner = f"{pad}    {', '.join(values)}"
    if len(inner) <= WIDTH:
        return [f"{pad}{head}(", inner, f"{pad}),"]
    return [f"{pad}{head}(", *(f"{pad}    {value}," for value in values), f"{pad}),"]


def main(arguments: list[str]) -> int:
    """Write the tables, or only compare them."""
    tables = {
        "nvlink5_table.py": nvlink5_table(),
        "sxid_table.py": sxid_table(),
        "xid_table.py": xid_table(),
    }
    stale = [
        name
        for name, text in tables.items()
        if not (PROCESSORS / name).exists() or (PROCESSORS / name).read_text("utf-8") != text
    ]
    if "--check" in arguments:
        return 1 if stale else 0
    for name in stale:
        (PROCESSORS / name).write_text(tables[name], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
