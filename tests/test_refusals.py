"""Promises about what libraries were refused, releases that differ, and Xids that agents repeat."""

from pathlib import Path

import pytest

from nemesis.producers.readers.kernel_line import parse_line
from nemesis.producers.readers.notes import text_line
from tests.told import summary, told

GPU = "GPU-01234567-89ab-cdef-0123-456789abcdef"


def test_a_shared_memory_segment_that_finds_no_room_is_a_setting_and_no_disk(
    tmp_path: Path,
) -> None:
    line = "n1:1:2 [0] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left"
    answer = told(tmp_path, log=f"{line} on device\n")
    assert summary(answer) == ("attributed", "host.config", ["config/n1/shm"])


def test_whoever_says_the_limit_that_it_met_proves_the_limit(tmp_path: Path) -> None:
    line = (
        "[1700000000.123456] [n1:7:0] ib_log.c:246 UCX ERROR mlx5_0: ibv_create_cq() failed: Cannot"
        " allocate memory. Please set max locked memory (ulimit -l) to 'unlimited' (current: {}"
        " kbytes)\n"
    )
    low = told(tmp_path, log=line.format(64))
    assert summary(low)[:2] == ("attributed", "host.config")
    assert summary(low)[2][0].endswith("/memlock")
    high = told(tmp_path, log=line.format(64 << 20))
    assert summary(high) == ("class-only", "host.config", [])


@pytest.mark.parametrize(
    ("line", "fault_class"),
    [
        ("NCCL WARN Call to ibv_reg_mr_iova2 failed with error Bad address", "host.config"),
        (
            "NCCL WARN Call to ibv_reg_dmabuf_mr failed with error Operation not supported",
            "host.config",
        ),
        ("NCCL WARN NET/IB : Unable to open device rdma_7", "network.config"),
        ("NCCL WARN Mismatched collective detected, please check around rank 5", "desync"),
        ("RuntimeError: CUDA error: uncorrectable NVLink error detected during", "nvlink"),
        ("UserWarning: CUDA initialization: Error 802: system not yet initialized", "host.service"),
        ("Warning Evicted pod/a The node was low on resource: memory. Container b", "host.oom"),
        ("Warning Evicted pod/a Pod ephemeral local storage usage exceeds the total", "storage"),
    ],
)
def test_a_line_tells_the_kind_of_fault_and_no_part(
    tmp_path: Path, line: str, fault_class: str
) -> None:
    assert summary(told(tmp_path, log=f"{line}\n")) == ("class-only", fault_class, [])


def test_an_xid_that_an_agent_repeats_is_read_like_the_kernels_own(tmp_path: Path) -> None:
    line = "I0101 00:00:01.000000 1 health.go:1] XidCriticalError: Xid={} on Device={}; marking\n"
    memory = told(tmp_path, log=line.format(94, GPU))
    assert summary(memory) == ("attributed", "gpu.memory", [f"gpu/localhost/{GPU}"])
    program = told(tmp_path, log=line.format(13, GPU))
    assert summary(program) == ("class-only", "app.program", [])


def test_the_one_host_with_another_release_of_nccl_is_named_where_something_failed(
    tmp_path: Path,
) -> None:
    hosts = {
        f"n{at}": f"n{at}:1:1 [0] NCCL INFO NCCL version 2.{minor}.3+cuda12.1\n"
        for at, minor in enumerate((18, 18, 20))
    }
    assert summary(told(tmp_path, **hosts)) == ("insufficient", "unknown", [])
    hosts["n0"] += "n0:1:9 [0] bootstrap.cc:7 NCCL WARN Message truncated : received 64 bytes\n"
    answer = told(tmp_path, **hosts)
    assert summary(answer) == ("attributed", "software.version", ["software/n2/nccl-2.20.3"])


def test_of_two_releases_nobody_knows_which_one_is_right(tmp_path: Path) -> None:
    first = "a1:1:1 [0] NCCL INFO NCCL version 2.18.3+cuda12.1\n"
    other = "b1:1:1 [0] NCCL INFO NCCL version 2.20.3+cuda12.1\nb1:1:1 [0] NCCL WARN truncated\n"
    answer = told(tmp_path, a1=first, b1=other)
    assert summary(answer) == ("class-only", "software.version", [])


def test_a_clock_of_the_wall_in_brackets_is_no_uptime() -> None:
    wall = parse_line("[1700000000.123456] [n1:7:0] something")
    kernel = parse_line("[ 1700000.123456] something")
    assert wall is not None
    assert kernel is not None
    assert (wall.clock, wall.from_kernel) == ("wall", None)
    assert (kernel.clock, kernel.from_kernel) == ("uptime", True)


@pytest.mark.parametrize(
    ("raw", "rank", "text"),
    [
        (" 3: [rank7]: ValueError: no", 7, "ValueError: no"),
        ("12: RuntimeError: no", -1, "RuntimeError: no"),
        ("[1,26]<stderr>:RuntimeError: no", 26, "RuntimeError: no"),
        ("2: eth0: <UP> mtu 1500", -1, "2: eth0: <UP> mtu 1500"),
    ],
)
def test_prefixes_of_srun_and_mpirun_are_no_part_of_a_line(raw: str, rank: int, text: str) -> None:
    line = text_line(1, raw)
    assert (line.rank, line.text) == (rank, text)
