"""Arrays in a snapshot: what is not 0, and where; of nearly all GPUs there is nothing to say."""

import msgspec
import numpy as np
from numpy.typing import NDArray


class Packed(msgspec.Struct, array_like=True, frozen=True):
    """The entries of an array of any shape, counted row by row, that are not 0."""

    places: bytes
    """little-endian uint32"""
    values: bytes
    """little-endian int64"""


def packed(array: NDArray[np.int64]) -> Packed:
    """The entries that are not 0."""
    flat = array.ravel()
    places = np.flatnonzero(flat)
    return Packed(places.astype("<u4").tobytes(), flat[places].astype("<i8").tobytes())


def unpacked(entries: Packed, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """An array of this shape, 0 where nothing was said."""
    flat = np.zeros(int(np.prod(shape)), np.int64)
    flat[np.frombuffer(entries.places, "<u4")] = np.frombuffer(entries.values, "<i8")
    return flat.reshape(shape)


def packed_flags(flags: NDArray[np.bool_]) -> bytes:
    """Eight flags a byte."""
    return np.packbits(flags.ravel()).tobytes()


def unpacked_flags(raw: bytes, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Flags of this shape."""
    bits = np.unpackbits(np.frombuffer(raw, np.uint8), count=int(np.prod(shape)))
    return bits.astype(np.bool_).reshape(shape)
