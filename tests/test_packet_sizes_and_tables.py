"""Promises about packet sizes of hosts, reporters of adapters, tables of Slurm, failed modules."""

from pathlib import Path

import pytest

from tests.told import summary, told

WAITS = (
    "[rank0]:[E ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=3, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=60000) ran for 60001\n"
)


def interface(mtu: int, name: str = "rail0") -> str:
    return f"3: {name}: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu {mtu} qdisc mq state UP\n"


def hosts(*sizes: int) -> dict[str, str]:
    return {f"h{at}/ip-addr.txt": interface(size) for at, size in enumerate(sizes)}


def test_the_one_host_with_other_packets_is_named_where_a_job_waits(tmp_path: Path) -> None:
    answer = told(tmp_path, hosts(9000, 1500, 9000) | {"log": WAITS})
    assert summary(answer) == ("attributed", "network.config", ["config/h1/rail0-mtu"])


def test_packets_of_two_sizes_on_two_hosts_name_neither(tmp_path: Path) -> None:
    answer = told(tmp_path, hosts(9000, 1500) | {"log": WAITS})
    assert summary(answer) == ("class-only", "network.config", [])


def test_what_ranks_did_outweighs_packets_of_other_sizes(tmp_path: Path) -> None:
    called = [WAITS.replace("ank 0", f"ank {r}").replace("rank0", f"rank{r}") for r in range(4)]
    called.append(called[3].replace("ank 3", "ank 4").replace("rank3", "rank4").replace("=8", "=9"))
    answer = told(tmp_path, hosts(9000, 1500, 9000) | {"log": "".join(called)})
    assert summary(answer) == ("attributed", "desync", ["rank/job/4"])


def test_packets_of_other_sizes_blame_nothing_where_nothing_failed(tmp_path: Path) -> None:
    assert summary(told(tmp_path, hosts(9000, 1500, 9000)))[1:] == ("none", [])


def test_interfaces_that_end_on_their_host_or_are_down_are_not_compared(tmp_path: Path) -> None:
    files = {f"h{at}/ip-addr.txt": interface(1500 + at, "docker0") for at in range(3)}
    files["h0/ip-addr.txt"] += "4: rail1: <BROADCAST,MULTICAST> mtu 1500 qdisc noop state DOWN\n"
    files["h1/ip-addr.txt"] += interface(9000, "rail1")
    assert summary(told(tmp_path, files | {"log": WAITS}))[:2] == ("insufficient", "unknown")


@pytest.mark.parametrize(
    ("state", "named"), [("error", ["nic/localhost/0000:3b:00.1"]), ("healthy", [])]
)
def test_a_reporter_of_firmware_in_error_names_its_adapter(
    tmp_path: Path, state: str, named: list[str]
) -> None:
    text = (
        "pci/0000:3b:00.0:\n  reporter fw_fatal\n    state healthy error 0 recover 0\n"
        f"pci/0000:3b:00.1:\n  reporter fw_fatal\n    state {state} error 1 recover 0\n"
    )
    answer = told(tmp_path, {"devlink.txt": text})
    assert [each.id for each in answer.culprits] == named


def test_a_queue_that_was_recovered_is_no_fault_of_an_adapter(tmp_path: Path) -> None:
    text = "pci/0000:3b:00.0/1:\n  reporter tx\n    state healthy error 4 recover 4\n"
    assert told(tmp_path, {"devlink.txt": text}).culprits == []


@pytest.mark.parametrize(
    "table",
    [
        "JobID|JobName|State|ExitCode|NodeList\n7|train|NODE_FAIL|1:0|gn07\n",
        "JobID         JobName      State NodeList\n------------ -------- ---------- --------\n"
        "7               train  NODE_FAIL     gn07\n",
        "NODELIST NODES PARTITION STATE REASON\ngn07 1 gpu* down* Not responding\n",
    ],
)
def test_a_table_of_slurm_names_the_one_node_that_was_lost(tmp_path: Path, table: str) -> None:
    assert summary(told(tmp_path, {"table": table})) == ("attributed", "unknown", ["node/gn07"])


def test_of_a_job_that_lost_one_of_eight_nodes_nobody_is_named(tmp_path: Path) -> None:
    table = "JobID|JobName|State|ExitCode|NodeList\n7|train|NODE_FAIL|1:0|gn[01-08]\n"
    assert summary(told(tmp_path, {"table": table})) == ("insufficient", "unknown", [])


def test_a_module_that_is_called_bad_counts_once_its_link_is_down(tmp_path: Path) -> None:
    bad = (
        "[1.5] mlx5_core 0000:5e:00.0: Port module event[error]: module 0, Cable error, Bus stuck\n"
    )
    down = "[2.500000] mlx5_core 0000:5e:00.0 rail5: Link down\n"
    assert summary(told(tmp_path, {"dmesg": bad.replace("1.5", "1.500000")}))[2] == []
    answer = told(tmp_path, {"dmesg": bad.replace("1.5", "1.500000") + down})
    assert summary(answer) == ("attributed", "network.link", ["nic/localhost/0000:5e:00.0"])


def test_a_file_server_that_lustre_lost_is_the_storage_and_no_node(tmp_path: Path) -> None:
    line = (
        "[9.100000] Lustre: fs1-OST0003-osc-ff00: Connection to fs1-OST0003 (at 10.9.0.4@o2ib) was"
        " lost; in progress operations using this service will wait for recovery to complete\n"
    )
    assert summary(told(tmp_path, {"dmesg": line})) == ("class-only", "storage", [])


def test_a_firmware_that_lets_commands_time_out_names_its_adapter(tmp_path: Path) -> None:
    line = "[9.100000] bnxt_en 0000:17:00.0 rail1: Error (timeout: 500015) msg {0x41 0x4b} len:0\n"
    answer = told(tmp_path, {"dmesg": line})
    assert summary(answer) == ("attributed", "nic", ["nic/localhost/0000:17:00.0"])


def test_a_vendors_test_that_failed_of_no_gpu_in_particular_blames_none(tmp_path: Path) -> None:
    table = (
        "| Diagnostic                | Result                                         |\n"
        "+===========================+================================================+\n"
        "+-----  Integration  -------+------------------------------------------------+\n"
        "| PCIe                      | Fail - All                                     |\n"
    )
    assert summary(told(tmp_path, {"diag": table})) == ("insufficient", "unknown", [])
