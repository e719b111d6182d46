"""The account of one job: every nanosecond since its submission is in exactly one part.

Time is cut where a fact of the job lies. What was cut since the last step seen is a list of
stretches whose part is not final, because only the next fact says what they were: a step makes them
work, a verdict makes them detection. Always `sum(parts) + sum(stretches) == mark_ns - since_ns`.
"""

from typing import Final, Literal, TypeAlias, get_args

import msgspec

from nemesis.schemas.inferred import TimeParts

Part: TypeAlias = Literal[
    "start",
    "productive",
    "degraded",
    "redone",
    "detection",
    "decision",
    "recovery",
    "waiting",
    "stalled",
]
PARTS: Final[tuple[Part, ...]] = get_args(Part)
SECOND_NS: Final = 1_000_000_000
STEPS_KEPT: Final = 64
USUAL_AT: Final = 4  # the fastest quarter: right as long as fewer than three quarters were slowed
STALLS_MAX: Final = 32  # stalls that a later verdict can still explain
COSTS_MAX: Final = 64  # incidents of one job whose cost may still grow
AS_USUAL_MIN: Final = 30  # steps within a tenth of the usual time: it is slow no more
STEP_NS_MAX: Final = 86_400 * SECOND_NS  # what no step takes
PLAUSIBLE: Final = 16  # steps more than the usual pace allows: beyond that a counter is broken


class Stretch(msgspec.Struct, array_like=True):
    """Time since the last step seen, as it is understood now."""

    part: Part
    ns: int
    incident: str = ""


class Stall(msgspec.Struct, array_like=True):
    """Time without a step that nobody has explained yet."""

    until_ns: int
    ns: int


class Cost(msgspec.Struct, array_like=True):
    """What one incident cost so far."""

    parts: dict[Part, int] = {}
    missing: int = 0
    """Ranks that the job lacks because of it."""
    closed: bool = False


