"""Promises about what the kernel log of one node proves."""

import pytest

from nemesis.processors.healer.playbooks import triage_recovery
from nemesis.schemas.observed import NicDescribed
from tests.attribution_log import Log, xid

SXID = "nvidia-nvswitch{0}: SXid (PCI:0000:0{0}:00.0): {1}, Fatal, Link {2} {3}"


def seen(*lines: str) -> Log:
    log = Log()
    for line in lines:
        log.kernel(line)
    log.tick(3)
    return log


def culprits(log: Log) -> list[str]:
    return [each.id for each in log.last.culprits]


def test_gpus_that_fail_together_share_the_node_as_their_cause() -> None:
    two = seen(xid(119, "0000:1b:00"), xid(119, "0000:1c:00"))
    assert culprits(two) == ["gpu/n1/0000:1b:00.0", "gpu/n1/0000:1c:00.0"]
    three = seen(*(xid(119, f"0000:1{digit}:00") for digit in "bcd"))
    assert culprits(three) == ["node/n1"]


def test_the_graver_error_is_the_root() -> None:
    log = seen(xid(31, "0000:1b:00"), xid(63, "0000:1c:00"), xid(64, "0000:1c:00"))
    assert culprits(log) == ["gpu/n1/0000:1c:00.0"]
    assert log.last.signature == "row_remap_failed"


def test_a_pcie_error_needs_its_severity_and_its_driver_to_name_a_gpu() -> None:
    fatal = "pcieport 0000:00:03.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=x"
    gpu = "nvidia 0000:1b:00.0: AER: can't recover (no error_detected callback)"
    sound = "snd_hda_intel 0000:1b:00.1: AER: can't recover (no error_detected callback)"
    assert culprits(seen(gpu, sound, fatal)) == ["gpu/n1/0000:1b:00.0"]
    assert seen(fatal).last.verdict == "insufficient"
    assert seen(gpu).last.verdict == "insufficient"
    assert seen(gpu, fatal.replace("Fatal", "Non-Fatal")).last.verdict == "insufficient"
    assert not seen(sound).verdicts
    nic = "mlx5_core 0000:41:00.0: AER: can't recover (no error_detected callback)"
    assert culprits(seen(nic, fatal)) == ["nic/n1/0000:41:00.0"]
    direct = "nvidia 0000:1b:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=x"
    assert culprits(seen(direct)) == ["gpu/n1/0000:1b:00.0"]


def test_a_nic_is_named_as_its_node_names_it() -> None:
    log = Log()
    log.inventory("n1", nics=(NicDescribed(name="mlx5_3", pci="0000:41:00.0"),))
    log.kernel("mlx5_core 0000:41:00.0: device's health compromised - reached miss count")
    log.tick(3)
    assert culprits(log) == ["nic/n1/mlx5_3"]


def test_of_hopper_links_the_gpu_where_they_meet_is_named_and_of_a_pair_none() -> None:
    def link(device: str, number: int) -> str:
        rest = f"NVLink: fatal error detected on link {number}(0x10000)"
        return xid(74, f"0000:{device}:00", rest)

    hub = seen(link("1b", 0), link("1b", 3), link("1c", 1), link("1d", 2))
    assert culprits(hub) == ["gpu/n1/0000:1b:00.0"]
    assert hub.last.victims == ("gpu/n1/0000:1c:00.0", "gpu/n1/0000:1d:00.0")
    pair = seen(link("1b", 0), link("1c", 1))
    assert (pair.last.verdict, culprits(pair)) == ("class-only", [])
    assert culprits(seen(link("1b", 0))) == ["gpu/n1/0000:1b:00.0"]


def test_of_nvlink5_units_the_one_at_the_link_began_it() -> None:
    cause = "Ch 01 caused by previous Xid {}"
    log = seen(
        xid(45, "0000:1b:00", cause.format(145)),
        xid(45, "0000:1c:00", cause.format(149)),
        xid(45, "0000:1d:00", cause.format(145)),
        xid(45, "0000:1e:00", "Ch 02"),
    )
    assert culprits(log) == ["gpu/n1/0000:1c:00.0"]


