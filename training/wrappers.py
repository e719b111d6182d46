"""What torch wrapped an attached module in: DDP, FSDP2, or nothing."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from nemesis.training.ddp import tied
from nemesis.training.fsdp import Shards, sharded_among
from nemesis.training.gloo_group import BrokenGroupError, GivenUpError
from nemesis.training.groups import Groups


class Wrappers:
    """The wrappers among some things, tied to the members' groups."""

    def __init__(
        self,
        torch: Any,
        things: Sequence[Any],
        *,
        given_up: Callable[[], bool],
        waiting: Callable[[], int],
        concluded: Callable[[int], bool],
        is_open: Callable[[], bool],
    ) -> None:
        """`given_up`, `waiting`, `concluded`: as `Buckets`; `is_open`: as `Shards`.

        Raises:
            WrappedAlreadyError, ShardsError: one cannot be tied.
        """
        self._buckets: Final = tied(
            torch, things, given_up=given_up, waiting=waiting, concluded=concluded
        )
        sharded = sharded_among(things)
        self._shards: Final = (
            None if sharded is None else Shards(torch, sharded, given_up=given_up, is_open=is_open)
        )

        self._groups: Groups | None = None

    @property
    def failure(self) -> Exception | None:
        """Why the current step is not to be applied."""
        buckets, shards = self._buckets, self._shards
        return (buckets.failure if buckets else None) or (shards.failure if shards else None)

    def failure_of(self, error: BaseException | None) -> Exception | None:
        """Why the current step is not to be applied; None where that is not ours to say.

        DDP says of what its communication hook met that it was a RuntimeError.
        """
        if isinstance(error, BrokenGroupError | GivenUpError):
            return error
        return self.failure if isinstance(error, RuntimeError) else None

    def refuse_broken(self) -> None:
        """Not if the current step is not to be applied.

        Raises:
            BrokenGroupError, GivenUpError: it is not.
        """
        if (failure := self.failure) is not None:
            raise failure

    def begin(self) -> None:
        """A new step starts."""
        for each in (self._buckets, self._shards):
            if each is not None:
                each.begin()

    def give_up(self) -> None:
        """Let the backward pass end now, and first of all what waits for a GPU."""
        if self._groups is not None:
            self._groups.abort_lanes()
        if self._buckets is not None:
            self._buckets.give_up()

    def regroup(self, groups: Groups) -> None:
        """Reduce over these members from now on."""
        self._groups = groups
        if self._buckets is not None:
            self._buckets.regroup(groups["dp"])
        if self._shards is not None:
            self._shards.regroup(groups["ep"])
