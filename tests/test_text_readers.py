"""Promises of the readers of text: what each line of a format becomes, and where it was read."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemesis.producers.readers.bundle import read_bundle
from nemesis.producers.readers.bundle_facts import BundleFacts
from nemesis.producers.readers.notes import text_line
from nemesis.producers.readers.text_file import READERS
from nemesis.schemas.facts import observation_id
from nemesis.schemas.observed import (
    CountersRead,
    LogLineWritten,
    Observation,
    SettingRead,
    StepsTimed,
    TrialFinished,
)
from nemesis.schemas.registry import BY_STRUCT

SMI = """GPU 00000000:1B:00.0
    ECC Errors
        Volatile
            DRAM Uncorrectable            : 2
    Remapped Rows
        Pending                           : Yes
    Fabric
        State                             : In Progress
"""


def facts_of(tmp_path: Path, **files: str) -> list[tuple[Observation, int | None]]:
    """Every fact of files with these contents, with its line."""
    for name, content in files.items():
        (tmp_path / name).write_text(content, newline="")
    facts = BundleFacts(read_bundle([tmp_path]))
    found = []
    for fact in facts:
        origin = facts.origin(observation_id(BY_STRUCT[type(fact)].token, fact))
        assert origin is not None
        found.append((fact, origin.line))
    return found


def test_states_and_counters_of_a_gpu_carry_their_place_in_the_tree(tmp_path: Path) -> None:
    found = {
        (each.component, each.name if isinstance(each, SettingRead) else each.counters[0]): line
        for each, line in facts_of(tmp_path, smi=SMI)
        if isinstance(each, SettingRead | CountersRead)
    }
    gpu = "gpu/localhost/0000:1b:00.0"
    assert found == {
        (gpu, ("ecc_errors.volatile.dram_uncorrectable", 2)): 4,
        (gpu, "remapped_rows.pending"): 6,
        (gpu, "fabric.state"): 8,
    }


@pytest.mark.parametrize("ending", ["\r\n", "\n"])
def test_a_rank_and_a_host_are_taken_from_prefixes_through_colours(
    tmp_path: Path, ending: str
) -> None:
    lines = [
        "2026-01-02T03:04:05.123456789Z stderr F \x1b[31m[rank3]: ValueError: no\x1b[0m",
        "h-7:11:12 [0] transport/net_ib.cc:94 NCCL WARN NET/IB : Got async event : port error",
    ]
    found = [each for each, _ in facts_of(tmp_path, log=ending.join(lines) + ending)]
    assert [(each.source, each.rank) for each in found if isinstance(each, LogLineWritten)] == [
        ("program", 3),
        ("nccl", -1),
    ]
    assert found[-1].node == "h-7"
    assert found[0].at_ns == 1_767_323_045_123_456_789


def test_files_of_one_format_that_differ_in_a_word_are_of_the_hosts_it_names(
    tmp_path: Path,
) -> None:
    route = "10.0.0.0/8 dev eth0 proto kernel scope link src 10.1.1.1\n"
    found = facts_of(tmp_path, **{"route.a1.txt": route, "route.a2.txt": route})
    assert {each.node for each, _ in found} == {"a1", "a2"}


def test_a_table_of_step_times_gives_a_fact_a_row(tmp_path: Path) -> None:
    found = [
        each
        for each, _ in facts_of(tmp_path, t="step,rank0,rank1\n7,100,120.5\n8,x,1\n9,,110\n")
        if isinstance(each, StepsTimed)
    ]
    assert [(each.step, each.step_ns) for each in found] == [
        (7, (100_000_000, 120_500_000)),
        (9, (0, 110_000_000)),
    ]


def test_prose_is_no_table_of_runs_and_a_table_is(tmp_path: Path) -> None:
    prose = facts_of(tmp_path, a="we saw that it works\nthen n1 did hang\nnobody knows why\n")
    assert not any(isinstance(each, TrialFinished) for each, _ in prose)
    found = [
        each
        for each, _ in facts_of(tmp_path, b="# GB/s\nn1,n2  25\nn1,n3  39.5\n")
        if isinstance(each, TrialFinished)
    ]
    assert [(each.components, each.rate_kbps) for each in found] == [
        (("node/n1", "node/n2"), 25_000_000),
        (("node/n1", "node/n3"), 39_500_000),
    ]


def test_a_report_of_several_formats_in_one_file_is_read_whole(tmp_path: Path) -> None:
    kernel = "[   12.000001] NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.\n"
    unit = "nvidia-fabricmanager.service - manager\n     Active: inactive (dead)\n"
    kinds = {type(each).__name__ for each, _ in facts_of(tmp_path, report=kernel + SMI + unit)}
    assert kinds == {"KernelLineLogged", "SettingRead", "CountersRead"}


XML = """<nvidia_smi_log>
  <gpu id="00000000:1B:00.0">
    <remapped_rows>
      <remapped_row_pending>Yes</remapped_row_pending>
    </remapped_rows>
    <ecc_errors>
      <volatile>
        <sram_uncorrectable>3</sram_uncorrectable>
