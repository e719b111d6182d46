"""Every GPU from readings to logits, and since when it has been looked at long enough to judge.

Why: a network that has seen less than its window has not seen what it was trained on. How: each
part counts down the steps that are still missing from its first poll on, and the window as a whole
counts the steps since it began. What fades and what counters said is kept; the window (the
network's rings) is not, it is read again (processors/window.py).
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from nemesis.processors.ecc_model.channels import WIDTH, ChannelReader, Flags, Ints, Readings
from nemesis.processors.ecc_model.inputs import Codes, InputMaker, Memories
from nemesis.processors.ecc_model.model import RECEPTIVE_STEPS, Model
from nemesis.processors.ecc_model.network import Logits, Network
from nemesis.processors.ecc_model.packing import Packed, packed, unpacked
from nemesis.schemas.channels import ABSENT

GAP_STEPS_MAX: Final = 12
"""A minute without a tick is a minute without polls; after more, the window begins anew."""


class Looked(msgspec.Struct, array_like=True, frozen=True):
    """A Scorer's state but for its window."""

    count: int
    readings: Readings
    memories: Memories
    unseen: Packed


class Scores(NamedTuple):
    """What came of a step, a column a GPU."""

    codes: Codes
    logits: Logits
    """[HORIZONS_S, GPU]"""
    heard: Flags
    """[GPU]: of those that were looked at for long enough."""


class Scorer:
    """The model at work."""

    def __init__(self, network: Callable[[Model, int], Network] = Network) -> None:
        """`network`: what makes the steps of a model, of so many GPUs."""
        self._made: Final = network
        self._reader = ChannelReader(0)
        self._maker = InputMaker(0)
        self._unseen: Ints = np.zeros(0, np.int64)
        """[GPU]: steps that are missing of a part's own first window."""
        self._model: Model | None = None
        self._network: Network | None = None
        self._depth = 0
        """Steps since the window began, as far as they matter."""

    def begin(self, model: Model) -> None:
        """A window begins, of this model; what is slow stays known."""
        self._model = model
        self._network = self._made(model, self._reader.count)
        self._depth = 0

    def grow(self, count: int) -> None:
        """Take up more GPUs; the others keep their columns."""
        more = count - self._reader.count
        if more:
            self._reader.grow(count)
            self._maker.grow(count)
            self._unseen = np.pad(self._unseen, (0, more), constant_values=RECEPTIVE_STEPS)
            if self._network is not None:
                self._network.grow(count)

    def forget(self, columns: Ints) -> None:
        """Other parts are in these places."""
        own = columns[columns < self._reader.count]
        self._reader.forget(own)
        self._maker.forget(own)
        self._unseen[own] = RECEPTIVE_STEPS
        if self._network is not None:
            self._network.forget(own)

    def step(self, block: NDArray[np.int64], polled: Flags, passed: int) -> Scores:
        """One step, of a cell that is `passed` cells after the last; block as of `gathered`."""
        assert self._model is not None, "no model"
        if passed > GAP_STEPS_MAX:
            self._reader.wait(passed - 1)
            self.begin(self._model)
        elif passed > 1:
            nothing = np.full((self._reader.count, WIDTH), ABSENT, np.int64)
            nobody = np.zeros(self._reader.count, np.bool_)
            for _ in range(passed - 1):
                self._stepped(nothing, nobody)
        return self._stepped(block, polled)

    def state(self) -> Looked:
        """What is known, the window aside."""
        return Looked(
            self._reader.count, self._reader.state(), self._maker.state(), packed(self._unseen)
        )

    def resume(self, state: Looked) -> None:
        """Take up a state; the window stays as it is."""
        count = state.count
        self._reader.resume(state.readings, count)
        self._maker.resume(state.memories, count)
        self._unseen = unpacked(state.unseen, (count,))
        if self._network is not None:
            self._network.grow(count)

    def _stepped(self, block: NDArray[np.int64], polled: Flags) -> Scores:
        assert self._network is not None
        codes = self._maker.make(self._reader.read(block, polled))
        logits = self._network.step(codes)
        heard = (self._unseen == 0) & (self._depth >= RECEPTIVE_STEPS)
        waiting = (self._unseen == RECEPTIVE_STEPS) & ~polled
        self._unseen -= (self._unseen > 0) & ~waiting
        self._depth = min(self._depth + 1, RECEPTIVE_STEPS)
        return Scores(codes, logits, heard)
