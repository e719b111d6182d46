"""Every kind of fault that a scenario may plan; `kind` in a file chooses the struct.

A target that is left out is drawn by the seed: a node of the job, then one of its GPUs with the
rank and the NIC of the same index.
"""

import re
from typing import Final, get_args

from nemesis.sim.faults import (
    planned_decoys,
    planned_gpu,
    planned_host,
    planned_network,
    planned_program,
)

FaultPlanned = (
    planned_gpu.Xid79
    | planned_gpu.GpuAerFatal
    | planned_gpu.Xid48
    | planned_gpu.EccContained
    | planned_gpu.EccUncontained
    | planned_gpu.RowRemapPending
    | planned_gpu.RowRemapFailed
    | planned_gpu.CorrectedStorm
    | planned_gpu.EccPrecursor
    | planned_gpu.GspHang
    | planned_gpu.GpuThrottle
    | planned_gpu.PowerStraggler
    | planned_gpu.ClockStraggler
    | planned_gpu.PcieDegraded
    | planned_gpu.NvlinkFlap
    | planned_gpu.Nvlink5Down
    | planned_gpu.NvswitchFatal
    | planned_gpu.SilentCorruption
    | planned_network.NicFlap
    | planned_network.NicDead
    | planned_network.NicDown
    | planned_network.PortDown
    | planned_network.OpticDegraded
    | planned_network.SwitchDown
    | planned_network.SpineDown
    | planned_network.RouteLost
    | planned_network.GidWrong
    | planned_network.MtuWrong
    | planned_network.PfcWrong
    | planned_network.PauseStorm
    | planned_network.PauseDeadlock
    | planned_network.RackPower
    | planned_host.NodeLost
    | planned_host.HostHang
    | planned_host.HostContention
    | planned_host.CpuSteal
    | planned_host.NumaMisplaced
    | planned_host.ThpFallback
    | planned_host.DiskStall
    | planned_host.OomKill
    | planned_host.LoaderKilled
    | planned_host.LoaderStall
    | planned_host.CheckpointStall
    | planned_host.DimmUncorrectable
    | planned_host.HostMisset
    | planned_host.ClockSkew
    | planned_program.RankExit
    | planned_program.Desync
    | planned_program.IllegalAccess
    | planned_program.ContextError
    | planned_program.RankOom
    | planned_program.NanLoss
    | planned_program.NcclVersion
    | planned_decoys.SlowStep
    | planned_decoys.LoneWork
    | planned_decoys.CorrectedErrors
    | planned_decoys.KernelNoise
    | planned_decoys.UserXid
    | planned_decoys.TeardownXids
    | planned_decoys.NicNoise
    | planned_decoys.NoisyNeighbour
    | planned_decoys.MaintenanceReboot
    | planned_decoys.ClockOffset
    | planned_decoys.EvidenceLate
    | planned_decoys.EvidenceLost
    | planned_decoys.EvidenceDoubled
    | planned_decoys.PollsMissed
    | planned_decoys.SingleSnapshot
    | planned_decoys.NoKernelLines
    | planned_decoys.DumpMissing
)

KINDS: Final[tuple[str, ...]] = tuple(
    str(struct.__struct_config__.tag) for struct in get_args(FaultPlanned)
)


def plainly(kind: str) -> str:
    """What a kind is in a few words, `a leaf switch stops`: its docstring up to the first pause."""
    known = {struct.__struct_config__.tag: struct for struct in get_args(FaultPlanned)}
    says = re.split(r"[;:.]|,(?![^(]*\))", (known[kind].__doc__ or kind).strip())[0]
    return says[:1].lower() + says[1:]
