"""The hook: what a training loop calls.

    import nemesis

    hook = nemesis.attach(model, optimizer)
    while hook.steps_count < 1_000:
        with hook.step() as step:
            loss = loss_of(model, data[step.samples(len(data), batch=8)])
            loss.backward()
            step.average(model.parameters())
            optimizer.step()

A step whose reduction broke, or was given up by plan, is not applied: its `with` ends early, the
members are settled anew, and the loop does it again. Between two steps a rank may have waited, have
taken its state from a peer, or have left (SystemExit). Where no agent speaks to the process it
trains as it would have without the hook, over torch's default group if there is one.
"""

import importlib
import os
from collections.abc import Mapping
from typing import Any, Final

from nemesis.schemas.layout import Degrees, Kind
from nemesis.training.checksum import Checksums
from nemesis.training.commit import Part, is_applied_by_others, latest, settled
from nemesis.training.flat import flattened, place_alone, put_back, reduce_alone
from nemesis.training.fsdp import parts_of, replicas_alone
from nemesis.training.gloo_group import (
    BrokenGroupError,
    DoneAgainError,
    GivenUpError,
    Grounds,
    Group,
)
from nemesis.training.groups import Groups, form
from nemesis.training.handover import giver_of, hand_over
from nemesis.training.membership import NO_STATE, Member, State
from nemesis.training.nccl_lanes import lanes_on
from nemesis.training.seat import Seat
from nemesis.training.stateful import Stateful
from nemesis.training.step import Step
from nemesis.training.undo import Undo
from nemesis.training.wire import Line
from nemesis.training.wrappers import Wrappers

HOST: Final = "NEMESIS_HOST"
"""By which address peers reach this node."""
TAP: Final = "NEMESIS_TAP"
"""Path of the socket on which torch serves this process's flight recorder."""
CHECKPOINT: Final = "NEMESIS_CHECKPOINT"
"""Path of what this process is to load, where its job is started anew from a checkpoint."""


