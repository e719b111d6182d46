"""Incidents of public threads are judged as their labels say, and nobody innocent is named.

The labels were written before the first run (tests/public_threads.py).
"""

from pathlib import Path

import pytest

from tests.public_threads import Thread, threads, told_of, what_is_wrong

FOLDER = Path(__file__).parent / "threads"
THREADS = [each for path in sorted(FOLDER.glob("*.txt")) for each in threads(path)]


@pytest.mark.parametrize("thread", THREADS, ids=lambda each: each.name)
def test_an_incident_of_a_public_thread_is_judged_as_labelled(
    tmp_path: Path, thread: Thread
) -> None:
    assert what_is_wrong(thread, told_of(thread, tmp_path)) == ""
