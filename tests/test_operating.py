"""The operator's guide holds: its backup is restored and goes on, its alarms are all there."""

import asyncio
import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nemesis.schemas.facts import encode_observation, telemetry_subject
from nemesis.schemas.observed import GpuDescribed, InventoryReported, KernelLineLogged
from nemesis.schemas.registry import EVENTS
from nemesis.streams.contexts import find
from tests.cells import until
from tests.commands import nemesis
from tests.test_serve import serving

GUIDE = Path(__file__).parent.parent / "docs" / "operating.md"
XID = "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."
TROUBLE = ("input_rejected", "inputs_suppressed", "policy_refused", "recovery_withheld")


def commands_of(name: str) -> str:
    """The commands of a block that the guide marks as tested."""
    found = re.search(rf"<!-- tested: {name} -->\n```console\n(.*?)```", GUIDE.read_text(), re.S)
    assert found is not None
    return "\n".join(re.findall(r"^\$ (.*)$", found[1], re.M))


def run(name: str, folder: Path) -> None:
    """Type a block of the guide."""
    subprocess.run(["bash", "-eu", "-c", commands_of(name)], cwd=folder, check=True)


async def break_gpu(node: str, n: int, text: str) -> int:
    """A kernel line of a node whose GPU is known; its sequence."""
    async with await find().connect(f"node/{node}") as log:
        gpus = (GpuDescribed(pci="0000:1b:00.0"),)
        at_ns = 1_700_000_000_000_000_000
        told = InventoryReported(node=node, start_ns=1, n=n, at_ns=at_ns, gpus=gpus)
        await log.publish(telemetry_subject(node, "inventory"), encode_observation(told))
        line = KernelLineLogged(node=node, start_ns=1, n=n, at_ns=at_ns, text=text)
        return await log.publish(telemetry_subject(node, "kernel"), encode_observation(line))


async def verdicts_count(at_least: int) -> int:
    """How many verdicts the log holds, once it holds so many."""
    async with await find().connect("reader") as log:
        count = 0

        async def there() -> bool:
            nonlocal count
            subject = "nemesis.events.fault_attributed.*"
            count = len([r async for r in log.read_range(1, 2**62, subject=subject)])
            return count >= at_least

        await until(there, f"{at_least} verdicts", every_s=0.2)
        return count


@pytest.mark.server
def test_a_backup_is_restored_on_another_machine_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving("--nodes", "n1") as (process, up):
        asyncio.run(break_gpu("n1", 1, XID))
        asyncio.run(verdicts_count(1))
        (row,) = msgspec.json.decode(nemesis("incident", "--json").stdout)["incidents"]
        process.terminate()
        process.communicate()
    run("backup", tmp_path)
    assert (tmp_path / "local.tgz").stat().st_mode & 0o077 == 0
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
    assert nemesis("incident").returncode == 3
    run("restore", tmp_path)
    with serving() as (_, up):
        assert up["log_folder"].startswith(str(tmp_path / "another machine"))
        assert (up["activated"], up["nodes"]) == ([], ["n1"])
        assert up["drift"] == []
        replayed = nemesis("replay", row["incident"])
        assert replayed.returncode == 0, replayed.stdout + replayed.stderr
        asyncio.run(break_gpu("n1", 2, "not " + XID))
        checked: Any = msgspec.json.decode(nemesis("incident", "--json").stdout)["incidents"]
        assert checked[0] == row
        asyncio.run(goes_on())


async def goes_on() -> None:
    """A processor answers what comes after the restore."""
    async with await find().connect("node/n1") as node, await find().connect("reader") as log:
        await node.publish(telemetry_subject("n1", "kernel"), b"not msgpack")

        async def concluded() -> bool:
            return await log.last("nemesis.events.input_rejected.n1") is not None

        await until(concluded, "a restored processor concludes")


def test_the_guide_says_of_every_alarm_what_to_do() -> None:
    text = GUIDE.read_text()
    kept = [token for token, kind in EVENTS.items() if kind.certainty == "kept"]
    assert [token for token in (*kept, *TROUBLE) if f"`{token}`" not in text] == []
