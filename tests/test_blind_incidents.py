"""Promises that sixty public incidents asked for, which nobody had looked at before the rules ran.

Typed from the formats of tools and of public threads (NVIDIA/nvidia-container-toolkit#48,
NVIDIA/nccl#1488, leptonai/gpud#46, ROCm/rccl#1423); labels were written before the first run.
"""

from pathlib import Path

import pytest

from tests.told import summary, told

XID = "[{at}.1] NVRM: Xid (PCI:0000:cb:00): {code}, pid=7, name=pt, {rest}\n"
WITHDRAWN = "$ nvidia-smi -L\nFailed to initialize NVML: Unknown Error\n"
ROW = (
    "|   {n}  Tesla V100-SXM2...  On   | 00000000:1{n}:00.0 Off |                    0 |\n"
    "| N/A   58C    P0   {draw}W / {limit}W |  14042MiB / 16384MiB |    100%      Default |\n"
)
RDMA = "link mlx5_{n}/1 subnet_prefix fe80:0000:0000:0000 lid 3 sm_lid 1 lmc 0 state {state}\n"
IBSTAT = "CA 'mlx5_7'\n\tPort 1:\n\t\tState: Down\n\t\tPhysical state: {light}\n"
LSPCI = "{bus}:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev {revision})\n"
FLAP = (
    "[{at}.10] mlx5_core 0000:{bus}:00.0 eth{n}: Link down\n"
    "[{at}.90] mlx5_core 0000:{bus}:00.0 eth{n}: Link up\n"
)
HUNG = (
    "[rank{r}]:[E ProcessGroupNCCL.cpp:629] [Rank {r}] Watchdog caught collective operation"
    " timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000)"
    " ran for 600012 milliseconds before timing out.\n"
)


def test_a_context_that_does_not_leave_after_a_bad_access_is_the_programs(tmp_path: Path) -> None:
    late = XID.format(at=105, code=109, rest="Ch 8, errorString CTX SWITCH TIMEOUT, Info 0x58005")
    bad = XID.format(at=100, code=13, rest="Graphics SM Warp Exception: Illegal Instruction")
    assert summary(told(tmp_path, dmesg=late))[1:] == (
        "gpu.driver",
        ["gpu/localhost/0000:cb:00.0"],
    )
    assert summary(told(tmp_path, dmesg=bad + late))[1:] == ("app.program", ["program/job"])


def test_what_nccl_itself_asked_of_cuda_is_not_the_programs_fault(tmp_path: Path) -> None:
    line = "n1:1:2 [2] {} NCCL WARN Cuda failure 1 '{}'\n"
    refused = told(tmp_path, log=line.format("transport/nvls.cc:244", "invalid argument"))
    assert summary(refused) == ("insufficient", "unknown", [])
    # an illegal access stays with the process and shows in whatever is called next
    sticky = told(tmp_path, log=line.format("enqueue.cc:1", "an illegal memory access was met"))
    assert sticky.fault_class == "app.program"


def test_gpus_withdrawn_from_a_container_are_a_setting_and_no_gpu(tmp_path: Path) -> None:
    assert summary(told(tmp_path, inside=WITHDRAWN)) == ("class-only", "host.config", [])
    journal = "Jul 14 16:20:01 w7 systemd[1]: Reloading.\n"
    named = ("attributed", "host.config", ["config/w7/container-devices"])
    assert summary(told(tmp_path, inside=WITHDRAWN, journal=journal)) == named


@pytest.mark.parametrize(
    "words",
    [
        "Error 803: system has unsupported display driver / cuda driver combination",
        "Error 804: forward compatibility was attempted on non supported HW",
    ],
)
def test_a_driver_that_does_not_fit_its_library_is_named(tmp_path: Path, words: str) -> None:
    answer = told(
        tmp_path, log=f"RuntimeError: Unexpected error from cudaGetDeviceCount(). {words}\n"
    )
    assert summary(answer)[1:] == ("software.version", ["software/localhost/nvidia-driver"])