class Hook:
    """One rank's tie to its agent, and the groups that it trains in."""

    def __init__(
        self,
        torch: Any,
        things: tuple[Stateful, ...],
        line: Line | None,
        *,
        seed: int,
        degrees: Degrees,
        checksum_steps: int,
    ) -> None:
        self.seed: Final = seed
        """Of the order of samples; equal on all ranks."""
        self.samples_count = 0
        """Taken by all steps that were applied."""
        self._torch: Final[Any] = torch
        self._things: Final = parts_of(torch, things, degrees)
        self.is_sharded: Final = self._things is not things
        """Whether gradients lie in parts, as the mean over their replica."""
        self._degrees: Final = degrees
        self._steps_count = 0
        """Of one that is alone."""
        self._groups: Groups | None = None
        self._for_torch: dict[Kind, Any] = {}
        self._epoch = -1
        """Of the groups."""
        self._parts_count = 1
        """Into which the current step's samples are divided."""
        self._is_in_step = False
        self._is_committed = False
        """Whether all members have all gradients of the current step."""
        self._prepared: State = NO_STATE
        self._unfinished: Groups | None = None
        """Where the others wait until what was prepared is applied here."""
        self._seat: Seat | None = None
        self._wrappers: Final = Wrappers(
            torch,
            things if line is not None else (),
            given_up=lambda: self._is_given_up,
            waiting=lambda: self._place.member.waiting,
            concluded=self._reduced if degrees.replica_size == 1 else lambda waiting: True,
            is_open=lambda: self._is_in_step and not self._is_committed,
        )
        if line is not None:
            modules = [each for each in things if hasattr(each, "buffers")]
            tap = importlib.import_module("torch._C._distributed_c10d")
            self._tap: Final[Any] = tap._WorkerServer(os.environ[TAP])
            self._grounds: Final = Grounds(torch, os.environ.get(HOST, "127.0.0.1"))
            self._undo: Final = Undo(torch, modules)
            self._checksums: Final = Checksums(torch, modules, checksum_steps)
            self._lanes: Final = lanes_on(torch, self._grounds, things)
            self._seat = Seat(line, self._wrappers.give_up)
        self._alone: Final = None if line is not None else replicas_alone(torch, things, degrees)

    @property
    def steps_count(self) -> int:
        """Applied to this rank's state, by whomever."""
        if self._seat is None:
            return self._steps_count
        return max(0, self._seat.member.state.steps_count)

    @property
    def members(self) -> tuple[int, ...]:
        """Who trains together now, named by their rank at submission."""
        return self._groups.world.members if self._groups is not None else (0,)

    @property
    def position(self) -> int:
        """Of this rank among the members."""
        groups = self._groups
        return place_alone(self._torch)[0] if groups is None else groups.world.position

    @property
    def world(self) -> int:
        """How many train together."""
        groups = self._groups
        return place_alone(self._torch)[1] if groups is None else len(groups.world.members)

    @property
    def data_place(self) -> tuple[int, int]:
        """Which part of a step's samples is this rank's, and of how many."""
        return self._degrees.data_place(self.position, self.world)

    @property
    def group(self) -> Any:
        """The members of now as a torch ProcessGroup, None where it trains alone.

        For what a loop itself does with the others; it is another one in each epoch, so it has to
        be asked for anew in each step. So are `groups`.
        """
        return self._for_torch.get("world")

    @property
    def groups(self) -> Mapping[Kind, Any]:
        """A torch ProcessGroup for each kind of the job's layout; none where it trains alone."""
        return self._for_torch

    @property
    def checkpoint(self) -> str:
        """Path of the checkpoint that this process is to go on from, as `checkpointed` told of it
        in an earlier life of the job; "" for none."""
        return os.environ.get(CHECKPOINT, "")

    def checkpointed(self, path: str | os.PathLike[str]) -> None:
        """What the job has now lies there, whole; one of its ranks says so."""
        if self._seat is not None:
            self._seat.saved = self.steps_count, os.fspath(path)
            self._seat.say()

    def state_dict(self) -> dict[str, int]:
        """The job's place, to be saved with the rest."""
        return {"steps_count": self.steps_count, "samples_count": self.samples_count}

    def load_state_dict(self, state_dict: Mapping[str, int]) -> None:
        """Go on from there, before the first step; who joins a running job goes on from its."""
        self._steps_count, self.samples_count = (
            state_dict[each] for each in ("steps_count", "samples_count")
        )
        if self._seat is not None:
            self._seat.resumes(self._steps_count)

    def step(self) -> Step:
        """The next step, to be used in a `with`."""
        this: Any = self  # one class of two names for pyright, which sees the folder by two ways
        return Step(this)

    def settle(self) -> None:
        """Be a member of groups that work; waits as long as plans say.

        Raises:
            SystemExit: this rank is not a member any more.
        """
        if self._seat is None:
            return
        while True:
            member = self._seat.awaited()
            match member.stage:
                case "training":
                    return
                case "forming":
                    self._form(member)
                case "held":
                    self._seat.hold(member)
                case "left":
                    self._seat.leave()

    def begin(self) -> None:
        """The loop begins a step."""
        self._parts_count, self._is_committed = self.data_place[1], False
        self._is_in_step = True
        if self._seat is not None:
            self._undo.remember()
        self._wrappers.begin()

    def reduce(self, tensors: list[Any], over: Kind, mean_over: Kind = "dp") -> None:
        """Put the mean over all samples into these tensors, all of one type, and agree.

        Raises:
            BrokenGroupError, GivenUpError: nothing of it may be used.
        """
        torch, groups = self._torch, self._groups
        if groups is None:
            reduce_alone(torch, tensors, self._alone)
            return
        self._wrappers.refuse_broken()
        flat = flattened(torch, tensors, self._place.member.waiting)
        groups[over].reduce(flat, lambda: self._is_given_up)
        if self._degrees.replica_size == 1 and not self._reduced(int(flat[-1].item() != 0)):
            raise GivenUpError
        flat /= len(groups[mean_over].members)
        put_back(flat, tensors)

    def commit(self) -> None:
        """All members have all gradients of the step; one integer is summed over all, if need be.

        Raises:
            BrokenGroupError, GivenUpError: nothing of the step may be applied.
        """
        groups = self._groups
        if groups is None or self._is_committed:
            return
        self._wrappers.refuse_broken()
        number = self._torch.tensor([self._place.member.waiting], dtype=self._torch.int64)
        try:
            groups.world.reduce(number, lambda: self._is_given_up)
            if not self._reduced(int(number)):
                raise GivenUpError
        except (BrokenGroupError, GivenUpError) as error:
            self.failed(error)
            self._prepared = State(self._epoch, self._place.member.state.steps_count + 1)
            self.settle()
            self._is_committed = self._place.member.state == self._prepared
            self._prepared = NO_STATE
            if not self._is_committed:
                raise DoneAgainError from error

    def finish(self) -> None:
        """The process is about to end: not before all members can, and the agent knows why.

        Who ends while a peer is in its last step would take the step with it if that broke: so it
        goes where plans say until all are at the end.
        """
        seat = self._seat
        if seat is None or self._groups is None or self._is_in_step:
            return
        is_over = False
        while not is_over:
            try:
                self.settle()
                self._groups.world.meet_at_end(lambda: self._is_given_up)
                is_over = seat.finished(self._epoch)
            except GivenUpError:
                continue
            except SystemExit:
                break
        self._groups.close_lanes()
        if is_over:
            seat.say()

    def failure_of(self, error: BaseException | None) -> Exception | None:
        """Why the step is not to be applied; None where that is not ours to say."""
        return self._wrappers.failure_of(error)

    def stepped(self, batch: int) -> None:
        """The loop has applied a step."""
        self.samples_count += batch * self._parts_count
        self._is_in_step = False
        if self._seat is None:
            self._steps_count += 1
            return
        self._undo.forget()
        self._seat.checked = self._checksums.after(self.steps_count)
        self._seat.say()
        groups, self._unfinished = self._unfinished, None
        if groups is not None:
            try:
                self._agreed(groups, self._epoch)
            except (BrokenGroupError, GivenUpError) as error:
                self.failed(error)

    def failed(self, error: Exception) -> None:
        """The loop has not applied a step: its reduction broke, or was given up."""
        # of the group that broke: a plan may have named the next one meanwhile
        if isinstance(error, BrokenGroupError):
            self._place.broken(self._epoch, str(error))
        self._park()
        self._is_in_step = False

    @property
    def _place(self) -> Seat:
        assert self._seat is not None, "nobody is told anything where no agent is"
        return self._seat

    @property
    def _is_given_up(self) -> bool:
        return self._place.is_interrupted

    def _reduced(self, waiting: int) -> bool:
        self._is_committed = self._place.concluded(self._epoch, waiting)
        return self._is_committed

    def _park(self) -> None:
        for each in self._groups.all() if self._groups is not None else ():
            self._grounds.park(each)

    def _form(self, member: Member) -> None:
        seat, epoch = self._place, member.epoch
        seat.say()
        groups = None
        try:
            groups = form(
                self._grounds,
                f"{seat.job}/{epoch}",
                member.members,
                member.rank,
                degrees=self._degrees,
                store=seat.store_of(epoch),
                given_up=lambda: self._is_given_up,
            )
            self._lanes.lay(self._groups, self._epoch, groups, lambda: self._is_given_up)
            state = self._agreed(groups, epoch)
        except (BrokenGroupError, GivenUpError) as error:
            if groups is not None:
                groups.abort_lanes()
            seat.broken(epoch, str(error))
            return
        self._park()
        self._groups, self._epoch = groups, epoch
        seat.formed(epoch, state)
        self._for_torch = groups.for_torch(self._torch, lambda: self._is_given_up)
        self._wrappers.regroup(groups)
        seat.say()

    def _agreed(self, groups: Groups, epoch: int) -> State:
        """What all members have from here on; whoever had another state has it now."""
        seat, members = self._place, groups.world.members
        while True:
            own = Part(seat.member.state, self._prepared)
            told = groups.world.gather(
                [*own.state, *own.prepared, self.samples_count], lambda: self._is_given_up
            )
            parts = [Part(State(*each[:2]), State(*each[2:4])) for each in told]
            newest = latest(parts)
            if newest == NO_STATE:
                raise BrokenGroupError("no member has a state: resume from a checkpoint")
            late = [is_applied_by_others(each, parts) for each in parts]
            is_all = all(settled(each, parts) == newest for each in parts)
            if late[members.index(seat.rank)]:
                seat.has(newest)
                self._undo.forget()
                # one who needs that state gets it when it is there
                self._unfinished = None if is_all else groups
                return newest
            if is_all or not any(late):
                states = {rank: each.state for rank, each in zip(members, parts, strict=True)}
                if is_all:
                    states = dict.fromkeys(members, newest)
                source = self._take(groups["peers"], epoch, states)
                self.samples_count = told[members.index(source)][4]
                return newest

    def _take(self, peers: Group, epoch: int, states: Mapping[int, State]) -> int:
        """Have the latest state, of one who has the same part of the model; whose it has now."""
        among, newest = {rank: states[rank] for rank in peers.members}, max(states.values())
        giver, source = giver_of(among, newest), self._place.source(epoch, among)
        takes = source != self._place.rank
        if giver is not None:
            hand_over(
                self._torch,
                self._things,
                peers,
                peers.members.index(giver),
                takes=takes,
                given_up=lambda: self._is_given_up,
            )
        if takes:
            self._place.has(newest)
        else:
            self._undo.restore()
        self._undo.forget()
        return source
