"""What only means something when it is told again and again, and what schedulers and RAS list."""

from pathlib import Path

import pytest

from tests.told import summary, told

UP = "[{at}.100000] mlx5_core 0000:5e:00.0 eth4: Link up\n"
DOWN = "[{at}.100000] mlx5_core 0000:5e:00.0 eth4: Link down\n"
CORRECTED = "[{at}.100000] EDAC MC0: {count} CE memory read error on {module} (channel:0 slot:0)\n"
RAS = (
    "#0-0 (fa93daea854b060b) MISMATCH\n"
    "  Communicator ranks have different AllGather operation counts\n"
    "  {many} ranks have launched up to operation {most}\n"
    "  2 ranks have launched up to operation {few}\n"
    "  Rank 12 -- GPU 4 managed by process 323032 on node 10.137.190.124\n"
    "  Rank 13 -- GPU 5 managed by process 323033 on node 10.137.190.124\n"
)
CHECKS = {
    "NHC: check_fs_mount: /scratch not mounted": "storage",
    "nvidia health: GPU 3 row remapping pending": "gpu.memory",
    "Low RealMemory": "host.config",
    "node n1 has low real_memory size (900000 < 1031000)": "host.memory",
    "node n1 has low real_memory size (1030000 < 1031000)": "host.config",
}


def test_a_link_that_comes_up_once_a_boot_is_well(tmp_path: Path) -> None:
    hours_apart = "".join(UP.format(at=at) for at in range(1000, 20_000, 4000))
    assert told(tmp_path, dmesg=hours_apart).verdict == "no-fault"


def test_ups_after_downs_count_no_more_than_the_downs(tmp_path: Path) -> None:
    once = DOWN.format(at=1000) + UP.format(at=1009)
    assert told(tmp_path, dmesg=once).culprits == []


def test_a_few_corrected_errors_are_nothing_and_many_of_one_module_name_it(tmp_path: Path) -> None:
    few = CORRECTED.format(at=100, count=9, module="DIMM_A1")
    assert told(tmp_path, dmesg=few).verdict == "no-fault"
    many = few + CORRECTED.format(at=900, count=1, module="DIMM_A1")
    named = ("attributed", "host.memory", ["dimm/localhost/DIMM_A1"])
    assert summary(told(tmp_path, dmesg=many)) == named
    days_apart = few + CORRECTED.format(at=200_000, count=9, module="DIMM_A1")
    assert told(tmp_path, dmesg=days_apart).verdict == "no-fault"


def test_corrected_errors_explain_no_job_that_hangs(tmp_path: Path) -> None:
    many = CORRECTED.format(at=100, count=50, module="DIMM_A1")
    hung = (
        "[rank0]:[E ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation"
        " timeout: WorkNCCL(SeqNum=91, OpType=ALLREDUCE, NumelIn=1, NumelOut=1,"
        " Timeout(ms)=600000) ran for 600012 milliseconds before timing out.\n"
    )
    assert told(tmp_path, dmesg=many, log=hung).culprits == []


def test_of_crowds_that_ras_counts_the_few_that_are_behind_are_named(tmp_path: Path) -> None:
    ahead = told(tmp_path, ras=RAS.format(many=30, most=640, few=641))
    assert (ahead.verdict, ahead.culprits) == ("insufficient", [])
    behind = told(tmp_path, ras=RAS.format(many=30, most=640, few=639))
    assert summary(behind)[1:] == ("app.stall", ["rank/job/12", "rank/job/13"])
    half = told(tmp_path, ras=RAS.format(many=3, most=640, few=639))
    assert half.culprits == []


@pytest.mark.parametrize("reason", CHECKS)
def test_why_a_node_was_drained_tells_the_kind_and_no_part(tmp_path: Path, reason: str) -> None:
    log = f"[2024-08-13T10:20:03.698] error: Setting node n1 state to DRAIN with reason:{reason}\n"
    assert summary(told(tmp_path, slurmctld=log)) == ("class-only", CHECKS[reason], [])


def test_nodes_of_a_list_of_reasons_are_written_out(tmp_path: Path) -> None:
    rows = "REASON               USER      TIMESTAMP           NODELIST\n"
    rows += "Low socket*core       root      2019-05-07T18:16:10 ip-10-0-1-[6-7],n9\n"
    answer = told(tmp_path, sinfo=rows)
    assert answer.fault_class == "host.config"
    assert "node/ip-10-0-1-6, node/ip-10-0-1-7, node/n9" in answer.reason