def test_a_worker_struck_by_a_bus_error_had_no_shared_memory(tmp_path: Path) -> None:
    struck = "RuntimeError: DataLoader worker (pid 13) is killed by signal: Bus error.\n"
    assert summary(told(tmp_path, log=struck)) == ("class-only", "host.config", [])
    full = "tmpfs                 24G   23G  1.1G  96% /dev/shm\n"
    answer = told(tmp_path, log=struck, df=full)
    assert summary(answer)[1:] == ("host.config", ["config/localhost/shm"])


def test_a_quota_is_a_file_system_that_refused(tmp_path: Path) -> None:
    raised = "[rank0]: OSError: [Errno 122] Disk quota exceeded: '/lustre/run/LATEST'\n"
    assert told(tmp_path, log=raised).fault_class == "storage"


def test_an_old_refusal_without_a_reason_needs_the_limit_beside_it(tmp_path: Path) -> None:
    old = "n1:2:2 [0] misc/ibvwrap.cu:269 WARN Call to ibv_create_qp failed\n"
    assert summary(told(tmp_path, log=old)) == ("insufficient", "unknown", [])
    limit = "max locked memory       (kbytes, -l) 64\n"
    assert summary(told(tmp_path, log=old, limits=limit))[2] == ["config/n1/memlock"]


def test_of_gpus_of_one_make_the_one_held_by_a_lower_limit_is_slow(tmp_path: Path) -> None:
    usual = "".join(ROW.format(n=n, draw=290, limit=300) for n in range(3))
    held = told(tmp_path, smi=usual + ROW.format(n=3, draw=149, limit=150))
    assert summary(held)[1:] == ("straggler.gpu", ["gpu/localhost/0000:13:00.0"])
    idle = told(tmp_path, smi=usual + ROW.format(n=3, draw=60, limit=150))
    assert (idle.verdict, idle.culprits) == ("class-only", [])
    assert told(tmp_path, smi=usual + ROW.format(n=3, draw=290, limit=295)).verdict == "no-fault"


def test_a_port_that_rdma_link_shows_down_and_nccl_used_is_named(tmp_path: Path) -> None:
    up = RDMA.format(n=0, state="ACTIVE physical_state LINK_UP")
    down = RDMA.format(n=7, state="DOWN physical_state POLLING")
    error = "vm2:5:5 [7] net_ib.cc:98 NCCL WARN NET/IB : mlx5_7:1 Got async event : port error\n"
    assert told(tmp_path, links=up + down).culprits == []
    assert summary(told(tmp_path, links=up + down, log=error))[2] == ["nic/vm2/mlx5_7"]


def test_ports_that_are_all_down_are_no_all_clear(tmp_path: Path) -> None:
    assert told(tmp_path, ib=IBSTAT.format(light="Polling")).verdict == "insufficient"
    unset = told(tmp_path, ib=IBSTAT.format(light="LinkUp"))
    assert summary(unset) == ("class-only", "network.fabric", [])


def test_a_gpu_that_reads_as_all_ones_has_left_the_bus(tmp_path: Path) -> None:
    gone = LSPCI.format(bus="1c", revision="ff")
    beside = "".join(LSPCI.format(bus=bus, revision="a1") for bus in ("1a", "1d"))
    named = ("attributed", "gpu.off_bus", ["gpu/localhost/0000:1c:00.0"])
    assert summary(told(tmp_path, pci=beside + gone)) == named
    assert summary(told(tmp_path, pci=gone)) == ("class-only", "gpu.off_bus", [])


def test_access_control_is_read_where_grep_left_the_bridges_out(tmp_path: Path) -> None:
    acs = "\t\tACSCtl: SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl-\n"
    answer = told(tmp_path, acs=acs, log=HUNG.format(r=0) + HUNG.format(r=1))
    assert summary(answer)[1:] == ("host.config", ["config/localhost/pci-acs"])


