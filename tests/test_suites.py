"""Promises of suites: the same runs for anybody, nothing run twice, nothing mixed."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from nemesis.sim.faults.courses import plan_faults
from nemesis.sim.offline import START_NS
from nemesis.sim.params import DEFAULT, load_params
from nemesis.sim.suite import CannotKeepError, Options, folder_of, run_suite
from nemesis.sim.truth.consistency import contradictions
from nemesis.sim.truth.drawn import REAL_KINDS, draw
from nemesis.sim.truth.ledger import injected
from nemesis.sim.truth.ledger_file import ledger_of, opening
from nemesis.sim.truth.suites import BadSuiteError, Suite, load_suite, suite_named, suites
from tests.commands import nemesis

BASIC = suite_named("basic")


def options(folder: Path, *, seeds_count: int = 2, keep: bool = False) -> Options:
    return Options(suite=BASIC, folder=folder, seeds_count=seeds_count, keep=keep)


@pytest.mark.parametrize("suite", suites(), ids=lambda each: each.name)
def test_every_run_of_a_suite_follows_from_its_seed(suite: Suite) -> None:
    drawn = [draw(suite, seed, load_params()) for seed in range(1, 6)]
    assert drawn == [draw(suite, seed, load_params()) for seed in range(1, 6)]
    assert len({msgspec.json.encode(each.scenario) for each in drawn}) == 5


def test_five_hundred_drawn_incidents_agree_with_the_rules_of_their_ledgers() -> None:
    said: list[str] = []
    kinds: set[str] = set()
    every = suites()
    for number in range(500):
        suite = every[number % len(every)]
        seed = suite.first_seed + number
        drawn = draw(suite, seed, load_params())
        faults = plan_faults(drawn.cluster, drawn.scenario.faults, seed)
        kinds |= {each.kind for each in faults}
        opened = opening(
            drawn.cluster, drawn.scenario, seed=seed, start_ns=START_NS, params_sha256="a"
        )
        ended_ns = START_NS + round(drawn.scenario.duration_s * 1e9)
        ledger = ledger_of(opened, [injected(each, START_NS) for each in faults], ended_ns)
        said += [f"{suite.name} {seed}: {each}" for each in contradictions(ledger)]
    assert said == []
    assert set(REAL_KINDS) - kinds <= set(), "a kind that no suite ever draws"


def test_a_suite_runs_to_the_same_bytes_in_one_process_or_two(tmp_path: Path) -> None:
    alone = list(run_suite(options(tmp_path / "one"), jobs_count=1))
    together = list(run_suite(options(tmp_path / "two"), jobs_count=2))
    assert msgspec.json.encode(alone) == msgspec.json.encode(together)
    assert [each.seed for each in alone] == [1, 2]


def test_a_run_that_is_done_is_not_run_again(tmp_path: Path) -> None:
    (first,) = run_suite(options(tmp_path, seeds_count=1), jobs_count=1)
    kept = tmp_path / "00001.json"
    kept.write_bytes(msgspec.json.encode(msgspec.structs.replace(first, scenario="kept")))
    (again,) = run_suite(options(tmp_path, seeds_count=1), jobs_count=1)
    assert again.scenario == "kept"


def test_a_run_whose_file_is_damaged_is_run_again(tmp_path: Path) -> None:
    (first,) = run_suite(options(tmp_path, seeds_count=1), jobs_count=1)
    (path,) = tmp_path.glob("*.json")
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    assert list(run_suite(options(tmp_path, seeds_count=1), jobs_count=1)) == [first]
    assert path.read_bytes() == whole


def test_a_folder_that_takes_no_runs_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        CannotKeepError, match=r"cannot make .*file/runs: Not a directory"
    ) as refused:
        next(run_suite(options(tmp_path / "file" / "runs"), jobs_count=1))
    assert "--out" in refused.value.hint


def test_processes_of_a_suite_that_fails_end_with_one_line(tmp_path: Path) -> None:
    folder = folder_of(BASIC, DEFAULT, tmp_path)
    for seed in (1, 2):
        (folder / f"{seed:05d}.json").mkdir(parents=True)
    command = [sys.executable, "-m", "nemesis.cli", "suite", "run", "basic", "--seeds", "2"]
    command += ["--jobs", "2", "--out", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 2
    assert ran.stderr.startswith(f"nemesis: cannot read {folder}/00001.json: Is a directory")
    assert ran.stderr.count("\n") == 1


def test_a_folder_of_folders_of_runs_says_which_to_name(tmp_path: Path) -> None:
    (tmp_path / "basic-0").mkdir()
    (tmp_path / "basic-0" / "00001.json").write_text("{}")
    above = nemesis("score", str(tmp_path))
    assert above.returncode == 2
    assert f"runs are kept in {tmp_path}/basic-0: name one of these" in above.stderr


def test_a_run_that_is_not_there_is_called_so(tmp_path: Path) -> None:
    missing = nemesis("score", str(tmp_path / "nowhere"))
    assert missing.returncode == 2
    assert "nowhere: no such file or folder, expected a recording" in missing.stderr


def test_other_parameters_have_another_folder(tmp_path: Path) -> None:
    changed = tmp_path / "params.toml"
    changed.write_bytes(DEFAULT.read_bytes() + b"# another source\n")
    assert folder_of(BASIC, DEFAULT, tmp_path) != folder_of(BASIC, changed, tmp_path)


def test_a_kept_run_scores_as_it_did_and_is_void_under_other_parameters(tmp_path: Path) -> None:
    (run,) = run_suite(options(tmp_path, seeds_count=1, keep=True), jobs_count=1)
    recording = tmp_path / "00001.ndjson.zst"
    scored = nemesis("score", str(recording), "--json")
    assert scored.stderr == ""
    document = msgspec.json.decode(scored.stdout)
    assert document["top1"]["count"] == sum(each.right_at == 0 for each in run.score.faults)
    assert document["params_sha256"] == run.params_sha256
    assert nemesis("replay", str(recording)).returncode == 0
    changed = tmp_path / "params.toml"
    changed.write_bytes(DEFAULT.read_bytes() + b"# another source\n")
    void = nemesis("score", str(recording), "--params", str(changed))
    assert void.returncode == 1
    assert void.stdout.startswith("VOID: made with parameters")


def test_a_suite_that_cannot_be_run_is_refused_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(BadSuiteError, match="no suite 'nothing', expected a file"):
        suite_named("nothing")
    file = tmp_path / "mine.toml"
    file.write_text('title = "mine"\n[faults]\nkinds = ["xid80"]\n')
    with pytest.raises(BadSuiteError, match="no kind 'xid80'"):
        load_suite(file)
    file.write_text('title = "mine"\nseeds_count = 0\n')
    with pytest.raises(BadSuiteError, match=r"mine.toml: seeds_count: 0: expected"):
        load_suite(file)
    file.write_text('title = "mine"\nseeds = 3\n')
    with pytest.raises(BadSuiteError, match="unknown field `seeds`"):
        load_suite(file)


def test_the_command_lists_what_there_is_and_prints_one_document(tmp_path: Path) -> None:
    assert {each["name"] for each in msgspec.json.decode(nemesis("suite", "list", "--json").stdout)}
    ran = nemesis(
        "suite", "run", "quiet", "--seeds", "1", "--jobs", "1", "--out", str(tmp_path), "--json"
    )
    assert ran.returncode == 0, ran.stderr
    document = msgspec.json.decode(ran.stdout)
    assert (document["runs_count"], document["faults_count"]) == (1, 0)
    assert document["alarms"]["gpu_ms"] > 0
