"""Promises of the rules about what logs, settings, counters and tests told."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from nemesis.processors.attribution.attribution import Attribution
from nemesis.producers.readers.memory_log import SECOND_NS, MemoryLog
from nemesis.schemas.inferred import FaultAttributed
from nemesis.schemas.observed import LogLineWritten
from nemesis.views.triage_answer import Triage
from tests.told import told

START_NS = 1_700_000_000 * SECOND_NS
WATCHDOG = (
    "[rank{rank}]:[E ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn={size}, NumelOut={size}, "
    "Timeout(ms)=60000) ran for 60001 milliseconds before timing out.\n"
)


def timeouts(*sizes: int, seq: int = 900) -> str:
    return "".join(
        WATCHDOG.format(rank=rank, seq=seq, size=size) for rank, size in enumerate(sizes)
    )


def named(answer: Triage) -> list[str]:
    return [each.id for each in answer.culprits]


def test_ranks_that_time_out_are_witnesses_and_nobody_is_blamed(tmp_path: Path) -> None:
    answer = told(tmp_path, log=timeouts(8, 8, 8))
    assert (answer.verdict, named(answer)) == ("insufficient", [])
    assert [each.line for each in answer.evidence] == [1, 2, 3]


def test_the_one_rank_that_called_with_another_size_is_out_of_step(tmp_path: Path) -> None:
    answer = told(tmp_path, log=timeouts(8, 8, 8, 9))
    assert (answer.fault_class, named(answer)) == ("desync", ["rank/job/3"])
    assert answer.evidence[0].line == 4


def test_of_two_sides_of_equal_size_none_is_blamed(tmp_path: Path) -> None:
    answer = told(tmp_path, log=timeouts(8, 8, 9, 9))
    assert (answer.verdict, answer.fault_class) == ("class-only", "desync")


def test_ranks_that_differ_among_themselves_are_of_groups_of_their_own(tmp_path: Path) -> None:
    for sizes in ([8] * 14 + [9, 10], [8] * 16 + [9] * 4):
        answer = told(tmp_path, log=timeouts(*sizes))
        assert (answer.verdict, answer.fault_class, named(answer)) == ("class-only", "desync", [])


def test_a_rank_busy_for_longer_than_the_limit_kept_the_others_waiting(tmp_path: Path) -> None:
    busy = "2026-01-01 00:00:10 [rank7] checkpoint written (75 s)\n"
    answer = told(tmp_path, log=timeouts(8, 8) + busy)
    assert (answer.fault_class, named(answer)) == ("app.timeout", ["rank/job/7"])
    assert told(tmp_path, log=timeouts(8, 8) + busy.replace("75", "30")).verdict == "insufficient"


def test_a_memory_error_that_no_gpu_is_named_for_is_a_class_only(tmp_path: Path) -> None:
    error = "[rank1]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    answer = told(tmp_path, log=error)
    assert (answer.verdict, answer.fault_class) == ("class-only", "gpu.memory")
    counts = "    ECC Errors\n        Volatile\n            SRAM Uncorrectable : 1\n"
    smi = f"GPU 00000000:1B:00.0\n{counts}"
    answer = told(tmp_path, log=error, smi=smi)
    assert named(answer) == ["gpu/localhost/0000:1b:00.0"]
    assert {each.file for each in answer.evidence} == {"log", "smi"}


COUNTER = "/sys/class/infiniband/mlx5_{nic}/ports/1/counters/symbol_error:{value}\n"


def test_one_reading_of_a_counter_proves_little_and_two_name_the_port(tmp_path: Path) -> None:
    first = COUNTER.format(nic=0, value=0) + COUNTER.format(nic=1, value=90)
    answer = told(tmp_path, a=first)
    assert (answer.verdict, named(answer)) == ("insufficient", [])
    later = COUNTER.format(nic=0, value=0) + COUNTER.format(nic=1, value=190)
    answer = told(tmp_path, a=first + later)
    assert named(answer) == ["nic/localhost/mlx5_1"]


def test_a_limit_is_at_fault_where_something_failed_for_it(tmp_path: Path) -> None:
    limit = "max locked memory           (kbytes, -l) 64\n"
    assert told(tmp_path, limits=limit).verdict == "insufficient"
    failed = (
        "n1:1:2 [0] misc/ibvwrap.cc:1 NCCL WARN Call to ibv_reg_mr failed with error "
        "Cannot allocate memory\n"
    )
    answer = told(tmp_path, limits=limit, log=failed)
    assert (answer.fault_class, named(answer)) == ("host.config", ["config/n1/memlock"])


def test_a_fabric_manager_that_is_down_is_at_fault_only_where_something_waits(
    tmp_path: Path,
) -> None:
    unit = "nvidia-fabricmanager.service - x\n     Active: inactive (dead)\n"
    assert told(tmp_path, unit=unit).verdict == "insufficient"
    waits = "GPU 00000000:1B:00.0\n    Fabric\n        State : In Progress\n"
    assert named(told(tmp_path, unit=unit, smi=waits)) == ["service/localhost/nvidia-fabricmanager"]


def test_a_slow_pair_blames_the_way_and_a_host_slow_with_all_is_named(tmp_path: Path) -> None:
    answer = told(tmp_path, pairs="n1,n2 20\nn1,n3 40\nn2,n3 40\n")
    assert (answer.verdict, answer.fault_class) == ("class-only", "straggler.network")
    slow = "n1,n2 20\nn1,n3 21\nn2,n3 40\nn2,n4 40\nn3,n4 40\n"
    assert named(told(tmp_path, pairs=slow)) == ["node/n1"]


def test_the_release_that_all_failed_runs_share_is_named(tmp_path: Path) -> None:
    answer = told(tmp_path, runs="lib-1.2 drv-5.1 hang\nlib-1.1 drv-5.1 ok\n")
    assert named(answer) == ["software/lib-1.2"]
    both = told(tmp_path, runs="lib-1.2 drv-5.2 hang\nlib-1.1 drv-5.1 ok\n")
    assert (both.verdict, named(both)) == ("class-only", [])


def test_an_error_that_only_follows_another_ranks_end_is_no_program_fault(tmp_path: Path) -> None:
    follows = "[rank1]: torch.distributed.DistBackendError: NCCL communicator was aborted\n"
    root = "[rank0]: KeyError: 'image'\n"
    assert told(tmp_path, log=follows).fault_class != "app.program"
    answer = told(tmp_path, log=follows + root)
    assert (answer.fault_class, named(answer)) == ("app.program", ["program/job"])


STATE = (
    "[rank{rank}]:[E ProcessGroupNCCL.cpp:1664] [PG 0 (default_pg) Rank {rank}] Exception (either"
    " an error or timeout) detected by watchdog at work: 9, last enqueued NCCL work: {enqueued},"
    " last completed NCCL work: {completed}.\n"
)
SMI = (
    "GPU 00000000:{bus:02x}:00.0\n    Utilization\n        GPU : 100 %\n    Clocks\n"
    "        SM : {mhz} MHz\n"
)
TABLE: dict[str, tuple[str, str, list[str]]] = {
    "a rank that enqueued less than the others never called": (
        "".join(STATE.format(rank=r, enqueued=9 - (r == 2), completed=8) for r in range(4)),
        "app.stall",
        ["rank/job/2"],
    ),
    "a rank that finished less and enqueued alike hangs on its GPU": (
        "".join(STATE.format(rank=r, enqueued=9, completed=8 - (r == 1)) for r in range(4)),
        "gpu.stall",
        ["rank/job/1"],
    ),
    "whom an analyser misses in every group never called": (
        "missing ranks: {2}\nmissing ranks: {2, 3}\n",
        "app.stall",
        ["rank/job/2"],
    ),
    "ranks that wait for each other are a class and no name": (
        "missing ranks: {2}\nmissing ranks: {3}\n",
        "desync",
        [],
    ),
    "an interface that ends on its own host": (
        "n1:1:1 [0] NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>\n"
        "n2:1:5 [0] misc/socket.cc:441 NCCL WARN socketStartConnect: Connect to 172.17.0.1<4>"
        " failed : Connection refused\n",
        "network.config",
        ["config/n1/NCCL_SOCKET_IFNAME"],
    ),
    "a library and a kernel module of two releases": (
        "Failed to initialize NVML: Driver/library version mismatch\n",
        "software.version",
        ["software/localhost/nvidia-driver"],
    ),
    "GPU memory that a program asked too much of": (
        "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n",
        "app.oom",
        ["program/job"],
    ),
    "one busy GPU far below the clocks of the others": (
        "".join(SMI.format(bus=at, mhz=1200 if at == 3 else 1980) for at in range(8)),
        "straggler.gpu",
        ["gpu/localhost/0000:03:00.0"],
    ),
    "the last Xid that a monitor keeps": (
        'DCGM_FI_DEV_XID_ERRORS{gpu="3",pci_bus_id="00000000:1B:00.0",Hostname="n9"} 79\n',
        "gpu.off_bus",
        ["gpu/n9/0000:1b:00.0"],
    ),
    "a test of DCGM that failed on one GPU": (
        "| Diagnostic | Result |\n| Memory | Fail - GPU: 3 |\n",
        "gpu.memory",
        ["gpu/localhost/3"],
    ),
    "a node that the scheduler lost": (
        "NodeName=n012 Arch=x86_64\n   State=DOWN* ThreadsPerCore=2\n",
        "unknown",
        ["node/n012"],
    ),
    "no room in shared memory": (
        "n1:1:1 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-0"
        " to 4 bytes\n",
        "host.config",
        ["config/n1/shm"],
    ),
    "results that differ from what they must be": (
        "# Out of bounds values : 12 FAILED\n",
        "silent_corruption",
        [],
    ),
    "a crash that nothing explains": ("Fatal Python error: Segmentation fault\n", "unknown", []),
}


@pytest.mark.parametrize("promise", TABLE)
def test_what_lines_prove(tmp_path: Path, promise: str) -> None:
    content, fault_class, culprits = TABLE[promise]
    answer = told(tmp_path, file=content)
    assert (answer.fault_class, named(answer)) == (fault_class, culprits)
    assert all(each.line is not None for each in answer.evidence)
    assert answer.evidence


def test_readings_before_and_after_are_two_readings_of_one_host(tmp_path: Path) -> None:
    answer = told(
        tmp_path,
        **{
            "ib.after.txt": COUNTER.format(nic=0, value=5) + COUNTER.format(nic=1, value=190),
            "ib.before.txt": COUNTER.format(nic=0, value=5) + COUNTER.format(nic=1, value=90),
        },
    )
    assert named(answer) == ["nic/localhost/mlx5_1"]


def test_ranks_that_ran_ahead_make_nobody_late(tmp_path: Path) -> None:
    state = "".join(STATE.format(rank=r, enqueued=9 + r, completed=8) for r in range(4))
    assert told(tmp_path, log=state).culprits == []


def test_a_stage_that_was_over_before_they_gave_up_kept_nobody(tmp_path: Path) -> None:
    busy = "2026-01-01 00:00:10 [rank7] dataset index built in 900 s\n"
    assert told(tmp_path, log=busy + timeouts(8, 8)).verdict == "insufficient"


@pytest.mark.parametrize(
    "line",
    [
        "[rank1]: torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /x\n",
        "[rank1]: RuntimeError: [1] is setting up NCCL communicator and got error\n",
        "[rank1]: RuntimeError: something that a library could not name\n",
        "[rank1]: ConnectionResetError: [Errno 104] Connection reset by peer\n",
    ],
)
def test_what_follows_or_names_nothing_is_not_the_programs_fault(tmp_path: Path, line: str) -> None:
    answer = told(tmp_path, log=line)
    assert (answer.verdict, answer.fault_class) == ("insufficient", "unknown")


def as_plain(answer: Triage) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(answer))
    return plain


@pytest.mark.parametrize("ranks", [3, 6])
def test_the_answer_does_not_depend_on_the_order_of_lines(tmp_path: Path, ranks: int) -> None:
    lines = timeouts(*[8] * ranks, 9).splitlines(keepends=True)
    there = told(tmp_path, log="".join(lines))
    back = told(tmp_path, log="".join(reversed(lines)))
    assert named(there) == named(back)
    assert as_plain(there)["fault_class"] == as_plain(back)["fault_class"]


def test_a_job_that_never_stops_talking_is_judged_all_the_same() -> None:
    lines = [WATCHDOG.format(rank=rank, seq=9, size=8 + (rank == 3)).strip() for rank in range(4)]
    facts = [
        LogLineWritten(
            node="n1",
            start_ns=1,
            n=at + 1,
            at_ns=START_NS + at * SECOND_NS,
            source="torch",
            text=lines[at % 4],
            job="j",
            rank=at % 4 if at < 4 else at,
        )
        for at in range(15)
    ]
    log = MemoryLog([Attribution()])
    log.run(facts)
    verdicts = [each for each in log.conclusions if isinstance(each, FaultAttributed)]
    assert verdicts[0].at_ns < START_NS + 14 * SECOND_NS