def test_one_link_that_flaps_is_named_and_several_are_not(tmp_path: Path) -> None:
    flaps = [FLAP.format(at=at, bus="5e", n=1) for at in (100, 190, 260, 340)]
    answer = told(tmp_path, dmesg="".join(flaps))
    assert summary(answer)[1:] == ("network.link", ["nic/localhost/0000:5e:00.0"])
    more = [FLAP.format(at=at + 1, bus="6e", n=2) for at in (100, 190, 260, 340)]
    both = "".join(one + other for one, other in zip(flaps, more, strict=True))
    assert told(tmp_path, dmesg=both).culprits == []
    assert told(tmp_path, dmesg=flaps[0]).culprits == []


@pytest.mark.parametrize(
    "line",
    [
        # where a pattern could divide a line in many ways, each of these took seconds to minutes
        "[rank0]: " + " " * 4000,
        " " + "A" * 300 + "!",
        "error " + "\t" * 4000 + "x",
        "error " + "/a" * 2000 + "!",
    ],
    ids=["blanks", "one word", "tabs", "a path"],
)
def test_a_line_without_end_is_read_like_any_other(tmp_path: Path, line: str) -> None:
    ended = "training finished successfully\n"
    assert told(tmp_path, log=f"{line}\n{ended}").verdict in ("no-fault", "insufficient")


BUILDS = " > building shuffle index with split [0, 4096) and [4096, 5120) ...\n"
WAITED = (
    "RuntimeError: [1] is setting up NCCL communicator and retreiving ncclUniqueId from [0] via"
    " c10d key-value store by key '0', but store->get('0') got error: Socket Timeout\n"
)
BAR = "Running tokenizer on dataset: {done}%|####  | 383700/433643 [29:5{at}<03:25, 2432.70 it/s]\n"


def test_rank_0_that_builds_an_index_keeps_the_others_waiting(tmp_path: Path) -> None:
    others = "".join(HUNG.format(r=r) for r in (1, 2, 3))
    answer = told(tmp_path, log=BUILDS + others)
    assert summary(answer)[1:] == ("app.timeout", ["rank/job/0"])
    # of whom nothing is known may only have printed nothing, and rank 0 that gave up waited, too
    assert summary(told(tmp_path, log=others))[2] == []
    late = others.replace("SeqNum=1,", "SeqNum=9000,")
    assert summary(told(tmp_path, log=BUILDS + late))[2] == []
    with_0 = "".join(HUNG.format(r=r) for r in (0, 1, 3))
    assert summary(told(tmp_path, log=BUILDS + with_0))[2] == []


def test_who_did_not_begin_a_communicator_is_named_with_what_it_did(tmp_path: Path) -> None:
    assert summary(told(tmp_path, log=WAITED)) == ("class-only", "app.stall", [])
    begun = "Loading checkpoint from /data/7b ...\n"
    assert summary(told(tmp_path, log=begun + WAITED))[2] == []
    bars = "".join(BAR.format(done=80 + at, at=at) for at in range(5))
    answer = told(tmp_path, log=bars + WAITED)
    assert summary(answer)[1:] == ("app.timeout", ["rank/job/0"])
    assert [each.line for each in answer.evidence if "84%" in each.text] == [5]


def test_what_drivers_print_of_ending_programs_is_no_second_fault_in_a_bundle(
    tmp_path: Path,
) -> None:
    stopped = (
        "May 02 08:20:02 n2 kernel: NVRM: Xid (PCI:0000:1a:00): 43, pid=7, name=python3, Ch 8\n"
        "May 02 08:20:02 n2 kernel: NVRM: Xid (PCI:0000:1b:00): 45, pid=8, name=python3, Ch 8\n"
    )
    assert told(tmp_path, n2=stopped).fault_class == "app.program"
    broken = (
        "May 02 08:{at}:01 n1 kernel: mlx5_core 0000:41:00.0: poll_health:852:(pid 0): device's"
        " health compromised - reached miss count\n"
    )
    answer = told(tmp_path, n1=broken.format(at=10))
    assert (summary(answer)[2], answer.others) == (["nic/n1/0000:41:00.0"], [])
    # a part that failed afterwards ended nobody before
    assert len(told(tmp_path, n1=broken.format(at=50)).others) == 1
