"""A week with predictions, replayed: `python -m tests.replay_week [--days N]`.

Three nodes are polled every five seconds of simulated time; they miss polls, count errors, change
parts. The shipped model scores them once, as a copy does that never ends. Then all of it again with
another width of its matrices, and from every snapshot of half a day by a copy that restores it,
reads the window again and goes on for two hours. Whatever is said must be the same bytes. A week
takes about five core-minutes.
"""

import argparse
import sys
from itertools import pairwise

from nemesis.processors.ecc_model.channels import STEP_NS
from nemesis.processors.ecc_model.ecc_model import EccModel
from nemesis.processors.ecc_model.model import Model
from nemesis.processors.ecc_model.network import Network
from nemesis.processors.ecc_model.shipped import latest, shipped
from nemesis.processors.fold import Fold
from tests.ecc_log import stepped
from tests.test_window import eventful

CELLS_A_DAY = 86_400 * 1_000_000_000 // STEP_NS
GOES_ON_CELLS = 1_440
OFTEN = 0.002
"""Parts change every few days, so that most are old enough to be judged."""


def copy(width: int) -> Fold:
    """A fresh one, whose matrices have so many columns."""

    def narrow(model: Model, count: int) -> Network:
        return Network(model, count, part_width=width)

    return Fold(EccModel(shipped, narrow))


def main() -> None:
    """Compare, print, exit 1 at a difference."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--days", type=float, default=7.0)
    options = parser.parse_args()
    cells = round(options.days * CELLS_A_DAY)
    log = eventful(1, cells, latest(), OFTEN)
    records, live = log.records, copy(8)
    half_days = max(1, round(2 * options.days))
    cuts = [len(records) * at // half_days for at in range(half_days + 1)]
    said, states = [], []
    for begin, end in pairwise(cuts):
        said.append(stepped(live, records[begin:end]))
        states.append(live.snapshot())
        print(f"{end:,} of {len(records):,} records", file=sys.stderr)
    every = [each for part in said for each in part]
    again = copy(3)
    different = stepped(again, records) != every or again.snapshot() != states[-1]
    for state, end in zip(states, cuts[1:], strict=True):
        own = copy(8)
        own.restore(state)
        lasts = records[end : end + GOES_ON_CELLS * len(records) // cells]
        different |= stepped(own, records[own.seq : end]) != []
        fresh = stepped(own, lasts)
        known = [each for each in every if end < each.input_seq <= end + len(lasts)]
        different |= fresh != known
    print(
        f"{options.days:g} days, {len(records):,} records, {len(every):,} facts said, "
        f"{len(states)} restarts: {'DIFFERENT' if different else 'no difference'}"
    )
    sys.exit(int(different))


if __name__ == "__main__":
    main()