def test_a_switch_that_failed_itself_is_named_and_one_that_lost_a_link_is_not() -> None:
    link = seen(SXID.format(1, 20034, 48, "LTSSM Fault Up"))
    assert (link.last.verdict, link.last.fault_class) == ("class-only", "nvlink")
    assert link.last.missing
    dead = seen(SXID.format(1, 20034, 48, "x"), SXID.format(2, 22003, 0, "Minion Halt"))
    assert culprits(dead) == ["nvswitch/n1/2"]


@pytest.mark.parametrize(
    "line",
    [
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted",
        "nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Data {0x50610002, 0x10100030}",
        "nvidia-nvswitch2: SXid (PCI:0000:07:00.0): 20034, Severity 1 Engine instance 60",
        xid(145, rest="RLW_REMAP Nonfatal XC0 i0 Link 02 (0x00000004 0x00000200 0x0 0x0)"),
        xid(107),
        xid(154, rest="GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"),
        "nvidia 0000:3b:00.0: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver",
        "pcieport 0000:80:1b.4: AER: Correctable error message received from 0000:80:1b.4",
    ],
)
def test_what_asks_for_no_action_is_no_fault(line: str) -> None:
    assert not seen(line).verdicts


@pytest.mark.parametrize(
    "line",
    [
        xid(45, rest="Ch 00000006"),
        xid(45, rest="Ch 00000006 caused by previous Xid 45"),
        xid(137, rest="RLW_RXPIPE interrupt hit on link 11 on GPU0: PRIV Error"),  # nccl#2241
        xid(154, rest="GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"),
        xid(999),
        "Kernel panic - not syncing: Fatal exception",
        "mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 8: be00000000800400",
        "{1}[Hardware Error]: event severity: recoverable",
        "INFO: task python3:4242 blocked for more than 120 seconds.",
        "watchdog: BUG: soft lockup - CPU#12 stuck for 26s! [python3:4242]",
        "python3[4242]: segfault at 10 ip 00007f3c2a31b2f4 sp 00007f3b6dffe9f0 error 4 in libnccl",
        "mlx5_core 0000:c1:00.0 enp193s0: TX timeout detected",
        "NVRM: knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!",
        "NVRM: No NVIDIA GPU found.",
    ],
)
def test_what_shows_that_something_failed_and_not_what_is_insufficient(line: str) -> None:
    last = seen(line).last
    assert (last.verdict, last.fault_class, last.culprits) == ("insufficient", "unknown", ())
    assert last.missing


def test_a_high_rate_of_corrected_errors_is_the_memory_of_its_gpu_and_to_be_watched() -> None:
    last = seen(xid(92, "0000:1b:00", rest="High single-bit ECC error rate")).last
    assert [each.id for each in last.culprits] == ["gpu/n1/0000:1b:00.0"]
    assert (last.fault_class, last.signature) == ("gpu.memory", "transient")
    assert triage_recovery(last)[0] == "watch"


def test_a_switch_that_halted_explains_the_links_of_all_gpus() -> None:
    halted = "nvidia-nvswitch2: SXid (PCI:0000:05:00.0): 22003, Fatal, Link 00 Minion Halt"
    links = [
        xid(74, f"0000:{at:02x}:00", rest="NVLink: fatal error detected on link 3(0x0)")
        for at in range(0x10, 0x18)
    ]
    assert culprits(seen(halted, *links)) == ["nvswitch/n1/2"]
    assert culprits(seen(*links, halted)) == ["nvswitch/n1/2"]


def test_what_names_nothing_gives_way_to_what_names_a_part() -> None:
    vague = (xid(45, "0000:2b:00", rest="Ch 00000006"), xid(92), "Kernel panic - not syncing: x")
    assert culprits(seen(*vague, xid(79, "0000:1b:00"))) == ["gpu/n1/0000:1b:00.0"]
    assert culprits(seen(xid(79, "0000:1b:00"), *vague)) == ["gpu/n1/0000:1b:00.0"]


def test_peers_that_read_a_bad_row_are_not_at_fault() -> None:
    bad, peers = "0000:3b:00", ("0000:4c:00", "0000:5d:00")
    read = [xid(94, peer, rest="Contained: NVLINK. RST: No, D-RST: No") for peer in peers]
    for own in ((xid(48, bad), xid(94, bad)), (xid(63, bad), xid(94, bad)), (xid(95, bad),)):
        assert culprits(seen(*read, *own)) == ["gpu/n1/0000:3b:00.0"]


