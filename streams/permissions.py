"""Who may publish and read what, made from the table of facts.

A role is `kind` or `kind/name`: `node/n012`, `processor/healer`, `ticker`. Nobody can publish a
fact that he does not own: owners come from `schemas/registry.py`, names become subject tokens, and
the server checks every subject against the credential. Reading is by JetStream's API: pull
consumers with names that nobody can guess, and direct gets. Known limit: who may create a consumer
may let the server deliver records to any subject outside the streams; `Connection.subscribe` drops
those.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from nemesis.schemas.errors import BadNameError
from nemesis.schemas.registry import ANY_PROCESSOR, EVENTS, TELEMETRY
from nemesis.schemas.tokens import token_of

BLOBS: Final = "NEMESIS_BLOBS"
STATE: Final = "NEMESIS_STATE"
INCIDENTS: Final = "NEMESIS_INCIDENTS"
STREAM: Final = "NEMESIS"
TRUTH: Final = "NEMESIS_TRUTH"

BEGUN_SUBJECTS: Final = ("nemesis.events.job_submitted.*", "nemesis.events.job_placed.*")
"""A node may ask whether and when a job began, so that its agent need not wait for one in silence,
nor take it for an earlier one of its name."""
FILL_SUBJECT: Final = "nemesis.events.log_measured.log"
"""The fill level: all that a producer may read of the log, its own last coverage aside."""

CLOCK_NODE: Final = "clock"
"""Its telemetry is the tick, so no node may have this name."""

_CLUSTER_KINDS: Final = (
    "ticker",
    "archivist",
    "operator",
    "browser",
    "dashboard",
    "exporter",
    "reader",
    "sim",
    "sink",
    "keeper",
    "admin",
)
_NAMED_KINDS: Final = ("node", "producer", "collector", "processor", "actor")
_PRODUCED: Final = (
    "sample",
    "device_state",
    "kernel",
    "inventory",
    "log",
    "counters",
    "collective_times",
    "setting",
    "coverage",
    "spool",
)
"""What a node's producer tells: of devices and the host, never that a rank ended."""


