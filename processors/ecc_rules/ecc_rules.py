"""Will this GPU's memory fail soon?

Why: a part that is about to fail is left at a step boundary for seconds, one that has failed for
minutes. How: readings and Xids of each GPU's memory are held against published thresholds
(rules.py), never against a trend that nobody has shown to precede failures; the gravest rule that
holds gives the band, and only a change of band is said. 2,500 samples a second must cost next to
nothing, so a node's eight columns are compared as bytes and nodes that are all zero, nearly all of
them, are not remembered. Not here: the failure itself (attribution), what follows (healer).
"""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from struct import Struct
from typing import Final

import msgspec
import numpy as np

from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.attribution.kernel_messages import parse
from nemesis.processors.attribution.recoveries import Recoveries
from nemesis.processors.ecc_rules.gpu_memory import (
    CHANNELS,
    GpuMemory,
    Proof,
    is_worth_remembering,
)
from nemesis.processors.ecc_rules.rules import RULE_OF_XID, Rule
from nemesis.processors.incident.names import incident_of
from nemesis.schemas import components
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.facts import Conclusion, Fact
from nemesis.schemas.inferred import Evidence, FailurePredicted
from nemesis.schemas.observed import InventoryReported, SampleTaken
from nemesis.schemas.scheduled import begun

SWEEP_NS: Final = 60_000_000_000  # bands come down by the minute
ROW_BYTES: Final = 8 * len(CHANNELS)
IDENTITY_BYTES: Final = 8
GPUS_MAX: Final = 1024  # of a node; keeps what is prepared for each size of it small
_ZEROS: Final = bytes(ROW_BYTES)
_INT64: Final = np.dtype("<i8")


class _State(msgspec.Struct):
    inventory: Inventory = msgspec.field(default_factory=Inventory)
    recoveries: Recoveries = msgspec.field(default_factory=Recoveries)
    identities: dict[str, bytes] = {}
    """Per node, who its GPUs are: IDENTITY_BYTES of a hash each."""
    blocks: dict[str, bytes] = {}
    """The memory's columns of nodes where one is not zero."""
    gpus: dict[str, GpuMemory] = {}
    """By component."""
    swept_ns: int = 0


# maps keep the order in which facts filled them, and there are no sets: equal states, equal bytes
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_State)