@pytest.mark.parametrize("code", [45, 31, 74])
def test_no_flood_of_messages_hides_the_root(code: int) -> None:
    flood = [xid(code, "0000:2b:00", rest=f"pid={pid}, name=a, Ch 1") for pid in range(100)]
    assert culprits(seen(*flood, xid(79, "0000:1b:00"))) == ["gpu/n1/0000:1b:00.0"]


def test_a_lost_page_of_memory_is_the_module_that_edac_names_or_one_unnamed() -> None:
    lost = "Memory failure: 0x7ef1d05: recovery action for dirty LRU page: Recovered"
    edac = "EDAC MC3: 1 UE memory read error on CPU_SrcID#1_MC#1_Chan#0_DIMM#0 (channel:0 slot:0)"
    unnamed = seen(lost).last
    assert (unnamed.verdict, unnamed.fault_class) == ("class-only", "host.memory")
    assert culprits(seen(lost, edac)) == ["dimm/n1/CPU_SrcID#1_MC#1_Chan#0_DIMM#0"]


def test_an_error_that_nobody_knows_is_insufficient_and_says_what_to_collect() -> None:
    log = seen(xid(999))
    assert (log.last.verdict, log.last.fault_class, culprits(log)) == (
        "insufficient",
        "unknown",
        [],
    )
    assert log.last.missing


def test_modules_and_processes_are_named_one_by_one() -> None:
    log = seen(
        "EDAC MC0: 1 UE memory read error on DIMM_B (x)",
        "EDAC MC0: 1 UE memory read error on DIMM_A (x)",
    )
    assert culprits(log) == ["dimm/n1/DIMM_A", "dimm/n1/DIMM_B"]
    log = seen("Memory cgroup out of memory: Killed process 90211 (pingmesh) total-vm:1kB")
    assert culprits(log) == ["process/n1/90211"]
    assert "pingmesh" in log.last.reason


def test_a_memory_module_without_a_name_is_a_class_and_no_component() -> None:
    log = seen("EDAC MC0: 1 UE memory read error on unknown memory (x)")
    assert (log.last.verdict, log.last.fault_class) == ("class-only", "host.memory")


def test_a_driver_that_cannot_start_a_gpu_names_it() -> None:
    log = seen("NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62:0x40:2393)")
    assert culprits(log) == ["gpu/n1/0000:3b:00.0"]
    assert log.last.fault_class == "gpu.driver"


def test_versions_that_do_not_fit_are_a_fault_of_software() -> None:
    log = seen("NVRM: API mismatch: the client has the version 535.86.10, but")
    assert log.last.fault_class == "software.version"
    assert culprits(log) == ["software/n1/nvidia-driver"]


def test_a_port_that_was_contained_counts_as_fatal() -> None:
    contained = "pcieport 0000:16:01.0: DPC: containment event, status:0x1f01 source:0x0000"
    gpu = "nvidia 0000:1b:00.0: AER: can't recover (no error_detected callback)"
    assert culprits(seen(contained, gpu)) == ["gpu/n1/0000:1b:00.0"]


def test_a_file_server_that_does_not_answer_one_client_is_storage_and_not_blamed() -> None:
    log = seen("nfs: server nas01 not responding, still trying")
    assert (log.last.verdict, log.last.fault_class) == ("class-only", "storage")
    assert culprits(log) == []
    log.tick(3)
    for _ in range(6):  # until polls of the client show that its own network works
        log.sample("n1")
        log.tick(1)
    assert culprits(log) == ["storage/nas01"]


def test_a_gpu_that_only_feels_the_link_of_a_peer_on_another_node_is_not_named() -> None:
    felt = xid(145, rest="RLW_REMAP Nonfatal XC0 i0 Link 12 (0x00000004 0x00000008 0x0 0x0)")
    verdict = seen(felt).last
    assert (verdict.verdict, verdict.fault_class) == ("class-only", "nvlink")
    fatal = xid(145, rest="RLW_REMAP Fatal XC0 i0 Link 12 (0x00000004 0x00000008 0x0 0x0)")
    assert seen(fatal).last.verdict == "attributed"
