"""One step of the model for all GPUs at once, with what it must remember of the past.

Why: computing the whole window anew each time costs 400 times as much as keeping what every layer
saw. How: each convolution keeps its last inputs in a ring of bytes, one slot a step, so a tap is
one contiguous slice [channel, GPU]; the taps are put below one another and one matrix product makes
the layer. GPUs stand in columns, cut into parts that fit a core's cache. Sums are exact (model.py),
so neither the width of a part nor the company of other GPUs can change a score. 11.9 KB a GPU.
What is remembered is a function of the last RECEPTIVE_STEPS steps: whoever reads those anew knows
the same (a property test), and a GPU that was forgotten starts from zeros as a new one does.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from nemesis.processors.ecc_model.inputs import Codes
from nemesis.processors.ecc_model.model import (
    ACTIVATION_MAX,
    DILATIONS,
    HORIZONS_S,
    LOGITS,
    RECEPTIVE_STEPS,
    TAPS,
    Floats,
    Model,
)

Bytes = NDArray[np.uint8]
Logits = NDArray[np.int16]

PART_WIDTH: Final = 512
"""Columns of a part: taps and outputs of one layer, half a megabyte, stay in a core's cache."""


class Network:
    """The model's matrices and the state of every GPU."""

    def __init__(self, model: Model, count: int, *, part_width: int = PART_WIDTH) -> None:
        self._width: Final = part_width
        channels = self._channels = model.channels
        self._layers: Final = [(each.matrix(), each.offsets()) for each in model.convolutions]
        self._stem: Final = (model.stem.matrix(), model.stem.offsets())
        self._hidden: Final = (model.hidden.matrix(), model.hidden.offsets())
        self._logits: Final = (model.logits.matrix(), model.logits.offsets())
        self._dilations: Final = [each for each in DILATIONS for _ in range(2)]
        self._parts: Final[list[list[Bytes]]] = []
        self._taps: Final[Floats] = np.empty((TAPS, channels, part_width), np.float32)
        self._codes: Final[Floats] = np.zeros((len(model.inputs), part_width), np.float32)
        self._ends: Final[Floats] = np.empty((2 * channels, part_width), np.float32)
        self._out: Final[Floats] = np.empty((channels, part_width), np.float32)
        self._residual: Final[Floats] = np.empty((channels, part_width), np.float32)
        self._steps = 0
        self.count = 0
        self.grow(count)

    @property
    def state_bytes(self) -> int:
        """Of one GPU."""
        return (TAPS - 1) * sum(self._dilations) * self._channels

    def grow(self, count: int) -> None:
        """Take up more GPUs; the others keep their columns."""
        if self.count % self._width:  # columns beyond the last GPU were computed along with it
            for ring in self._parts[-1]:
                ring[:, :, self.count % self._width :] = 0
        self.count = count
        while len(self._parts) * self._width < count:
            self._parts.append(
                [
                    np.zeros(((TAPS - 1) * dilation, self._channels, self._width), np.uint8)
                    for dilation in self._dilations
                ]
            )

    def forget(self, columns: NDArray[np.int64]) -> None:
        """Other parts are in these places: their past is not theirs."""
        for column in columns.tolist():
            for ring in self._parts[column // self._width]:
                ring[:, :, column % self._width] = 0

    def step(self, codes: Codes) -> Logits:
        """[HORIZONS_S, GPU] of `codes` [INPUTS, GPU], one column a GPU."""
        assert codes.shape[1] == self.count, f"{codes.shape[1]} columns, {self.count} GPUs"
        found = np.empty((len(HORIZONS_S), self.count), np.int16)
        for at, rings in enumerate(self._parts):
            columns = slice(at * self._width, min(self.count, (at + 1) * self._width))
            own = columns.stop - columns.start
            self._codes[:, :own] = codes[:, columns]
            found[:, columns] = self._part(rings)[:, :own]
        self._steps += 1
        return found

    def state(self, column: int) -> bytes:
        """What is remembered of one GPU, the oldest first, whatever the place in the rings."""
        part, own = self._parts[column // self._width], column % self._width
        return b"".join(
            np.roll(each, -self._place(each), axis=0)[:, :, own].tobytes() for each in part
        )

    def _place(self, ring: Bytes) -> int:
        return self._steps % len(ring)

    def _part(self, rings: list[Bytes]) -> Logits:
        channels, out, residual = self._channels, self._out, self._residual
        np.matmul(self._stem[0], self._codes, out=out)
        out += self._stem[1]
        now = _clamped(out)
        self._ends[channels:] = now
        self._ends[:channels] = self._convolved(now, rings)
        np.matmul(self._hidden[0], self._ends, out=out)
        out += self._hidden[1]
        residual[:] = _clamped(out)
        logits = self._logits[0] @ residual
        logits += self._logits[1]
        np.floor(logits, out=logits)
        np.clip(logits, -(LOGITS // 2), LOGITS // 2 - 1, out=logits)
        return logits.astype(np.int16)

    def _convolved(self, now: Bytes, rings: list[Bytes]) -> Bytes:
        """What the last block makes of what the stem made now."""
        out, residual = self._out, self._residual
        flat = self._taps.reshape(-1, self._width)
        for at, ((matrix, offsets), ring) in enumerate(zip(self._layers, rings, strict=True)):
            self._gather(self._taps, now, ring, self._dilations[at])
            if at % 2 == 0:
                residual[:] = now
            np.matmul(matrix, flat, out=out)
            out += offsets
            if at % 2:
                out += residual
            now = _clamped(out)
        return now

    def _gather(self, taps: Floats | Bytes, now: Bytes, ring: Bytes, dilation: int) -> None:
        """Put the taps below one another, and the newest in the oldest's place."""
        length = len(ring)
        place = self._place(ring)
        taps[0] = now
        for tap in range(1, TAPS):
            taps[tap] = ring[(place - tap * dilation) % length]
        ring[place] = now


def _clamped(out: Floats) -> Bytes:
    """To eight bits; what is not below 0 is cut to the whole number below it."""
    np.clip(out, 0, ACTIVATION_MAX, out=out)
    return out.astype(np.uint8)


assert RECEPTIVE_STEPS == 372
