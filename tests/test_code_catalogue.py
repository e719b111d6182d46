"""Promises of the catalogue of codes, row by row against the public ones it was made from."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nemesis.processors.attribution.code_catalogue import Code, code_rows
from nemesis.processors.attribution.kernel_messages import KernelMessage, parse
from nemesis.processors.attribution.kernel_rules import role_of
from nemesis.processors.attribution.nvlink5_table import NVLINK5_RULES
from nemesis.processors.attribution.sxid_table import SXIDS
from nemesis.processors.attribution.xid_table import XIDS
from nemesis.schemas.codes import ACTIONS
from tests.commands import nemesis

DATA = Path(__file__).parent.parent / "data" / "xid"
OCI: dict[str, Any] = json.loads((DATA / "oci_xid_catalog.json").read_text())
XID_ROWS: list[dict[str, Any]] = json.loads((DATA / "xid_catalog.json").read_text())["xids"]
SXID_ROWS: list[dict[str, Any]] = json.loads((DATA / "sxid_catalog.json").read_text())["sxids"]
BY_CODE: dict[tuple[str, str], Code] = {(row.family, row.code): row for row in code_rows()}
NVLINK5_ROWS = [
    (int(code), rule) for code, rules in OCI["nvl5_decoding_rules"].items() for rule in rules
]


@pytest.mark.parametrize("row", XID_ROWS, ids=lambda row: str(row["code"]))
def test_every_xid_of_the_public_catalogue_has_its_row(row: dict[str, Any]) -> None:
    known = XIDS[row["code"]]
    assert (known.immediate, known.investigate) == (row["immediate"], row["investigatory"])
    assert row["desc"].startswith(known.meaning[:20])
    told = BY_CODE["xid", str(row["code"])]
    assert told.meaning == known.meaning
    assert told.action in ACTIONS
    assert OCI["xid_error_catalog"].get(str(row["code"]), {}).get("action", "") in (
        row["immediate"],
        "",
    )


@pytest.mark.parametrize("row", SXID_ROWS, ids=lambda row: str(row["sxid"]))
def test_every_sxid_of_the_public_catalogue_has_its_row(row: dict[str, Any]) -> None:
    known = SXIDS[row["sxid"]]
    assert (known.potentially_fatal, known.always_fatal) == (
        row["potential_fatal"],
        row["always_fatal"],
    )
    told = BY_CODE["sxid", str(row["sxid"])]
    assert (told.severity == "fatal") == row["always_fatal"]


@pytest.mark.parametrize(("code", "rule"), NVLINK5_ROWS)
def test_every_nvlink5_interrupt_decodes_to_its_resolution(code: int, rule: dict[str, Any]) -> None:
    """As the driver of either layout prints it, for each value of the second register."""
    for layout in ("intr_info_binary_r575", "intr_info_binary_pre_r575"):
        info = int(rule[layout].replace("-", "0"), 2)
        for status in rule["error_status_hex"] or ["0x00000000"]:
            message = KernelMessage(
                kind="xid",
                code=code,
                device="0000:1b:00.0",
                severity="nonfatal",
                unit=rule["mnemonic"],
                registers=(info, int(status, 16)),
            )
            resolutions = {
                known.resolutions.get(int(status, 16), known.resolutions.get(-1, ""))
                for known in NVLINK5_RULES[code]
                if rule["mnemonic"] == known.unit
            } - {""}
            assert rule["resolution"] in resolutions
            if resolutions == {"IGNORE"}:
                assert role_of(message) is None
            if "IGNORE" not in resolutions:
                assert role_of(message) is not None


def test_what_follows_from_another_code_says_so_and_what_stands_for_itself_does_not() -> None:
    followers = {code for (family, code), row in BY_CODE.items() if family == "xid" and row.follows}
    assert {"43", "45", "74", "144", "145", "154"} <= followers
    assert not {"13", "31", "48", "79", "95", "119", "149"} & followers


@pytest.mark.parametrize("code", [48, 64, 79, 95, 119, 149])
def test_what_takes_a_gpu_out_is_fatal(code: int) -> None:
    assert BY_CODE["xid", str(code)].severity == "fatal"


@pytest.mark.parametrize("syndrome", ["0x1", "0x7", "0x8", "0x9", "0xa", "0xf", "0x10"])
def test_a_syndrome_of_an_adapter_is_read_as_grave_as_its_row_says(syndrome: str) -> None:
    line = f"mlx5_core 0000:63:00.0: print_health_info:430:(pid 0): synd {syndrome}: x"
    message = parse(line)
    is_fatal = message is not None and message.kind == "nic_fatal"
    assert is_fatal == (BY_CODE["nic", syndrome].severity == "fatal")


def test_every_row_has_a_meaning_and_a_source() -> None:
    assert all(row.meaning and row.source for row in code_rows())
    assert len(BY_CODE) == len(list(code_rows()))
    assert {family for family, _ in BY_CODE} == {"xid", "sxid", "aer", "nic"}


def test_the_words_of_a_code_are_told_to_their_end() -> None:
    for xid in XID_ROWS:
        first = xid["desc"].partition(" -- ")[0]  # what stands behind it are guesses
        assert BY_CODE["xid", str(xid["code"])].meaning == first


def test_a_code_is_looked_up_by_its_number_and_an_unknown_one_is_said_to_be() -> None:
    told = nemesis("codes", "145")
    assert told.returncode == 0
    assert "may only follow" in told.stdout
    assert "docs.nvidia.com" in told.stdout
    rows = msgspec.json.decode(nemesis("codes", "nic", "--json").stdout)
    assert {row["family"] for row in rows} == {"nic"}
    for typed in (("Xid", "145"), ("xid:145",)):
        assert nemesis("codes", *typed).stdout == told.stdout
    assert "reset_gpu is the first step for the device by this code alone" in told.stdout
    unknown = nemesis("codes", "99999")
    assert unknown.returncode == 3
    assert "no code '99999' is known, expected 79" in unknown.stderr
