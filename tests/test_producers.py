"""Promises of the encoders: what a producer saw is what the log says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemesis.producers.fabric import fabric_inventory_of
from nemesis.producers.inventory import inventory_of
from nemesis.producers.kernel import LINES_PER_S_MAX, TEXT_CHARS_MAX, KernelLines
from nemesis.producers.origin import Origin
from nemesis.producers.process import exit_of
from nemesis.producers.sample import block_of, sample_of
from nemesis.schemas.channels import ABSENT, GPU_CHANNELS, HOST_CHANNELS
from nemesis.schemas.errors import BadNameError
from nemesis.schemas.facts import decode_observation, encode_observation
from nemesis.schemas.observed import (
    FabricInventoryReported,
    GpuDescribed,
    KernelLineLogged,
    NicDescribed,
    PortDescribed,
    SampleTaken,
)

MS = 1_000_000
SECOND = 1_000 * MS


def origin() -> Origin:
    return Origin("n001", start_ns=7, boot_id="boot")


def test_each_kind_is_numbered_from_one_without_a_gap() -> None:
    source = origin()
    numbers = [source.stamp(kind, 0)["n"] for kind in ("sample", "kernel", "sample", "kernel")]
    assert numbers == [1, 1, 2, 2]


def test_a_sample_comes_back_from_its_bytes_block_by_block() -> None:
    gpu = block_of(GPU_CHANNELS, [{"temp_c": 58, "dram_ce_count": 2**40}, {"power_mw": 600_000}])
    taken = sample_of(origin(), 99, period_ns=SECOND, gpu=gpu, job="llama")
    back = decode_observation("sample", encode_observation(taken))
    assert isinstance(back, SampleTaken)
    rows = np.frombuffer(back.gpu, "<i8").reshape(back.gpu_count, -1)
    assert np.array_equal(rows, gpu)
    assert (back.at_ns, back.period_ns, back.nic, back.host, back.steps) == (
        99,
        SECOND,
        b"",
        b"",
        b"",
    )


def test_a_reading_that_was_not_taken_is_absent_and_not_zero() -> None:
    block = block_of(HOST_CHANNELS, [{"dimm_ce_count": 0}])
    assert block[0, HOST_CHANNELS.index("dimm_ce_count")] == 0
    assert block[0, HOST_CHANNELS.index("dimm_ue_count")] == ABSENT


def test_a_reading_that_is_no_channel_is_refused() -> None:
    with pytest.raises(KeyError):
        block_of(GPU_CHANNELS, [{"colour": 1}])


def test_an_inventory_names_devices_canonically_and_keeps_their_order() -> None:
    seen = inventory_of(
        origin(),
        1,
        gpus=[GpuDescribed(pci="00000000:DF:00.0"), GpuDescribed(pci="1b:00", index=1)],
        nics=[NicDescribed(name="mlx5_0"), NicDescribed(name="mlx5_1", pci="40:00.1")],
    )
    assert [gpu.pci for gpu in seen.gpus] == ["0000:df:00.0", "0000:1b:00.0"]
    assert [nic.pci for nic in seen.nics] == ["", "0000:40:00.1"]


def test_an_inventory_with_something_else_than_an_address_is_refused() -> None:
    with pytest.raises(BadNameError):
        inventory_of(origin(), 1, gpus=[GpuDescribed(pci="GPU-1")], nics=[])


@pytest.mark.parametrize(("returncode", "code", "signal"), [(1, 1, 0), (-9, 0, 9), (0, 0, 0)])
def test_an_exit_says_code_or_signal(returncode: int, code: int, signal: int) -> None:
    seen = exit_of(origin(), 1, job="llama", rank=3, pid=9, returncode=returncode, fenced=True)
    assert (seen.exit_code, seen.signal, seen.fenced) == (code, signal, True)


def test_equal_lines_in_a_row_are_one_fact_with_a_count() -> None:
    lines = KernelLines(origin())
    facts = [fact for _ in range(5) for fact in lines.take("again", SECOND)]
    facts += lines.flush(2 * SECOND)
    assert [fact.repeat_count for fact in facts] == [1, 4]


def test_a_flood_is_held_back_and_told_as_a_count() -> None:
    lines = KernelLines(origin())
    facts = [fact for at in range(500) for fact in lines.take(f"line {at}", SECOND)]
    assert len(facts) == LINES_PER_S_MAX
    (told,) = lines.flush(2 * SECOND)
    assert told.text == "line 499"
    assert told.withheld_count == 500 - LINES_PER_S_MAX - 1


def test_a_line_longer_than_any_kernel_prints_is_cut() -> None:
    (fact,) = KernelLines(origin()).take("x" * 100_000, SECOND)
    assert len(fact.text) == TEXT_CHARS_MAX


@given(
    st.lists(
        st.tuples(st.sampled_from("abc") | st.integers(0, 300).map(str), st.integers(0, 30)),
        max_size=400,
    )
)
def test_every_line_is_sent_or_counted(lines: list[tuple[str, int]]) -> None:
    kernel = KernelLines(origin())
    facts: list[KernelLineLogged] = []
    at_ns = 0
    for text, elapsed_ms in lines:
        at_ns += elapsed_ms * MS
        facts += kernel.take(text, at_ns)
    facts += kernel.flush(at_ns + SECOND)
    facts += kernel.flush(at_ns + 2 * SECOND)
    assert sum(fact.repeat_count + fact.withheld_count for fact in facts) == len(lines)
    assert [fact.n for fact in facts] == list(range(1, len(facts) + 1))
    assert {fact.text for fact in facts} <= {text for text, _ in lines}


def test_a_switch_comes_back_from_its_bytes_port_by_port() -> None:
    ports = (PortDescribed("port/leaf01/1", "nic/n001/mlx5_0"), PortDescribed("port/leaf01/2"))
    told = fabric_inventory_of(
        origin(), 99, switch="switch/leaf01", tier="leaf", transport="roce", ports=ports
    )
    back = decode_observation("fabric_inventory", encode_observation(told))
    assert isinstance(back, FabricInventoryReported)
    assert back.ports == ports
    assert (back.n, back.switch, back.tier, back.transport) == (1, "switch/leaf01", "leaf", "roce")
