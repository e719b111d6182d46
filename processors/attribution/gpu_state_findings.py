"""What `nvidia-smi -q` and its like say of GPUs, read once or twice.

Why: a counter that is not zero proves that something happened, not when. How: states that call for
action (a remap that failed or waits, clocks held down for heat, a fabric that refused the GPU) name
their GPU; an uncorrectable error since the driver was loaded names it if it is the only one, all
the more if the program met such an error or the counter rose; lifetime counts alone do not.
"""

from collections.abc import Sequence
from typing import Final

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import (
    LINK_DOWN,
    MEMORY_LOST,
    NVLINK_FATAL,
    REMAP_PENDING,
    STRAGGLER,
    Finding,
)
from nemesis.processors.attribution.report_rules import proofs, proofs_of, shown
from nemesis.processors.attribution.reports import Counted, Set, Told

PEERS_MIN: Final = 3  # slots of one machine may differ, one among several alike does not
_YES: Final = ("Yes", "Active", "yes", "active", "1")
_SETTLED: Final = ("Success", "N/A", "", "Healthy", "None", "False", "Full")


def judge_gpu_states(told: Told) -> list[Finding]:
    """What states and counters of GPUs prove."""
    found = [_remap_failed(told), _uncorrectable(told), _remap_pending(told), _fabric(told)]
    found += [_held_down(told), _narrow(told)]
    return [each for each in found if each is not None]


def _states(told: Told, ending: str, values: Sequence[str]) -> list[Set]:
    return [
        each
        for each in told.settings
        if each.component.startswith("gpu/") and each.name.endswith(ending) and each.value in values
    ]


def _remap_failed(told: Told) -> Finding | None:
    failed = _states(told, "remapped_rows.remapping_failure_occurred", _YES)
    failed += _states(told, "sram_threshold_exceeded", _YES)
    failed += _states(told, "unrepairable_memory", _YES)
    if not failed:
        return None
    names = tuple(sorted({each.component for each in failed}))
    return Finding(
        verdict="attributed",
        fault_class="gpu.memory",
        reason=f"the memory of {shown(names)} cannot be repaired any more",
        confidence_ppm=930_000,
        level=MEMORY_LOST,
        signature="hardware_defect",
        culprits=names,
        proofs=proofs(failed, "the GPU itself says that it must be replaced"),
    )


def _remap_pending(told: Told) -> Finding | None:
    """A row waits to be replaced at the next reset (NVIDIA GPU Memory Error Management)."""
    pending = _states(told, "remapped_rows.pending", _YES)
    pending += _states(told, "retired_pages.pending_page_blacklist", _YES)
    if not pending:
        return None
    names = tuple(sorted({each.component for each in pending}))
    return Finding(
        verdict="attributed",
        fault_class="gpu.memory",
        reason=f"{shown(names)} wait for a reset to replace a bad row of memory",
        confidence_ppm=900_000,
        level=REMAP_PENDING,
        signature="row_remap_pending",
        culprits=names,
        proofs=proofs(pending, "a row is marked and not yet replaced"),
    )


def _uncorrectable(told: Told) -> Finding | None:
    counted = [
        e
        for e in told.counters
        if "uncorrectable" in e.name and e.name.startswith("ecc_errors.") and e.last > 0
    ]
    if not counted:
        return None
    met = [e for e in told.of("cuda_error") if "uncorrectable ecc error" in e.message.what]
    risen = [each for each in counted if each.last > each.first]
    recent = risen or [each for each in counted if ".volatile." in each.name]
    gpus = sorted({each.component for each in recent})
    if len(gpus) != 1:
        return _some_time(told, counted, gpus)
    own = sorted((e for e in counted if e.component == gpus[0]), key=lambda e: e not in recent)
    return Finding(
        verdict="attributed",
        fault_class="gpu.memory",
        reason=f"{gpus[0]} had {recent[0].last} uncorrectable memory errors since its driver was"
        " loaded, no other GPU had one",
        confidence_ppm=930_000 if met or risen else 650_000,
        level=MEMORY_LOST,
        culprits=(gpus[0],),
        proofs=proofs_of(
            [(each, f"{each.last} errors that could not be corrected") for each in own]
            + [(each, "the program met such an error") for each in met]
        ),
        missing=() if met or risen else (wanted.SECOND_READING,),
    )


