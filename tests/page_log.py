"""A log as a busy cluster writes it, for looking at the page: seeded, and synthetic throughout."""

import random
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from nemesis.schemas import decided, done, inferred, operated
from nemesis.schemas.facts import Record
from nemesis.schemas.observed import GpuDescribed, InventoryReported, NicDescribed
from nemesis.views.hands import Hands
from tests.replay_logs import SECOND_NS, Log

GPUS_PER_NODE: Final = 8
NODES_PER_LEAF: Final = 32
PCI: Final = tuple(
    f"0000:{bus:02x}:00.0" for bus in (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)
)
XID: Final = {
    "gpu.off_bus": ("79", "GPU has fallen off the bus."),
    "gpu.memory": ("48", "pid=<unknown>, name=<unknown>, DBE (double bit error) ECC Error"),
    "gpu.driver": ("119", "pid=1747, name=python, Timeout after 6s of waiting for RPC response"),
}
HOSTILE: Final = (
    "\x1b[31m\u202etxt</code><img src=x onerror=window.broken=1><script>broken</script>"
)


def cluster(log: Log, nodes_count: int) -> list[str]:
    """What the nodes are made of, and a job on all but the last few; their names."""
    names = [f"n{number:04d}" for number in range(1, nodes_count + 1)]
    for at, name in enumerate(names):
        log._observe(
            InventoryReported, name, "inventory",
            gpus=tuple(GpuDescribed(pci=pci, model="NVIDIA H100 80GB HBM3") for pci in PCI),
            nics=(NicDescribed(name="mlx5_0", switch_port=_port(at)),),
            boot_id="a",
        )  # fmt: skip
    spares = max(1, nodes_count // 50)
    log.event(
        operated.JobSubmitted(
            at_ns=log.now_ns, by="ann", reason="the run", job="llama", nodes=tuple(names[:-spares]),
            spares=tuple(names[-spares:]), ranks_per_node=GPUS_PER_NODE,
        ) if nodes_count <= 2000 else _small_job(log, names),
        key="llama",
    )  # fmt: skip
    return names


def incident(log: Log, rng: random.Random, names: list[str], number: int) -> str:
    """A GPU fails, is named, and most often the job goes on without it; the incident's name."""
    node, gpu = rng.choice(names), rng.randrange(GPUS_PER_NODE)
    fault = rng.choice(sorted(XID))
    code, words = XID[fault]
    part = f"gpu/{node}/{PCI[gpu]}"
    name = f"i-{rng.getrandbits(40):010x}"
    line = f"NVRM: Xid (PCI:{PCI[gpu][:-2]}): {code}, {words}"
    said = f"Xid {code}: {words.split(', ')[-1]}"
    cause = log.kernel(line, node)
    evidence = inferred.Evidence(fact=f"{node}/kernel/1/{number + 1}", says=said, text=line)
    verdict = {
        "incident": name, "revision": 0, "verdict": "attributed", "fault_class": fault,
        "culprits": [{"kind": "gpu", "id": part}], "confidence_ppm": 980_000, "jobs": ["llama"],
        "evidence": [msgspec.to_builtins(evidence)], "reason": f"{part}: {said}",
        "victims": [f"rank/llama/{rank}" for rank in range(20)],
    }  # fmt: skip
    _say(log, inferred.FaultAttributed, name, cause, **verdict)
    decision = f"llama/{number}"
    outcome = rng.random()
    mode = "shadow" if outcome > 0.9 else "act"
    _say(
        log, decided.RecoveryDecided, "llama", log.end, decision=decision, incident=name, mode=mode,
        deadline_ns=log.now_ns + 60 * SECOND_NS, job="llama", action="shrink", target="job/llama",
        members="0-7", world=8, reason=f"Because {fault} at {part}, a rank is lost: shrink.",
        rungs_refused=["reinit_communicator: a rank is lost", "restart_rank: the GPU is gone"],
    )  # fmt: skip
    if mode == "shadow":
        return name
    attempt: dict[str, Any] = {"decision": decision, "actor": "job-1", "job": "llama"}
    reason = f"job-1 carries out {decision}."
    _say(log, done.AttemptStarted, decision, log.end, reason=reason, **attempt)
    if outcome > 0.1:
        reason = "llama goes on at step 7."
        _say(log, done.AttemptCompleted, decision, log.end, reason=reason, step=7, **attempt)
    return name


def busy(*, nodes_count: int, events_count: int, seed: int = 7) -> list[Record]:
    """A cluster whose log holds so many events: incidents, and notes of people between them."""
    log, rng = Log(), random.Random(seed)
    names = cluster(log, nodes_count)
    number = 0
    for said in chatter():
        if log.end - nodes_count > events_count:
            break
        if number < 60 and rng.random() < 0.004:
            incident(log, rng, names, number)
            number += 1
        note = operated.NoteAdded(at_ns=log.now_ns, by="ann", reason="", text=said, incident="")
        log.event(note, key=rng.choice(names))
        if rng.random() < 0.1:
            log.tick()
    for _ in range(3):
        log.tick()
        incident(log, rng, names, number)
        number += 1
    return log.records


def waiting(log: Log, number: int, incident: str) -> None:
    """A decision that waits for a person."""
    _say(
        log, decided.RecoveryDecided, "llama", log.end, decision=f"llama/{number}",
        incident=incident, mode="approve", deadline_ns=log.now_ns + 900 * SECOND_NS, job="llama",
        action="drain_node", target="node/n0003", members="0-7", world=8,
        job_revision=Hands(log.records)._revisions["llama"],
        reason="Because gpu.memory at gpu/n0003/0000:1b:00.0, the node is to be drained.",
    )  # fmt: skip


def goodput(log: Log, job: str, minutes_count: int) -> None:
    """Accounts of a job, a minute apart, with one incident in the middle."""
    parts: dict[str, int] = dict.fromkeys(
        ("productive", "detection", "decision", "recovery", "redone", "start"), 0
    )
    since_ns = log.now_ns
    for minute in range(minutes_count):
        log.second += 60
        lost = minute == minutes_count // 2
        for part, seconds in _minute(first=minute == 0, lost=lost).items():
            parts[part] += seconds
        _say(
            log, inferred.GoodputAccounted, job, log.end, job=job, since_ns=since_ns,
            until_ns=log.now_ns, step=minute * 55, world=112, world_full=112, reason="a minute",
            parts={f"{name}_ns": s * SECOND_NS for name, s in parts.items()},
        )  # fmt: skip
    log.tick()


def chatter() -> Iterator[str]:
    """What people note down, for ever; some of it hostile."""
    number = 0
    while True:
        number += 1
        yield HOSTILE if number % 500 == 0 else f"note {number}: optics of leaf {number % 7} seen"


def _minute(*, first: bool, lost: bool) -> dict[str, int]:
    if first:
        return {"start": 35, "productive": 25}
    if lost:
        return {"productive": 31, "detection": 8, "decision": 3, "recovery": 12, "redone": 6}
    return {"productive": 60}


def _small_job(log: Log, names: list[str]) -> operated.JobSubmitted:
    """A fact holds 64 KiB: a job on a thousand of many nodes."""
    return operated.JobSubmitted(
        at_ns=log.now_ns, by="ann", reason="the run", job="llama", nodes=tuple(names[:1000]),
        ranks_per_node=GPUS_PER_NODE,
    )  # fmt: skip


def _port(at: int) -> str:
    leaf, port = divmod(at, NODES_PER_LEAF)
    return f"port/leaf{leaf + 1:03d}/{port + 1}"


def _say(log: Log, struct: type[msgspec.Struct], key: str, cause: int, **fields: Any) -> None:
    data = msgspec.convert({"at_ns": log.now_ns, **fields}, struct)
    log.event(data, key=key)
