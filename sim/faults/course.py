"""How a fault goes, told step by step: symptoms, what caused them, what the log must show."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from nemesis.schemas.channels import GPU_STATE_CHANNELS, NIC_STATE_CHANNELS
from nemesis.sim.faults.causal import Cause, Expected, Shows, Told
from nemesis.sim.faults.symptoms import Effect, KernelLine, RankPrints, SettingChanged, Symptom

ERR: Final = 3  # KERN_ERR
INNOCENT: Final = "suffers from it, and nothing is wrong with it"
_STATES: Final = frozenset({*GPU_STATE_CHANNELS, *NIC_STATE_CHANNELS})


class Course(msgspec.Struct, kw_only=True):
    """One fault as it is told; all times count from its begin."""

    node: str
    component: str = ""
    """What it sits in, where a call names nothing else."""
    symptoms: list[Symptom] = []
    causes: list[Cause] = []
    evidence: list[Expected] = []
    innocent: list[str] = []
    names: dict[str, tuple[str, ...]] = {}
    """What braces in a right answer stand for, besides the names of the target."""
    onset_ns: int = 0
    stalls: bool = False
    lost_ranks: tuple[int, ...] = ()
    ends_ns: int = -1
    """When it is over or mended by itself; -1: not in this run."""

    def at(self, after_ns: int, effect: Effect, *, node: str = "") -> None:
        """Something happens, on the fault's node where no other is named."""
        self.symptoms.append(Symptom(after_ns, node or self.node, effect))

    def because(self, component: str, effect: str, after_ns: int = 0) -> None:
        """The next link of the causal chain."""
        self.causes.append(Cause(component, effect, after_ns))

    def shows(
        self,
        told: Told,
        sign: str,
        *,
        shows: Shows = "said",
        value: int = 0,
        row: int = -1,
        after_ns: int = 0,
        by: str = "",
        component: str = "",
        decisive: bool = True,
        explains: bool = False,
    ) -> None:
        """The log must show this, told by the fault's node where no other is named."""
        self.evidence.append(
            Expected(
                told=told,
                by=by or self.node,
                component=component or self.component,
                sign=sign,
                shows=shows,
                value=value,
                row=row,
                after_ns=after_ns,
                decisive=decisive,
                explains=explains,
            )
        )

    def reads(
        self,
        sign: str,
        *,
        shows: Shows,
        value: int = 0,
        row: int,
        after_ns: int = 0,
        by: str = "",
        component: str = "",
        decisive: bool = True,
        explains: bool = False,
    ) -> None:
        """A channel of a node, `gpu.temp_c`, must show this, in whichever fact carries it."""
        self.shows(
            "device_state" if sign.partition(".")[2] in _STATES else "sample",
            sign,
            shows=shows,
            value=value,
            row=row,
            after_ns=after_ns,
            by=by,
            component=component,
            decisive=decisive,
            explains=explains,
        )

    def line(
        self,
        after_ns: int,
        text: str,
        priority: int = ERR,
        *,
        node: str = "",
        component: str = "",
        decisive: bool = True,
    ) -> None:
        """A kernel prints a line, and the log must have it."""
        self.at(after_ns, KernelLine(text, priority), node=node)
        self.shows(
            "kernel", text, after_ns=after_ns, by=node, component=component, decisive=decisive
        )

    def prints(
        self, after_ns: int, line: RankPrints, *, node: str = "", decisive: bool = False
    ) -> None:
        """A rank's process writes a line, and the log must have it."""
        self.at(after_ns, line, node=node)
        self.shows("log", line.text, row=line.rank, after_ns=after_ns, by=node, decisive=decisive)

    def sets(self, after_ns: int, component: str, name: str, value: str) -> None:
        """Something is set otherwise than everywhere else, and the log must say so."""
        self.at(after_ns, SettingChanged(component, name, value))
        self.shows("setting", f"{name}={value}", after_ns=after_ns, component=component)

    def blames_not(
        self, components: Sequence[str], effect: str = INNOCENT, after_ns: int = 0
    ) -> None:
        """Loud, and nothing is wrong with them; why they are loud, where nothing else says it."""
        reached = {each.component for each in self.causes}
        reached |= {each.component for each in self.evidence}
        for each in components:
            if each not in self.innocent:
                self.innocent.append(each)
                if each not in reached:
                    self.because(each, effect, after_ns)

    def named(self, names: Mapping[str, Sequence[str]]) -> None:
        """What more braces in a right answer stand for."""
        self.names |= {name: tuple(each) for name, each in names.items()}
