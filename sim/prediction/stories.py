"""What happens to one GPU in the hours that are looked at: drawn by a seed, as a kind of life.

Ramps and storms are told by the same courses as in scenarios (sim/faults/gpu_memory.py), so what a
model learns is what the simulator shows on the wire. Times are steps of five seconds, from the
first that is looked at; what began before has left its counts behind.
"""

from collections.abc import Iterable
from math import exp, log
from random import Random
from typing import Final

import msgspec

from nemesis.processors.ecc_model.channels import STEP_NS
from nemesis.sim.faults.gpu_memory import corrected_storm, ecc_precursor
from nemesis.sim.faults.planned_gpu import CorrectedStorm, EccPrecursor
from nemesis.sim.faults.symptoms import GpuCounted, GpuEffect, GpuReads, GpuThrottled
from nemesis.sim.faults.target import Target
from nemesis.sim.params import Quartiles
from nemesis.sim.prediction.precursors import MILLION, Precursors
from nemesis.sim.telemetry.loads import IDLE, STALLED, TRAINING
from nemesis.sim.topology.cluster_file import load_cluster

STEPS_A_MINUTE: Final = 12
STEPS_AN_HOUR: Final = 720
STEPS_A_DAY: Final = 17_280
NEVER: Final = -1
HEAT_EVERY: Final = 6  # steps between two changes of a temperature
REPLAYS_EVERY: Final = 12
THERMAL: Final = 0x20  # software thermal slowdown
HOT_C: Final = 12  # so much above the usual and the driver lowers the clock (assumed)
TRAINING_MEMORY_C: Final = 53  # the median of sim/params.toml's H100


class Story(msgspec.Struct, kw_only=True):
    """One GPU's hours."""

    kind: str
    fails: int = NEVER
    """The step in which it fails, so that it is not up any more."""
    effects: list[tuple[int, GpuEffect]] = []
    before: list[tuple[int, str, int]] = []
    """(steps before the first, channel, count) of what is remembered from earlier."""
    boots: list[int] = []
    gap: tuple[int, int] = (0, 0)
    """Steps without a poll, from the first to before the second."""
    absent: tuple[str, ...] = ()
    loads: list[tuple[int, int]] = msgspec.field(default_factory=lambda: [(0, TRAINING)])
    """(from step, load)."""

    @property
    def shows(self) -> int:
        """The first step that shows something, 0 where it began before; NEVER nothing does."""
        if self.before:
            return 0
        return min((step for step, _ in self.effects), default=NEVER)


def drawn(table: Quartiles, random: Random, *, scale: float = 1.0) -> float:
    """A value of a distribution; one that spans decades is straight in between by its logarithm."""
    at = random.random() * 4
    low, high = table[int(at)], table[int(at) + 1]
    share = at - int(at)
    if low > 0 and high > 4 * low:
        return scale * exp(log(low) + share * (log(high) - log(low)))
    return scale * (low + share * (high - low))


