"""How much slower than it ever was each rank is, apart from what slowed all of them alike.

Why: ranks differ for good reasons, the stages of a pipeline or workers that share their GPUs, and a
stable spread is not a straggler; who became slower than itself is. How: each rank's time is taken
against its own usual one, and the middle of these ratios, which is what changed for all (longer
sequences, a slower file system), is taken out. A rank stands out if it rose by far more than it
scatters by itself. Integers only, so that every machine says the same.

Checked on the mini-batch times of four jobs of Alibaba's PAI cluster (alibaba/clusterdata,
cluster-trace-gpu-v2020/mini-batch-time), whose workers lie apart by up to three times their median
and drift against each other by up to a fifth.
"""

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

SPREADS: Final = 4  # of a rank's own scatter: that is no chance
SPREAD_PER_MILLE: Final = 20  # what a rank is taken to scatter by before it is known
LEARNT_ROUNDS: Final = 8  # before that nobody knows how a rank usually is
DRIFT_PER_MILLE: Final = 5  # by which what is usual follows what is, a round
FIRST_PER_MILLE: Final = 500  # of the first round; the second follows by half of it, and so on
SAME: Final = 1000  # per mille: as ever

Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Usual(msgspec.Struct):
    """How long each rank usually takes: int64 by rank."""

    time_ns: bytearray
    """0 before its first round."""
    spread: bytearray
    """In per mille, by which its rise usually differs from SAME."""
    rounds: bytearray
    """In which it was seen."""


def usual_of(world: int) -> Usual:
    """Of that many ranks nothing is known."""
    spread = np.full(world, SPREAD_PER_MILLE, np.int64)
    return Usual(bytearray(8 * world), bytearray(spread.tobytes()), bytearray(8 * world))


def rise_of(usual: Usual, ranks: NDArray[np.intp], time_ns: Longs) -> Longs:
    """By rank of `ranks`, in per mille: how its time differs from its usual one, all alike apart.

    SAME for ranks that are not known well enough.
    """
    known_ns = np.frombuffer(usual.time_ns, np.int64)[ranks]
    known = np.frombuffer(usual.rounds, np.int64)[ranks] >= LEARNT_ROUNDS
    if not known.any():
        return np.full(len(ranks), SAME, np.int64)
    ratio = time_ns * 1000 // known_ns.clip(1)
    common = np.sort(ratio[known])[(int(known.sum()) - 1) // 2]
    return np.where(known, ratio * 1000 // max(int(common), 1), SAME)


def stands_out(usual: Usual, ranks: NDArray[np.intp], rise: Longs, least_per_mille: int) -> Flags:
    """Who rose by that much, and by far more than it scatters."""
    spread = np.frombuffer(usual.spread, np.int64)[ranks]
    return np.asarray(rise - SAME >= np.maximum(least_per_mille, SPREADS * spread))


def learn(
    usual: Usual, ranks: NDArray[np.intp], time_ns: Longs, rise: Longs, passed: Flags
) -> None:
    """Let what is usual follow these times, but not those of the ranks that are passed over."""
    known, spread, rounds = (
        np.frombuffer(each, np.int64) for each in (usual.time_ns, usual.spread, usual.rounds)
    )
    seen = rounds[ranks]
    pace = np.maximum(FIRST_PER_MILLE // (seen + 1), DRIFT_PER_MILLE)
    was = known[ranks]
    towards = was + np.sign(time_ns - was) * (was * pace // 1000)
    nearer = np.where(time_ns > was, np.minimum(towards, time_ns), np.maximum(towards, time_ns))
    known[ranks] = np.where(was == 0, time_ns, np.where(passed, was, nearer))
    off = np.abs(rise - SAME)
    own = spread[ranks]
    learnt = (seen >= LEARNT_ROUNDS) & ~passed
    spread[ranks] = own + np.sign(off - own) * learnt
    rounds[ranks] = seen + 1
