"""A checksum of a module's parameters: equal where they are equal to the last bit.

Replicas hold equal parameters after each step, so who has another checksum has computed wrong. It
is a sum of the numbers' own bits as integers, which no order of adding changes, so it is the same
on every device and with any number of threads; one changed bit changes it.
"""

from collections.abc import Iterable
from typing import Any, Final

MASK: Final = 2**62 - 1
FACTOR: Final = 1_000_003
"""Odd, so that a parameter's part is never lost; large, so that two that change places differ."""


class Checksums:
    """Of some modules' parameters, after every kth step."""

    def __init__(self, torch: Any, modules: Iterable[Any], every: int) -> None:
        """`every`: k; 0 for never."""
        self._torch: Final[Any] = torch
        self._modules: Final = tuple(modules)
        self._every: Final = every if self._modules else 0
        self._begun: tuple[int, Any] | None = None
        self._latest = (0, 0)

    def after(self, step: int) -> tuple[int, int]:
        """A step was applied: (step, checksum) of the latest that is known, (0, 0) for none.

        A checksum is known one step later than it is made: on a GPU nobody waits for it.
        """
        if self._begun is not None:
            begun_at, total = self._begun
            self._begun, self._latest = None, (begun_at, (int(total) & MASK) or 1)
        if self._every and step % self._every == 0:
            self._begun = step, checksum(self._torch, self._modules)
        return self._latest


def checksum(torch: Any, modules: Iterable[Any]) -> Any:
    """Of all parameters that lie in this process, an integer tensor of no dimension."""
    total = 0
    with torch.no_grad():
        for module in modules:
            for parameter in module.parameters():
                local = getattr(parameter, "_local_tensor", parameter).detach()
                total = total * FACTOR + _bits(torch, local).sum(dtype=torch.int64)
    return total


def _bits(torch: Any, numbers: Any) -> Any:
    """A tensor's memory as integers, eight bytes each where they come out even: by its size alone,
    so that equal tensors are read alike wherever they lie."""
    flat = numbers.contiguous().reshape(-1)
    if flat.nbytes % 8:
        return flat.view(torch.int8 if flat.nbytes % 4 else torch.int32)
    is_aligned = flat.storage_offset() * flat.element_size() % 8 == 0
    return (flat if is_aligned else flat.clone()).view(torch.int64)
