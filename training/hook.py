"""The hook: what a training loop calls, and the thread that listens to the node's agent.

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
import io
import os
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol

import msgspec

from nemesis.training.gloo_group import BrokenGroupError, GivenUpError, Grounds, Group
from nemesis.training.membership import FIRST_STATE, NO_STATE, Deed, Member, State
from nemesis.training.samples import sample_ids
from nemesis.training.wire import End, Line, Standing, Told

AGENT: Final = "NEMESIS_AGENT"
"""Path of the agent's socket."""
RANK: Final = "NEMESIS_RANK"
"""As submitted; a membership may place it elsewhere among its members."""
JOB: Final = "NEMESIS_JOB"
HOST: Final = "NEMESIS_HOST"
"""By which address peers reach this node."""
TAP: Final = "NEMESIS_TAP"
"""Path of the socket on which torch serves this process's flight recorder."""
STATE_FROM: Final = "NEMESIS_STATE_FROM"
"""`peer`: this process is started into a running job, and its first state is none."""
END_S: Final = 30.0
AGAIN_S: Final = 0.2


class Stateful(Protocol):
    """What a step changes: a module, an optimizer, a schedule."""

    def state_dict(self) -> Any:
        """Everything that makes it what it is."""
        ...

    def load_state_dict(self, state_dict: Any) -> Any:
        """Be as that one was."""
        ...


class Step:
    """One step of the loop; `with hook.step() as step`."""

    def __init__(self, hook: "Hook") -> None:
        self._hook: Final = hook
        self._batch = 0
        self._reduced = False

    def samples(self, length: int, batch: int) -> tuple[int, ...]:
        """Ids of this rank's samples out of `length`; every member takes `batch` of them."""
        self._batch = batch
        hook = self._hook
        return sample_ids(
            hook.samples_count,
            length=length,
            batch=batch,
            position=hook.position,
            seed=hook.seed,
        )

    def average(self, parameters: Iterable[Any]) -> None:
        """Put the mean of all members' gradients into `grad`; a missing gradient counts as zeros.

        Raises:
            BrokenGroupError, GivenUpError: the step is not to be applied; leave the `with`.
        """
        hook = self._hook
        shared = [each for each in parameters if each.requires_grad]
        for each in shared:
            if each.grad is None:
                each.grad = each.new_zeros(each.shape)
        hook.reduce([each.grad for each in shared])
        self._reduced = True

    def __enter__(self) -> "Step":
        self._hook.settle()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if isinstance(error, BrokenGroupError | GivenUpError):
            self._hook.failed(error)
            return True
        if error is None:
            try:
                if not self._reduced:
                    self._hook.reduce([])
            except (BrokenGroupError, GivenUpError) as late:
                self._hook.failed(late)
                return True
            self._hook.stepped(self._batch)
        return False