def draw_story(kind: str, precursors: Precursors, steps: int, random: Random) -> Story:
    """The hours of a GPU of this kind, `steps` long.

    Raises:
        KeyError: no such kind.
    """
    story = Story(kind=kind)
    _circumstances(story, precursors, steps, random)
    when = random.randrange(steps // 8, steps)
    match kind:
        case "quiet":
            pass
        case "reboot":
            story.boots, story.gap = [when], (when - random.randrange(20 * STEPS_A_MINUTE), when)
        case "hbm-sudden" | "sram-sudden" | "bus-sudden" | "driver-sudden":
            story.fails = when
        case "hbm-repeat" | "probation":
            _probation(story, precursors, random)
            story.fails = when if kind == "hbm-repeat" else NEVER
        case "hbm-ramp" | "ramp-abates":
            _ramp(story, precursors, when, random)
        case "storm":
            _storm(story, precursors, steps, random)
        case "thermal-failure" | "heat-subsides":
            _heat(story, precursors, when, random)
        case "bus-replays" | "replays-subside":
            _replays(story, precursors, when, random)
        case "remap-alone":
            rises = (("dram_ce_count", 2), ("remap_pending", 1), ("remapped_rows_count", 1))
            story.effects = [(when, GpuCounted(0, rises))]
        case _:
            raise KeyError(kind)
    return story


def _circumstances(story: Story, precursors: Precursors, steps: int, random: Random) -> None:
    """What is missing, what it works at: drawn for every kind alike."""
    polls, load = precursors.polls, precursors.load
    absent: list[str] = []
    if random.randrange(MILLION) < polls.no_sram_ppm:
        absent += ["sram_ce_count", "sram_ue_count"]
    if random.randrange(MILLION) < polls.no_nvlink_ppm:
        absent += ["nvlink_replay_count", "nvlink_crc_count"]
    if random.randrange(MILLION) < polls.mig_ppm:
        absent += ["remapped_rows_count", "banks_spare_low_count", "remap_pending", "remap_failed"]
    story.absent = tuple(absent)
    if random.randrange(MILLION) < polls.gap_ppm:
        begin = random.randrange(steps)
        story.gap = (begin, begin + round(drawn(polls.gap_minutes, random) * STEPS_A_MINUTE))
    story.loads, at = [], 0
    while at < steps:
        share = random.randrange(MILLION)
        resting = STALLED if share < load.idle_ppm + load.stalled_ppm else TRAINING
        story.loads.append((at, IDLE if share < load.idle_ppm else resting))
        at += 1 + round(random.expovariate(load.changes_per_day / STEPS_A_DAY))


def _probation(story: Story, precursors: Precursors, random: Random) -> None:
    age = random.randrange(1, precursors.life.probation_days * STEPS_A_DAY)
    story.before = [(age, "dram_ue", 1), (age, "remapped_rows", 1)]


def _ramp(story: Story, precursors: Precursors, when: int, random: Random) -> None:
    """The course of `ecc-precursor`, which ends at `when`, or leaves off on the way."""
    ramp = precursors.ramp
    lasts = round(drawn(ramp.hours, random) * STEPS_AN_HOUR)
    planned = EccPrecursor(
        after_s=0.0,
        fails_after_s=lasts * STEP_NS / 1e9,
        errors_count=round(drawn(ramp.errors_count, random)),
        remaps_count=round(drawn(ramp.remaps_count, random)),
    )
    told = [
        (each.after_ns // STEP_NS, each.effect)
        for each in ecc_precursor(planned, _TARGET, random).symptoms
        if isinstance(each.effect, GpuCounted) and each.after_ns < lasts * STEP_NS
    ]
    if not ramp.regular:
        told = _without_rhythm(told, lasts, random)
    if story.kind == "hbm-ramp":
        story.fails, over = when, lasts
    else:
        over = round(lasts * drawn(ramp.abates_at_ppm, random) / MILLION)
    begins = when - over
    _tell(story, [(begins + at, effect) for at, effect in told if at < over])


def _without_rhythm(
    told: list[tuple[int, GpuCounted]], lasts: int, random: Random
) -> list[tuple[int, GpuCounted]]:
    """The same events in the same order at random times, as dense as `ecc_precursor` has them."""
    bursts = [effect for _, effect in told if effect.rises[0][0] == "dram_ce_count"]
    remaps = [effect for _, effect in told if effect.rises[0][0] != "dram_ce_count"]
    early = sorted(int(0.97 * random.random() ** 0.5 * lasts) for _ in bursts)
    late = sorted(int((0.3 + 0.6 * random.random()) * lasts) for _ in remaps)
    return [*zip(early, bursts, strict=True), *zip(late, remaps, strict=True)]


def _storm(story: Story, precursors: Precursors, steps: int, random: Random) -> None:
    lasts = max(1, round(drawn(precursors.storm.hours, random) * STEPS_AN_HOUR))
    begins = random.randrange(-lasts + 1, steps)
    seconds = min(lasts, steps) * STEP_NS / 1e9
    rate = drawn(precursors.storm.errors_per_s, random)
    planned = CorrectedStorm(
        after_s=0.0, errors_count=max(1, min(10_000_000, round(rate * seconds))), lasts_s=seconds
    )
    merged: dict[int, int] = {}
    for each in corrected_storm(planned, _TARGET, random).symptoms:
        if isinstance(each.effect, GpuCounted):
            at = each.after_ns // STEP_NS + max(begins, 0)
            merged[at] = merged.get(at, 0) + each.effect.rises[0][1]
    _tell(story, [(at, GpuCounted(0, (("dram_ce_count", by),))) for at, by in merged.items()])
    per_step = round(rate * STEP_NS / 1e9)
    story.before = [
        (age, "dram_ce", per_step * STEPS_A_MINUTE)
        for age in range(1, -begins, STEPS_A_MINUTE)
        if per_step
    ]
    story.effects = [(at, effect) for at, effect in story.effects if at < begins + lasts]


def _heat(story: Story, precursors: Precursors, when: int, random: Random) -> None:
    """Hotter and hotter up to `when`; then it fails, or cools down as it came."""
    heat = precursors.heat
    lasts = round(drawn(heat.minutes, random) * STEPS_A_MINUTE)
    rise_c = drawn(heat.rise_c, random)
    if story.kind == "thermal-failure":
        story.fails = when
        rise_c = max(rise_c, heat.fails_above_rise_c)
    begins = when - lasts
    curve = [(begins + at, rise_c * at / lasts) for at in range(0, lasts, HEAT_EVERY)]
    if story.fails < 0:
        curve += [(2 * when - at, rise) for at, rise in reversed(curve)]
    story.loads = [(0, TRAINING)]
    effects: list[tuple[int, GpuEffect]] = []
    for at, rise in curve:
        memory_c = TRAINING_MEMORY_C + round(rise)
        effects.append((at, GpuReads(0, (("memory_temp_c", memory_c),) if rise > 1 else ())))
        if rise > HOT_C:
            effects.append((at, GpuThrottled(0, 859, THERMAL, (memory_c + 6) * 1_000)))
        elif story.fails < 0 and at > when:
            effects.append((at, GpuThrottled(0, 1_000)))
    # a change before the first step is the state at it: the last of each kind holds
    story.effects = [(max(0, at), effect) for at, effect in effects]


def _replays(story: Story, precursors: Precursors, when: int, random: Random) -> None:
    """More and more, as the square of the time; then the GPU is off the bus, or it stops."""
    replays = precursors.replays
    lasts = max(REPLAYS_EVERY, round(drawn(replays.minutes, random) * STEPS_A_MINUTE))
    count = drawn(replays.events_count, random)
    begins, told = when - lasts, 0
    effects: list[tuple[int, GpuEffect]] = []
    for at in range(REPLAYS_EVERY, lasts, REPLAYS_EVERY):
        by = round(count * (at / lasts) ** 2) - told
        if by:
            told += by
            effects.append((begins + at, GpuCounted(0, (("pcie_replay_count", by),))))
    _tell(story, effects)
    story.fails = when if story.kind == "bus-replays" else NEVER


_REMEMBERED: Final = {
    "dram_ce_count": "dram_ce",
    "remapped_rows_count": "remapped_rows",
    "pcie_replay_count": "link_replay",
}


def _tell(story: Story, effects: Iterable[tuple[int, GpuEffect]]) -> None:
    """What comes before the first step is remembered and read from it on; the rest happens."""
    for at, effect in effects:
        story.effects.append((max(0, at), effect))
        if at < 0 and isinstance(effect, GpuCounted):
            story.before += [
                (-at, _REMEMBERED[name], by) for name, by in effect.rises if name in _REMEMBERED
            ]


_CLUSTER: Final = load_cluster()
_TARGET: Final = Target(_CLUSTER, _CLUSTER.node_names[0], 0)
