"""What this node shows to its producer: the producer's own probes, asked once, in a doctor's words.

The probes are the truth: a second set of looks would find other gaps than the producer has. Added
is only whether a missing thing is a gap here: a laptop without a GPU needs no NVML.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from nemesis.producers.doctor.finding import Finding, Standing
from nemesis.producers.node.machine import PCI, nvidia_devices
from nemesis.producers.node.root import Root
from nemesis.producers.node.serve import Settings, once
from nemesis.schemas.watched import CoverageReported, ProbeSeen, ProbeState

BETWEEN_S: Final = 0.2
_MELLANOX: Final = "0x15b3"  # PCI code and ID assignment; what most RDMA cards of GPU nodes are
_STANDINGS: Final[Mapping[ProbeState, Standing]] = {
    "read": "ok",
    "absent": "gap",
    "denied": "gap",
    "unsupported": "not here",
    "stalled": "broken",
    "broken": "broken",
    "lost": "broken",
}
_MENDS: Final[Mapping[tuple[str, str], str]] = {
    (
        "nvml",
        "absent",
    ): "pip install 'nemesis-gpu[nvidia]'; modprobe nvidia; nvidia-smi must answer",
    ("nvml", "denied"): "let the producer open /dev/nvidia*: DeviceAllow= of its unit",
    ("nvml", "stalled"): "nvidia-smi hangs too? read dmesg, then reset the GPU or reboot",
    (
        "nvml",
        "broken",
    ): "nvidia-smi; driver and library must be of one version: reboot after an update",
    ("nvml", "lost"): "dmesg | nemesis triage -",
    (
        "kmsg",
        "denied",
    ): "AmbientCapabilities=CAP_SYSLOG in the unit, or sysctl -w kernel.dmesg_restrict=0",
    ("kmsg", "absent"): "run the producer on the host, or mount its /dev/kmsg into the container",
    ("journal", "denied"): "SupplementaryGroups=systemd-journal in the unit",
    ("journal", "absent"): "AmbientCapabilities=CAP_SYSLOG in the unit, or install journalctl",
    (
        "clock",
        "absent",
    ): "systemctl enable --now chrony, or systemd-timesyncd, or ptp4l and phc2sys",
    ("clock", "denied"): "SystemCallFilter=adjtimex in the unit, and no ProtectClock=",
    ("ranks", "denied"): "AmbientCapabilities=CAP_SYS_PTRACE in the unit",
    ("rdma", "absent"): "modprobe mlx5_ib",
    ("ethtool", "absent"): "let the producer share the host's network: hostNetwork: true",
    ("dcgm", "absent"): "systemctl start dcgm-exporter, or take --dcgm away",
}
_ELSE: Final = "nemesis producer --once shows what it reads; dmesg may say why it cannot"
_ONLY_WHERE_ASKED: Final = ("ras",)
"""Sources that are there while a job runs, so their absence is no gap."""


def look(node: str, state: Path, root: Path = Path("/"), dcgm: str = "") -> list[Finding]:
    """Ask every probe of the producer once; takes as long as two polls.

    Raises:
        OSError: the root cannot be read at all.
    """
    facts = once(Settings(node=node, state=state, root=root, dcgm=dcgm), between_s=BETWEEN_S)
    coverage = [fact for fact in facts if isinstance(fact, CoverageReported)]
    machine = Root(root)
    return [_finding(machine, each) for each in coverage[-1].probes] + [_pressure(machine)]


def _finding(root: Root, probe: ProbeSeen) -> Finding:
    standing = _STANDINGS[probe.state]
    if probe.state == "absent" and not _expected(root, probe.source):
        standing = "not here"
    amiss = standing in ("gap", "broken")
    return Finding(
        area="node",
        name=f"{probe.source} {probe.component}",
        state=standing,
        says=probe.says or ("it is read" if probe.state == "read" else probe.state),
        mend=_MENDS.get((probe.source, probe.state), _ELSE) if amiss else "",
    )


def _expected(root: Root, source: str) -> bool:
    """Whether the machine has what this source would read."""
    if source == "nvml":
        return bool(nvidia_devices(root)[0])
    if source == "rdma":
        return any(root.line(f"{PCI}/{pci}/vendor") == _MELLANOX for pci in root.names(PCI))
    return source not in _ONLY_WHERE_ASKED


def _pressure(root: Root) -> Finding:
    if root.words("proc/pressure/cpu"):
        return Finding(area="node", name="pressure", state="ok", says="the kernel tells of stalls")
    return Finding(
        area="node",
        name="pressure",
        state="gap",
        says="the kernel tells nothing of stalls (PSI)",
        mend="add psi=1 to the kernel's command line and reboot",
    )
