"""Promises of `nemesis sim`: a question about a cluster has an answer in seconds, and a status."""

from pathlib import Path

import msgspec
import pytest

from nemesis.sim.faults.scenario import BadScenarioError, load_scenario
from nemesis.sim.truth.assertions import Assertion, held
from tests.commands import nemesis
from tests.test_sim_score import SECOND, verdict

PORT = """
title = "a port of leaf 1 drops"
[[fault]]
kind = "port-down"
after_s = 8.0
port = "leaf01/3"
[fault.right]
classes = ["network.link"]
components = ["{port}", "{link}"]
actions = ["shrink", "swap_node"]
harmless = ["{node}", "{rank}", "{nic}"]
"""
NAMED = """
[[assert]]
fact = "fault_attributed"
names = "port/leaf01/*"
where = { fault_class = "network.*" }
within_s = 30
"""
UNTOUCHED = """
[[assert]]
fact = "recovery_decided"
at_least = 0
at_most = 0
"""


def scenario(folder: Path, text: str) -> str:
    path = folder / "leaf.toml"
    path.write_text(text)
    return str(path)


def test_what_followed_is_told_and_what_was_asserted_holds(tmp_path: Path) -> None:
    ran = nemesis("sim", "--scenario", scenario(tmp_path, PORT + NAMED))
    assert ran.returncode == 0, ran.stdout
    told = ran.stdout.splitlines()
    assert any("VERDICT" in line and "port/leaf01/3" in line for line in told)
    assert any(line.startswith("holds  fault_attributed naming port/leaf01/*") for line in told)


def test_what_does_not_hold_ends_with_one_and_says_how_often(tmp_path: Path) -> None:
    ran = nemesis("sim", "--scenario", scenario(tmp_path, PORT + NAMED + UNTOUCHED), "--json")
    assert ran.returncode == 1
    document = msgspec.json.decode(ran.stdout)
    assert [each["holds"] for each in document["assertions"]] == [True, False]
    assert document["concluded"]["recovery_decided"] == document["assertions"][1]["count"] == 1
    assert document["score"]["faults"][0]["culprit"] == "port/leaf01/3"


def test_what_a_scenario_asserts_is_all_that_it_expects_unless_it_says_more(tmp_path: Path) -> None:
    asserting = load_scenario(Path(scenario(tmp_path, PORT + NAMED)))
    assert not asserting.expect.goes_on
    more = load_scenario(Path(scenario(tmp_path, PORT + NAMED + "[expect]\nworld_min = 4\n")))
    assert (more.expect.goes_on, more.expect.world_min) == (True, 4)
    assert load_scenario(Path(scenario(tmp_path, PORT))).expect.goes_on


def test_a_run_is_written_so_that_it_can_be_scored_and_replayed(tmp_path: Path) -> None:
    recording, ledger = tmp_path / "leaf.ndjson.zst", tmp_path / "leaf.ledger.ndjson"
    ran = nemesis(
        "sim",
        "--scenario",
        scenario(tmp_path, PORT),
        "--record",
        str(recording),
        "--ledger",
        str(ledger),
    )
    assert ran.returncode == 0, ran.stdout
    scored = msgspec.json.decode(nemesis("score", str(recording), "--json").stdout)
    assert (scored["top1"]["count"], scored["contradictions_count"]) == (1, 0)
    assert nemesis("replay", str(recording)).returncode == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[[assert]]\nfact = "fault_atributed"\n', "no such fact"),
        ('[[assert]]\nfact = "fault_attributed"\nwhere = { clas = "x" }\n', "no field"),
        ("[[assert]]\nat_least = 1\n", "fact"),
        ('[[assert]]\nfact = "fault_attributed"\nat_most = 0\n', "cannot both hold"),
        ('[[assert]]\nfact = "fault_attributed"\nnames = "{nic}"\n', "without braces"),
    ],
)
def test_an_assertion_that_could_never_fail_or_never_hold_is_refused(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises(BadScenarioError, match=says):
        load_scenario(Path(scenario(tmp_path, PORT + text)))


def test_what_was_concluded_before_a_fault_began_follows_from_none() -> None:
    said = [verdict(at_s, "gpu/n006/0000:9d:00.0") for at_s in (90, 105, 140)]
    asserted = (Assertion(fact="fault_attributed"), Assertion(fact="fault_attributed", within_s=30))
    since = held(asserted, said, began_ns=100 * SECOND, onset_ns=108 * SECOND)
    assert [each.count for each in since] == [2, 1]
    later = held(asserted, said, began_ns=141 * SECOND, onset_ns=141 * SECOND)
    assert [each.holds for each in later] == [False, False]
