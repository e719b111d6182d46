"""Promises of `nemesis goodput`, against a real log."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from nemesis.schemas.facts import encode_conclusion
from nemesis.schemas.inferred import GoodputAccounted, IncidentCosted, Inference, TimeParts
from nemesis.streams.server import Server
from tests.cells import in_cell

SECOND_NS = 1_000_000_000
AT_NS = 1_800_000_000 * SECOND_NS


def accounted(job: str, *, productive_s: int) -> tuple[str, Inference]:
    data = GoodputAccounted(
        at_ns=AT_NS, reason="r", job=job, since_ns=AT_NS - 200 * SECOND_NS, until_ns=AT_NS,
        parts=TimeParts(
            productive_ns=productive_s * SECOND_NS, recovery_ns=(200 - productive_s) * SECOND_NS
        ),
        world=7, world_full=8,
    )  # fmt: skip
    return job, data


def costed(job: str, *, lost_s: int, final: bool) -> tuple[str, Inference]:
    data = IncidentCosted(
        at_ns=AT_NS, reason="r", incident="i-1", job=job, lost_ns=lost_s * SECOND_NS,
        lost_gpu_ms=lost_s * 8_000, parts=TimeParts(recovery_ns=lost_s * SECOND_NS), final=final,
    )  # fmt: skip
    return "i-1", data


FACTS = (
    accounted("llama", productive_s=50),
    accounted("llama", productive_s=150),
    accounted("small", productive_s=200),
    costed("llama", lost_s=50, final=False),
    costed("small", lost_s=1, final=True),
    costed("llama", lost_s=90, final=True),
)


Ran = subprocess.CompletedProcess[str]


def asked(folder: Path, *arguments: str, facts: tuple[tuple[str, Inference], ...] = FACTS) -> Ran:
    """What the command answers to a log that holds these."""
    answers: list[Ran] = []

    async def body(server: Server) -> None:
        async with await server.connect("processor/goodput") as log:
            for number, (key, data) in enumerate(facts):
                subject, payload = encode_conclusion(
                    id=f"goodput/{number}/0", source="s", at_ns=AT_NS, data=data, key=key
                )
                await log.publish(subject, payload)
        target = ("--server", server.url, "--credentials", str(server.credentials_folder))
        command = [sys.executable, "-m", "nemesis.cli", "goodput", *arguments, *target]
        run = asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, check=False
        )
        answers.append(await run)

    in_cell(folder, body)
    return answers[0]


def test_the_newest_account_of_each_job_is_told_with_what_its_incidents_cost(
    tmp_path: Path,
) -> None:
    ran = asked(tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "llama: 75.0 % productive, 7 of 8 ranks" in ran.stdout
    assert "recovery           50.0 s   25.0 %  until the first step after it" in ran.stdout
    assert "i-1 cost 90.0 s, 0.20 GPU hours\n" in ran.stdout
    assert "small: 100.0 % productive" in ran.stdout


def test_one_job_as_a_document_whose_parts_sum_to_wall_time(tmp_path: Path) -> None:
    (job,) = json.loads(asked(tmp_path, "llama", "--json").stdout)["jobs"]
    assert sum(job["parts"].values()) == job["wall_ns"] == 200 * SECOND_NS
    assert [each["lost_ns"] for each in job["incidents"]] == [90 * SECOND_NS]


def test_a_log_without_accounts_says_so_and_exits_with_3(tmp_path: Path) -> None:
    ran = asked(tmp_path, facts=())
    assert ran.returncode == 3
    assert "no account of any job yet" in ran.stdout
