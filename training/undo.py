"""What a forward pass leaves behind, put back where its step does not count.

Parameters change when a step is applied and not before; running statistics (batch norm) and the
state of torch's generators change as soon as the forward pass goes. A step that broke is done
again, and is to find what it found the first time. What the loop itself draws (`random`, numpy) is
the loop's.
"""

from collections.abc import Iterable
from typing import Any, Final


class Undo:
    """The buffers of some modules and torch's generators, as the last step found them."""

    def __init__(self, torch: Any, modules: Iterable[Any]) -> None:
        self._torch: Final[Any] = torch
        every = [each for module in modules for each in module.modules()]
        norms = torch.nn.modules.batchnorm._NormBase
        self._buffers: Final[list[Any]] = []
        self._always: Final[list[int]] = []
        """Places of running statistics: torch changes them without counting it as a change."""
        for module in every:
            for buffer in module.buffers(recurse=False):
                if isinstance(module, norms):
                    self._always.append(len(self._buffers))
                self._buffers.append(buffer)
        self._kept: Final[list[Any]] = [each.clone() for each in self._buffers]
        self._versions = [each._version for each in self._buffers]
        self._drawn: Any = None
        self._drawn_cuda: Any = None

    def remember(self) -> None:
        """A step begins."""
        torch = self._torch
        now = [each._version for each in self._buffers]
        # tables of positions and masks, which may be large, never change
        changed = {at for at, version in enumerate(now) if version != self._versions[at]}
        if places := sorted(changed.union(self._always)):
            torch._foreach_copy_(
                [self._kept[at] for at in places], [self._buffers[at] for at in places]
            )
        self._versions = now
        self._drawn = torch.get_rng_state()
        if torch.cuda.is_initialized():
            self._drawn_cuda = torch.cuda.get_rng_state()

    def restore(self) -> None:
        """The step that began last is to be done again."""
        if self._drawn is None:
            return
        for buffer, kept in zip(self._buffers, self._kept, strict=True):
            buffer.copy_(kept)
        self._versions = [each._version for each in self._buffers]
        self._torch.set_rng_state(self._drawn)
        if self._drawn_cuda is not None:
            self._torch.cuda.set_rng_state(self._drawn_cuda)

    def forget(self) -> None:
        """The step that began last was applied, or its state came from a peer."""
        self._drawn = self._drawn_cuda = None
