"""Incidents as people hand them in: several hosts, old logs, and trouble that is somebody else's.

Typed from the formats of tools and of public threads (NVIDIA/nccl#354, #606, pytorch#118369);
labels were written before the first run.
"""

from pathlib import Path

from tests.told import summary, told

OLD_JOURNAL = (
    "May 02 08:10:01 n2 kernel: NVRM: Xid (PCI:0000:4c:00): 79, pid='<unknown>',"
    " name=<unknown>, GPU has fallen off the bus.\n"
    "May 02 08:44:33 n2 kernel: Linux version 5.15.0-105-generic\n"
    "May 02 08:45:01 n2 kernel: NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15\n"
)
FULL_DISK = (
    "2025-05-{day} 16:02:40,871 INFO saving checkpoint to /scratch/step_18000\n"
    "OSError: [Errno 28] No space left on device: '/scratch/step_18000/mp_rank_03.pt'\n"
)
COMPLETION = (
    "n14:33:90 [7] transport/net_ib.cc:2236 NCCL WARN NET/IB: Got completion from peer"
    " 10.2.0.15<40112> with status=12 opcode=0 len=0 vendor err 129 (Send) hca mlx5_9\n"
)
PORTS = (
    "CA 'mlx5_9'\n\tPort 1:\n\t\tState: Down\n\t\tPhysical state: Polling\n"
    "CA 'mlx5_8'\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n"
)
TRIED_OUT = (
    "[88110.2] NVRM: Xid (PCI:0000:db:00): 13, pid=7120, name=jupyter-lab, Graphics SM Warp"
    " Exception on (GPC 2, TPC 1, SM 0): Out Of Range Address\n"
)
ALL_REDUCE = (
    "# nThread 1 nGpus 1 minBytes 8388608 maxBytes 1073741824 step: 2(factor)\n"
    "#  Rank  0 Group  0 Pid 900 on p4 device  0 [0x19] NVIDIA H100 80GB HBM3\n"
    "#  Rank  1 Group  0 Pid 901 on p5 device  0 [0x19] NVIDIA H100 80GB HBM3\n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong"
    "     time   algbw   busbw #wrong\n"
    "     8388608       2097152     float     sum      -1    171.2   49.00   91.87      0"
    "    170.8   49.11   92.09      0\n"
    "   134217728      33554432     float     sum      -1    812.1  165.27  309.89      0"
    "    810.9  165.52  310.35      0\n"
    "  1073741824     268435456     float     sum      -1   5510.0  194.87  365.39      0"
    "   5508.1  194.94  365.51      0\n"
    "# Out of bounds values : 0 OK\n"
)
STARTS = "{0}:10:10 [0] NCCL INFO cudaDriverVersion 12020\nNCCL version {1}+cuda12.1\n"
TRUNCATED = (
    "wb:20:24 [0] bootstrap.cc:93 NCCL WARN Message truncated : received 64 bytes instead of 40\n"
)


def test_a_fault_of_an_earlier_boot_is_not_why_a_later_job_died(tmp_path: Path) -> None:
    answer = told(tmp_path, {"journal": OLD_JOURNAL, "job": FULL_DISK.format(day="23")})
    assert (answer.fault_class, answer.culprits) == ("storage", [])
    assert any("earlier boot" in note for note in answer.notes)


def test_a_boot_after_a_job_died_leaves_the_fault_before_it_alone(tmp_path: Path) -> None:
    answer = told(tmp_path, {"journal": OLD_JOURNAL, "job": FULL_DISK.format(day="01")})
    assert [each.id for each in answer.culprits] == ["gpu/n2/0000:4c:00.0"]


def test_a_port_that_a_job_uses_and_that_is_down_comes_before_a_test_beside_it(
    tmp_path: Path,
) -> None:
    files = {"n14.dmesg": TRIED_OUT, "n15.ibstat": PORTS, "job.log": COMPLETION}
    answer = told(tmp_path, files)
    assert answer.fault_class == "network.link"
    assert [each.id for each in answer.culprits] == ["nic/n15/mlx5_9"]


def test_a_file_of_a_host_like_the_known_one_is_not_of_the_known_one(tmp_path: Path) -> None:
    answer = told(tmp_path, {"n15.ibstat": PORTS, "job.log": COMPLETION})
    assert [each.id for each in answer.culprits] == ["nic/n15/mlx5_9"]


def test_small_messages_of_a_test_are_not_a_slow_way_between_its_hosts(tmp_path: Path) -> None:
    assert summary(told(tmp_path, log=ALL_REDUCE))[:2] == ("no-fault", "none")


def test_releases_are_of_the_hosts_that_nccl_names_in_their_files(tmp_path: Path) -> None:
    files = {
        "wa.log": STARTS.format("wa", "2.18.3"),
        "wb.log": STARTS.format("wb", "2.21.5") + TRUNCATED,
    }
    assert told(tmp_path, files).fault_class == "software.version"
