"""Everything that attribution remembers, as it lies in a snapshot."""

from typing import Final

import msgspec

from nemesis.processors.attribution.counters import Counters
from nemesis.processors.attribution.device_states import DeviceStates
from nemesis.processors.attribution.differences import Differences
from nemesis.processors.attribution.halts import Halts
from nemesis.processors.attribution.holdback import HoldBack, Surroundings
from nemesis.processors.attribution.host_signs import HostCounters
from nemesis.processors.attribution.incidents import Support
from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.attribution.link_losses import LinkLosses
from nemesis.processors.attribution.links import Links
from nemesis.processors.attribution.lost_ways import LostWays
from nemesis.processors.attribution.nvlink_signs import NvlinkStates
from nemesis.processors.attribution.open_incidents import Incidents
from nemesis.processors.attribution.pauses import Pauses
from nemesis.processors.attribution.rank_stacks import RankStacks
from nemesis.processors.attribution.recorders import Recorders
from nemesis.processors.attribution.recoveries import Recoveries
from nemesis.processors.attribution.repeats import Repeats
from nemesis.processors.attribution.reports import Reports
from nemesis.processors.attribution.resends import Resends
from nemesis.processors.attribution.silences import Hearing
from nemesis.processors.attribution.slowness import Slowness
from nemesis.processors.attribution.step_states import StepStates
from nemesis.processors.attribution.step_times import StepTimes
from nemesis.processors.attribution.steps import Steps
from nemesis.processors.attribution.trunks import Trunks
from nemesis.schemas.facts import Fact
from nemesis.schemas.operated import JobSubmitted
from nemesis.schemas.scheduled import JobPlaced, begun


class State(msgspec.Struct):
    """The state; each part says in its own file what it is for."""

    log_time_ns: int = 0
    inventory: Inventory = msgspec.field(default_factory=Inventory)
    recoveries: Recoveries = msgspec.field(default_factory=Recoveries)
    halts: Halts = msgspec.field(default_factory=Halts)
    recorders: Recorders = msgspec.field(default_factory=Recorders)
    rank_stacks: RankStacks = msgspec.field(default_factory=RankStacks)
    hearing: Hearing = msgspec.field(default_factory=Hearing)
    counters: Counters = msgspec.field(default_factory=Counters)
    host_counters: HostCounters = msgspec.field(default_factory=HostCounters)
    nvlinks: NvlinkStates = msgspec.field(default_factory=NvlinkStates)
    links: Links = msgspec.field(default_factory=Links)
    link_losses: LinkLosses = msgspec.field(default_factory=LinkLosses)
    trunks: Trunks = msgspec.field(default_factory=Trunks)
    resends: Resends = msgspec.field(default_factory=Resends)
    lost_ways: LostWays = msgspec.field(default_factory=LostWays)
    pauses: Pauses = msgspec.field(default_factory=Pauses)
    steps: Steps = msgspec.field(default_factory=Steps)
    step_times: StepTimes = msgspec.field(default_factory=StepTimes)
    step_states: StepStates = msgspec.field(default_factory=StepStates)
    differences: Differences = msgspec.field(default_factory=Differences)
    device_states: DeviceStates = msgspec.field(default_factory=DeviceStates)
    slowness: Slowness = msgspec.field(default_factory=Slowness)
    supports: list[tuple[int, str, Support]] = []
    """(log time, node, counter that went up) of the last seconds, where no incident is open."""
    repeats: Repeats = msgspec.field(default_factory=Repeats)
    reports: Reports = msgspec.field(default_factory=Reports)
    hold_back: HoldBack = msgspec.field(default_factory=HoldBack)
    surroundings: Surroundings = msgspec.field(default_factory=Surroundings)
    incidents: Incidents = msgspec.field(default_factory=Incidents)

    def begin(self, fact: JobSubmitted | JobPlaced) -> None:
        """A job has nodes: they are expected to speak, and what was known of its name is over."""
        job = begun(fact)
        if job is not None:
            self.inventory.submit(job)
            self.hearing.expect(job.job, job.node_names, self.inventory)
            self.forget(job.job)

    def report(self, fact: Fact) -> None:
        """Take up what is told beside polls, kernels and recorders."""
        if fact.kind == "stack" and fact.data.looked_ns:
            self.rank_stacks.take(fact, self.inventory)
            return
        self.reports.take(fact, self.inventory)
        if fact.kind == "step_times":
            self.step_times.take(fact)
        if fact.kind == "setting":
            self.differences.take(fact)

    def forget(self, job: str) -> None:
        """A job is over, or begins anew."""
        self.recorders.forget(job)
        self.rank_stacks.forget(job)
        self.halts.forget(job)
        self.steps.forget(job)
        self.step_times.forget(job)
        self.step_states.forget(job)

    def regroup(self, job: str) -> None:
        """A job goes on in another membership."""
        self.recorders.forget(job)
        self.rank_stacks.forget(job)
        self.halts.regroup(job)
        self.steps.regroup(job)
        self.reports.resume(job)
        self.step_times.forget(job)
        self.step_states.forget(job)


# maps keep the order in which facts filled them, and there are no sets: equal states, equal bytes
encoder: Final = msgspec.msgpack.Encoder()
decoder: Final = msgspec.msgpack.Decoder(State)
