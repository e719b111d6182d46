"""Promises of the scenarios: right answers in virtual time, each log replays, files are checked."""

import re
from pathlib import Path
from typing import get_args

import pytest

from nemesis.sim.faults.courses import plan_faults
from nemesis.sim.faults.plan import OnGpu, OnNic
from nemesis.sim.faults.planned import KINDS, FaultPlanned
from nemesis.sim.faults.scenario import (
    BadScenarioError,
    load_scenario,
    scenario_named,
)
from nemesis.sim.offline import run_offline
from tests.scenario_runs import CLUSTER, NAMES, run_of

ROOT = Path(__file__).parent.parent
GOOD = """
title = "a GPU falls off the bus"
[[fault]]
kind = "xid79"
after_s = 3.0
[fault.right]
classes = ["gpu.off_bus"]
components = ["{gpu}"]
actions = ["shrink"]
"""


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_gets_its_right_answer_and_replays(name: str) -> None:
    run = run_of(name)
    assert run.score.passed, run.score
    real = [each for each in run.score.faults if not each.is_decoy]
    assert all(each.culprit_right for each in real)
    assert bool(real) != (name == "quiet-day")
    assert run.replay().verdict == "equal"


def test_the_release_has_every_scenario_that_was_decided_upon() -> None:
    (decision,) = (ROOT / "docs" / "decisions").glob("0009-*.md")
    named = re.findall(r"^\| `([a-z-]+)` \|", decision.read_text(), re.MULTILINE)
    assert len(NAMES) == 12
    assert set(NAMES) <= set(named)


def test_on_a_quiet_day_nothing_is_said_and_nothing_decided() -> None:
    kinds = {fact.kind for fact in run_of("quiet-day").facts}
    assert kinds.isdisjoint({"fault_attributed", "recovery_decided", "quiesce_decided"})
    assert "processor_activated" in kinds


def test_equal_seeds_make_equal_logs(tmp_path: Path) -> None:
    first, second = (
        run_offline(CLUSTER, scenario_named("gpu-off-bus"), seed=3, folder=tmp_path / each)
        for each in ("a", "b")
    )
    assert first.records == second.records
    assert first.records != run_of("gpu-off-bus").records


def test_a_file_of_ones_own_is_a_scenario_named_by_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    mine = scenario_named(str(path))
    assert (mine.name, mine.faults[0].kind) == ("mine", "xid79")
    assert run_offline(CLUSTER, mine, seed=1, folder=tmp_path / "run").score.passed


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("after_s = 3.0", "after_s = -3.0", r"fault\[0\].after_s: -3.0: "),
        ("after_s = 3.0", 'after_s = "soon"', r"fault\[0\].after_s: 'soon': "),
        ("after_s = 3.0", "after_s = 3.0\ngpus = 2", r"fault\[0\]: .*gpus"),
        ('kind = "xid79"', 'kind = "xid80"', r"fault\[0\].kind: 'xid80': no such kind.*xid79"),
        ('"gpu.off_bus"', '"gpu.off_buss"', r"fault\[0\].right.classes\[0\]: 'gpu.off_buss': "),
        ('title = "a GPU falls off the bus"', "", r"missing required field `title`"),
        ('title = "a GPU falls off the bus"', 'title = "x"\nname = "y"', r"name: leave it out"),
        ("[[fault]]", "[[fault", r"mine.toml"),
        ("after_s = 3.0", "after_s = inf", r"fault\[0\].after_s: inf"),
        ("after_s = 3.0", "after_s = nan", r"fault\[0\].after_s: nan"),
        ("after_s = 3.0", f"after_s = {'9' * 5000}", r"mine.toml: "),
        ("after_s = 3.0", f"after_s = {'[' * 9999}", r"nested too deeply"),
        ("after_s = 3.0", f"#{' ' * 2**20}", r"more than 1048576 bytes"),
    ],
)
def test_a_file_that_cannot_be_run_names_its_field_and_value(
    tmp_path: Path, before: str, after: str, says: str
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD.replace(before, after, 1))
    with pytest.raises(BadScenarioError, match=says) as refused:
        load_scenario(path)
    assert str(path) in refused.value.message
    assert "\n" not in refused.value.message


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("after_s = 3.0", 'after_s = 3.0\nnode = "n099"', r"'n099': no such node.*n001 to n016"),
        ("after_s = 3.0", "after_s = 3.0\ngpu = 8", r"8: a node has 8"),
        ("after_s = 3.0", "after_s = 3.0\nrank = 112", r"112: the job has 112"),
        ("{gpu}", "{gpus}", r"'{gpus}': no such name.*{gpu}"),
    ],
)
def test_a_target_that_the_cluster_does_not_have_is_refused(
    tmp_path: Path, before: str, after: str, says: str
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD.replace(before, after, 1))
    with pytest.raises(BadScenarioError, match=says):
        plan_faults(CLUSTER, load_scenario(path).faults, 7)


def test_the_example_of_the_document_is_a_scenario_and_it_names_every_one_and_every_kind(
    tmp_path: Path,
) -> None:
    text = (ROOT / "docs" / "scenarios.md").read_text()
    example = re.search(r"```toml\n(.*?)```", text, re.DOTALL)
    assert example is not None
    path = tmp_path / "mine.toml"
    path.write_text(example[1])
    assert [each.kind for each in load_scenario(path).faults] == ["nic-flap", "corrected-errors"]
    tables = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    named = {word for cell in tables for word in re.findall(r"`([a-z0-9-]+)`", cell)}
    assert named >= {*NAMES, *KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_the_document_tells_every_parameter_of_a_kind_with_its_default(kind: str) -> None:
    _, _, text = (ROOT / "docs" / "scenarios.md").read_text().partition("| kind |")
    (struct,) = [each for each in get_args(FaultPlanned) if each.__struct_config__.tag == kind]
    (row,) = [each for each in text.splitlines() if _is_of_kind(each, kind)]
    own = set(struct.__struct_fields__) - {*OnGpu.__struct_fields__, *OnNic.__struct_fields__}
    assert set(re.findall(r"`([a-z_]+)` ", row.split("|")[3])) == own
    for field in own:
        default = struct.__struct_defaults__[
            struct.__struct_fields__.index(field) - len(struct.__struct_fields__)
        ]
        told = re.search(rf"`{field}` (\S+?)(,| |$)", row.split("|")[3].strip())
        assert told is not None
        assert told[1] == _shown(default)


def _shown(default: object) -> str:
    match default:
        case bool():
            return str(default).lower()
        case str():
            return f'"{default}"'
        case float():
            return f"{default:g}"
        case _:
            return str(default)


def _is_of_kind(row: str, kind: str) -> bool:
    """Whether this is the kind's row, in a table whose third column tells parameters."""
    cells = row.split("|")
    return len(cells) == 5 and f"`{kind}`" in cells[1]


def test_a_scenario_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(BadScenarioError, match="gpu-off-bus"):
        scenario_named("meteor")
    with pytest.raises(BadScenarioError, match="/no/such"):
        scenario_named("/no/such.toml")


def test_a_run_of_decoys_alone_must_say_how_long_it_takes(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'title = "x"\n[[fault]]\nkind = "slow-step"\nafter_s = 1.0\nright = "nothing"\n'
    )
    with pytest.raises(BadScenarioError, match="duration_s"):
        load_scenario(path)
