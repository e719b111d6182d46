"""The kernel's log by journald, where /dev/kmsg may not be opened: its real programs, or a copy."""

import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from nemesis.producers.node.kernel_tail import KernelTail
from nemesis.producers.origin import Origin
from nemesis.schemas.observed import KernelLineLogged

BEGAN_NS = 10_000_000_000
JOURNALD = Path("/lib/systemd/systemd-journald")
FOLLOWS = """#!{python}
import os, sys, time
after = next((a.partition("=")[2] for a in sys.argv if a.startswith("--after-cursor=")), "")
assert {{"--dmesg", "--follow", "--output=json"}} <= set(sys.argv), sys.argv
open("{folder}/pid.new", "w").write(str(os.getpid()))
os.rename("{folder}/pid.new", "{folder}/pid")
told, seen = 0, not after
while True:
    if os.path.exists("{folder}/complaint"):
        sys.exit(open("{folder}/complaint").read())
    lines = open("{folder}/entries").read().splitlines()
    for line in lines[told:]:
        if seen:
            print(line, flush=True)
        seen = seen or after in line
    told = len(lines)
    time.sleep(0.01)
"""
REAL = """
import subprocess, sys, time
from pathlib import Path
from nemesis.producers.node.kernel_tail import KernelTail
from nemesis.producers.origin import Origin

for folder in ("/run/log/journal", "/run/systemd/journal"):
    Path(folder).mkdir(parents=True)
journald = subprocess.Popen(["/lib/systemd/systemd-journald"])
try:
    while not list(Path("/run/log/journal").glob("*/system.journal")):
        time.sleep(0.01)
    origin = Origin("n1", start_ns=1, boot_id="b-1")
    kept = Path("/run/kept.json")

    def lines_of_a_life(wanted):
        tail = KernelTail(origin, Path("/run/none"), kept, journal=Path("/run/log/journal"))
        try:
            subprocess.run([sys.executable, "-c", "import ctypes; ctypes.string_at(0)"])
            found = []
            while not any(wanted in line for line in found):
                found += [fact.text for fact in tail.read(time.time_ns())]
                time.sleep(0.01)
            tail.keep()
            assert (tail.seen.source, tail.seen.state) == ("journal", "read"), tail.seen
            return found
        finally:
            tail.close()

    with open("/dev/kmsg", "w") as ring:
        print("<4>segfault: a program's line", file=ring)
    told = lines_of_a_life("segfault at 0")
    assert not any("a program's line" in line for line in told), told
    again = lines_of_a_life("segfault at 0")
    assert sum("segfault at 0" in line for line in again) == 1, again
finally:
    journald.kill()
    journald.wait()
"""


class Copy:
    """A journalctl that follows a file of ours, and does with a cursor what the real one does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        (folder / "entries").touch()
        program = folder / "bin/journalctl"
        program.write_text(FOLLOWS.format(python=sys.executable, folder=folder))
        program.chmod(0o755)

    def print(
        self, text: str | list[int], *, at: int, priority: int = 6, facility: int = 0
    ) -> None:
        entry = {
            "__CURSOR": f"s=ab;i={at:x};",
            "MESSAGE": text,
            "PRIORITY": str(priority),
            "SYSLOG_FACILITY": str(facility),
            "_SOURCE_MONOTONIC_TIMESTAMP": str(at * 1_000_000),
        }
        with (self.folder / "entries").open("a") as file:
            file.write(msgspec.json.encode(entry).decode() + "\n")

    def tail(self) -> KernelTail:
        return KernelTail(
            Origin("n1", start_ns=1, boot_id="b-1"),
            self.folder / "none",
            self.folder / "kept.json",
            lambda: BEGAN_NS,
            journal=self.folder,
        )

    @property
    def child(self) -> int:
        return int((self.folder / "pid").read_text())


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copy:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return Copy(tmp_path)


def wait_until(holds: Callable[[], bool]) -> None:
    while not holds():
        time.sleep(0.005)


def state_of(pid: int) -> str:
    """As the kernel has it, "" for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2]
    except OSError:
        return ""


def texts(tail: KernelTail, count: int) -> Iterator[KernelLineLogged]:
    found: list[KernelLineLogged] = []
    while len(found) < count:
        found += tail.read(10**18)
        time.sleep(0.005)
    return iter(found)


def test_a_line_of_the_journal_is_told_once_over_a_restart_and_no_programs(copy: Copy) -> None:
    copy.print("old", at=1)
    copy.print("old warning", at=2, priority=4)
    copy.print("of a program", at=11, facility=3)
    copy.print("new", at=12)
    copy.print([0x6E, 0xFF, 0x76], at=13)
    tail = copy.tail()
    told = [line.text for line in texts(tail, 3)]
    assert told == ["old warning", "new", "n\ufffdv"]
    assert (tail.seen.source, tail.seen.state) == ("journal", "read")
    tail.keep()
    tail.close()
    with pytest.raises(ProcessLookupError):
        os.kill(copy.child, 0)
    copy.print("next", at=14)
    again = copy.tail()
    assert [line.text for line in texts(again, 1)] == ["next"]
    again.close()


def test_a_follower_that_ends_is_named_with_why_and_not_started_at_every_look(copy: Copy) -> None:
    (copy.folder / "complaint").write_text(
        "No journal files were opened due to insufficient permissions."
    )
    tail = copy.tail()
    wait_until(lambda: tail.read(10**18) == [] and tail.seen.state != "read")
    assert "group systemd-journal" in tail.seen.says
    assert tail.seen.source == "kmsg"  # the driver's own Xids are listened to instead
    first = copy.child
    (copy.folder / "complaint").unlink()
    for _ in range(3):
        tail.read(10**18)
    assert copy.child == first
    tail.close()


def test_the_follower_ends_with_a_producer_that_is_killed(copy: Copy) -> None:
    script = (
        "import sys, time; from pathlib import Path;"
        "from nemesis.producers.node.journal import Journal;"
        "j = Journal(cursor='', began_ns=0, folder=Path(sys.argv[1])); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(copy.folder)]) as producer:
        wait_until((copy.folder / "pid").exists)
        child = copy.child
        producer.send_signal(signal.SIGKILL)

    wait_until(lambda: state_of(child) in ("", "Z"))
    assert state_of(child) in ("", "Z")


def test_a_real_journald_hands_on_what_the_kernel_printed() -> None:
    own = ["unshare", "--mount", "sh", "-c"]
    shut = 'mount --make-rprivate / && mount -t tmpfs tmpfs /run && test -w /dev/kmsg && exec "$@"'
    able = subprocess.run([*own, shut, "-", "true"], check=False, capture_output=True)
    if able.returncode or not JOURNALD.exists() or platform.machine() != "x86_64":
        pytest.skip("no journald on this machine, or nobody may mount")
    ran = subprocess.run(
        [*own, shut, "-", sys.executable, "-c", REAL],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
