"""Readers of schedulers' and switches' documents, NCCL's Inspector, ibdiagnet, maps and tables.

Every sample is typed from the documented format; the modules name their sources.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nemesis.processors.attribution.code_catalogue import code_rows
from nemesis.producers.readers.documents.json_file import read_json_file
from nemesis.schemas.registry import BY_STRUCT
from tests.told import summary, told


def account(state: Any, **more: Any) -> str:
    job = {"job_id": 71, "state": {"current": state, "reason": "None"}, "nodes": "n4", **more}
    return json.dumps({"meta": {}, "jobs": [job]}, indent=1)


@pytest.mark.parametrize("state", [["OUT_OF_MEMORY"], "OUT_OF_MEMORY"])
def test_sacct_as_json_tells_what_the_scheduler_ended(tmp_path: Path, state: Any) -> None:
    answer = told(tmp_path, {"sacct.json": account(state)})
    assert summary(answer) == ("class-only", "host.oom", [])
    assert (answer.evidence[0].file, answer.evidence[0].line) == ("sacct.json", 5)


def test_a_job_that_lost_its_one_node_names_it(tmp_path: Path) -> None:
    answer = told(tmp_path, {"sacct.json": account(["NODE_FAIL"])})
    assert summary(answer) == ("attributed", "unknown", ["node/n4"])


def test_a_job_that_failed_is_no_all_clear_and_one_that_ended_well_is(tmp_path: Path) -> None:
    assert told(tmp_path, {"a.json": account(["FAILED"])}).verdict == "insufficient"
    assert told(tmp_path, {"a.json": account(["COMPLETED"])}).verdict == "no-fault"


def test_a_job_as_scontrol_shows_it(tmp_path: Path) -> None:
    job = (
        "JobId=88 JobName=train\n   UserId=a(1) GroupId=a(1)\n"
        "   JobState={} Reason=None Dependency=(null)\n   ExitCode=0:125\n   NodeList=n[1-2]\n"
    )
    answer = told(tmp_path, a=job.format("OUT_OF_MEMORY"))
    assert summary(answer) == ("class-only", "host.oom", [])
    assert answer.evidence[0].line == 3
    assert told(tmp_path, a=job.format("COMPLETED")).verdict == "no-fault"


def test_a_table_of_sacct_with_any_columns(tmp_path: Path) -> None:
    table = "JobID|JobName|State|ExitCode\n9|a|TIMEOUT|0:0\n"
    assert summary(told(tmp_path, a=table)) == ("class-only", "app.timeout", [])


CONDITIONS = """Name:               gpu-7
Conditions:
  Type              Status  LastHeartbeatTime                 LastTransitionTime                Reason               Message
  ----              ------  -----------------                 ------------------                ------               -------
  MemoryPressure    {memory}   Mon, 05 Jan 2026 10:00:00 +0000   Mon, 05 Jan 2026 09:00:00 +0000   KubeletHasMemory     kubelet says so
  Ready             {ready}    Mon, 05 Jan 2026 10:00:00 +0000   Mon, 05 Jan 2026 09:00:00 +0000   KubeletReady         posting status
