"""Promises of the kernel-line parser, on lines that drivers and the kernel really print."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemesis.processors.attribution.kernel_messages import KernelMessage, parse
from nemesis.processors.attribution.kernel_rules import role_of
from tests.conftest import ROOT


def seen(text: str) -> KernelMessage:
    message = parse(text)
    assert message is not None
    return message


def test_every_xid_and_sxid_fixture_is_read_as_expected(shared: Path) -> None:
    rows = (shared / "data" / "kmsg_xid_fixtures.jsonl").read_text().splitlines()
    for row in map(json.loads, rows):
        message = parse(row["line"])
        if row["kind"] == "none":
            assert message is None or message.kind == "trouble", row
            continue
        assert message is not None, row
        extra = row["extra"]
        kind = "gpu_lost" if extra.get("implied") else row["kind"]
        assert (message.kind, message.code) == (kind, row["code"]), row
        assert message.device == f"{row['pci']}.0", row
        assert message.pid == (-1 if row["pid"] is None else row["pid"]), row
        assert message.process == (row["name"] or ""), row
        assert message.link_index == extra.get("link", -1), row
        assert message.switch_index == extra.get("switch", -1), row
        assert message.driver_action == extra.get("action", -1), row
        if "severity" in extra:
            assert (message.severity, message.unit) == (extra["severity"].lower(), extra["unit"])
        if "fatal" in extra:
            assert message.severity == ("fatal" if extra["fatal"] else "nonfatal"), row


def test_published_lines_give_the_code_and_device_that_their_authors_read(shared: Path) -> None:
    lines = (shared / "data" / "kernel_loglines" / "lines.tsv").read_text().splitlines()
    read_count = 0
    for kind, code, device, text, *_ in (line.split("\t") for line in lines[1:]):
        message = parse(text)
        if message is None or kind not in ("xid", "sxid"):
            continue
        read_count += 1
        assert message.kind == kind, text
        if code.isdigit():
            assert message.code == int(code), text
        assert message.device.startswith(device.lower().removesuffix(".0")), text
    assert read_count > 150


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: Xid (invalid): some error",
        "NVRM: Xid (PCI:0000:66:00): abc, pid=2280636",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.144.03",
        "mlx5_core 0000:01:00.0: mlx5_pcie_event:326:(pid 611): Detected insufficient power on the"
        " PCIe slot (27W).",
        "mlx5_core 0000:63:00.1: Port module event: module 1, Cable unplugged",
        "mlx5_core 0000:d2:00.0: mlx5_cmd_out_err:838:(pid 1): ACCESS_REG(0x805) failed",
        "NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 3 timed out",
        "EDAC MC0: Giving out device to module amd64_edac",
        "usb 1-1: new high-speed USB device",
        "bnxt_en 0000:43:00.0 ens3f0np0: Firmware non-fatal reset event, data1: 0x1, data2: 0x2",
        "mlx5_core 0000:41:00.0: print_health_info:520:(pid 0): synd 0x10: High temperature",
        "soft offline: 0x7ef1d05: page migrated",
        "",
    ],
)
def test_benign_and_broken_lines_say_nothing(text: str) -> None:
    assert parse(text) is None


def test_a_nic_whose_firmware_died_is_named() -> None:
    for text in (
        "mlx5_core 0000:41:00.0: poll_health:852:(pid 0): device's health compromised - reached"
        " miss count",
        "mlx5_core 0000:41:00.0: print_health_info:458:(pid 0): synd 0x8: unrecoverable hardware"
        " error",
        "mlx5_core 0000:41:00.0: wait_func:964:(pid 112): ENABLE_HCA(0x104) timeout. Will cause a"
        " leak of a command resource",
        "mlx5_core 0000:41:00.0: print_health_info:520:(pid 0): synd 0x1: firmware internal error",
        "mlx5_core 0000:41:00.0: mlx5_health_try_recover:330:(pid 55): handling bad device here",
        "bnxt_en 0000:41:00.0 ens3f0np0: Firmware fatal reset event, data1: 0x1, data2: 0x2",
        "mlx5_core 0000:41:00.0: print_health_info:430:(pid 0): Health issue observed, firmware"
        " internal error, severity(3) ERROR:",
        "mlx5_core 0000:41:00.0: health recovery flow aborted, PCI reads still not working",
    ):
        assert (seen(text).kind, seen(text).device) == ("nic_fatal", "0000:41:00.0")


def test_a_lost_gpu_is_read_as_drivers_of_all_ages_print_it() -> None:
    for text in (
        "NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.",
        "NVRM: GPU 18:00.0: GPU has fallen off the bus.",
        "NVRM: GPU at 0000:18:00.0 has fallen off the bus.",  # Bumblebee-Project/Bumblebee#554
        "NVRM: The NVIDIA GPU 0000:18:00.0 fallen off the bus and is not responding to commands.",
    ):
        assert (seen(text).kind, seen(text).device) == ("gpu_lost", "0000:18:00.0")


def test_aer_lines_tell_port_driver_and_severity() -> None:
    port = seen("pcieport 0000:00:03.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=x")
    assert (port.driver, port.device, port.severity) == ("pcieport", "0000:00:03.0", "fatal")
    mild = seen("nvidia 0000:1b:00.0: AER: PCIe Bus Error: severity=Corrected, type=y")
    assert mild.severity == "corrected"
    less = seen("pcieport 0000:00:03.0: AER: Uncorrected (Non-Fatal) error received: 0000:00:03.0")
    assert less.severity == "nonfatal"
    driver = seen("nvidia 0000:03:00.0: AER: can't recover (no error_detected callback)")
    assert (driver.kind, driver.driver) == ("aer_unrecovered", "nvidia")
    assert parse("pcieport 0000:00:03.0: AER: Root Port link has been reset (0)") is None


def test_memory_modules_and_killed_processes_are_named() -> None:
    intel = seen("EDAC MC3: 1 UE memory read error on CPU_SrcID#1_MC#1_Chan#2_DIMM#0 (channel:2)")
    assert intel.label == "CPU_SrcID#1_MC#1_Chan#2_DIMM#0"
    amd = seen("EDAC MC0: 1 UE on mc#0csrow#1channel#2 (csrow:1 channel:2 page:0x1)")
    assert amd.label == "mc#0csrow#1channel#2"
    group = seen("Memory cgroup out of memory: Killed process 90211 (pingmesh) total-vm:1kB")
    assert (group.kind, group.pid, group.process) == ("oom_kill", 90211, "pingmesh")
    whole = seen("Out of memory: Killed process 7 (python3) total-vm:2kB")
    assert whole.pid == 7


def test_a_cause_named_by_45_is_read() -> None:
    text = "NVRM: Xid (PCI:0000:dc:00): 45, pid=7, name=python3, Ch 01 caused by previous Xid 149"
    assert seen(text).caused_by == 149


@pytest.mark.parametrize(
    ("severity", "registers", "counts"),
    [
        ("Fatal", "0x00000001 0x00000002 0x0 0x0", True),
        ("Nonfatal", "0x00000001 0x00000001 0x0 0x0", False),  # catalogue: IGNORE
        ("Nonfatal", "0x00000021 0x00000002 0x0 0x0", True),  # before r575: RESET_GPU
        ("Nonfatal", "0x00000001 0x00000800 0x0 0x0", False),  # not in the catalogue
        ("Nonfatal", "", False),
    ],
)
def test_a_nonfatal_nvlink5_error_counts_if_the_catalogue_asks_for_a_reset(
    severity: str, registers: str, counts: bool
) -> None:
    text = f"NVRM: Xid (PCI:0000:04:00): 144, SAW_MVB {severity} XC0 i0 Link 00 ({registers})"
    assert (role_of(seen(text)) is not None) is counts


@given(st.text(max_size=300))
def test_no_text_crashes_the_parser(text: str) -> None:
    for each in (
        text,
        f"NVRM: Xid (PCI:0000:04:00): 79, {text}",
        f"mlx5_core {text} AER EDAC Kill",
    ):
        message = parse(each)
        role = role_of(message) if message is not None else None
        assert role is None or role.says


@pytest.mark.parametrize("code", range(0, 200))
def test_every_code_has_a_role_or_none(code: int) -> None:
    role = role_of(seen(f"NVRM: Xid (PCI:0000:04:00): {code}, x"))
    assert (role is None) == (code in (106, 107, 162))
    if code in (79, 48, 95, 94, 64, 74, 119, 13, 31):
        assert role is not None
    if code > 172:
        assert role is not None
        assert role.fault_class == "unknown"


def test_the_tables_are_up_to_date_with_their_catalogues() -> None:
    script = ROOT / "data" / "xid" / "make_tables.py"
    done = subprocess.run([sys.executable, str(script), "--check"], check=False)
    assert done.returncode == 0, "run python data/xid/make_tables.py"
