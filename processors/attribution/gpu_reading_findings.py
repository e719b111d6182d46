"""What readings of GPUs side by side say: one runs slower, does not answer, or failed its test.

Why: a gauge means something only beside those of its neighbours. How: of GPUs that are all busy the
one whose clock is far below the others' is slow, and hot if it is also the hottest; links that are
down on one GPU and up on the rest are its own; one that may draw less power than others of its make
and draws all of that is held back by it; the last Xid that a monitor keeps is read like one
of the kernel's, with less certainty, because nobody says when it was.
"""

from collections.abc import Sequence
from statistics import median_low
from typing import Final

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import (
    DRIVER_HUNG,
    GPU_SHOWS,
    MEMORY_CONTAINED,
    NVLINK_FATAL,
    STRAGGLER,
    UNEXPLAINED,
    Finding,
)
from nemesis.processors.attribution.kernel_messages import KernelMessage
from nemesis.processors.attribution.kernel_rules import role_of
from nemesis.processors.attribution.report_rules import proofs, proofs_of, shown
from nemesis.processors.attribution.reports import Set, Told
from nemesis.schemas.codes import FaultClass

PEERS_MIN: Final = 3
BUSY_PERCENT_MIN: Final = 50
SLOW_SHARE: Final = 0.85  # of the others' clock; boost clocks of healthy GPUs lie within 5 %
HOT_C: Final = 8  # above the others; places in one chassis differ by less
LINKS_FEW: Final = 4
CAPPED_SHARE: Final = 0.9  # of a limit: what is set on purpose differs by tens of percent
# `nvidia-smi -q` of drivers before and after 530, its table and its CSV
_POWER_LIMITS: Final = ("power_readings.power_limit", "gpu_power_readings.current_power_limit")
_POWER_DRAWS: Final = (
    "power_readings.power_draw",
    "gpu_power_readings.power_draw",
    "gpu_power_readings.instantaneous_power_draw",
)
_XID_PPM: Final = 750_000
_HEAT: Final = "dcgm.thermal_system"  # clocks held down for heat are a warning of `dcgmi health`
# names of tests in `dcgmi diag` and `dcgmi health`
_TESTED: Final[tuple[tuple[str, FaultClass, int], ...]] = (
    ("memory", "gpu.memory", MEMORY_CONTAINED - 1),
    ("memtest", "gpu.memory", MEMORY_CONTAINED - 1),
    ("nvlink", "nvlink", NVLINK_FATAL - 2),
    ("nvbandwidth", "nvlink", NVLINK_FATAL - 2),
    ("thermal", "gpu.thermal", STRAGGLER),
)


def judge_gpu_readings(told: Told) -> list[Finding]:
    """What readings of GPUs prove together."""
    found = [_slow_clock(told), _no_answer(told), _gone(told), _links_down(told), _capped(told)]
    found += _last_xids(told)
    found.append(_failed_test(told))
    return [each for each in found if each is not None]


def _by_gpu(told: Told, *names: str) -> dict[str, Set]:
    named = (e for e in told.settings if e.component.startswith("gpu/") and e.name in names)
    return {each.component: each for each in named}


def _number(setting: Set | None) -> int:
    digits = setting.value.split()[0].partition(".")[0] if setting and setting.value else ""
    return int(digits[:9]) if digits.isdecimal() else -1


def _slow_clock(told: Told) -> Finding | None:
    clocks, use = _by_gpu(told, "clocks.sm"), _by_gpu(told, "utilization.gpu")
    busy = {g: _number(c) for g, c in clocks.items() if _number(use.get(g)) >= BUSY_PERCENT_MIN}
    if len(busy) <= PEERS_MIN:
        return None
    usual = median_low(busy.values())
    slow = sorted(gpu for gpu, mhz in busy.items() if 0 < mhz < usual * SLOW_SHARE)
    if not slow or len(slow) * PEERS_MIN > len(busy):
        return None
    heat = _by_gpu(told, "temperature.gpu_current_temp")
    others = [_number(heat.get(gpu)) for gpu in busy if gpu not in slow]
    hot = min(_number(heat.get(gpu)) for gpu in slow) > max(others) + HOT_C if others else False
    return Finding(
        verdict="attributed",
        fault_class="gpu.thermal" if hot else "straggler.gpu",
        reason=f"{shown(slow)} runs at {busy[slow[0]]} MHz under load, the others at {usual} MHz"
        + (", and is hotter than they are" if hot else ""),
        confidence_ppm=800_000,
        level=STRAGGLER,
        culprits=tuple(slow),
        proofs=proofs_of(
            [(clocks[gpu], "far below the clocks of its neighbours") for gpu in slow]
            + [(heat[gpu], "its temperature") for gpu in slow if gpu in heat]
        ),
        missing=(wanted.CLOCK_REASONS,),
    )


def _no_answer(told: Told) -> Finding | None:
    silent = [e for e in told.settings if e.name == "answers" and e.value == "ERR!"]
    if not silent:
        return None
    names = tuple(sorted({each.component for each in silent}))
    return Finding(
        verdict="attributed",
        fault_class="gpu.driver",
        reason=f"the driver gets no readings from {shown(names)}",
        confidence_ppm=650_000,
        level=DRIVER_HUNG - 1,
        culprits=names,
        proofs=proofs(silent, "an error in place of a reading"),
        missing=(wanted.KERNEL_LOG,),
    )