"""
SMI_TABLE = """| NVIDIA-SMI 570.1    Driver Version: 570.1   CUDA Version: 12.8 |
|   0  NVIDIA H100 80GB HBM3   On  |   00000000:1B:00.0 Off |                  2 |
| N/A   34C    P0    62W / 700W   |      4MiB / 81559MiB |      7%      Default |
"""
NVLINK = """GPU 0: NVIDIA H100 (UUID: GPU-1)
\t Link 0: 26.562 GB/s
\t Link 1: <inactive>
"""
IBSTAT = """CA 'mlx5_0'
\tPort 1:
\t\tState: Down
\t\tPhysical state: Polling
"""
NCCL_TESTS = """#   Rank  0 Group  0 Pid 1 on  n1 device  0 [0x1b] NVIDIA H100
#       size         count      type   redop    root     time   algbw   busbw #wrong     time
  1048576  262144  float  sum  -1  52.1  20.1  37.7  0  51.8  20.2  37.9  5
"""
PERFTEST = """                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_3
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      5000             392.10             391.90             0.747
"""


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (XML, {("remapped_rows.pending", "Yes"), ("ecc_errors.volatile.sram_uncorrectable", 3)}),
        (
            SMI_TABLE,
            {
                ("ecc_errors.volatile.uncorrectable", 2),
                ("temperature.gpu_current_temp", "34 C"),
                ("utilization.gpu", "7 %"),
                ("power_readings.power_draw", "62 W"),
                ("power_readings.power_limit", "700 W"),
                ("product_name", "NVIDIA H100 80GB HBM3"),
            },
        ),
        (NVLINK, {("nvlink.0.state", "26.562 GB/s"), ("nvlink.1.state", "inactive")}),
        (IBSTAT, {("state", "Down"), ("phys_state", "Polling")}),
        (
            "# ethtool -S ens1\nNIC statistics:\n     rx_crc_errors_phy: 9\n",
            {("rx_crc_errors_phy", 9)},
        ),
    ],
)
def test_the_same_names_whatever_the_tool(
    tmp_path: Path, content: str, said: set[tuple[str, str | int]]
) -> None:
    found: set[tuple[str, str | int]] = set()
    for each, _ in facts_of(tmp_path, file=content):
        if isinstance(each, SettingRead):
            found.add((each.name, each.value))
        elif isinstance(each, CountersRead):
            found.update(each.counters)
    assert found == said


def test_bandwidth_tests_tell_rates_and_wrong_values(tmp_path: Path) -> None:
    found = [
        each for each, _ in facts_of(tmp_path, a=NCCL_TESTS) if isinstance(each, TrialFinished)
    ]
    assert [(e.outcome, e.components, e.rate_kbps, e.says) for e in found] == [
        ("failed", ("node/n1",), 37_700_000, "5 wrong values")
    ]
    (tmp_path / "a").unlink()
    found = [each for each, _ in facts_of(tmp_path, b=PERFTEST) if isinstance(each, TrialFinished)]
    assert [(e.components, e.rate_kbps, e.size_bytes) for e in found] == [
        (("nic/localhost/mlx5_3",), 48_987_500, 65536)
    ]


WORDS = st.sampled_from(
    [
        "GPU 00000000:1B:00.0",
        "    Fabric",
        "        State : In Progress",
        "step,rank0,rank1",
        "1,2,3",
        "n1,n2 25",
        "[rank0]: RuntimeError: CUDA error: unknown error",
        "# Port counters: Lid 4 port 1",
        "SymbolErrorCounter:.............99999999999999999999",
        "infiniband/mlx5_0/ports/1/counters/link_downed:1",
        "link mlx5_0/1 a 1 b 2",
        "default via 1.1.1.1 dev eth0",
        "Mem: 1 2 3 4 5 6",
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=X, Timeout(ms)=1)",
        "iteration 5/ elapsed time per iteration (s): 9" + "9" * 400,
        "Data (t): . Batch (t): 1.5.5",
        "GPU0 GPU1 GPU2 CPU Affinity",
        "GPU1 NV18 X SYS 0-3 0",
        "  NIC0: mlx5_0",
        "Port=1 Lid=0x00a4 GUID=0x1 Port Name=/ / /",
        "link_down_counter=0xffffffffffffffff",
        "-E- x",
        "-I- Links Check               0          99",
        "JobId=1",
        "JobState=FAILED Reason=None ExitCode=1:0 NodeList=",
        "  Type  Status  LastHeartbeatTime",
        "  Ready False <unset> <unset> X y",
        "D\\D 0 1 2",
        "1 2 3 4",
        "host n1 n2 n3",
        "n1 - 9 9",
        "host driver nccl",
        "n1 9 9.9",
        "step,rank0,rank1\n1,nan,inf",
    ]
)


@settings(max_examples=300)
@given(st.lists(st.one_of(WORDS, st.text(max_size=80)), max_size=30))
def test_no_lines_in_any_order_make_a_reader_fail(lines: list[str]) -> None:
    for make in READERS:
        reader = make()
        notes = [note for n, raw in enumerate(lines, 1) for note in reader.take(text_line(n, raw))]
        notes.extend(reader.end())
        assert len(notes) <= 4 * len(lines)
        assert all(1 <= each.number <= len(lines) for each in notes)
        for each in notes:
            BY_STRUCT[type(each.observation)]
