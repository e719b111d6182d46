"""Lines of watchdogs, fingerprints, recorders and RAS about ranks that wait for each other.

Shapes: pytorch/pytorch torch/csrc/distributed/c10d, ProcessGroupNCCL.cpp and
ProcessGroupWrapper.cpp; NVIDIA/nccl src/ras/client_support.cc.
"""

import re
from typing import Final

from nemesis.processors.attribution.log_message import LogMessage, rank_of, small

_TIMEOUT: Final = re.compile(
    r"(?:Rank (\d+)\] )?Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(\d+), "
    r"OpType=(\w+)(?:, NumelIn=(\d+), NumelOut=(\d+))?, Timeout\(ms\)=(\d+)\)"
)
_GROUP_STATE: Final = re.compile(
    r"PG (?:ID )?(\w+)[^\]]*\bRank (\d+)\].*?last enqueued (?:NCCL )?work: (\d+), "
    r"last completed (?:NCCL )?work: (\d+)"
)
_CALL_DIFFERS: Final = re.compile(
    r"Detected mismatch between collectives on ranks|NCCL WARN Mismatched collective detected"
)
_FINGERPRINT: Final = re.compile(
    r"Rank (\d+) is running (?:collective: )?CollectiveFingerPrint\((?:SequenceNumber=(\d+), ?)?"
    r"OpType=(\w+)(?:, TensorShape=\[([\d, ]*)\])?"
)
_COMMUNICATOR: Final = re.compile(
    r"(?:Communicator |#\d+-\d+ \()([0-9a-f]{8,})\)?:? *(?:.*\b(MISMATCH)\b)?"
)
_LAUNCHED: Final = re.compile(r"Rank (\d+) has launched up to operation (\d+)")
_LAUNCHED_TOGETHER: Final = re.compile(r"(\d+) ranks? ha(?:s|ve) launched up to operation (\d+)")
_MISSING: Final = re.compile(
    r"\bmissing ranks?:? \{([\d, ]+)\}|[Rr]anks? \[?([\d, ]+?)\]? (?:is|are) the lagging rank"
    r"|\[([\d, ]+)\] finished collective #\d+, but didn't join collective #"
    r"|[Rr]anks? ([\d, ]+?) failed to pass monitoredBarrier"
)
_CULPRIT: Final = re.compile(r"Culprit rank (\d+); Error type: (\w+)")
# of a communicator the lowest rank makes the id; ProcessGroupNCCL.cpp, older releases misspell it
_STORE_WAIT: Final = re.compile(
    r"\[(\d{1,7})\] is setting up NCCL communicator and retr(?:ei|ie)ving ncclUniqueId from"
    r" \[(\d{1,7})\].*(?:[Tt]imeout|timed out)"
)
_NEVER: Final = re.compile(r"rank (\d+): .*?(\d+) never (?:created|enqueued)")


def timeout(text: str) -> LogMessage | None:
    """A collective that its watchdog gave up."""
    if (match := _TIMEOUT.search(text)) is None:
        return None
    rank, seq, op, numel_in, numel_out, limit_ms = match.groups()
    size = f"{numel_in}/{numel_out}" if numel_in else ""
    limit_ns = int(limit_ms[:12]) * 1_000_000
    return LogMessage("timeout", rank_of(rank), small(seq), op.lower(), size, limit_ns)


def group_state(text: str) -> LogMessage | None:
    """How far a rank came in its group."""
    if (match := _GROUP_STATE.search(text)) is None:
        return None
    group, rank, enqueued, completed = match.groups()
    done = small(completed)
    return LogMessage("group_state", rank_of(rank), small(enqueued), number=done, device=group)


def call_differs(text: str) -> LogMessage | None:
    """Two ranks that called what does not match."""
    if not _CALL_DIFFERS.search(text):
        return None
    calls = [f"{m[1]} {m[3].lower()} [{m[4] or ''}]" for m in _FINGERPRINT.finditer(text)]
    return LogMessage("call_differs", what="; ".join(calls)[:400] or text[:120])


def store_wait(text: str) -> LogMessage | None:
    """A rank that waited in vain for another one to begin their communicator."""
    if (match := _STORE_WAIT.search(text)) is None:
        return None
    return LogMessage("store_wait", rank_of(match[1]), number=rank_of(match[2]))


def launched(text: str) -> LogMessage | None:
    """How far ranks came, and who is missing, as analysers and RAS tell."""
    if match := _LAUNCHED.search(text):
        return LogMessage("launched", rank_of(match[1]), small(match[2]))
    if match := _LAUNCHED_TOGETHER.search(text):
        return LogMessage("launched", seq=small(match[2]), number=int(match[1][:9]))
    if match := _COMMUNICATOR.match(text):
        return LogMessage("communicator", device=match[1], what=match[2] or "")
    if match := _NEVER.search(text):
        return LogMessage("never_created", rank_of(match[1]), small(match[2]))
    if match := _MISSING.search(text):
        ranks = next(group for group in match.groups() if group)
        return LogMessage("missing_rank", what=ranks.replace(" ", ""))
    if match := _CULPRIT.search(text):
        return LogMessage("culprit_rank", rank_of(match[1]), what=match[2].lower())
    return None
