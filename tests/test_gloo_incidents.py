"""Promises on incidents that real torch processes make; skipped, and counted, without torch."""

import http.server
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nemesis.cli.triage import triage_paths
from nemesis.producers import recorder_tap as tap
from nemesis.sim.gloo import incident
from tests.dumps import dump, entry, pickled
from tests.trace_scores import named_cycle, named_ranks

pytestmark = pytest.mark.torch


@pytest.fixture(scope="session")
def python_with_torch() -> str:
    """An interpreter that can import torch."""
    done = subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("no torch: pip install 'nemesis[train]'")
    return sys.executable


@pytest.mark.parametrize("fault", incident.FAULTS)
def test_the_rank_that_was_broken_is_named(
    fault: str, python_with_torch: str, tmp_path: Path
) -> None:
    incident.collect(tmp_path, python_with_torch, fault, culprit=2)
    answer = triage_paths([tmp_path])
    assert named_ranks(answer) == {2}
    assert named_cycle(answer) == ({2, 3} if fault == "order" else set())


def test_without_torch_the_script_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    assert incident.main(["kill", "--python", str(python)]) == 3
    assert "nemesis[train]" in capsys.readouterr().out


def test_who_does_not_answer_has_no_recorder(tmp_path: Path) -> None:
    assert tap.read_recorder(tmp_path / "nobody.sock") is None
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "deaf.sock"))
        assert tap.read_recorder(tmp_path / "deaf.sock") is None


def test_a_recorder_is_read_from_the_socket_that_serves_it(tmp_path: Path) -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200 if self.path == tap.PATH else 404)
            self.end_headers()
            self.wfile.write(b'{"version": "2.10"}')

        def address_string(self) -> str:
            return "a Unix socket"

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(http.server.HTTPServer):
        address_family = socket.AF_UNIX

        def server_bind(self) -> None:
            self.socket.bind(str(self.server_address))

    path = tmp_path / "rank.sock"
    server = Server(str(path), Handler)  # type: ignore[arg-type]
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    try:
        assert tap.read_recorder(path) == b'{"version": "2.10"}'
    finally:
        thread.join()
        server.server_close()


START_NS = 1_786_418_062_000_000_000
STEP_NS = 200_000_000
LATE_NS = 150_000_000


def test_a_rank_that_is_always_last_is_a_straggler_also_while_the_others_wait_for_it(
    tmp_path: Path,
) -> None:
    for rank in range(4):
        late_ns = LATE_NS if rank == 2 else rank * 1_000_000
        called = [
            entry(seq, at_ns=START_NS + seq * STEP_NS + late_ns, done=seq < 20)
            for seq in range(1, 20 if rank == 2 else 21)
        ]
        (tmp_path / f"rank_{rank}").write_bytes(pickled(dump(called)))
    answer = triage_paths([tmp_path])
    assert answer.fault_class == "straggler.host"
    assert named_ranks(answer) == {2}


def test_what_gloo_gave_up_counts_as_done_and_its_call_is_compared_all_the_same(
    tmp_path: Path,
) -> None:
    for rank in range(4):
        sizes = [[512 if rank == 2 else 1024]]
        wrong = entry(5, done=rank != 0, input_sizes=sizes, output_sizes=sizes)
        good = [entry(seq) for seq in range(1, 5)]
        (tmp_path / f"rank_{rank}").write_bytes(pickled(dump([*good, wrong])))
    answer = triage_paths([tmp_path])
    assert answer.fault_class == "desync"
    assert named_ranks(answer) == {2}
