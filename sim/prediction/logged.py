"""A recorded log as lives of GPUs: what the model would have been shown, and what came of it.

Cells of five seconds of log time, GPUs by inventory, as the processor has them. Labels come from
the run's ledger where there is one: the first fault that sits in a GPU; else from the log itself:
the first Xid of a GPU that its own process does not survive. What came later than the log ends
nobody knows, so the last three hours of GPUs that did not fail are judged as if they went on well.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from nemesis.processors.attribution.kernel_messages import parse
from nemesis.processors.ecc_model.channels import STEP_NS, ChannelReader
from nemesis.processors.ecc_model.inputs import INPUTS, InputMaker
from nemesis.processors.ecc_model.model import RECEPTIVE_STEPS
from nemesis.processors.ecc_model.polls import Columns
from nemesis.replay.reader import Recording
from nemesis.schemas import components
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.facts import Fact, Record, decode_observation, split_subject
from nemesis.schemas.observed import InventoryReported, KernelLineLogged, SampleTaken
from nemesis.sim.prediction.lives import Lives
from nemesis.sim.prediction.splits import DataSet
from nemesis.sim.truth.ledger import LedgerOpened
from nemesis.sim.truth.ledger_file import Ledger, read_ledger_file

FATAL_XIDS: Final = frozenset({46, 48, 62, 64, 74, 79, 95, 109, 119, 120, 140, 143, 171})
"""What ends the work of a GPU for good or until it is reset (docs.nvidia.com/deploy/xid-errors);
94 is contained: its process alone ends."""
CODES_BYTES_MAX: Final = 4 << 30
"""Held in memory: six hours of 28,000 GPUs."""


class BadLogError(NemesisError):
    """A log that nothing can be judged by."""

    exit_code = 2


class Logged(msgspec.Struct, kw_only=True):
    """A log's GPUs."""

    data: DataSet
    """One life a GPU, weight 1; kinds are `fails` and `goes on`, devices their names."""
    begin_ns: int
    """Log time of the first step."""
    labels: str
    """Where labels come from: `ledger` or `Xids`."""


class _Watched(msgspec.Struct):
    """What a log says, step by step."""

    columns: Columns
    reader: ChannelReader
    maker: InputMaker
    gpus: dict[str, int]
    """Component to column."""
    codes: list[np.ndarray]
    xids: dict[int, int]
    """Column to the step of its first fatal Xid."""
    opened: LedgerOpened | None
    """Whose clock tells simulated time, where the log was stored by another."""
    cell: int = 0
    first: int = 0


def read_log(path: Path, ledger: Path | None = None) -> Logged:
    """A recording, with its run's ledger if there is one.

    Raises:
        BadLogError: no samples of GPUs for longer than the model looks back, or too many.
        NoRecordingError, CorruptRecordingError, NewerRecordingError: see Recording.
        BadLedgerError: see read_ledger_file.
    """
    truth = None if ledger is None else read_ledger_file(ledger)
    opened = None if truth is None else truth.opened
    state = _Watched(Columns(), ChannelReader(0), InputMaker(0), {}, [], {}, opened)
    waiting: list[Fact] = []
    for record in Recording(path).records():
        _take(state, record, waiting)
    steps, count = len(state.codes), state.columns.count
    if steps <= RECEPTIVE_STEPS or not count:
        raise BadLogError(
            f"{path}: {steps * STEP_NS // 60_000_000_000} minutes of {count} GPUs: the model looks"
            f" back {RECEPTIVE_STEPS * STEP_NS // 60_000_000_000} minutes and judges what follows"
        )
    codes = np.zeros((steps, len(INPUTS), count), np.int8)
    for step, each in enumerate(state.codes):
        codes[step, :, : each.shape[1]] = each
    begin_ns = state.first * STEP_NS
    fails = np.full(count, -1, np.int64)
    labels = state.xids if truth is None else _of_ledger(truth, state.gpus, begin_ns)
    for column, step in labels.items():
        fails[column] = step
    names = {column: name for name, column in state.gpus.items()}
    lives = Lives(
        codes=codes,
        fails=fails,
        signs=np.full(count, -1, np.int64),
        corrected=np.zeros(count, np.int64),
        kinds=["fails" if step >= 0 else "goes on" for step in fails.tolist()],
        devices=[names.get(column, "") for column in range(count)],
    )
    return Logged(
        data=DataSet(split="log", lives=lives, weights=np.ones(count)),
        begin_ns=begin_ns,
        labels="Xids" if truth is None else "ledger",
    )


def _take(state: _Watched, record: Record, waiting: list[Fact]) -> None:
    space, token, _ = split_subject(record.subject)
    if space != "telemetry" or token not in ("sample", "inventory", "kernel", "tick"):
        return
    data = decode_observation(token, record.payload)
    opened = state.opened
    at_ns = record.stored_ns if opened is None else opened.simulated_ns(record.stored_ns)
    cell = at_ns // STEP_NS
    if cell > state.cell:
        _step(state, waiting, cell)
    match data:
        case InventoryReported():
            others = state.columns.place(data.node, len(data.gpus))
            others = others[others < state.reader.count]
            state.reader.forget(others)
            state.maker.forget(others)
            columns = state.columns.of(data.node).tolist()
            for column, gpu in zip(columns, data.gpus, strict=True):
                state.gpus[components.gpu(data.node, gpu.pci)] = column
        case KernelLineLogged() if "Xid" in data.text:
            message = parse(data.text)
            if message is not None and message.kind == "xid" and message.code in FATAL_XIDS:
                column = state.gpus.get(components.gpu(data.node, message.device), -1)
                if column >= 0:
                    state.xids.setdefault(column, len(state.codes))
        case SampleTaken():
            waiting.append(_fact(record, data))
        case _:
            pass


def _fact(record: Record, data: SampleTaken) -> Fact:
    return Fact(
        seq=record.seq,
        kind="sample",
        key=data.node,
        id="",
        at_ns=data.at_ns,
        log_time_ns=record.stored_ns,
        late=False,
        data=data,
    )


def _step(state: _Watched, waiting: list[Fact], cell: int) -> None:
    """The cell is over; cells in which nothing came are steps of missing readings."""
    count = state.columns.count
    if state.cell and (count or state.codes):
        state.reader.grow(count)
        state.maker.grow(count)
        if (len(state.codes) + cell - state.cell) * len(INPUTS) * count > CODES_BYTES_MAX:
            raise BadLogError(
                f"a log of {count} GPUs and more than {len(state.codes)} steps is more than is held"
                " in memory: record a shorter slice"
            )
        state.first = state.first or state.cell
        for at in range(cell - state.cell):
            block, polled = state.columns.gathered(waiting if at == 0 else [])
            state.codes.append(state.maker.make(state.reader.read(block, polled)))
        waiting.clear()
    state.cell = cell


def _of_ledger(truth: Ledger, gpus: Mapping[str, int], begin_ns: int) -> dict[int, int]:
    found: dict[int, int] = {}
    for fault in truth.faults:
        column = gpus.get(fault.culprit)
        if column is not None and fault.components:
            step = max(0, (fault.at_ns - begin_ns) // STEP_NS)
            found[column] = min(step, found.get(column, step))
    return found
