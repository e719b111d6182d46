"""Makes a real incident and triages it: `python -m nemesis.sim.gloo.incident FAULT [--rank N]`.

Starts four torch processes that train over gloo (rank.py), lets one of them be killed, stop, be
slow, skip a collective or call it wrongly, reads the flight recorders of those that answer through
torch's worker server, writes them into a folder, and runs `nemesis triage` on it. Says whether the
rank that was broken is the one that is named. Needs torch, in this interpreter or in --python.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from nemesis.producers.recorder_tap import read_recorder
from nemesis.schemas.errors import NemesisError
from nemesis.sim.gloo import rank as rank_program
from nemesis.sim.gloo.rank import GOOD_STEPS, WORLD

FAULTS: Final = ("kill", "stop", "slow", "skip", "operation", "size", "order")
START_S: Final = 120.0  # torch alone takes seconds to import, four of them on a busy machine more
STEPS_WATCHED: Final = 24  # of a slow rank: more than its recorder is judged by
PROGRAM: Final = Path(rank_program.__file__)


class NoIncidentError(NemesisError):
    """The job did not come so far that it could be broken."""


class Incident:
    """One job of real processes."""

    def __init__(self, folder: Path, python: str, fault: str, culprit: int) -> None:
        self.folder, self.fault, self.culprit = folder, fault, culprit
        self.ranks: list[subprocess.Popen[bytes]] = []
        self.dumps: dict[int, bytes] = {}
        self.called: set[int] = set()
        for rank in range(WORLD):
            words = [python, str(PROGRAM), str(folder), str(rank), str(culprit), fault]
            self.ranks.append(
                subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )

    def play(self) -> dict[int, bytes]:
        """The recorders of all ranks that answer once the fault shows.

        Raises:
            NoIncidentError: the processes did not start, or the fault does not show.
        """
        good = [self.folder / f"rank_{rank}.good" for rank in range(WORLD)]
        self._wait("four good steps", lambda: all(each.exists() for each in good))
        number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}.get(self.fault)
        if number is not None:
            self.ranks[self.culprit].send_signal(number)
        if self.fault == "size":
            # gloo ends processes whose tensors do not fit: the one that is wrong is read before
            self._wait("the wrong call", lambda: self._has_called(self.culprit))
            (self.folder / "go").touch()
        others = [rank for rank in range(WORLD) if rank != self.culprit]
        if self.fault == "slow":
            self._wait("slow steps", lambda: self._last_completed(0) >= STEPS_WATCHED)
        elif self.fault == "order":
            self._wait("ranks that wait", lambda: all(map(self._is_pending, others)))
        else:
            self._wait("ranks that wait", lambda: all(map(self._has_called, others)))
        for rank in range(WORLD):
            if self.fault == "slow" or rank not in self.dumps:
                self._read(rank)
        return self.dumps

    def stop(self) -> None:
        """Leave nothing running."""
        for rank in self.ranks:
            rank.kill()
        for rank in self.ranks:
            rank.wait()

    def _read(self, rank: int) -> Any:
        """What a rank's recorder holds now; of one that answers no more, what it held."""
        dump = read_recorder(self.folder / f"rank_{rank}.sock")
        if dump is not None:
            self.dumps[rank] = dump
        return json.loads(self.dumps.get(rank, b"{}"))

    def _has_called(self, rank: int) -> bool:
        """Whether a rank called the collective in the world that the culprit spoils.

        The recorder of that moment is kept: what gloo gives up later counts there as done.
        """
        if rank not in self.called and any(
            each["process_group"][0] == "0" and each["collective_seq_id"] > GOOD_STEPS
            for each in self._read(rank).get("entries", [])
        ):
            self.called.add(rank)
        return rank in self.called

    def _is_pending(self, rank: int) -> bool:
        return any(not each["retired"] for each in self._read(rank).get("entries", []))

    def _last_completed(self, rank: int) -> int:
        status = self._read(rank).get("pg_status", {})
        return max((int(each["last_completed_collective"]) for each in status.values()), default=-1)

    def _wait(self, what: str, is_so: Callable[[], bool]) -> None:
        until = time.monotonic() + START_S
        while not is_so():
            if (
                time.monotonic() > until
                or self.ranks[(self.culprit + 1) % WORLD].poll() is not None
            ):
                raise NoIncidentError(
                    f"waited for {what} of four gloo processes and did not see it",
                    hint="try rank.py alone with the interpreter of --python",
                )
            time.sleep(0.05)


@contextmanager
def incident(folder: Path, python: str, fault: str, culprit: int) -> Iterator[Incident]:
    """A running job; nothing of it is left afterwards."""
    made = Incident(folder, python, fault, culprit)
    try:
        yield made
    finally:
        made.stop()


def collect(bundle: Path, python: str, fault: str, culprit: int) -> list[int]:
    """Make an incident and put its dumps into a folder; the ranks that answered."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o700)  # torch's sockets have no other guard
        with incident(Path(folder), python, fault, culprit) as made:
            dumps = made.play()
    bundle.mkdir(parents=True, exist_ok=True)
    for rank, dump in dumps.items():
        (bundle / f"rank_{rank}.json").write_bytes(dump)
    return sorted(dumps)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if triage names the broken rank alone, 1 if not, 3 where torch is not there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fault", choices=FAULTS)
    parser.add_argument("--rank", type=int, default=2, choices=range(WORLD), help="who is broken")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has torch")
    parser.add_argument("--out", type=Path, help="keep the dumps there")
    given = parser.parse_args(arguments)
    has_torch = subprocess.run(
        [given.python, "-c", "import torch"], capture_output=True, check=False
    )
    if has_torch.returncode:
        print(f"{given.python} has no torch: pip install 'nemesis[train]', or name one by --python")
        return 3
    with tempfile.TemporaryDirectory() as scratch:
        bundle = given.out or Path(scratch) / "incident"
        read = collect(bundle, given.python, given.fault, given.rank)
        print(f"broken: rank {given.rank} ({given.fault}); flight recorders of ranks {read}")
        triage = [sys.executable, "-m", "nemesis.cli", "triage", str(bundle)]
        print(subprocess.run(triage, capture_output=True, text=True, check=False).stdout)
        told = subprocess.run([*triage, "--json"], capture_output=True, text=True, check=False)
    named = [each["id"] for each in json.loads(told.stdout)["culprits"]]
    is_right = named == [f"rank/job/{given.rank}"]
    print(f"{'right' if is_right else 'wrong'}: triage names {', '.join(named) or 'nobody'}")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
