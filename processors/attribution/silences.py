"""Which nodes stopped reporting, and whether that says something about them.

Why: a node that lost power writes no last line. But silence is weak evidence: a node that was cut
off from the log spools and delivers later, and many that fall silent together lost a network, not
their lives. How: a node that served a job and was not heard for three of its periods is silent,
unless it said that its watching ends; if at least two others and a tenth of its failure domain fell
silent with it, the domain is named instead. While as many of all nodes are late, each at its own
time, the path of telemetry is congested: nobody is named until the others are heard again, or have
been silent for long. Time is log time throughout. Not here: what a silent node's ranks prove
(verdicts.py).
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from nemesis.processors.attribution.findings import Proof
from nemesis.processors.attribution.incidents import Silence
from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.attribution.steps import Steps
from nemesis.schemas.facts import Fact

SECOND_NS: Final = 1_000_000_000
PERIODS: Final = 3  # one lost message and one late one are no silence
# of a node that may live: where one poll in twenty is lost, one of fifty nodes that are polled each
# 5 s misses three in a row five times an hour, and five in a row once in four days
LIT_PERIODS: Final = 5
LOSSY_PERIODS_MAX: Final = 12  # of one that loses more; nobody waits longer for a sign of life
LOST_POLLS: Final = 64  # over about so many the share of lost polls is counted
LOST_AT_ONCE_MAX: Final = 8  # who was away for long has not become as lossy
LOST_PPM_MIN: Final = 1_000
LATE_PERIODS: Final = 2  # a message that should have come is missing
GONE_PERIODS: Final = 6  # who is late for so long is not late any more
PERIOD_NS: Final = 5 * SECOND_NS  # of a node that does not say how often it polls
SILENT_NS_MIN: Final = 5 * SECOND_NS  # a busy log delivers a second or two late
TICK_GAP_NS: Final = 3 * SECOND_NS
OTHERS_MIN: Final = 2  # DESIGN: two others and a tenth of the domain make it a network finding
DOMAIN_SHARE_PPM: Final = 100_000
LEFT_MAX: Final = 4096  # nodes that jobs left within the time that silence takes to be found
ALL_NODES: Final = "the cluster"
OF_RANKS: Final = ("sample", "process", "process_state", "collective")


class Hearing(msgspec.Struct):
    """When each node was last heard, in log time."""

    last_ns: dict[str, int] = {}
    polled_ns: dict[str, int] = {}
    """The same, of samples alone."""
    polled_at_ns: dict[str, int] = {}
    """When each node was last polled, by its own clock."""
    polled_n: dict[str, int] = {}
    """The number of that poll: a producer leaves out none, so what is missing was lost."""
    period_ns: dict[str, int] = {}
    """Only of nodes that poll at another period than PERIOD_NS."""
    lost_ppm: dict[str, int] = {}
    """Only of nodes of which polls were missing lately: their share, older ones counted less."""
    told: dict[str, int] = {}
    """Silent nodes that were answered: when they were last heard."""
    unpolled: list[str] = []
    """Nodes that were heard long after their last poll: that polls are missing tells nothing."""
    spooling: list[str] = []
    """Nodes that announced a spool and were not heard on time since."""
    left_ns: dict[str, int] = {}
    """When a job left a node that has not been heard since; of the latest few."""
    awaited: dict[str, dict[str, int]] = {}
    """Of jobs that have shown no life yet their nodes, and when these were last heard before."""
    ended_ns: dict[str, int] = {}
    """When nodes said that their watching ends, by their own clock; until they are heard again."""
    tick_ns: int = 0
    """Log time of the last tick."""

    def heard(self, fact: Fact) -> None:
        """A fact of this node was read."""
        node = fact.key
        if self.ended_ns:
            if self._is_before_end(fact):
                return
            self.ended_ns.pop(node, None)
        self.last_ns[node] = fact.log_time_ns
        unpolled_ns = fact.log_time_ns - self.polled_ns.get(node, fact.log_time_ns)
        if unpolled_ns > LOSSY_PERIODS_MAX * self._period_of(node) and node not in self.unpolled:
            self.unpolled.append(node)
        if self.awaited and fact.kind in OF_RANKS:
            self._shows_life(fact.data.job, fact.log_time_ns)
        if self.spooling and not fact.late and node in self.spooling:
            self.spooling.remove(node)

    def heard_samples(self, facts: Sequence[Fact]) -> list[str]:
        """Samples of different nodes were read at one log time; which were polled while silent."""
        if self.ended_ns:
            facts = [fact for fact in facts if not self._is_before_end(fact)]
            if not facts:
                return []
            for fact in facts:
                self.ended_ns.pop(fact.key, None)
        unheard = [fact.key for fact in facts if self._was_polled_unheard(fact)]
        if self.spooling or self.awaited:
            for fact in facts:
                self.heard(fact)
        for fact in facts:
            self._count_lost(fact)
        heard = dict.fromkeys([fact.key for fact in facts], facts[-1].log_time_ns)
        self.last_ns.update(heard)
        self.polled_ns.update(heard)
        if self.unpolled:
            self.unpolled = [node for node in self.unpolled if node not in heard]
        self.polled_at_ns.update((fact.key, fact.at_ns) for fact in facts)
        self.polled_n.update((fact.key, fact.data.n) for fact in facts)
        for fact in facts:
            period_ns = fact.data.period_ns
            if period_ns and period_ns != self.period_ns.get(fact.key, PERIOD_NS):
                self.period_ns[fact.key] = period_ns
        return unheard

    def _count_lost(self, fact: Fact) -> None:
        """How many polls are missing between this one and the one before."""
        node, period_ns = fact.key, fact.data.period_ns or PERIOD_NS
        apart_ns = fact.at_ns - self.polled_at_ns.get(node, fact.at_ns)
        if 2 * apart_ns < 3 * period_ns and node not in self.lost_ppm:
            return
        missing = max(0, (apart_ns + period_ns // 2) // period_ns - 1)
        share_ppm = self.lost_ppm.pop(node, 0)
        for _ in range(min(missing, LOST_AT_ONCE_MAX)):
            share_ppm += (1_000_000 - share_ppm) // LOST_POLLS
        share_ppm -= share_ppm // LOST_POLLS
        if share_ppm >= LOST_PPM_MIN:
            self.lost_ppm[node] = share_ppm

    def end(self, fact: Fact) -> None:
        """Nobody watches this node from here on: it is as one that was never heard.

        Where this comes late, out of a spool, a new life of the producer may watch already.
        """
        node = fact.key
        if fact.at_ns < self.polled_at_ns.get(node, 0):
            return
        self.ended_ns[node] = fact.at_ns
        self.last_ns.pop(node, None)
        self.told.pop(node, None)

    def _is_before_end(self, fact: Fact) -> bool:
        """Whether it only comes late, from before the watching of its node ended."""
        return fact.at_ns <= self.ended_ns.get(fact.key, -1)

    def _was_polled_unheard(self, fact: Fact) -> bool:
        """Whether a node that is called silent comes back with the number of a poll that shows
        others before it, by the same process: they were lost on their way, and it never stood."""
        node = fact.key
        if fact.late or self.polled_ns.get(node, 0) > self.told.get(node, -1):
            return False
        lived = fact.data.start_ns < self.polled_at_ns.get(node, 0)
        return bool(lived and fact.data.n > self.polled_n[node] + 1)

    def _period_of(self, node: str) -> int:
        """How often a node is polled; one that never was, as seldom as any other."""
        if node in self.polled_ns:
            return self.period_ns.get(node, PERIOD_NS)
        return max(PERIOD_NS, *self.period_ns.values()) if self.period_ns else PERIOD_NS

    def spooled(self, node: str, log_time_ns: int, inventory: Inventory) -> None:
        """The node was cut off from the log, not silent.

        Of those below its switches that fell silent with it the silence is measured anew: whoever
        does not come back either was not only cut off.
        """
        uplinks = inventory.uplinks_of(node)
        for other, last_ns in self.last_ns.items():
            apart_ns = abs(self.polled_ns.get(other, 0) - self.polled_ns.get(node, 0))
            if (
                log_time_ns - last_ns > self._limit_ns(other)
                and apart_ns <= LATE_PERIODS * self._period_of(other)
                and not set(uplinks).isdisjoint(inventory.uplinks_of(other))
            ):
                self.last_ns[other] = log_time_ns
                self.told.pop(other, None)
        self.last_ns[node] = log_time_ns
        if node not in self.spooling:
            self.spooling.append(node)
        self.told.pop(node, None)

    def expect(self, job: str, nodes: Sequence[str], inventory: Inventory) -> None:
        """A job is to run there, perhaps only once it leaves a queue.

        Nobody misses a node that serves nobody else until it is heard or its job shows life
        elsewhere: an agent comes and goes with its job.
        """
        for node in nodes:
            self.told.pop(node, None)
            alone = {seat.job for seat in inventory.seats_on(node)} <= {job}
            if alone and node in self.last_ns:
                self.awaited.setdefault(job, {})[node] = self.last_ns[node]

    def forget(self, job: str) -> None:
        """A job is over, begun or not."""
        self.awaited.pop(job, None)

    def _shows_life(self, job: str, log_time_ns: int) -> None:
        """Ranks of a job tell of themselves: from now on its other nodes are expected to."""
        for node, heard_ns in self.awaited.pop(job, {}).items():
            if self.last_ns.get(node) == heard_ns:
                self.last_ns[node] = log_time_ns

    def _is_awaited(self, node: str) -> bool:
        return any(self.last_ns[node] == each.get(node) for each in self.awaited.values())

    def leave(self, nodes: Sequence[str], log_time_ns: int) -> None:
        """A job goes on without these nodes, perhaps because they did not answer it any more."""
        for node in nodes:
            self.left_ns.pop(node, None)
            self.left_ns[node] = log_time_ns
        while len(self.left_ns) > LEFT_MAX:
            del self.left_ns[next(iter(self.left_ns))]

    def fallen_silent(
        self, tick: Fact, inventory: Inventory, steps: Steps, may_live: Callable[[str], bool]
    ) -> list[Silence]:
        """Nodes that fell silent and were not told before; at most one finding a domain.

        `may_live`: whether other evidence than its polls speaks for the life of a node.
        """
        now_ns, before_ns = tick.log_time_ns, self.tick_ns
        self.tick_ns = now_ns
        if now_ns - before_ns > TICK_GAP_NS:
            # log time stood still and then jumped: nobody's silence in it was measured
            self.last_ns = dict.fromkeys(self.last_ns, now_ns)
            self.awaited = {job: dict.fromkeys(of, now_ns) for job, of in self.awaited.items()}
            return []
        overdue = [
            node
            for node, last_ns in self.last_ns.items()
            if now_ns - last_ns > SILENT_NS_MIN and now_ns - last_ns > self._limit_ns(node)
        ]
        overdue = [
            node
            for node in overdue
            if not self._is_awaited(node)
            and node not in self.unpolled
            and not self._lives(node, inventory, steps)
            and not (self._may_be_lossy(node, now_ns) and may_live(node))
        ]
        if not overdue or not self._hears_anybody(now_ns):
            return []  # that nobody at all is heard says something about the log, not about nodes
        return self._told(sorted(overdue), tick, inventory, self._late_count(now_ns))

    def _lives(self, node: str, inventory: Inventory, steps: Steps) -> bool:
        """Whether a job of this node went on after it was heard: it has no step without its ranks.

        Nobody reads it any more, and that is no fault of the node.
        """
        since_ns = self.due_ns(node)
        jobs = dict.fromkeys(seat.job for seat in inventory.seats_on(node))
        return any(steps.has_got_on_since(job, since_ns) for job in jobs)

    def _may_be_lossy(self, node: str, now_ns: int) -> bool:
        """Whether so many polls of a living node may be lost one after the other.

        As many as chance takes from it no more often than once in a million polls.
        """
        periods, share_ppm = LIT_PERIODS, self.lost_ppm.get(node, 0)
        while periods < LOSSY_PERIODS_MAX and share_ppm**periods > 1_000_000 ** (periods - 1):
            periods += 1
        return now_ns - self.last_ns[node] <= periods * self._period_of(node)

    def _hears_anybody(self, now_ns: int) -> bool:
        return any(
            now_ns - last_ns < LATE_PERIODS * self._period_of(node)
            for node, last_ns in self.last_ns.items()
        )

    def _late_count(self, now_ns: int) -> int:
        """How many are late, where so many at once say something about what they share; else 0."""
        late = gone = 0
        for node, last_ns in self.last_ns.items():
            period_ns = self._period_of(node)
            silent_ns = now_ns - last_ns
            gone += silent_ns >= GONE_PERIODS * period_ns
            late += silent_ns >= LATE_PERIODS * period_ns
        late -= gone
        return late if _are_many(late, len(self.last_ns) - gone) else 0

    def due_ns(self, node: str) -> int:
        """When it should have been heard again: what it died of happened before.

        Log time goes by whole seconds; within its second the node's own clock tells when.
        """
        last_ns = self.last_ns.get(node, 0)
        within_ns = self.polled_at_ns.get(node, 0) - last_ns
        return last_ns + min(max(within_ns, 0), SECOND_NS) + self._period_of(node)

    def _limit_ns(self, node: str) -> int:
        return PERIODS * self._period_of(node)

    def _told(
        self, overdue: list[str], tick: Fact, inventory: Inventory, late_count: int
    ) -> list[Silence]:
        found: list[Silence] = []
        seen: set[str] = set()
        domains: dict[str, tuple[str, list[str]]] = {}
        alone: set[tuple[str, int]] = set()
        """(domain, when last heard) of those that are left open: others are late as well."""
        for node in overdue:
            last_ns = self.last_ns[node]
            if node in seen or self.told.get(node) == last_ns or node in self.spooling:
                continue
            served = self.left_ns.get(node, 0) > last_ns  # when it was last heard
            if not served and not inventory.seats_on(node):
                self._tell(node)
                continue
            domain, members = self._domain(node, inventory, domains)
            if (domain, last_ns) in alone:
                continue
            together = [
                each for each in members if each == node or self._fell_with(each, node, tick)
            ]
            shared = _are_many(len(together), len(members))
            explained = shared and (domain != ALL_NODES or len(together) >= late_count)
            rack = self._rack_with(node, tick, inventory)
            if rack and len(rack) >= max(late_count, len(together) if shared else 0):
                together, shared, explained = rack, True, True
                domain = f"rack/{inventory.racks[node]}"
            if late_count and not explained:
                alone.add((domain, last_ns))
                continue
            nodes = tuple(together) if shared else (node,)
            seen.update(nodes)
            for each in nodes:
                self._tell(each)
            silent_s = (tick.log_time_ns - last_ns) // SECOND_NS
            says = f"nothing from {', '.join(nodes[:8])} for {silent_s} s"
            proof = Proof(tick.id, tick.seq, says)
            due_ns = max(map(self.due_ns, nodes))
            found.append(Silence(nodes, last_ns, due_ns, proof, domain if shared else ""))
        return found

    def _rack_with(self, node: str, tick: Fact, inventory: Inventory) -> list[str]:
        """The nodes of a node's rack, where all of them fell silent with it; else nobody.

        What nodes of one rack share and others do not is its power.
        """
        members = inventory.rack_of(node)
        whole = len(members) > 1 and all(
            each == node or self._fell_with(each, node, tick, LATE_PERIODS) for each in members
        )
        return members if whole else []

    def _tell(self, node: str) -> None:
        """This silence is answered."""
        self.told[node] = self.last_ns[node]
        self.left_ns.pop(node, None)

    def _domain(
        self, node: str, inventory: Inventory, domains: dict[str, tuple[str, list[str]]]
    ) -> tuple[str, list[str]]:
        """(name, nodes) of what the node shares with others: its switch, else the cluster.

        `domains` keeps, by switch, what was found at this tick.
        """
        first = next(iter(inventory.uplinks_of(node)), "")
        if first not in domains:
            everybody = sorted(self.last_ns)
            below = [each for each in everybody if first in inventory.uplinks_of(each)]
            large = len(below) > OTHERS_MIN
            domains[first] = (f"switch/{first}", below) if large else (ALL_NODES, everybody)
        return domains[first]

    def _fell_with(self, other: str, node: str, tick: Fact, periods: int = 1) -> bool:
        """Whether another node was last heard about when this one was, and not since.

        `periods`: how far apart they may be; with two, the last message of one was lost.
        """
        if other not in self.last_ns:
            return False
        period_ns = max(self._period_of(other), self._period_of(node))
        silent_ns = tick.log_time_ns - self.last_ns[other]
        apart_ns = abs(self.last_ns[other] - self.last_ns[node])
        return apart_ns <= periods * period_ns and silent_ns >= (PERIODS - 1) * period_ns


def _are_many(count: int, of_count: int) -> bool:
    return count > OTHERS_MIN and count * 1_000_000 >= of_count * DOMAIN_SHARE_PPM
