"""Will this GPU fail within three hours, by what a model has learnt?

Why: a part that is about to fail is left at a step boundary for seconds, one that has failed for
minutes; published thresholds (ecc_rules) see few of them. How: at the first tick of every five
seconds of log time all GPUs make one step of the network; its chances set and reset bands, and
only a change of band is said. Which model answers stands in the settings, by the hash of its file;
without one nothing is read and nothing said. Not here: training (sim/prediction), what follows
from a band (healer).

What is not seen is not guessed. Of a part nothing is said in its first 31 minutes; another serial
in the place is another part; late samples, and cells without one, are missing readings; after more
than a minute without a tick, and after an activation, the window of all begins anew. Bands that
were raised stay as they are until the part can be judged again.
"""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Final

import msgspec
import numpy as np

from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.attribution.recoveries import Recoveries
from nemesis.processors.ecc_model.alarms import Raised, cleared, drifted, predicted, raised
from nemesis.processors.ecc_model.bands import BANDS, LEAST_PPM, bands_of, latched, percent
from nemesis.processors.ecc_model.channels import STEP_NS, Ints
from nemesis.processors.ecc_model.drift import COUNTED_STEPS, Counted, Tally
from nemesis.processors.ecc_model.inputs import Codes
from nemesis.processors.ecc_model.model import RECEPTIVE_STEPS, Model, load_model, probabilities_ppm
from nemesis.processors.ecc_model.network import Network
from nemesis.processors.ecc_model.packing import packed_flags, unpacked_flags
from nemesis.processors.ecc_model.polls import Columns
from nemesis.processors.ecc_model.scorer import Looked, Scorer
from nemesis.processors.ecc_model.shipped import shipped
from nemesis.processors.processor import NotInReleaseError
from nemesis.schemas import components
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.facts import Conclusion, Fact
from nemesis.schemas.observed import InventoryReported, Sha256
from nemesis.schemas.scheduled import begun

ALWAYS: Final = (
    "inventory",
    "tick",
    "job_submitted",
    "job_placed",
    "job_ended",
    "recovery_decided",
    "attempt_completed",
)
LOOKBACK_NS: Final = RECEPTIVE_STEPS * STEP_NS
DAY_STEPS: Final = 24 * 3600 * 1_000_000_000 // STEP_NS