def _some_time(told: Told, counted: Sequence[Counted], gpus: Sequence[str]) -> Finding:
    if len(gpus) > 1:
        return Finding(
            verdict="class-only",
            fault_class="gpu.memory",
            reason=f"{shown(gpus)} had uncorrectable memory errors since their drivers were loaded",
            confidence_ppm=600_000,
            level=MEMORY_LOST - 1,
            proofs=proofs(counted, "errors that could not be corrected, since nobody knows when"),
            jobs=(told.job,),
            missing=(wanted.SECOND_READING, wanted.KERNEL_LOGS),
        )
    return Finding(
        verdict="insufficient",
        fault_class="unknown",
        reason="memory errors were counted over the life of the board: when is not said",
        confidence_ppm=0,
        level=LINK_DOWN,
        proofs=proofs(counted, "a lifetime count"),
        jobs=(told.job,),
        missing=(wanted.SECOND_READING, wanted.KERNEL_LOGS),
    )


def _fabric(told: Told) -> Finding | None:
    refused = [
        each
        for each in told.settings
        if each.component.startswith("gpu/")
        and each.name in ("fabric.status", "fabric.health.summary", "fabric.health.bandwidth")
        and each.value not in _SETTLED
    ]
    if not refused:
        return None
    words = shown(sorted({each.value for each in refused}), 2)
    return Finding(
        verdict="class-only",
        fault_class="nvlink",
        reason=f"the NVLink fabric did not take up GPUs of"
        f" {shown(sorted({e.node for e in refused}))}: {words}",
        confidence_ppm=800_000,
        level=NVLINK_FATAL - 1,
        proofs=proofs(refused, "what became of this GPU's registration with the fabric"),
        jobs=(told.job,),
        missing=(wanted.FABRIC_MANAGER_LOG, wanted.NVLINK_ERRORS),
    )


def _held_down(told: Told) -> Finding | None:
    hot = _states(told, "_thermal_slowdown", _YES)
    braked = _states(told, "hw_power_brake_slowdown", _YES)
    if hot:
        names = tuple(sorted({each.component for each in hot}))
        return Finding(
            verdict="attributed",
            fault_class="gpu.thermal",
            reason=f"{shown(names)} held their clocks down for heat",
            confidence_ppm=800_000,
            level=STRAGGLER,
            culprits=names,
            proofs=proofs(hot, "clocks are held down for heat"),
        )
    if braked:
        names = tuple(sorted({each.component for each in braked}))
        return Finding(
            verdict="attributed",
            fault_class="straggler.gpu",
            reason=f"the power supply made {shown(names)} hold their clocks down",
            confidence_ppm=750_000,
            level=STRAGGLER,
            culprits=names,
            proofs=proofs(braked, "the board's power brake is on"),
        )
    return None


def _narrow(told: Told) -> Finding | None:
    """A link with fewer lanes than the device has; the generation falls when idle, lanes do not."""
    widths: dict[str, dict[str, Set]] = {}
    for each in told.settings:
        if (
            each.name.startswith("gpu_link_info.link_width.")
            or "pci.gpu_link_info.link" in each.name
        ):
            widths.setdefault(each.component, {})[each.name.rpartition(".")[2]] = each
    narrow = [
        own["current"]
        for own in widths.values()
        if "current" in own and "max" in own and _lanes(own["current"]) < _lanes(own["max"])
    ]
    if not narrow or len(narrow) * PEERS_MIN > len(widths):
        return None
    names = tuple(sorted({each.component for each in narrow}))
    return Finding(
        verdict="attributed",
        fault_class="straggler.gpu",
        reason=f"{shown(names)} use fewer PCIe lanes than they have",
        confidence_ppm=700_000,
        level=STRAGGLER,
        culprits=names,
        proofs=proofs(narrow, "lanes in use"),
        missing=("the slot and its link: lspci -vvv | grep LnkSta",),
    )


def _lanes(setting: Set) -> int:
    digits = setting.value.rstrip("x")
    return int(digits) if digits.isdecimal() else 0
