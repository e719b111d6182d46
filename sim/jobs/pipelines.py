"""In which order a pipeline stage works off its microbatches, and what it sends in between.

Pure. Two schedules of Megatron-LM (megatron/core/pipeline_parallel/schedules.py): one forward and
one backward in turn, and the one that interleaves: a stage holds several chunks of the model, its
last stage hands on to the first for the next chunk, and it sends and receives one by one. With
`c` chunks the stages at both ends send and receive 1 / 2c less than those between: in the dumps of
data/nvrx_fr_traces an eighth, so that job had four.
"""

from collections.abc import Iterator
from typing import Literal

Message = Literal["send_next", "recv_next", "send_prev", "recv_prev"]
Move = Literal["forward", "backward"] | tuple[Message, ...]
"""Of one microbatch through one chunk; or messages that are posted together."""


def in_turn(stages: int, stage: int, microbatches: int) -> Iterator[Move]:
    """One forward, one backward."""
    prev, following = stage > 0, stage < stages - 1
    warmup = min(stages - stage - 1, microbatches)
    steady = microbatches - warmup
    for _ in range(warmup):
        yield _posted(recv_prev=prev)
        yield "forward"
        yield _posted(send_next=following)
    if steady:
        yield _posted(recv_prev=prev)
    for turn in range(steady):
        yield "forward"
        yield _posted(send_next=following, recv_next=following)
        yield "backward"
        if prev:
            yield ("send_prev", "recv_prev") if turn < steady - 1 else ("send_prev",)
    for _ in range(warmup):
        yield _posted(recv_next=following)
        yield "backward"
        yield _posted(send_prev=prev)


def interleaved(stages: int, stage: int, microbatches: int, chunks: int) -> Iterator[Move]:
    """Chunks take turns, as many microbatches of each as there are stages; `stages` divides
    `microbatches`."""
    is_first, is_last = stage == 0, stage == stages - 1
    total = microbatches * chunks
    warmup = (stages - stage - 1) * 2 + (chunks - 1) * stages
    warmup = total if microbatches == stages else min(warmup, total)

    def forward_chunk(number: int) -> int:
        return number % (stages * chunks) // stages

    def backward_chunk(number: int) -> int:
        return chunks - 1 - forward_chunk(number)

    def hands_on(number: int) -> bool:
        return not (is_last and forward_chunk(number) == chunks - 1)

    def hands_back(number: int) -> bool:
        return not (is_first and backward_chunk(number) == 0)

    yield _posted(recv_prev=not is_first)
    for number in range(warmup):
        yield "forward"
        more = number < total - 1 and not (is_first and forward_chunk(number + 1) == 0)
        turns = number == warmup - 1 < total - 1 and not is_last
        yield _posted(send_next=hands_on(number), recv_prev=more, recv_next=turns)
    for number in range(total - warmup):
        yield "forward"
        yield "backward"
        # the last stage is so far behind the first, and the first so far behind the last
        at_end = number - (stages - 1)
        comes = not (is_first and forward_chunk(warmup + at_end) == chunks - 1)
        returns = not (is_last and backward_chunk(at_end) == 0)
        yield _posted(
            send_next=hands_on(warmup + number),
            recv_prev=comes and number < total - warmup - 1,
            send_prev=hands_back(number),
            recv_next=returns,
        )
    if warmup == total:
        yield _posted(recv_next=not is_last)
    for number in range(total - warmup, total):
        yield "backward"
        more = number < total - 1 and not (is_last and backward_chunk(number + 1) == chunks - 1)
        yield _posted(send_prev=hands_back(number), recv_next=more)


def _posted(
    *,
    send_next: bool = False,
    recv_prev: bool = False,
    send_prev: bool = False,
    recv_next: bool = False,
) -> tuple[Message, ...]:
    wanted: dict[Message, bool] = {
        "send_next": send_next,
        "recv_prev": recv_prev,
        "send_prev": send_prev,
        "recv_next": recv_next,
    }
    return tuple(message for message, is_wanted in wanted.items() if is_wanted)
