"""Promises of `nemesis demo`: each fault is found and survived, and nothing is left behind."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nemesis.schemas.rank_ranges import parse_ranks
from nemesis.sim.agent import Done, read_journal
from nemesis.sim.faults.scenario import scenarios
from nemesis.sim.topology.cluster_file import load_cluster
from nemesis.sim.truth.consistency import contradictions
from nemesis.sim.truth.ledger_file import read_ledger_file
from nemesis.streams.server import ServerInfo, running
from tests.commands import processes_of

pytestmark = pytest.mark.server
CLUSTER = load_cluster()
SPEED = "4"
LIMIT_S = 100.0


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "nemesis.cli", "demo", *options]


def environment(state: Path) -> dict[str, str]:
    return {**os.environ, "NEMESIS_STATE_DIR": str(state), "PYTHONUNBUFFERED": "1"}


def run(state: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """(exit status, the document) of a run in a cell of its own."""
    done = subprocess.run(
        command("--json", "--speed", SPEED, *options),
        env=environment(state),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def effects(state: Path) -> list[Done]:
    agents = state / "demo" / "agents"
    return [each for node in CLUSTER.node_names for each in read_journal(agents / node)]


def facts(document: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [each["data"] for each in document["facts"] if each["fact"] == kind]


@pytest.mark.parametrize(
    ("scenario", "named", "recovery"),
    [
        ("gpu-off-bus", ("gpu.off_bus", "gpu/n011/0000:43:00.0"), ("shrink", 111)),
        ("gpu-memory", ("gpu.memory", "gpu/n011/0000:43:00.0"), ("shrink", 111)),
        ("rank-exit", ("unknown", "rank/llama/81"), ("restart_rank", 112)),
        ("node-lost", ("unknown", "node/n011"), ("shrink", 104)),
    ],
)
def test_a_fault_is_named_and_survived(
    tmp_path: Path, scenario: str, named: tuple[str, str], recovery: tuple[str, int]
) -> None:
    action, world = recovery
    status, document = run(tmp_path, "--scenario", scenario)
    score = document["score"]
    assert (status, document["passed"]) == (0, True), score
    verdict = next(v for v in facts(document, "fault_attributed") if v.get("culprits"))
    assert (verdict["fault_class"], verdict["culprits"][0]["id"]) == named
    assert verdict["evidence"]
    decided = [d for d in facts(document, "recovery_decided") if d.get("members")]
    assert decided[-1]["action"] == action
    assert len(parse_ranks(decided[-1]["members"])) == world == score["world"]
    assert score["faults"][0]["wrong_blame"] == score["false_alarms"] == []
    assert score["steps_redone_count"] == 0
    assert score["restarts_count"] == (1 if action == "restart_rank" else 0)
    times = score["faults"][0]
    assert 0 <= times["to_verdict_ms"] <= times["to_resume_ms"]
    assert_every_effect_happened_once(tmp_path, document, decided[-1])


def test_a_fault_that_only_a_switch_explains_is_named_by_its_port(tmp_path: Path) -> None:
    status, document = run(tmp_path, "--scenario", "leaf-port-down")
    assert (status, document["passed"]) == (0, True), document["score"]
    verdicts = facts(document, "fault_attributed")
    assert [each["id"] for each in verdicts[-1]["culprits"]] == ["port/leaf03/18"]


def assert_every_effect_happened_once(
    state: Path, document: dict[str, Any], decided: dict[str, Any]
) -> None:
    """Each member entered the epoch once, in whatever way, and no outcome was written twice."""
    entered = Counter(
        each.rank
        for each in effects(state)
        if each.doing in ("join", "start") and each.epoch == decided["epoch"]
    )
    assert entered == dict.fromkeys(parse_ranks(decided["members"]), 1)
    ended = Counter(each["decision"] for each in facts(document, "attempt_completed"))
    assert ended[decided["decision"]] == 1
    assert set(ended.values()) == {1}


@pytest.mark.parametrize("part", ["healer", "attribution", "job-actor"])
def test_without_a_part_of_it_the_job_does_not_recover_and_the_run_says_so(
    tmp_path: Path, part: str
) -> None:
    status, document = run(tmp_path, "--without", part, "--duration", "16")
    if part == "attribution":  # a dead rank alone is enough to restart it, whoever is to blame
        assert not document["score"]["faults"][0]["detected"]
    else:
        assert not document["score"]["recovered"]
        assert [e.doing for e in effects(tmp_path)] == ["fence"]
    assert (status, document["passed"]) == (1, False)


def test_the_story_names_fault_verdict_decision_shrink_and_score(tmp_path: Path) -> None:
    ledger = tmp_path / "demo.ledger.ndjson"
    done = subprocess.run(
        command("--speed", SPEED, "--ledger", str(ledger)),
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    written = read_ledger_file(ledger)
    assert [each.kind for each in written.faults] == ["xid79"]
    assert contradictions(written) == []
    told = [line.split(maxsplit=2)[1:] for line in done.stdout.splitlines() if line[:2].isdigit()]
    # survivors of a dead rank are held at once, whether the verdict is there yet or not
    (held,) = [at for at, (_, text) in enumerate(told) if text.startswith("hold llama")]
    assert told.pop(held)[0] == "DECISION"
    assert held < [label for label, _ in told].index("SHRINK")
    order = list(dict.fromkeys(label for label, _ in told))
    assert order[:4] == ["LEDGER", "VERDICT", "DECISION", "SHRINK"]
    assert "SCORE" in done.stdout
    assert "NEMESIS cannot see this line" in done.stdout
    assert "\x1b[" not in done.stdout


def test_scenarios_are_named_and_an_unknown_one_is_refused() -> None:
    listed = subprocess.run(command("--list", "--json"), capture_output=True, text=True, check=True)
    assert [each["name"] for each in json.loads(listed.stdout)] == [
        each.name for each in scenarios()
    ]
    meteor = command("--scenario", "meteor")
    refused = subprocess.run(meteor, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "gpu-off-bus" in refused.stderr


@contextmanager
def started(state: Path, until: str) -> Iterator[subprocess.Popen[str]]:
    """A run without end in a process group of its own, once it has printed `until`."""
    process = subprocess.Popen(
        command("--speed", SPEED, "--follow"),
        env=environment(state),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    watchdog = threading.Timer(LIMIT_S, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if until in line:
                break
        yield process
    finally:
        watchdog.cancel()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def serving(state: Path) -> ServerInfo:
    info = running(state / "demo")
    assert info is not None
    return info


@pytest.mark.parametrize("until", ["policy:", "LEDGER", "SHRINK"])
def test_ctrl_c_at_any_moment_leaves_no_process_and_no_port(tmp_path: Path, until: str) -> None:
    with started(tmp_path, until) as process:
        port = 0
        if until != "policy:":
            port = int(serving(tmp_path).url.rpartition(":")[2])
            assert len(processes_of(tmp_path)) >= 3
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 130
        assert "Traceback" not in output
    assert processes_of(tmp_path) == []
    if port:
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_a_second_start_says_what_already_runs(tmp_path: Path) -> None:
    with started(tmp_path, "LEDGER"):
        url = serving(tmp_path).url
        second = subprocess.run(
            command(),
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    assert second.returncode == 3
    assert "already runs" in second.stderr
    assert url in second.stderr
    assert "nemesis status --cell demo" in second.stderr


def test_a_killed_demo_takes_its_server_and_processes_along(tmp_path: Path) -> None:
    with started(tmp_path, "LEDGER") as process:
        process.kill()
        process.communicate(timeout=LIMIT_S)
    deadline = threading.Event()
    for _ in range(300):
        if not processes_of(tmp_path):
            break
        deadline.wait(0.1)
    assert processes_of(tmp_path) == []
