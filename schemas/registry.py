"""Every fact: its token in subjects, its struct, who may write it, how long it is kept.

One name has three spellings: struct `FaultAttributed`, token `fault_attributed`,
type `dev.nemesis.fault_attributed.v1`. The permission table, the generated schemas and the
readers of the log are all made from this table.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from nemesis.schemas import (
    advised,
    decided,
    done,
    inferred,
    kept,
    observed,
    operated,
    saved,
    scheduled,
    timed,
    watched,
)
from nemesis.schemas.envelope import TYPE_PREFIX

Certainty = Literal["observed", "inferred", "decided", "done", "operated", "kept"]

ANY_PROCESSOR: Final = "processor:*"
SCHEMA: Final = "0.1"
"""The release whose facts these are: the highest `since` in the table."""


class FactKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of fact."""

    token: str
    struct: type[msgspec.Struct]
    certainty: Certainty
    owners: tuple[str, ...]
    """Who may write it: node, ticker, collector, operator, keeper, archivist, sink, actor:<name>,
    processor:<name> or processor:*."""
    kept_for_ever: bool
    since: str = "0.1"

    @property
    def owner(self) -> str:
        """The owners, for people."""
        return ", ".join(self.owners)

    @property
    def type(self) -> str:
        """The CloudEvents type."""
        return f"{TYPE_PREFIX}{self.token}.v1"


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _event(certainty: Certainty, owner: str, *structs: type[msgspec.Struct]) -> list[FactKind]:
    """`owner`: one, or several with a space between."""
    return [
        FactKind(
            token=_snake(struct.__name__),
            struct=struct,
            certainty=certainty,
            owners=tuple(owner.split()),
            kept_for_ever=True,
        )
        for struct in structs
    ]


def _telemetry(
    token: str, struct: type[msgspec.Struct], *, owner: str = "node", kept_for_ever: bool = False
) -> FactKind:
    return FactKind(
        token=token,
        struct=struct,
        certainty="observed",
        owners=(owner,),
        kept_for_ever=kept_for_ever,
    )


TELEMETRY: Final[Mapping[str, FactKind]] = {
    kind.token: kind
    for kind in (
        _telemetry("sample", observed.SampleTaken),
        _telemetry("device_state", observed.DeviceStateRead),
        _telemetry("kernel", observed.KernelLineLogged, kept_for_ever=True),
        _telemetry("process", observed.ProcessExited, kept_for_ever=True),
        _telemetry("process_state", observed.ProcessStateSeen, kept_for_ever=True),
        _telemetry("group_broken", observed.GroupBroken, kept_for_ever=True),
        _telemetry("rank_ready", observed.RankReady, kept_for_ever=True),
        _telemetry("checkpoint", saved.CheckpointWritten, kept_for_ever=True),
        _telemetry("collective", observed.CollectiveRecorded),
        _telemetry("fabric", observed.FabricSampled, owner="collector"),
        _telemetry(
            "fabric_inventory",
            observed.FabricInventoryReported,
            owner="collector",
            kept_for_ever=True,
        ),
        _telemetry("inventory", observed.InventoryReported, kept_for_ever=True),
        _telemetry("log", observed.LogLineWritten),
        _telemetry("counters", observed.CountersRead),
        _telemetry("setting", observed.SettingRead),
        _telemetry("step_times", observed.StepsTimed),
        _telemetry("collective_times", timed.CollectivesTimed),
        _telemetry("trial", observed.TrialFinished),
        _telemetry("stack", observed.StackSeen),
        _telemetry("coverage", watched.CoverageReported),
        _telemetry("spool", observed.SpoolAnnounced, kept_for_ever=True),
        _telemetry("tick", observed.ClockTicked, owner="ticker"),
    )
}
"""By the last token of `nemesis.telemetry.<node>.<token>`."""

EVENTS: Final[Mapping[str, FactKind]] = {
    kind.token: kind
    for kind in (
        *_event("inferred", "processor:attribution", inferred.FaultAttributed),
        *_event("inferred", "processor:ecc_rules processor:ecc_model", inferred.FailurePredicted),
        *_event("inferred", "processor:ecc_model", inferred.ModelDriftMeasured),
        *_event("inferred", "processor:intake", inferred.InputRejected, inferred.InputsSuppressed),
        *_event(
            "inferred",
            "processor:incident",
            inferred.IncidentOpened,
            inferred.IncidentGrouped,
            inferred.IncidentClosed,
        ),
        *_event(
            "inferred",
            "processor:goodput",
            inferred.GoodputAccounted,
            inferred.JobResumed,
            inferred.IncidentCosted,
        ),
        *_event(
            "decided",
            "processor:healer",
            decided.QuiesceDecided,
            decided.RecoveryDecided,
            decided.RecoveryWithheld,
            decided.PolicyRefused,
        ),
        *_event(
            "inferred",
            "processor:scheduler",
            scheduled.JobRejected,
            scheduled.JobQueued,
            scheduled.JobReleased,
            scheduled.MovesAdvised,
            scheduled.PlacementRequested,
            advised.AdviceJudged,
        ),
        *_event("inferred", "actor:solver", scheduled.PlacementProposed),
        *_event("decided", "processor:scheduler", scheduled.JobPlaced),
        *_event(
            "done",
            "actor:job",
            done.AttemptStarted,
            done.AttemptCompleted,
            done.AttemptFailed,
            done.AttemptOutcomeUnknown,
            done.MembershipReported,
        ),
        *_event(
            "operated",
            "operator",
            operated.ProcessorActivated,
            operated.PolicyApplied,
            operated.JobSubmitted,
            operated.JobEnded,
            operated.DecisionApproved,
            operated.DecisionVetoed,
            operated.PauseSet,
            operated.NodeProtected,
            operated.BreakerReset,
            operated.NoteAdded,
        ),
        *_event(
            "kept",
            ANY_PROCESSOR,
            kept.ProcessorStarted,
            kept.InputLost,
            kept.ProcessorDiverged,
            kept.ConclusionUndeliverable,
            kept.FactSkipped,
            kept.LogShortened,
        ),
        *_event("inferred", "actor:advisor", advised.AdviceGiven),
        *_event("kept", "keeper", kept.LogMeasured),
        *_event("kept", "archivist", kept.IncidentArchived),
        *_event("kept", "sink", kept.DeliveryFailed),
    )
}
"""By the third token of `nemesis.events.<token>.<key>`."""

BY_STRUCT: Final[Mapping[type[Any], FactKind]] = {
    kind.struct: kind for kind in (*TELEMETRY.values(), *EVENTS.values())
}