class Permissions(msgspec.Struct, frozen=True):
    """Subjects that one role may publish to and subscribe to."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    may_answer: bool = False
    """May reply to a request it received, once, wherever the request says."""


def user_of(role: str) -> str:
    """The role's name in files and inboxes: `node-n012`.

    Raises:
        BadNameError: no such role.
    """
    kind, slash, name = role.partition("/")
    if kind in _CLUSTER_KINDS and not slash:
        return kind
    if kind in _NAMED_KINDS and name:
        if name == CLOCK_NODE and kind in ("node", "producer", "collector"):
            raise BadNameError(f"no {kind} may be called {CLOCK_NODE!r}: its telemetry is the tick")
        return f"{kind}-{token_of(name)}"
    raise BadNameError(
        f"no such role: {role[:60]!r}",
        hint=f"one of {', '.join(_CLUSTER_KINDS)}, or {'|'.join(_NAMED_KINDS)} with /name",
    )


def permissions_of(role: str) -> Permissions:
    """What a role may do.

    Raises:
        BadNameError: no such role.
    """
    user = user_of(role)
    kind, _, name = role.partition("/")
    made = _MAKERS[kind](token_of(name) if name else "", name)
    inbox = (f"{inbox_of(user)}.>",) if made.publish else ()
    return Permissions(made.publish, (*made.subscribe, *inbox), made.may_answer)


def inbox_of(user: str) -> str:
    """Prefix of a user's inboxes: `_INBOX_node.n012`, so that one subject names all nodes'."""
    return f"_INBOX_{user.replace('-', '.', 1)}"


def standing_roles() -> tuple[str, ...]:
    """Every role that the table of facts and the cell itself need, nodes and collectors aside."""
    owners = sorted({each for kind in EVENTS.values() for each in kind.owners} - {ANY_PROCESSOR})
    named = [owner.replace(":", "/", 1) for owner in owners if ":" in owner]
    return (*_CLUSTER_KINDS, *named)


def reads(stream: str) -> tuple[str, ...]:
    """API subjects that reading a whole stream takes."""
    return (
        f"$JS.API.STREAM.INFO.{stream}",
        f"$JS.API.DIRECT.GET.{stream}",
        f"$JS.API.DIRECT.GET.{stream}.>",
        f"$JS.API.CONSUMER.CREATE.{stream}.*",
        f"$JS.API.CONSUMER.CREATE.{stream}.*.>",
        f"$JS.API.CONSUMER.INFO.{stream}.*",
        f"$JS.API.CONSUMER.MSG.NEXT.{stream}.*",
    )


def _gets_objects(bucket: str) -> tuple[str, ...]:
    return (f"$JS.API.DIRECT.GET.OBJ_{bucket}", f"$JS.API.DIRECT.GET.OBJ_{bucket}.>")


def _puts_objects(bucket: str, owner: str) -> tuple[str, ...]:
    # chunks are guarded by their owner's token; entries of the listing are for people
    return (f"$O.{bucket}.C.{owner}.*", f"$O.{bucket}.M.*")


def _events_of(owner: str) -> tuple[str, ...]:
    return tuple(f"nemesis.events.{t}.*" for t, kind in EVENTS.items() if owner in kind.owners)


def _telemetry_of(owner: str, node: str) -> tuple[str, ...]:
    return tuple(
        f"nemesis.telemetry.{node}.{t}" for t, kind in TELEMETRY.items() if owner in kind.owners
    )


def _node(token: str, name: str) -> Permissions:
    return Permissions(
        (
            *_telemetry_of("node", token),
            f"nemesis.report.{token}.>",
            *_puts_objects(BLOBS, user_of(f"node/{name}")),
            f"$JS.API.DIRECT.GET.{STREAM}.{FILL_SUBJECT}",
            *(f"$JS.API.DIRECT.GET.{STREAM}.{subject}" for subject in BEGUN_SUBJECTS),
        ),
        (f"nemesis.plan.{token}",),
        may_answer=True,
    )


def _producer(token: str, name: str) -> Permissions:
    # no plan of a job, no report, no object: a stolen seed of it can lie about its own node
    own = tuple(f"nemesis.telemetry.{token}.{kind}" for kind in _PRODUCED)
    asked = (FILL_SUBJECT, f"nemesis.telemetry.{token}.coverage")  # whether it is alone
    reads = tuple(f"$JS.API.DIRECT.GET.{STREAM}.{subject}" for subject in asked)
    return Permissions((*own, *reads), (f"nemesis.plan.{token}.polls",))


def _collector(token: str, name: str) -> Permissions:
    fill = f"$JS.API.DIRECT.GET.{STREAM}.{FILL_SUBJECT}"
    return Permissions((*_telemetry_of("collector", token), fill), ())


def _processor(token: str, name: str) -> Permissions:
    kept = (
        # the key of a divergence is the conclusion that differs; all others speak of their writer
        f"nemesis.events.{t}.{'*' if t == 'processor_diverged' else token}"
        for t, kind in EVENTS.items()
        if ANY_PROCESSOR in kind.owners
    )
    return Permissions(
        (
            *_events_of(f"processor:{name}"),
            *kept,
            f"nemesis.cursor.{token}",
            f"nemesis.cursor.{token}.snapshot",
            *_puts_objects(STATE, user_of(f"processor/{name}")),
            *reads(STREAM),
            *_gets_objects(STATE),
            *_gets_objects(BLOBS),
        ),
        (),
    )


def _actor(token: str, name: str) -> Permissions:
    # Only the job actor talks to nodes. It answers in a node's inbox and nowhere else: who asks
    # names the subject of the answer, and could name one that is not its own to write.
    speaks, hears = (
        (
            ("nemesis.plan.*", "nemesis.plan.*.polls", f"{inbox_of('node-*')}.>"),
            ("nemesis.report.*.>",),
        )
        if name == "job"
        else ((), ())
    )
    # the advisor begins at the scheduler's state, as a copy of the scheduler does
    states = _gets_objects(STATE) if name == "advisor" else ()
    return Permissions((*_events_of(f"actor:{name}"), *speaks, *states, *reads(STREAM)), hears)


def _sim(token: str, name: str) -> Permissions:
    return Permissions(
        (
            *_telemetry_of("node", "*"),
            *_telemetry_of("collector", "*"),
            "nemesis.report.*.>",
            "nemesis.truth.>",
            *_puts_objects(BLOBS, "*"),
            f"$JS.API.DIRECT.GET.{STREAM}.{FILL_SUBJECT}",
            *reads(TRUTH),
        ),
        ("nemesis.plan.*",),
        may_answer=True,
    )


def _reader(*extra: str) -> Callable[[str, str], Permissions]:
    return lambda token, name: Permissions((*extra, *reads(STREAM)), ())


_MAKERS: Final[Mapping[str, Callable[[str, str], Permissions]]] = {
    "node": _node,
    "producer": _producer,
    "collector": _collector,
    "processor": _processor,
    "actor": _actor,
    "ticker": lambda token, name: Permissions(_telemetry_of("ticker", CLOCK_NODE), ()),
    "archivist": _reader(
        *_events_of("archivist"),
        *_puts_objects(INCIDENTS, "archivist"),
        *_gets_objects(INCIDENTS),
        *_gets_objects(STATE),
        *_gets_objects(BLOBS),
    ),
    "operator": _reader(*_events_of("operator")),
    "browser": lambda token, name: Permissions((), ("nemesis.events",)),
    "dashboard": _reader(),
    "exporter": _reader(),
    "reader": _reader(*_gets_objects(INCIDENTS), *_gets_objects(STATE), *_gets_objects(BLOBS)),
    "sink": _reader(*_events_of("sink")),
    "keeper": _reader(*_events_of("keeper")),
    "sim": _sim,
    "admin": lambda token, name: Permissions(
        ("$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.UPDATE.*", "$JS.API.STREAM.INFO.*"), ()
    ),
}


def server_users(public_keys: Mapping[str, str]) -> list[dict[str, object]]:
    """Users of the server's configuration, from role to public key."""
    return [_user(key, permissions_of(role)) for role, key in public_keys.items()]


def _user(key: str, may: Permissions) -> dict[str, object]:
    permissions: dict[str, object] = {
        "publish": _only(may.publish),
        "subscribe": _only(may.subscribe),
    }
    if may.may_answer:
        permissions["allow_responses"] = {"max": 1, "expires": "1m"}
    return {"nkey": key, "permissions": permissions}


def _only(subjects: Iterable[str]) -> dict[str, object]:
    allowed = list(subjects)
    # an empty allow list means everything
    return {"allow": allowed} if allowed else {"deny": [">"]}