def _gone(told: Told) -> Finding | None:
    """What is read of a device that left the bus is all ones (PCI Local Bus Specification)."""
    gone = [e for e in told.settings if e.name == "config_space" and e.value.startswith("gone")]
    if not gone:
        return None
    names = tuple(sorted({each.component for each in gone}))
    # drivers of desktops switch off a GPU that nobody uses: of a host's only one it says less
    others = any(not each.value.endswith(" 0 answer") for each in gone)
    return Finding(
        verdict="attributed" if others else "class-only",
        fault_class="gpu.off_bus",
        reason=f"{shown(names)} is listed and answers nothing"
        + (", the host's other GPUs do" if others else ""),
        confidence_ppm=850_000 if others else 600_000,
        level=GPU_SHOWS,
        culprits=names if others else (),
        proofs=proofs(gone, "its registers read as all ones"),
        jobs=(told.job,),
        missing=(wanted.KERNEL_LOG,),
    )


def _capped(told: Told) -> Finding | None:
    """A power limit below those of GPUs of the same make on the same host."""
    makes = {gpu: each.value for gpu, each in _by_gpu(told, "product_name").items()}
    limits = _by_gpu(told, *_POWER_LIMITS)
    draws = _by_gpu(told, *_POWER_DRAWS)
    for gpu in sorted(limits):
        like = [e for g, e in limits.items() if makes.get(g) == makes.get(gpu)]
        like = [each for each in like if each.node == limits[gpu].node]
        usual = median_low(_number(each) for each in like)
        low = [each for each in like if 0 < _number(each) < usual * CAPPED_SHARE]
        if limits[gpu] not in low or len(like) <= PEERS_MIN or len(low) * PEERS_MIN > len(like):
            continue
        held = all(_number(draws.get(e.component)) >= _number(e) * CAPPED_SHARE for e in low)
        names = tuple(sorted(each.component for each in low))
        return Finding(
            verdict="attributed" if held else "class-only",
            fault_class="straggler.gpu",
            reason=f"{shown(names)} may draw {_number(low[0])} W"
            f"{' and does' if held else ''}, others of its make {usual} W",
            confidence_ppm=800_000 if held else 550_000,
            level=STRAGGLER,
            culprits=names if held else (),
            proofs=proofs_of(
                [(each, "a lower limit than its neighbours have") for each in low]
                + [(draws[e.component], "what it draws") for e in low if e.component in draws]
            ),
            jobs=(told.job,),
            missing=(wanted.CLOCK_REASONS,),
        )
    return None


def _links_down(told: Told) -> Finding | None:
    links = [e for e in told.settings if e.name.startswith("nvlink.") and e.name.endswith(".state")]
    down = [each for each in links if each.value == "inactive"]
    gpus = {each.component for each in links}
    names = sorted({each.component for each in down})
    if not down or len(gpus) <= PEERS_MIN or len(names) * PEERS_MIN > len(gpus):
        return None
    return Finding(
        verdict="attributed",
        fault_class="nvlink",
        reason=f"links of {shown(names)} are down, those of the other GPUs are up",
        confidence_ppm=750_000,
        level=NVLINK_FATAL - 3,
        culprits=tuple(names),
        proofs=proofs(down[:LINKS_FEW], "this link is down"),
        missing=(wanted.NVLINK_ERRORS, wanted.KERNEL_LOG),
    )


def _last_xids(told: Told) -> list[Finding]:
    found = []
    for gpu, setting in sorted(_by_gpu(told, "last_xid").items()):
        code = _number(setting)
        device = gpu.rpartition("/")[2]
        if code <= 0 or ":" not in device:
            continue
        role = role_of(KernelMessage(kind="xid", code=code, device=device, severity="fatal"))
        if role is None or role.fault_class in ("unknown", "app.program"):
            continue
        found.append(
            Finding(
                verdict="attributed",
                fault_class=role.fault_class,
                reason=f"the last Xid of {gpu} was {code}; when that was is not said",
                confidence_ppm=_XID_PPM,
                level=role.level - 1,
                signature=role.signature,
                culprits=(gpu,),
                proofs=proofs([setting], role.says),
                missing=(wanted.KERNEL_LOG,),
            )
        )
    return found


def _failed_test(told: Told) -> Finding | None:
    failed = [
        each
        for each in told.settings
        if each.name.startswith("dcgm.")
        and (each.value in ("Fail", "Failure") or (each.name == _HEAT and each.value == "Warning"))
    ]
    if not failed:
        return None
    known = _class_of(failed)
    if known is None and not any(e.component.startswith("gpu/") for e in failed):
        return _failed_somewhere(told, failed)
    fault_class, level = known or ("gpu.driver", DRIVER_HUNG - 2)
    names = tuple(sorted({e.component for e in failed if e.component.startswith("gpu/")}))
    tests = shown(sorted({each.name.removeprefix("dcgm.") for each in failed}))
    return Finding(
        verdict="attributed" if names else "class-only",
        fault_class=fault_class,
        reason=f"{shown(names) if names else 'a GPU'} failed DCGM's {tests}",
        confidence_ppm=750_000 if names else 500_000,
        level=level,
        culprits=names,
        proofs=proofs(failed, "a test of the vendor failed"),
        jobs=(told.job,),
        missing=() if names else (wanted.NODE_GPUS,),
    )


def _failed_somewhere(told: Told, failed: Sequence[Set]) -> Finding:
    """A test of the host or of all GPUs alike: of software, slots or links."""
    tests = shown(sorted({each.name.removeprefix("dcgm.") for each in failed}))
    return Finding(
        verdict="insufficient",
        fault_class="unknown",
        reason=f"DCGM's {tests} failed of no GPU in particular",
        confidence_ppm=0,
        level=UNEXPLAINED,
        proofs=proofs(failed, "a test of the vendor failed"),
        jobs=(told.job,),
        missing=(wanted.NODE_GPUS,),
    )


def _class_of(failed: Sequence[Set]) -> tuple[FaultClass, int] | None:
    for word, fault_class, level in _TESTED:
        if any(word in each.name for each in failed):
            return fault_class, level
    return None