class Account(msgspec.Struct, kw_only=True):
    """One job."""

    job: str
    since_ns: int
    mark_ns: int
    """Up to here all time is accounted for."""
    told_ns: int
    """Log time of the last goodput_accounted."""
    costs_told_ns: int
    """Log time at which costs that still grow were last told."""
    world_full: int
    world: int
    parts: dict[Part, int]
    stretches: list[Stretch] = []
    phase: Part = "stalled"
    """What time is from now on, unless a step says otherwise."""
    incident: str = ""
    """What the job suffers from now."""
    started: bool = False
    """A step was seen to be finished."""
    step: int = -1
    """The newest step of the membership; -1: none was seen."""
    step_max: int = 0
    redone_count: int = 0
    redone_for: str = ""
    """The incident after which steps are done again."""
    step_times_ns: list[int] = []
    usual_ns: int = 0
    carry_ns: int = 0
    """Work that is still owed to the steps seen, because samples come between steps."""
    slowed_by: str = ""
    """The incident that makes steps longer than usual."""
    as_usual_count: int = 0
    """Steps since then that were not, in a row."""
    held: bool = False
    """Its ranks are held at their last common step."""
    regrouped: bool = False
    """A new membership is in force and no step of it was seen."""
    regrouped_by: str = ""
    """The decision that made it."""
    blind_until_ns: int = 0
    """Samples taken before show steps of the membership before."""
    costs: dict[str, Cost] = {}
    stalls: list[Stall] = []

    def cut(self, at_ns: int) -> None:
        """All time up to here is what it is taken for now."""
        ns = max(0, at_ns - self.mark_ns)
        self.mark_ns += ns
        last = self.stretches[-1] if self.stretches else None
        if last is not None and (last.part, last.incident) == (self.phase, self.incident):
            last.ns += ns
        elif ns:
            self.stretches.append(Stretch(self.phase, ns, self.incident))

    def turn(self, at_ns: int, phase: Part, incident: str) -> None:
        """From here on time is another part; what was unexplained before was the way to it."""
        self.cut(at_ns)
        for stretch in self.stretches:
            if stretch.part == "stalled":
                stretch.part, stretch.incident = "detection", incident
        self.phase, self.incident = phase, incident

    def explain(self, began_ns: int, incident: str) -> None:
        """Stalls since an incident began were the way to its verdict."""
        for stall in self.stalls:
            if stall.until_ns >= began_ns:
                self.parts["stalled"] -= stall.ns
                self._charge("detection", stall.ns, incident)
        self.stalls = [stall for stall in self.stalls if stall.until_ns < began_ns]

    def calm(self, at_ns: int) -> None:
        """Nothing is wrong from here on, as far as is known."""
        self.cut(at_ns)
        self.held = False
        self.phase, self.incident = "stalled", ""

    def regroup(self, at_ns: int, world: int, step: int, decision: str) -> None:
        """A new membership goes on from a step; 0 where that is not known."""
        self.cut(at_ns)
        self._count_missing(self.world - world)
        self.world = world
        self.regrouped, self.regrouped_by = True, decision
        self.step_times_ns, self.carry_ns, self.slowed_by = [], 0, ""
        if 0 < step < self.step:
            self.step, self.redone_for = step, self.incident
            self.redone_count += self.step_max - step
            self.blind_until_ns = at_ns + SECOND_NS  # the fact lies within this of its tick

    def finish(self, at_ns: int, step: int, step_ns: int, period_ns: int) -> int | None:
        """A step was seen to be finished; time lost since the last where it is the first anew."""
        self.cut(at_ns)
        count = step - self.step
        if self.step < 0 or not self.started:
            return self._start(step)
        elapsed_ns = sum(stretch.ns for stretch in self.stretches)
        if self.usual_ns and count > PLAUSIBLE * (1 + elapsed_ns // self.usual_ns):
            return None
        if self.held and not self.regrouped:
            self._finish_before_hold(step, count)
            return None
        resumed, self.regrouped, self.held = self.regrouped, False, False
        work_ns = self._work_ns(elapsed_ns, count - resumed, period_ns, resumed)
        lost_ns = self._charge_lost(elapsed_ns - work_ns)
        self._charge_work(work_ns, count)
        self.step, self.step_max = step, max(step, self.step_max)
        if not resumed:  # the first step includes the start
            self._learn(step_ns or elapsed_ns // count)
        if resumed or (lost_ns and not self.slowed_by):
            self.phase, self.incident = "stalled", ""
        return lost_ns if resumed else None

    def _finish_before_hold(self, step: int, count: int) -> None:
        """Held ranks finish nothing: what is seen now was done before, all since is lost."""
        self.held = False  # a second one means that the hold did not come about
        work_ns = 0
        if self.stretches:
            work_ns = min(self.stretches[0].ns, self.usual_ns * count)
            self.stretches[0].ns -= work_ns
        self._charge_work(work_ns, count)
        self.step, self.step_max = step, max(step, self.step_max)

    def told(self, now_ns: int) -> TimeParts:
        """The parts up to now."""
        open_ns = sum(each.ns for each in self.stretches) + max(0, now_ns - self.mark_ns)
        fields = {f"{part}_ns": ns for part, ns in self.parts.items()}
        return TimeParts(**fields, open_ns=open_ns)

    def is_final(self, incident: str) -> bool:
        """Whether nothing more will follow for the job from an incident that is over."""
        redoing = self.redone_for == incident and self.step < self.step_max
        slowed = self.slowed_by == incident
        return not (redoing or slowed or self.costs[incident].missing or self.incident == incident)

    def rename(self, old: str, new: str) -> None:
        """What goes by one name belongs to another incident."""
        for stretch in self.stretches:
            stretch.incident = new if stretch.incident == old else stretch.incident
        self.incident = new if self.incident == old else self.incident
        self.redone_for = new if self.redone_for == old else self.redone_for
        self.slowed_by = new if self.slowed_by == old else self.slowed_by
        cost = self.costs.pop(old, None)
        if cost is not None:
            into = self.cost_of(new)
            into.missing += cost.missing
            for part, ns in cost.parts.items():
                into.parts[part] = into.parts.get(part, 0) + ns

    def _start(self, step: int) -> int | None:
        """The first row shows where the job begins, the first rise that it has begun."""
        begins = self.step >= 0
        self.step, self.step_max = step, max(step, self.step_max)
        if not begins:
            return None
        resumed, self.regrouped, self.started = self.regrouped, False, True
        self.parts["start"] += sum(stretch.ns for stretch in self.stretches)
        self.stretches, self.phase, self.incident = [], "stalled", ""
        return 0 if resumed else None

    def _work_ns(self, elapsed_ns: int, count: int, period_ns: int, resumed: bool) -> int:
        """How much of the time since the last step was work on these steps."""
        owed_ns = self.usual_ns * count + self.carry_ns
        if not resumed and not self.slowed_by:
            trouble = any(stretch.incident for stretch in self.stretches)
            slack_ns = period_ns + (owed_ns // 10 if trouble else 2 * SECOND_NS + owed_ns // 2)
            if not self.usual_ns or elapsed_ns <= owed_ns + slack_ns:
                self.carry_ns = 0
                return elapsed_ns
        work_ns = min(elapsed_ns, owed_ns) if self.usual_ns or resumed else elapsed_ns
        self.carry_ns = min(2 * self.usual_ns, owed_ns - work_ns) if self.slowed_by else 0
        return work_ns

    def _charge_lost(self, lost_ns: int) -> int:
        """Charge what was no work, the earliest first; the work came at the end."""
        left_ns = lost_ns
        for stretch in self.stretches:
            ns = min(left_ns, stretch.ns)
            left_ns -= ns
            if self.slowed_by and stretch.incident in ("", self.slowed_by):
                self._charge("degraded", ns, self.slowed_by)
            else:
                self._charge(stretch.part, ns, stretch.incident)
                if stretch.part == "stalled" and ns:
                    self.stalls = [*self.stalls[1 - STALLS_MAX :], Stall(self.mark_ns, ns)]
        self.stretches = []
        return lost_ns

    def _charge_work(self, work_ns: int, count: int) -> None:
        again = min(count, max(0, self.step_max - self.step))
        again_ns = work_ns * again // count
        self._charge("redone", again_ns, self.redone_for)
        new_ns = work_ns - again_ns
        missing = max(0, self.world_full - self.world)
        degraded_ns = new_ns * missing // self.world_full
        self._charge("productive", new_ns - degraded_ns, "")
        lacking = [(name, cost.missing) for name, cost in self.costs.items() if cost.missing > 0]
        left_ns = degraded_ns
        for name, ranks in lacking:
            ns = min(left_ns, degraded_ns * ranks // missing) if missing else 0
            self._charge("degraded", ns, name)
            left_ns -= ns
        self._charge("degraded", left_ns, "")

    def _charge(self, part: Part, ns: int, incident: str) -> None:
        self.parts[part] += ns
        if incident and ns:
            cost = self.cost_of(incident)
            cost.parts[part] = cost.parts.get(part, 0) + ns

    def cost_of(self, incident: str) -> Cost:
        """What an incident cost the job so far."""
        if incident not in self.costs and len(self.costs) >= COSTS_MAX:
            del self.costs[next(iter(self.costs))]
        return self.costs.setdefault(incident, Cost())

    def _count_missing(self, fewer: int) -> None:
        """Ranks that left are missing because of the incident; those that came back, of any."""
        if fewer > 0 and self.incident:
            self.cost_of(self.incident).missing += fewer
        for cost in self.costs.values():
            if fewer < 0:
                back = min(cost.missing, -fewer)
                cost.missing -= back
                fewer += back

    def _learn(self, step_ns: int) -> None:
        """What a step usually takes, while nothing is known to slow it."""
        step_ns = min(step_ns, STEP_NS_MAX)
        if self.slowed_by:
            self.as_usual_count += 1
            if 10 * step_ns > 11 * self.usual_ns:
                self.as_usual_count = 0
            elif self.as_usual_count == AS_USUAL_MIN:
                self.slowed_by = ""
            return
        self.step_times_ns = [*self.step_times_ns[1 - STEPS_KEPT :], step_ns]
        self.usual_ns = sorted(self.step_times_ns)[len(self.step_times_ns) // USUAL_AT]
