"""What a threshold would have told: alarms with hysteresis, the failures they foresaw, their cost.

An alarm begins when a chance reaches its threshold and ends when it is below half of it, as the
processor's bands do. A failure is foreseen by an alarm that is up when it comes and began at most
three hours before; an alarm is needless if no failure follows within the horizon of its head.
"""

from math import ceil, exp, lgamma, log
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from nemesis.processors.ecc_model.bands import BANDS
from nemesis.schemas.policy import Policy
from nemesis.sim.prediction.labels import EDGES
from nemesis.sim.prediction.scored import EVERY_STEPS, Scored
from nemesis.sim.telemetry.draws import Ints

Floats = NDArray[np.float64]
LEAD_STEPS_MAX: Final = EDGES[-1]
DAYS_A_STEP: Final = EVERY_STEPS * 5 / 86_400
"""GPU-days that a judged step stands for."""
GPUS_COUNT: Final = 16_384
MONTH_DAYS: Final = 30
COST_HEAD: Final = 2
"""Two hours, which costs are counted on."""


NODES_COUNT: Final = GPUS_COUNT // 8
_HOUR_NS: Final = 3_600_000_000_000
_POLICY: Final = Policy()


class Costs(msgspec.Struct, kw_only=True, frozen=True):
    """What a failure and a move cost a job of GPUS_COUNT GPUs, in node-hours (all assumed).

    By default what the policy says of one: 102, 2.8 and 6.8.
    """

    missed: float = NODES_COUNT * _POLICY.forecast_missed_ns / _HOUR_NS
    foreseen: float = NODES_COUNT * _POLICY.forecast_foreseen_ns / _HOUR_NS
    needless: float = foreseen + _POLICY.forecast_test_ns / _HOUR_NS

    @property
    def worth_ppm(self) -> int:
        """The chance of a failure from which on a move is expected to save something."""
        gain = self.missed - self.foreseen
        return ceil(1e6 * self.needless / (gain + self.needless))

    @property
    def told_ppm(self) -> int:
        """The lowest chance above it that the processor tells of within two hours."""
        levels = [each.at_ppm for each in BANDS if each.head == COST_HEAD]
        return min((each for each in levels if each >= self.worth_ppm), default=self.worth_ppm)


class Alarms(msgspec.Struct, kw_only=True):
    """What a threshold told of every GPU. All [GPU]."""

    weights: Floats
    """Lives of a million GPU-days that each stands for."""
    failed: Floats
    foreseen: Floats
    right: Floats
    """Alarms that a failure followed within the horizon."""
    needless: Floats
    leads_steps: Ints
    """From the alarm to the failure, where it was foreseen."""
    days: Floats
    """GPU-days that were judged."""

    def summed(self, each: Floats, times: Floats) -> Floats:
        """[resample] in a fleet's lives."""
        found: Floats = times @ (self.weights * each)
        return found

    def precision(self, times: Floats) -> Floats:
        """Of alarms; 0 where there were none."""
        right = self.summed(self.right, times)
        return right / np.maximum(right + self.summed(self.needless, times), 1e-300)

    def recall(self, times: Floats) -> Floats:
        """Of failures."""
        failed = self.summed(self.failed, times)
        return self.summed(self.foreseen, times) / np.maximum(failed, 1e-300)

    def needless_a_day(self, times: Floats) -> Floats:
        """Needless alarms a GPU-day."""
        return self.summed(self.needless, times) / np.maximum(self.summed(self.days, times), 1e-9)

    def needless_a_day_at_most(self) -> float:
        """Upper 95 % bound, one-sided: for weighted counts after Dobson et al. (1991).

        A kind that showed none may still show up to three in as many days, so the least that
        can be said is what the heaviest life would add.
        """
        counts, days = self.needless, float((self.weights * self.days).sum())
        least = 3.0 * float(self.weights.max(initial=0.0))
        seen = float(counts.sum())
        if not seen:
            return least / max(days, 1e-9)
        total = float((self.weights * counts).sum())
        spread = float((self.weights**2 * counts).sum()) / seen
        above = total + spread**0.5 * (poisson_at_most(seen) - seen)
        return float(max(least, above) / max(days, 1e-9))

    def node_hours_saved(self, costs: Costs, times: Floats) -> Floats:
        """A month, of GPUS_COUNT GPUs that are one job, against never foreseeing anything."""
        share = GPUS_COUNT * MONTH_DAYS / np.maximum(self.summed(self.days, times), 1e-9)
        gain = (costs.missed - costs.foreseen) * self.summed(self.foreseen, times)
        return share * (gain - costs.needless * self.summed(self.needless, times))

    def leads_s(self, shares: tuple[float, ...]) -> tuple[int, ...]:
        """Quantiles of the lead times of the failures that were foreseen, weighted to a fleet."""
        own = self.foreseen > 0
        if not own.any():
            return ()
        order = np.argsort(self.leads_steps[own])
        leads, mass = self.leads_steps[own][order], np.cumsum(self.weights[own][order])
        at = np.searchsorted(mass, np.array(shares) * mass[-1])
        return tuple((leads[np.minimum(at, len(leads) - 1)] * 5).tolist())


def alarms(found: Scored, head: int, threshold_ppm: int) -> Alarms:
    """Alarms of one head at a threshold; those of a threshold of 0 are none."""
    count = found.gpus_count
    gpus, until = found.gpus, found.until
    first = np.append(True, np.diff(gpus) > 0)
    up = _latched(found.ppm[head], threshold_ppm, first)
    begins = up & (first | ~np.roll(up, 1))
    right = begins & (until <= EDGES[head])
    began = np.maximum.accumulate(np.where(begins, np.arange(len(gpus)), 0))
    last = np.roll(first, -1)
    caught = last & up & (until <= EVERY_STEPS) & (until[began] <= LEAD_STEPS_MAX)
    leads = np.zeros(count, np.int64)
    leads[gpus[caught]] = until[began][caught]
    weights = np.zeros(count)
    weights[gpus] = found.weights

    def counted(flags: NDArray[np.bool_]) -> Floats:
        return np.bincount(gpus, flags, minlength=count).astype(np.float64)

    return Alarms(
        weights=weights,
        failed=counted(first & (until < 1 << 30)),
        foreseen=counted(caught),
        right=counted(right),
        needless=counted(begins & ~right),
        leads_steps=leads,
        days=counted(np.ones(len(gpus), np.bool_)) * DAYS_A_STEP,
    )


def _latched(ppm: Ints, threshold_ppm: int, first: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether an alarm is up at each step."""
    if not threshold_ppm:
        return np.zeros(len(ppm), np.bool_)
    sets, resets = ppm >= threshold_ppm, first | (2 * ppm < threshold_ppm)
    places = np.arange(len(ppm))
    latest_set = np.maximum.accumulate(np.where(sets, places, -1))
    latest_reset = np.maximum.accumulate(np.where(resets & ~sets, places, 0))
    starts = np.maximum.accumulate(np.where(first, places, 0))
    return (latest_set >= starts) & (latest_set >= latest_reset)


def poisson_at_most(count: float, share: float = 0.05) -> float:
    """The mean of a Poisson count of which so few or fewer would come in 5 % of cases."""
    low, high = count, count + 10 * (count + 1) ** 0.5 + 10
    for _ in range(60):
        middle = (low + high) / 2
        if _poisson_share(count, middle) > share:
            low = middle
        else:
            high = middle
    return float(high)


def _poisson_share(count: float, mean: float) -> float:
    return float(
        sum(exp(each * log(mean) - mean - lgamma(each + 1)) for each in range(int(count) + 1))
    )