"""  # noqa: E501


def test_conditions_of_a_node_say_what_it_is_short_of(tmp_path: Path) -> None:
    answer = told(tmp_path, a=CONDITIONS.format(memory="True", ready="True"))
    assert summary(answer) == ("class-only", "host.oom", [])
    lost = told(tmp_path, a=CONDITIONS.format(memory="Unknown", ready="Unknown"))
    assert summary(lost) == ("attributed", "unknown", ["node/gpu-7"])


def notification(port: str, errors: int) -> str:
    path = f"interfaces/interface[name={port}]/state/counters"
    values = {"interfaces/interface/state/counters": {"in-errors": str(errors), "in-octets": "9"}}
    own = {"source": "leaf4:57400", "timestamp": 1, "updates": [{"Path": path, "values": values}]}
    return json.dumps(own) + "\n"


def test_a_stream_of_gnmi_notifications_names_the_port_whose_errors_rise(tmp_path: Path) -> None:
    stream = notification("Ethernet4", 2) + notification("Ethernet8", 0)
    stream += notification("Ethernet4", 99) + notification("Ethernet8", 0)
    answer = told(tmp_path, {"gnmi.json": stream})
    assert summary(answer) == ("attributed", "network.link", ["port/leaf4/Ethernet4"])
    assert answer.evidence[0].line == 3


def test_gnmi_events_are_an_array(tmp_path: Path) -> None:
    event = {
        "name": "s",
        "timestamp": 1,
        "tags": {"interface_name": "swp3", "source": "leaf1"},
        "values": {"/interfaces/interface/state/counters/in-errors": 4},
    }
    later = event | {"values": {"/interfaces/interface/state/counters/in-errors": 40}}
    answer = told(tmp_path, {"a.json": json.dumps([event, later], indent=1)})
    assert summary(answer) == ("attributed", "network.link", ["port/leaf1/swp3"])


def record(rank: int, seq: int, took_us: int, *, header: bool = True) -> str:
    body: dict[str, Any] = {
        "coll_perf": {"coll": "AllReduce", "coll_sn": seq, "coll_exec_time_us": took_us}
    }
    head = {"header": {"id": "0xa1", "rank": rank, "n_ranks": 4, "nnodes": 1}}
    head |= {"metadata": {"hostname": f"n{rank // 2}", "pid": 5}}
    return json.dumps((head if header else {}) | body) + "\n"


@pytest.mark.parametrize("each_header", [True, False])
def test_the_rank_for_which_all_others_wait_is_late(tmp_path: Path, each_header: bool) -> None:
    files = {
        f"n{rank}.log": "".join(
            record(rank, seq, 300 if rank == 2 else 9000, header=each_header or not seq)
            for seq in range(8)
        )
        for rank in range(4)
    }
    answer = told(tmp_path, files)
    assert summary(answer) == ("attributed", "straggler.host", ["rank/job/2"])
    alike = {
        f"n{rank}.log": files["n0.log"].replace('"rank": 0', f'"rank": {rank}') for rank in range(4)
    }
    assert summary(told(tmp_path / "b", alike))[2] == []


def test_states_of_gpud_are_read_as_an_agents_word(tmp_path: Path) -> None:
    state = {"name": "xid", "health": "Unhealthy", "reason": "XID 79 on GPU 0000:9b:00.0"}
    document = [{"component": "accelerator-nvidia-error-xid", "states": [state]}]
    answer = told(tmp_path, {"states.json": json.dumps(document, indent=1)})
    assert summary(answer) == ("attributed", "gpu.off_bus", ["gpu/localhost/0000:9b:00.0"])
    well = [{"component": "cpu", "states": [{"name": "cpu", "health": "Healthy"}]}]
    assert told(tmp_path, {"states.json": json.dumps(well, indent=1)}).verdict == "no-fault"


PORT = """-------------------------------------------------------
Port=1 Lid=0x00a4 GUID=0xf45214030046a0a1 Device=4129 Port Name=host-3 mlx5_2/P1
-------------------------------------------------------
link_down_counter=0x0001
symbol_error_counter={}
"""


def test_counters_of_ibdiagnet_are_compared_and_one_reading_proves_little(tmp_path: Path) -> None:
    first = told(tmp_path, {"before/ibdiagnet2.pm": PORT.format("0x0")})
    assert first.verdict == "insufficient"
    answer = told(tmp_path, {"after/ibdiagnet2.pm": PORT.format("0x01ff")})
    assert summary(answer) == ("attributed", "network.link", ["nic/host-3/mlx5_2"])


def test_errors_in_the_log_of_ibdiagnet_are_cited(tmp_path: Path) -> None:
    log = (
        "-I- Discovering ... 48 nodes (4 Switches & 44 CA-s) discovered.\n"
        "-E- Link: leaf1/P17<-->host-3 mlx5_2/P1 - unexpected width\n"
        "-I- Stage                     Warnings   Errors     Comment\n"
        "-I- Links Check               0          {}\n"
    )
    answer = told(tmp_path, log=log.format(1))
    assert answer.verdict == "insufficient"
    assert {each.line for each in answer.evidence} == {2, 4}


def topology(*links: str) -> str:
    rows = [f"GPU{at}\t{row}\t0-31\t0" for at, row in enumerate(links)]
    return "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\n" + "\n".join(rows) + "\n"


def test_the_gpu_that_lost_its_nvlinks_is_the_odd_one_on_the_map(tmp_path: Path) -> None:
    few = ("X\tNV18\tNV4\tNV18", "NV18\tX\tNV4\tNV18", "NV4\tNV4\tX\tNV4", "NV18\tNV18\tNV4\tX")
    answer = told(tmp_path, topo=topology(*few))
    assert summary(answer) == ("attributed", "nvlink", ["gpu/localhost/2"])
    without = told(tmp_path, topo=topology(*few).replace("NV4", "SYS"))
    assert summary(without) == ("class-only", "nvlink", [])
    none = ("X\tPIX\tSYS\tSYS", "PIX\tX\tSYS\tSYS", "SYS\tSYS\tX\tPIX", "SYS\tSYS\tPIX\tX")
    assert summary(told(tmp_path, topo=topology(*none))) == ("no-fault", "none", [])


def test_a_matrix_of_hosts_names_the_one_that_is_slow_with_all(tmp_path: Path) -> None:
    matrix = "GB/s n1 n2 n3 n4\nhost n1 n2 n3 n4\n"
    rates = {(1, 2): 24, (1, 3): 9, (1, 4): 24, (2, 3): 9, (2, 4): 24, (3, 4): 9}
    for own in range(1, 5):
        cells = (
            "-" if own == other else str(rates[min(own, other), max(own, other)])
            for other in range(1, 5)
        )
        matrix += f"n{own} {' '.join(cells)}\n"
    answer = told(tmp_path, matrix=matrix)
    assert summary(answer) == ("attributed", "straggler.network", ["node/n3"])


def test_gpus_that_are_wired_unlike_are_no_fault(tmp_path: Path) -> None:
    matrix = (
        "Unidirectional P2P=Enabled Bandwidth Matrix (GB/s)\n   D\\D     0      1      2      3\n"
        "     0  790.0  24.0  12.1  12.0\n     1  24.1  790.0  12.0  12.0\n"
        "     2  12.1  12.0  790.0  24.0\n     3  12.0  12.0  24.0  790.0\n"
    )
    assert summary(told(tmp_path, matrix=matrix)) == ("no-fault", "none", [])


def test_the_one_release_that_differs_is_told_of_and_blamed_where_something_fails(
    tmp_path: Path,
) -> None:
    table = "host  driver      nccl\nn1    550.54.15   2.21.5\nn2    550.54.15   2.21.5\n"
    table += "n3    550.54.15   2.18.3\n"
    assert told(tmp_path, releases=table).verdict == "insufficient"
    failed = "n1:9:9 [0] bootstrap.cc:7 NCCL WARN Message truncated : received 64 bytes\n"
    answer = told(tmp_path, releases=table, log=failed)
    assert summary(answer) == ("attributed", "software.version", ["software/n3/nccl-2.18.3"])


def test_a_table_of_steps_with_no_numbers_is_no_all_clear(tmp_path: Path) -> None:
    rows = "".join(f"{at},100,100,{100 if at < 6 else 'nan'}\n" for at in range(12))
    answer = told(tmp_path, steps="step,rank0,rank1,rank2\n" + rows)
    assert answer.verdict == "insufficient"
    assert answer.evidence[0].line == 8


# Linux include/linux/mlx5/mlx5_ifc.h names the numbers, hsynd_str() in health.c says what they are
MLX5_SYNDROMES = {
    0x1: "firmware internal",
    0x7: "processor",
    0x8: "unrecoverable hardware",
    0x9: "checksum",
    0xA: "PCIe",
    0xB: "page",
    0xC: "queue of asynchronous events",
    0xD: "event queue failed",
    0xE: "event queue that does not exist",
    0xF: "serial link",
    0x10: "hot",
    0x12: "spoilt",
    0x13: "trust",
}


def test_syndromes_of_mlx5_are_the_kernels_own() -> None:
    rows = {int(each.code, 16): each.meaning for each in code_rows() if each.family == "nic"}
    assert rows.keys() == MLX5_SYNDROMES.keys()
    assert all(word in rows[code] for code, word in MLX5_SYNDROMES.items())


KEYS = st.sampled_from(
    [
        *(
            "header",
            "n_ranks",
            "rank",
            "id",
            "metadata",
            "hostname",
            "coll_perf",
            "coll_sn",
            "coll",
        ),
        *("coll_exec_time_us", "jobs", "job_id", "state", "current", "exit_code", "return_code"),
        *("nodes", "list", "steps", "step", "items", "apiVersion", "kind", "status", "conditions"),
        *(
            "type",
            "updates",
            "timestamp",
            "source",
            "Path",
            "values",
            "tags",
            "component",
            "states",
        ),
        *("health", "reason", "COUNTERS", "Ethernet1", "SAI_PORT_STAT_IF_IN_ERRORS", "in-errors"),
        *("communicators", "ranks", "collective_counts", "missing_ranks", "test_categories"),
    ]
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(["Node", "interface[name=x]", "FAILED", "Unhealthy", "9" * 30, "", "state"]),
)
DOCUMENTS = st.recursive(
    LEAVES,
    lambda below: st.one_of(st.lists(below, max_size=4), st.dictionaries(KEYS, below, max_size=6)),
    max_leaves=30,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.dictionaries(KEYS, DOCUMENTS, min_size=1, max_size=6), min_size=1, max_size=4))
def test_documents_of_any_shape_are_read_or_left(
    tmp_path: Path, documents: list[dict[str, Any]]
) -> None:
    path = tmp_path / "a.json"
    path.write_text("\n".join(json.dumps(each) for each in documents))
    found = read_json_file(path, "a.json")
    for each in found.notes if found else ():
        assert 1 <= each.number <= len(documents)
        kind = BY_STRUCT[type(each.observation)]
        stamped = msgspec.structs.replace(each.observation, node="n1")
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(stamped), type=kind.struct) == stamped
