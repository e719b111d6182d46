"""Small incidents of kinds that no rule was written for: named as far as they show, never further.

Typed from the formats of tools and libraries; labels were written before the first run.
"""

from pathlib import Path

import pytest

from tests.told import summary, told

LEASE = "E0105 10:00:09.000001 1 lease.go:332] error retrieving lock training/lock: deadline\n"
NO_SHM = "n1:7:9 [0] include/shm.h:27 NCCL WARN Call to shm_open failed : Permission denied\n"
STEPS = "".join(f"step {at} loss 3.{at} step_time: 1.1s\n" for at in range(1, 8))
RENDEZVOUS = "x.api.RendezvousConnectionError: The connection to the store has failed.\n"
HEARTBEAT = (
    "[WARNING] [RankMonitorServer:34] Did not get subsequent heartbeat. Waited 171.92 seconds.\n"
)
SCHEDULING = (
    "5s  Warning  FailedScheduling  pod/a-7  0/16 nodes are available: 16 Insufficient gpu.\n"
)
PORTS = "/sys/class/infiniband/mlx5_{0}/ports/1/counters/symbol_error:{1}\n"

INCIDENTS: dict[str, tuple[str, dict[str, str]]] = {
    "a controller that lost its lease": ("insufficient", {"log": LEASE}),
    "an error in a log of JSON lines": (
        "insufficient",
        {"log": '{"level":"info","msg":"up"}\n{"level":"error","msg":"store gave 503"}\n'},
    ),
    "a log of JSON lines that ends well": (
        "no-fault",
        {"log": '{"level":"warn","msg":"slow"}\n{"level":"info","msg":"training finished"}\n'},
    ),
    "a wrapper that tells a status": ("insufficient", {"log": "worker exited with code 7\n"}),
    "an upload that worked in the end": (
        "no-fault",
        {"log": "ERROR: attempt 1 was refused\nTraining completed successfully in 3 h\n"},
    ),
    "a crash after the end": (
        "insufficient",
        {"log": "Training finished\nterminate called after throwing an instance of x\n"},
    ),
    "warnings of a run that goes on": ("no-fault", {"log": f"WARNING: it will fail\n{STEPS}"}),
    "a rendezvous that nobody answers": ("insufficient", {"log": RENDEZVOUS}),
    "monitors that miss heartbeats": ("insufficient", {"log": HEARTBEAT}),
    "a pod for which there is no room": ("insufficient", {"events": SCHEDULING}),
    "a log that ends after its first words": (
        "insufficient",
        {"log": "n1:5:5 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n"},
    ),
    "an end that MPI brought about": (
        "insufficient",
        {"log": "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD\n"},
    ),
    "errors of all ports at once": (
        "insufficient",
        {
            "before/c": "".join(PORTS.format(at, 0) for at in range(8)),
            "after/c": "".join(PORTS.format(at, at + 5) for at in range(8)),
        },
    ),
}


@pytest.mark.parametrize("name", INCIDENTS)
def test_an_unseen_incident_is_named_as_far_as_it_shows(tmp_path: Path, name: str) -> None:
    verdict, files = INCIDENTS[name]
    answer = told(tmp_path, files)
    assert (answer.verdict, answer.culprits) == (verdict, [])
    assert answer.evidence or "nothing in it shows that anything works" in answer.reason


def test_shared_memory_that_may_not_be_opened_is_a_setting(tmp_path: Path) -> None:
    assert summary(told(tmp_path, log=NO_SHM))[1] == "host.config"