class Hook:
    """One rank's tie to its agent, and the group that it trains in."""

    def __init__(
        self, torch: Any, things: tuple[Stateful, ...], line: Line | None, *, seed: int = 0
    ) -> None:
        self.seed: Final = seed
        """Of the order of samples; equal on all ranks."""
        self.samples_count = 0
        """Taken by all steps that were applied."""
        self._torch: Final[Any] = torch
        self._things: Final = things
        self._line = line
        self._steps_count = 0
        """Of one that is alone."""
        self._changed: Final = threading.Condition()
        self._interrupted = False
        self._member: Member | None = None
        self._stores: Final[dict[int, str]] = {}
        self._may_end = threading.Event()
        self._group: Group | None = None
        self._why = ""
        if line is not None:
            tap = importlib.import_module("torch._C._distributed_c10d")
            self._tap: Final[Any] = tap._WorkerServer(os.environ[TAP])
            self._rank: Final = int(os.environ[RANK])
            self._job: Final = os.environ.get(JOB, "job")
            self._grounds: Final = Grounds(torch, os.environ.get(HOST, "127.0.0.1"))
            fresh = os.environ.get(STATE_FROM) != "peer"
            self._first: Final = FIRST_STATE if fresh else NO_STATE
            threading.Thread(target=self._listen, daemon=True, name="nemesis").start()

    @property
    def steps_count(self) -> int:
        """Applied to this rank's state, by whomever."""
        member = self._member
        return max(0, member.state.steps_count) if member is not None else self._steps_count

    @property
    def members(self) -> tuple[int, ...]:
        """Who trains together now, named by their rank at submission."""
        return self._group.members if self._group is not None else (0,)

    @property
    def position(self) -> int:
        """Of this rank among the members."""
        if self._group is not None:
            return self._group.position
        dist = self._torch.distributed
        return int(dist.get_rank()) if dist.is_initialized() else 0

    @property
    def world(self) -> int:
        """How many train together."""
        if self._group is not None:
            return len(self._group.members)
        dist = self._torch.distributed
        return int(dist.get_world_size()) if dist.is_initialized() else 1

    def step(self) -> Step:
        """The next step, to be used in a `with`."""
        return Step(self)

    def settle(self) -> None:
        """Be a member of a group that works; waits as long as plans say.

        Raises:
            SystemExit: this rank is not a member any more.
        """
        if self._line is None:
            return
        while True:
            with self._changed:
                if self._member is None:
                    self._line.say(msgspec.structs.replace(self._introduction(), stage="held"))
                while self._member is None:
                    self._changed.wait()
                member = self._member
                self._interrupted = False
            match member.stage:
                case "training":
                    return
                case "forming":
                    self._form(member)
                case "held":
                    self._say()
                    with self._changed:
                        while self._member == member:
                            self._changed.wait()
                case "left":
                    self._leave()

    def reduce(self, tensors: list[Any]) -> None:
        """Put the mean over the members into these tensors, all of one type, and agree.

        Raises:
            BrokenGroupError, GivenUpError: nothing of it may be used.
        """
        torch, group = self._torch, self._group
        if group is None:
            self._reduce_alone(tensors)
            return
        member = self._member
        assert member is not None, "a group without a membership"
        kind = tensors[0] if tensors else torch.zeros(1)
        # fresh in every step: an operation that was given up still writes into its own
        flat = torch.cat([each.reshape(-1) for each in tensors] + [kind.new_full((1,), 0.0)])
        flat[-1] = member.waiting
        group.reduce(flat, lambda: self._interrupted)
        with self._changed:
            after, deed = self._member_now().reduced(member.epoch, int(flat[-1] != 0))
            self._member = after
        if deed == "none":
            raise GivenUpError
        flat /= len(group.members)
        at = 0
        for each in tensors:
            each.copy_(flat[at : at + each.numel()].view_as(each))
            at += each.numel()

    def stepped(self, batch: int) -> None:
        """The loop has applied a step."""
        self.samples_count += batch * self.world
        if self._line is None:
            self._steps_count += 1
        else:
            self._say()

    def failed(self, error: Exception) -> None:
        """The loop has not applied a step: its reduction broke, or was given up."""
        with self._changed:
            member = self._member_now()
            if isinstance(error, BrokenGroupError) and self._group is not None:
                self._member, _ = member.broken(member.epoch)
                self._why = str(error)
        if self._group is not None:
            self._grounds.park(self._group)

    def _member_now(self) -> Member:
        assert self._member is not None, "told nothing yet"
        return self._member

    def _reduce_alone(self, tensors: list[Any]) -> None:
        dist = self._torch.distributed
        if dist.is_initialized() and dist.get_world_size() > 1:
            for each in tensors:
                dist.all_reduce(each)
                each.div_(dist.get_world_size())

    def _form(self, member: Member) -> None:
        self._say()
        epoch = member.epoch
        try:
            group = self._grounds.form(
                self._job,
                epoch,
                member.members,
                member.rank,
                store=self._stores[epoch],
                given_up=lambda: self._interrupted,
            )
            state = self._agreed(group, epoch)
        except (BrokenGroupError, GivenUpError) as error:
            with self._changed:
                self._member, _ = self._member_now().broken(epoch)
                self._why = str(error)
            return
        if self._group is not None:
            self._grounds.park(self._group)
        with self._changed:
            self._member, _ = self._member_now().formed(epoch, state)
            self._group, self._why = group, ""
        self._say()

    def _agreed(self, group: Group, epoch: int) -> State:
        """What all members have from here on; whoever had another state has it now."""
        own = self._member_now().state
        told = group.gather(
            [own.epoch, own.steps_count, self.samples_count], lambda: self._interrupted
        )
        states = {
            rank: State(each[0], each[1]) for rank, each in zip(group.members, told, strict=True)
        }
        latest = max(states.values())
        with self._changed:
            self._member, source = self._member_now().source(epoch, states)
        if latest == NO_STATE:
            raise BrokenGroupError("no member has a state: resume from a checkpoint")
        if set(states.values()) != {latest}:
            giver = min(rank for rank, state in states.items() if state == latest)
            self._hand_over(group, giver, takes=source != self._rank)
            self.samples_count = told[group.members.index(giver)][2]
        return latest

    def _hand_over(self, group: Group, giver: int, *, takes: bool) -> None:
        torch, root = self._torch, group.members.index(giver)
        packed = io.BytesIO()
        if giver == self._rank:
            torch.save([each.state_dict() for each in self._things], packed)
        size = torch.tensor([packed.getbuffer().nbytes], dtype=torch.int64)
        group.broadcast(size, root, lambda: self._interrupted)
        body = torch.zeros(int(size), dtype=torch.uint8)
        if giver == self._rank:
            body.copy_(torch.frombuffer(packed.getbuffer(), dtype=torch.uint8))
        group.broadcast(body, root, lambda: self._interrupted)
        if takes:
            states = torch.load(io.BytesIO(body.numpy().tobytes()), weights_only=True)
            for thing, state in zip(self._things, states, strict=True):
                thing.load_state_dict(state)

    def _leave(self) -> None:
        self._say()
        self._may_end.wait(END_S)
        sys.stderr.write(f"nemesis: rank {self._rank} is no member of {self._job} any more\n")
        raise SystemExit(0)

    def _say(self) -> None:
        member, line = self._member, self._line
        if member is None or line is None:
            return
        line.say(
            Standing(
                rank=member.rank,
                pid=os.getpid(),
                stage=member.stage,
                epoch=member.epoch,
                state=member.state,
                why=self._why,
            )
        )

    def _listen(self) -> None:
        """Hear the agent, also one that was started anew, as long as the process lives."""
        while True:
            line = self._line
            assert line is not None
            line.say(self._introduction())
            for heard in line.heard():
                match heard:
                    case Told():
                        self._told(heard)
                    case End():
                        self._may_end.set()
            line.close()
            while True:
                time.sleep(AGAIN_S)
                try:
                    self._line = Line(Path(os.environ[AGENT]))
                    break
                except OSError:
                    continue

    def _introduction(self) -> Standing:
        member = self._member or Member(self._rank, (), state=self._first)
        return Standing(
            rank=self._rank,
            pid=os.getpid(),
            stage=member.stage,
            epoch=member.epoch,
            state=member.state,
        )

    def _told(self, told: Told) -> None:
        with self._changed:
            if told.order.kind == "membership":
                self._stores[told.order.epoch] = told.store
            before = self._member
            deed: Deed
            if before is None:
                first = Member(self._rank, (), epoch=-1, stage="held", state=self._first)
                self._member, deed = first.heard(
                    msgspec.structs.replace(told.order, at_boundary=False)
                )
            else:
                self._member, deed = before.heard(told.order)
            if deed != "none":
                self._interrupted = True
            self._changed.notify_all()
