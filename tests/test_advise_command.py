"""Promises of `nemesis advise`: words, what the rules said of each proposal, and what it cost."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nemesis.streams.crew import commands
from nemesis.streams.log import Log
from tests.advising import SECRET
from tests.commands import Ran, nemesis
from tests.messages_server import MessagesServer, Turn, calls, explains, messages_server

CLUSTER = ("--cluster", "superpod-h100", "--gpus", "64")


def advise(server: MessagesServer, tmp_path: Path, *arguments: str, **variables: str) -> Ran:
    """The command against a stand-in, the key in the environment."""
    file = tmp_path / "advisor.toml"
    file.write_text(f'base_url = "{server.url}"\n')
    key = {"ANTHROPIC_API_KEY": SECRET, **variables}
    return nemesis("advise", *arguments, *CLUSTER, "--settings", str(file), **key)


def test_a_rejected_description_is_explained_and_another_one_offered(tmp_path: Path) -> None:
    with messages_server(
        calls("schedule", job="the-job", spec="tp8+dp9", why="Nine replicas."),
        calls("schedule", job="the-job", spec="tp8+dp8", why="Eight replicas fill 64 GPUs."),
        explains("TP8 with 8 replicas fills your 64 GPUs; with 3 it does not."),
    ) as server:
        ran = advise(server, tmp_path, "TP8+DP3")
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.splitlines() == [
            "Rejected:",
            "W1: TP8·DP3 = 24, not 64 GPUs; DP 3 -> 8",
            "advice:",
            "  TP8 with 8 replicas fills your 64 GPUs; with 3 it does not.",
            "  offer TP8+DP9: refused by W1: TP8·DP9 = 72, not 64 GPUs; DP 9 -> 8",
            "  offer TP8+DP8: passes the rules",
            "  claude-sonnet-5-5: 3 requests, 3000 tokens in, 300 out, 0.0090 USD",
        ]


def test_json_holds_all_of_it(tmp_path: Path) -> None:
    with messages_server(calls("release", job="the-job", why="So."), explains("No.")) as server:
        told = json.loads(advise(server, tmp_path, "TP8+DP8", "--json").stdout)
        assert told["advice"]["text"] == "No."
        assert told["advice"]["acts"][0]["rule"] == "no_nodes"
        assert told["advice"]["cost_microusd"] == 2 * (1000 * 2 + 100 * 10)
        assert told["no_advice"] == ""


def test_without_a_key_the_rules_answer_and_it_is_said_once(tmp_path: Path) -> None:
    with messages_server() as server:
        ran = advise(server, tmp_path, "TP8_NVL18+DP8", ANTHROPIC_API_KEY="")
        assert ran.returncode == 0
        assert "Accepted; by the rules it goes to n[" in ran.stdout
        assert (ran.stdout + ran.stderr).count("no key") == 1
        assert server.requests == []


@pytest.mark.parametrize(("key", "code"), [("", 0), (SECRET, 3)])
def test_the_client_library_is_needed_only_where_there_is_a_key(
    tmp_path: Path, key: str, code: int
) -> None:
    lacking = "raise ModuleNotFoundError('lacking', name='anthropic')"
    (tmp_path / "anthropic.py").write_text(lacking)
    ran = subprocess.run(
        [sys.executable, "-m", "nemesis.cli", "advise", "TP8_NVL18+DP8", *CLUSTER],
        env=os.environ | {"ANTHROPIC_API_KEY": key, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == code
    assert "Traceback" not in ran.stderr
    assert ("Accepted; by the rules" in ran.stdout) == (code == 0)
    assert ("pip install 'nemesis-gpu[advisor]'" in ran.stderr) == (code == 3)


def test_an_advisor_that_cannot_be_reached_leaves_the_answer_of_the_rules(tmp_path: Path) -> None:
    with messages_server(Turn(status=401, error="authentication_error")) as server:
        ran = advise(server, tmp_path, "TP8_NVL18+DP8")
        assert ran.returncode == 1
        assert "Accepted; by the rules it goes to n[" in ran.stdout
        assert "no advice: unavailable, authentication_error: a authentication_error" in ran.stdout


@pytest.mark.parametrize(("mode", "code"), [(0o600, 0), (0o400, 0), (0o640, 4), (0o604, 4)])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int, code: int) -> None:
    key = tmp_path / "key"
    key.write_text(f"{SECRET}\n")
    key.chmod(mode)
    file = tmp_path / "advisor.toml"
    with messages_server(explains("Go on.")) as server:
        file.write_text(f'base_url = "{server.url}"\nkey_file = "{key}"\n')
        ran = nemesis("advise", "TP8+DP8", *CLUSTER, "--settings", str(file), ANTHROPIC_API_KEY="")
        assert ran.returncode == code
        assert len(server.requests) == (code == 0)
        assert SECRET not in ran.stdout + ran.stderr
        assert code == 0 or "chmod 600" in ran.stderr


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('base_url = "http://example.com"', "would send the key in the clear"),
        ('base_url = "https://me:pw@example.com"', "holds more than a place"),
        ("[budget]\ncost_microusd_maxx = 1", "unknown field `cost_microusd_maxx`"),
        ("[budget]\nrequests_max = 0", "budget.requests_max is 0, expected at least 1"),
        ("[prices]\ninput_microusd = -1", "prices.input_microusd is -1"),
        ('budget = "none"', "budget: 'none': expected `object`, got `str`"),
        ('model = ""', "model is empty"),
        ('effort = "a lot"', "effort: 'a lot'"),
    ],
)
def test_settings_that_cannot_be_are_named(tmp_path: Path, line: str, complaint: str) -> None:
    file = tmp_path / "advisor.toml"
    file.write_text(line)
    ran = nemesis("advise", "TP8+DP8", *CLUSTER, "--settings", str(file), ANTHROPIC_API_KEY="")
    assert ran.returncode == 2
    assert complaint in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_without_a_cluster_it_says_what_is_missing() -> None:
    ran = nemesis("advise", "TP8+DP8")
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)
    assert "--cluster" in ran.stderr


def test_an_advisor_at_work_is_a_child_of_the_cell_only_where_it_is_named() -> None:
    class Place:
        url = "nats://127.0.0.1:4222"
        credentials_folder = Path("seeds")

        async def connect(self, role: str) -> Log:
            raise AssertionError(role)

    def children(advisor: str) -> dict[str, list[str]]:
        return commands(Place(), ["scheduler"], cell="room", copies=1, advisor=advisor)

    assert "advisor" not in children("")
    command = children("mine.toml")["advisor"]
    assert command[3:7] == ["act", "advisor", "--settings", "mine.toml"]
    assert not [word for word in command if "key" in word]


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_an_advisor_without_a_key_of_its_own_does_not_start(tmp_path: Path, mode: int) -> None:
    key = tmp_path / "key"
    key.write_text(SECRET if mode != 0o600 else "")
    key.chmod(mode)
    file = tmp_path / "advisor.toml"
    file.write_text(f'key_file = "{key}"\n')
    ran = nemesis("act", "advisor", "--settings", str(file))
    assert (ran.returncode, ran.stderr.count("\n")) == (3 if mode == 0o600 else 4, 1)
    assert SECRET not in ran.stderr
