"""Promises about lines that no rule explains: no all-clear where something sounds bad."""

import pytest

from nemesis.processors.attribution.kernel_signs import sign_in
from tests.attribution_log import Log, xid

DOWN = "mlx5_core 0000:5e:00.0 ens1f0np0: Link down"
UP = "mlx5_core 0000:5e:00.0 ens1f0np0: Link up"
CABLE = "mlx5_core 0000:5e:00.0: Port module event[error]: module 0, Cable error, Bad or shorted"


def seen(*lines: str) -> Log:
    log = Log()
    for line in lines:
        log.kernel(line)
    log.tick(3)
    return log


@pytest.mark.parametrize(
    "line",
    [
        CABLE,
        "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff",
        "LustreError: 11-0: fs-OST0000: operation ost_read to node x@o2ib failed: rc = -107",
        "CPU12: Package temperature is above threshold, cpu clock throttled",
        "amdgpu 0000:03:00.0: amdgpu: GPU reset begin!",
        "NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 3 timed out",
        "NVRM: Xid (invalid): some error",
        "EXT4-fs error (device sda1): ext4_find_entry: reading directory lblock 0",
        "pcieport 0000:00:01.0: pciehp: Slot(1): Link Down",
    ],
)
def test_a_line_that_sounds_like_trouble_and_is_not_understood_is_no_all_clear(line: str) -> None:
    last = seen(line).last
    assert (last.verdict, last.fault_class, last.culprits) == ("insufficient", "unknown", ())
    assert [(each.text, each.says) for each in last.evidence] == [(line, "not understood")]


def test_a_line_that_the_kernel_calls_an_error_needs_no_word_of_trouble() -> None:
    log = Log()
    log.kernel("thing 0: it is as it should not be", priority=3)
    log.tick(3)
    assert log.last.verdict == "insufficient"
    assert sign_in("thing 0: it is as it should not be", 4) is None


@pytest.mark.parametrize(
    "line",
    [
        "ERST: Error Record Serialization Table (ERST) support is initialized.",
        "ACPI BIOS Error (bug): Could not resolve symbol [\\_SB.PCI0], AE_NOT_FOUND",
        "ACPI: \\_PR_.CPUG: failed to get CPU APIC ID.",
        "RAS: Correctable Errors collector initialized.",
        "EDAC MC0: Giving out device to module amd64_edac controller F19h_M10h: DEV 0000:00:18.3",
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_Ha#0_Chan#0_DIMM#0 (channel:0 slot:0)",
        "i8042: No controller found",
        "platform regulatory.0: Direct firmware load for regulatory.db failed with error -2",
        "nvidia: module verification failed: signature and/or required key missing",
        "EXT4-fs (sda1): mounted filesystem with ordered data mode. Opts: errors=remount-ro",
        "Kernel command line: BOOT_IMAGE=/vmlinuz panic=10 mce=nobootlog pcie_aspm=off",
        "ata1: SATA link down (SStatus 0 SControl 300)",
        "Kernel is locked down from EFI Secure Boot; see man kernel_lockdown.7",
        "pcieport 0000:00:01.0: DPC: error containment capabilities: Int Msg #0, RPExt+",
        "nvme nvme0: Shutdown timeout set to 10 seconds",
        "usb 1-1: reset high-speed USB device number 2 using xhci_hcd",
        "mpt3sas_cm0: sending diag reset !!",
        "mlx5_core 0000:63:00.1: Port module event: module 1, Cable unplugged",
        'audit: type=1400 audit(1.2:3): apparmor="DENIED" operation="open"',
        "pci 0000:17:00.0: BAR 13: failed to assign [io size 0x1000]",
        "IPv6: ADDRCONF(NETDEV_UP): eth0: link is not ready",
        "usb 1-1: new high-speed USB device",
    ],
)
def test_what_healthy_machines_print_is_no_sign(line: str) -> None:
    assert not seen(line).verdicts


@pytest.mark.parametrize(
    ("line", "link"),
    [
        (DOWN, "ens1f0np0"),
        ("bond0: (slave eth2): link status definitely down, disabling slave", "eth2"),
        ("ixgbe 0000:04:00.0 eth0: NIC Link is Down", "eth0"),
    ],
)
def test_a_link_that_stays_down_is_named_and_nobody_blamed(line: str, link: str) -> None:
    last = seen(line).last
    assert (last.verdict, last.culprits) == ("insufficient", ())
    assert link in last.reason


def test_a_link_that_comes_back_is_no_fault_however_late() -> None:
    assert not seen(DOWN, UP).verdicts
    log = seen(DOWN)
    for _ in range(30):
        log.tick(60)
    log.kernel(UP)
    log.tick(3)
    assert [each.verdict for each in log.verdicts] == ["insufficient", "no-fault"]


def test_the_last_word_about_a_link_counts() -> None:
    assert seen(DOWN, UP, DOWN).last.verdict == "insufficient"
    assert seen(UP, DOWN.replace("ens1f0np0", "ens2"), DOWN, UP).last.reason.count("ens2") == 1


def test_a_link_that_flaps_for_an_hour_is_a_few_words() -> None:
    log = Log()
    for _ in range(60):
        for line in (DOWN, UP):
            log.kernel(line)
            log.tick(30)
    assert len({each.incident for each in log.verdicts}) == 1
    assert len(log.verdicts) <= 8
    assert "30 times or more" in log.last.reason
    log.tick(1300)
    log.kernel(DOWN)
    log.tick(3)
    assert len({each.incident for each in log.verdicts}) == 2


def test_lines_that_are_not_understood_are_one_incident_a_node_and_a_few_are_cited() -> None:
    log = Log()
    for number in range(100):
        log.kernel(f"thing{chr(97 + number % 20)}: something failed, code {number}")
        log.tick(150)
    assert len(log.last.evidence) == 5
    assert len(log.verdicts) <= 5


def test_what_is_understood_is_not_mixed_with_what_is_not() -> None:
    for lines in ((CABLE, xid(79, "0000:1b:00")), (xid(79, "0000:1b:00"), CABLE)):
        last = seen(*lines).last
        assert [each.id for each in last.culprits] == ["gpu/n1/0000:1b:00.0"]
        assert CABLE not in [each.text for each in last.evidence]