class EccRules:
    """The processor."""

    name: str = "ecc_rules"
    version: int = 1
    reads: tuple[str, ...] = (
        "sample",
        "kernel",
        "inventory",
        "tick",
        "job_submitted",
        "job_placed",
        "job_ended",
        "recovery_decided",
        "attempt_completed",
    )

    def __init__(self) -> None:
        self._state = _State()

    def configure(self, settings: bytes) -> None:
        """It has no settings: its thresholds are those of its sources."""
        if msgspec.json.decode(settings) != {}:
            raise MalformedFactError(f"ecc_rules has no settings, got {settings[:80]!r}")

    def snapshot(self) -> bytes:
        """The whole state."""
        return _encoder.encode(self._state)

    def restore(self, snapshot: bytes) -> None:
        """Take up a state."""
        self._state = _decoder.decode(snapshot)

    def step(self, fact: Fact) -> Sequence[Conclusion]:
        """Answer one fact."""
        state = self._state
        match fact.kind:
            case "sample":
                return self._on_sample(fact, fact.data)
            case "kernel":
                return self._on_kernel(fact)
            case "tick":
                return self._on_tick(fact)
            case "inventory":
                return self._on_inventory(fact, fact.data)
            case "job_submitted" | "job_placed":
                if (job := begun(fact.data)) is not None:
                    state.inventory.submit(job)
            case "job_ended":
                state.inventory.end(fact.data.job)
            case "recovery_decided":
                state.recoveries.decide(fact.data)
            case "attempt_completed":
                state.recoveries.complete(fact.data.decision, state.inventory)
        return ()

    def _on_sample(self, fact: Fact, data: SampleTaken) -> Sequence[Conclusion]:
        count, raw = data.gpu_count, data.gpu
        if not 0 < count <= GPUS_MAX or len(raw) % (8 * count) or len(raw) < ROW_BYTES * count:
            return ()
        cut = _rows_of(count, len(raw) // count).unpack(raw)
        before = self._state.blocks.get(data.node)
        if before is None and cut == (_ZEROS,) * count:
            return ()
        block = b"".join(cut)
        if before == block:
            return ()
        gpus = self._state.inventory.gpus.get(data.node)
        if gpus is None or fact.late:
            return ()
        self._state.blocks[data.node] = block
        concluded: list[Conclusion] = []
        rows = np.frombuffer(block, _INT64).reshape(count, len(CHANNELS)).tolist()
        for at, row in enumerate(rows[: len(gpus)]):
            same = before is not None and before[at * ROW_BYTES : (at + 1) * ROW_BYTES]
            if same == block[at * ROW_BYTES : (at + 1) * ROW_BYTES]:
                continue
            component = components.gpu(data.node, gpus[at])
            gpu = self._state.gpus.get(component)
            if gpu is None and is_worth_remembering(row):
                gpu = self._state.gpus[component] = GpuMemory([0] * len(CHANNELS))
            if gpu is not None:
                gpu.read(row, Proof(fact.id, fact.seq, ""), fact.log_time_ns)
                concluded += self._judge(component, gpu, fact)
        return concluded

    def _on_kernel(self, fact: Fact) -> Sequence[Conclusion]:
        if "Xid" not in fact.data.text or fact.late:
            return ()
        message = parse(fact.data.text)
        if message is None or message.kind != "xid" or not message.device:
            return ()
        event = RULE_OF_XID.get(message.code)
        if event is None:
            return ()
        if message.device not in self._state.inventory.gpus.get(fact.key, ()):
            return ()
        component = components.gpu(fact.key, message.device)
        gpu = self._state.gpus.setdefault(component, GpuMemory([0] * len(CHANNELS)))
        proof = Proof(fact.id, fact.seq, f"Xid {message.code}", fact.data.text)
        gpu.happen(event, proof, fact.log_time_ns)
        return self._judge(component, gpu, fact)

    def _on_inventory(self, fact: Fact, data: InventoryReported) -> Sequence[Conclusion]:
        """A GPU in another's place has a memory of its own."""
        state = self._state
        before = state.identities.get(data.node, b"")
        places = [components.gpu(data.node, pci) for pci in state.inventory.gpus.get(data.node, [])]
        state.inventory.report(data)
        state.identities[data.node] = now = _identities(data)
        concluded: list[Conclusion] = []
        for at, component in enumerate(places):
            here = slice(at * IDENTITY_BYTES, (at + 1) * IDENTITY_BYTES)
            if before[here] == now[here]:
                continue
            state.blocks.pop(data.node, None)
            gpu = state.gpus.pop(component, None)
            if gpu is not None and gpu.band != "clear":
                concluded.append(self._cleared(component, gpu, fact, "another GPU is in its place"))
        return concluded

    def _on_tick(self, fact: Fact) -> Sequence[Conclusion]:
        state, now_ns = self._state, fact.log_time_ns
        if now_ns - state.swept_ns < SWEEP_NS:
            return ()
        state.swept_ns = now_ns
        concluded: list[Conclusion] = []
        for component, gpu in list(state.gpus.items()):
            concluded += self._judge(component, gpu, fact)
            gpu.forget(now_ns)
            if not gpu.until_ns and not is_worth_remembering(gpu.readings):
                del state.gpus[component]
        return concluded

    def _judge(self, component: str, gpu: GpuMemory, fact: Fact) -> list[Conclusion]:
        """Say the band where it changed."""
        rule = gpu.holding(fact.log_time_ns)
        if rule is None:
            calm = "nothing of what spoke against it was seen again for its time"
            return [] if gpu.band == "clear" else [self._cleared(component, gpu, fact, calm)]
        if rule.band == gpu.band:
            return []
        gpu.band = rule.band
        gpu.incident = gpu.incident or incident_of(gpu.proofs[rule.name].fact)
        return [self._predicted(component, gpu, rule, fact)]

    def _predicted(self, component: str, gpu: GpuMemory, rule: Rule, fact: Fact) -> Conclusion:
        proof = gpu.proofs[rule.name]
        seats = self._state.inventory.seats_of(component)
        jobs = tuple(dict.fromkeys(seat.job for seat in seats))
        job = jobs[0] if jobs else ""
        data = FailurePredicted(
            at_ns=fact.log_time_ns,
            reason=f"{component}: {rule.says}; {rule.advice}",
            component=component,
            fault_class="gpu.memory",
            band=rule.band,
            probability_ppm=rule.probability_ppm,
            horizon_ns=rule.horizon_ns,
            rule=rule.name,
            evidence=(Evidence(fact=proof.fact, says=proof.says or rule.says, text=proof.text),),
            jobs=jobs,
            ranks=tuple(seat.rank for seat in seats if seat.job == job),
            incident=gpu.incident,
        )
        cause = tuple(sorted({proof.seq, fact.seq}))
        return Conclusion(data=data, key=gpu.incident, cause=cause, job=job)

    def _cleared(self, component: str, gpu: GpuMemory, fact: Fact, why: str) -> Conclusion:
        incident, gpu.incident, gpu.band = gpu.incident, "", "clear"
        data = FailurePredicted(
            at_ns=fact.log_time_ns,
            reason=f"{component}: {why}",
            component=component,
            fault_class="gpu.memory",
            band="clear",
            incident=incident,
        )
        return Conclusion(data=data, key=incident, cause=(fact.seq,))


@lru_cache(maxsize=64)
def _rows_of(count: int, width: int) -> Struct:
    """Cuts the memory's columns out of a block of so many rows of so many bytes."""
    return Struct(f"{ROW_BYTES}s{width - ROW_BYTES}x" * count)


def _identities(data: InventoryReported) -> bytes:
    return b"".join(
        sha256(f"{gpu.pci} {gpu.uuid} {gpu.serial}".encode()).digest()[:IDENTITY_BYTES]
        for gpu in data.gpus
    )