class Settings(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What an activation may set."""

    model: Sha256 | None = None
    """Of the model's file; none: nothing is predicted."""


class _Root(msgspec.Struct, array_like=True):
    """What windows grow from."""

    inventory: Inventory
    recoveries: Recoveries
    identities: dict[str, list[bytes]]
    """Per node, who its GPUs are: a hash each."""
    columns: Columns
    cell: int
    """Of the last step, 0 before the first; a cell is log time divided by STEP_NS."""
    looked: Looked


class _State(msgspec.Struct, array_like=True):
    root: _Root
    latches: bytes
    raised: dict[int, Raised]
    """By column, the GPUs that have a band."""
    tally: Counted
    tally_day: int


_encoder: Final = msgspec.msgpack.Encoder()
_states: Final = msgspec.msgpack.Decoder(_State)
_roots: Final = msgspec.msgpack.Decoder(_Root)
_settings: Final = msgspec.json.Decoder(Settings)


class EccModel:
    """The processor."""

    name: str = "ecc_model"
    version: int = 1

    def __init__(
        self,
        models: Callable[[str], bytes | None] = shipped,
        network: Callable[[Model, int], Network] = Network,
    ) -> None:
        """`models`: the file of a model by its SHA-256, None where it is not here; `network`: what
        makes its steps, whatever it is with the same bits."""
        self.reads: tuple[str, ...] = ALWAYS
        self._models: Final = models
        self._settings = Settings()
        self._model: Model | None = None
        self._scorer = Scorer(network)
        self._waiting: dict[str, Fact] = {}
        """The latest sample of each node since the last step."""
        self._inventory = Inventory()
        self._recoveries = Recoveries()
        self._identities: dict[str, list[bytes]] = {}
        self._columns = Columns()
        self._cell = 0
        self._latches = np.zeros((len(BANDS), 0), np.bool_)
        self._raised: dict[int, Raised] = {}
        self._tally = Tally()
        self._tally_day = 0

    @property
    def lookback_ns(self) -> int:
        """What the network hears back to."""
        return LOOKBACK_NS if self._settings.model else 0

    def configure(self, settings: bytes) -> None:
        """Take the model that the settings name; whatever it is, its window begins here."""
        try:
            self._settings = _settings.decode(settings)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise MalformedFactError(f"ecc_model: {error}") from error
        named, self._model = self._settings.model, None
        self._waiting, self._tally = {}, Tally()
        self.reads = (*ALWAYS, "sample") if named else ALWAYS
        if not named:
            return
        raw = self._models(named)
        if raw is None or sha256(raw).hexdigest() != named:
            raise NotInReleaseError(
                f"ecc_model: the active model {named} is not in this release",
                hint="run the release that ships it, put its file into the folder NEMESIS_MODELS,"
                " or activate one that is here",
            )
        self._model = load_model(raw)
        self._scorer.begin(self._model)

    def root(self) -> bytes:
        """Everything but the window and the bands; none between two steps."""
        return b"" if self._waiting else _encoder.encode(self._rooted())

    def reroot(self, root: bytes) -> None:
        """Begin a window."""
        if root:
            self._take(_roots.decode(root))
        self._waiting = {}
        if self._model is not None:
            self._scorer.begin(self._model)

    def snapshot(self) -> bytes:
        """The whole state but for the window."""
        return _encoder.encode(
            _State(
                root=self._rooted(),
                latches=packed_flags(self._latches),
                raised=self._raised,
                tally=self._tally.state(),
                tally_day=self._tally_day,
            )
        )

    def restore(self, snapshot: bytes) -> None:
        """Take up a state; the window stays as it is."""
        state = _states.decode(snapshot)
        self._take(state.root)
        count = state.root.looked.count
        self._latches = unpacked_flags(state.latches, (len(BANDS), count))
        self._raised = state.raised
        self._tally.resume(state.tally)
        self._tally_day = state.tally_day

    def step(self, fact: Fact) -> Sequence[Conclusion]:
        """Answer one fact."""
        match fact.kind:
            case "sample":
                if not fact.late:
                    self._waiting[fact.key] = fact
            case "tick":
                return self._on_tick(fact)
            case "inventory":
                return self._on_inventory(fact, fact.data)
            case "job_submitted" | "job_placed":
                if (job := begun(fact.data)) is not None:
                    self._inventory.submit(job)
            case "job_ended":
                self._inventory.end(fact.data.job)
            case "recovery_decided":
                self._recoveries.decide(fact.data)
            case "attempt_completed":
                self._recoveries.complete(fact.data.decision, self._inventory)
        return ()

    def _on_inventory(self, fact: Fact, data: InventoryReported) -> Sequence[Conclusion]:
        """A GPU in another's place is another part."""
        node, now = data.node, _identities(data)
        before, self._identities[node] = self._identities.get(node, []), now
        self._inventory.report(data)
        if now == before:
            return ()
        others = self._columns.place(node, len(now))
        if len(now) == len(before):
            own = self._columns.of(node)
            others = own[[a != b for a, b in zip(before, now, strict=True)]]
        self._waiting.pop(node, None)
        self._scorer.forget(others)
        self._latches[:, others[others < self._latches.shape[1]]] = False
        gone = [self._raised.pop(each) for each in others.tolist() if each in self._raised]
        return [cleared(each, fact, "another GPU is in its place") for each in gone]

    def _on_tick(self, fact: Fact) -> Sequence[Conclusion]:
        model, cell = self._model, fact.log_time_ns // STEP_NS
        if model is None:
            return () if self._settings.model else self._taken_back(fact)
        if cell <= self._cell:
            return ()
        passed = cell - self._cell if self._cell else 1
        self._cell = cell
        count = self._columns.count
        self._scorer.grow(count)
        before = np.pad(self._latches, ((0, 0), (0, count - self._latches.shape[1])))
        samples, self._waiting = self._waiting, {}
        scores = self._scorer.step(*self._columns.gathered(samples.values()), passed)
        chances = probabilities_ppm(model.hazard_table(), scores.logits)
        moved = np.flatnonzero((chances[-1] >= LEAST_PPM) | before.any(axis=0))
        now = latched(before[:, moved], chances[:, moved], scores.heard[moved])
        changed = moved[bands_of(now) != bands_of(before[:, moved])]
        self._latches = before
        self._latches[:, moved] = now
        said = self._said(changed, fact, samples, chances, scores.codes) if len(changed) else []
        if cell // DAY_STEPS != self._tally_day:
            self._tally_day = cell // DAY_STEPS
            tally, self._tally = self._tally, Tally()
            if tally.seen and model.shares:
                said.append(drifted(tally, model.shares, self._named, fact))
        if cell % COUNTED_STEPS == 0:
            self._tally.add(scores)
        return said

    @property
    def _named(self) -> str:
        assert self._settings.model is not None
        return self._settings.model

    def _said(
        self, changed: Ints, fact: Fact, samples: dict[str, Fact], chances: Ints, codes: Codes
    ) -> list[Conclusion]:
        """What is to be said of GPUs whose band is another one now."""
        said = []
        columns = changed.tolist()
        bands = bands_of(self._latches[:, changed]).tolist()
        owners = self._columns.owners(columns)
        for column, band, (node, at) in zip(columns, bands, owners, strict=True):
            own: list[int] = chances[:, column].tolist()
            if band == 0:
                why = f"its chances came down to {percent(own)} within 0.5, 1, 2 and 3 h"
                said.append(cleared(self._raised.pop(column), fact, why))
                continue
            proof = samples.get(node, fact)
            if column not in self._raised:
                component = components.gpu(node, self._inventory.gpus[node][at])
                self._raised[column] = raised(component, proof)
            said.append(
                predicted(
                    self._raised[column],
                    BANDS[band - 1],
                    own,
                    codes[:, column].tolist(),
                    self._inventory,
                    model=self._named,
                    fact=fact,
                    proof=proof,
                )
            )
        return said

    def _taken_back(self, fact: Fact) -> list[Conclusion]:
        """No model answers any more, so nothing that one said holds."""
        gone, self._raised = self._raised, {}
        self._latches[:] = False
        return [cleared(each, fact, "no model is active any more") for each in gone.values()]

    def _rooted(self) -> _Root:
        return _Root(
            inventory=self._inventory,
            recoveries=self._recoveries,
            identities=self._identities,
            columns=self._columns,
            cell=self._cell,
            looked=self._scorer.state(),
        )

    def _take(self, root: _Root) -> None:
        self._inventory, self._recoveries = root.inventory, root.recoveries
        self._identities, self._columns = root.identities, root.columns
        self._cell = root.cell
        self._scorer.resume(root.looked)


def _identities(data: InventoryReported) -> list[bytes]:
    """A hash of each GPU: its place, its part."""
    return [sha256(f"{gpu.pci} {gpu.uuid} {gpu.serial}".encode()).digest()[:8] for gpu in data.gpus]
