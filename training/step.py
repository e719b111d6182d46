"""One step of a loop: its samples, its mean gradients, and whether it counts."""

from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from nemesis.schemas.layout import Kind
from nemesis.training.gloo_group import BrokenGroupError, DoneAgainError, GivenUpError
from nemesis.training.samples import sample_ids

if TYPE_CHECKING:
    from nemesis.training.hook import Hook


class Step:
    """One step of the loop; `with hook.step() as step`."""

    def __init__(self, hook: "Hook") -> None:
        self._hook: Final = hook
        self._batch = 0

    def samples(self, length: int, batch: int) -> list[int]:
        """Ids of this rank's samples out of `length`; every member takes `batch` of them."""
        self._batch = batch
        hook = self._hook
        return sample_ids(
            hook.samples_count,
            length=length,
            batch=batch,
            position=hook.data_place[0],
            seed=hook.seed,
        )

    def average(self, parameters: Iterable[Any], over: Kind = "dp") -> None:
        """Put the mean over all samples into `grad`; a missing gradient counts as zeros.

        Not for what DDP averages in its backward pass; of what FSDP2 has averaged over a replica,
        the mean over all replicas. `over`: the kind of group whose members have these parameters,
        `edp` for those of experts.

        Raises:
            BrokenGroupError, GivenUpError: the step is not to be applied; leave the `with`.
        """
        hook = self._hook
        shared = [each for each in parameters if each.requires_grad]
        for each in shared:
            if each.grad is None:
                each.grad = each.detach().clone().zero_()
        grads = [each.grad for each in shared]
        if hook.is_sharded:
            parts = [each.to_local() for each in grads if hasattr(each, "to_local")]
            hook.reduce(parts, "edp", mean_over="edp")
            grads = [each for each in grads if not hasattr(each, "to_local")]
        if grads or not hook.is_sharded:
            hook.reduce(grads, over)

    def commit(self) -> None:
        """Make sure that all members have all gradients of the step: before it is applied.

        Needed where no reduction reaches all of them; after another one it does nothing.

        Raises:
            BrokenGroupError, GivenUpError: as `average`.
        """
        self._hook.commit()

    def __enter__(self) -> "Step":
        self._hook.settle()
        self._hook.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        hook = self._hook
        broke = hook.failure_of(error)
        if broke is None and error is None:
            try:
                hook.commit()
            except (BrokenGroupError, GivenUpError) as late:
                broke = late
        if broke is not None:
            if not isinstance(broke, DoneAgainError):
                hook.failed(broke)
                hook.settle()  # not in the next one: others may have applied it as their last
            return True
        if error is None:
            hook.stepped(self._batch)
        return False
