"""What a stack shows its thread to be in: a collective, a save, a lock, or nothing that is known.

Why: who is not in the collective of the others may save, load, evaluate or compile, for minutes and
rightly, or be stuck. How: by the names of functions and files, the whole stack up: whoever is in a
save somewhere is saving, whatever function it waits in right now. A name that only may mean patient
work counts as that work. What is not known is nothing: a loop in somebody's own code may be an
endless one or a long computation. Not here: who is blamed (stack_findings.py, rank_stacks.py).

Names: torch 2.13, torch/distributed, utils/data, _dynamo; CPython's Lib; py-spy and gdb stacks.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

Place = Literal[
    "collective",
    "saving",
    "loading",
    "evaluating",
    "compiling",
    "transferring",
    "another program",
    "debugger",
    "teardown",
    "lock",
    "library",
    "own code",
]
INNERMOST: Final = 8
WAITS: Final = re.compile(
    r"\b(?:all_?reduce|all_?gather|reduce_scatter|broadcast|barrier|all_to_all|recv|wait|_wait"
    r"|synchronize|cuda\w*Synchronize|nccl\w+|c10d::\w+|backward)\b"
)
"""A thread that waits for others or for its GPU, in Python or below."""
LOADS: Final = re.compile(r"_next_data|_try_get_data|dataloader\.py|DataLoader|read_sample")
_COLLECTIVE: Final = re.compile(
    r"\b(?:all_?reduce\w*|all_?gather\w*|reduce_scatter\w*|broadcast\w*|barrier|all_to_all\w*"
    r"|i?recv|i?send|batch_isend_irecv|synchronize) \("
    r"|torch/distributed/(?:distributed_c10d|_functional_collectives)\.py"
    r"|torch/autograd/|nemesis/training/\w+\.py"
)


def _named(words: str, *, but: str = "") -> str:
    """A function or a file that has one of these in its name, and none of those that mislead."""
    misleading = "|".join(filter(None, ("thread", "__init__", "train", "parallel", but)))
    return rf"\b(?!\w*(?:{misleading}))\w*(?:{words})\w*(?: \(|\.py:)"


_WORK: Final[Mapping[Place, re.Pattern[str]]] = {
    "debugger": re.compile(r"[/(](?:pdb|bdb|code)\.py:"),
    "teardown": re.compile(
        r"\b(?:destroy_process_group|_?abort_process_group|_?shutdown_backend|_exit_function"
        r"|_run_exitfuncs|_shutdown) \("
    ),
    "compiling": re.compile(
        r"(?i)torch/_(?:dynamo|inductor)/|triton/|cpp_extension|"
        + _named("compil|autotun|warm_?up|lower|jit|captur")
    ),
    "saving": re.compile(
        r"(?i)torch/distributed/checkpoint/|torch/serialization|safetensors|[/(]shutil\.py|"
        + _named("sav[ei]|checkpoint|ckpt|snapshot|export|upload|dump|persist|writ|flush")
    ),
    "evaluating": re.compile(
        r"(?i)" + _named("eval|valid|test|generate|predict|infer|metric|score|bench|profil|log")
    ),
    "transferring": re.compile(
        r"[/(](?:socket|ssl|selectors|select|asyncio/\w+|http/\w+)\.py:"
        r"|(?:urllib3|requests|httpx|aiohttp|botocore|grpc|fsspec|s3fs|gcsfs)/"
    ),
    "another program": re.compile(r"[/(](?:subprocess|popen_\w+|multiprocessing/process)\.py:"),
    "loading": re.compile(
        r"(?i)_next_data|_try_get_data|dataloader|importlib|"
        + _named(
            "load|read|fetch|download|data|batch|sampl|token|index|shuffl|build|prepar|preproc"
            "|cache|setup|init|restore|resum",
            but="step",
        )
    ),
}
"""What a thread does for as long as it takes, by any of its frames; the first that fits."""
_LOCK: Final = re.compile(
    r"[/(](?:threading|queue|multiprocessing/(?:synchronize|queues)|concurrent/futures/\w+)\.py:"
)
_LIBRARY: Final = re.compile(r"(?:site|dist)-packages/|\(python3\.\d+/|\(<")


def is_in(frames: Iterable[str], pattern: re.Pattern[str]) -> bool:
    """Whether one of these frames is such a one."""
    return any(pattern.search(frame) for frame in frames)


def place_of(frames: Sequence[str]) -> Place | None:
    """What a thread with this stack is in, `function (file:line)`, innermost first.

    None where there is no stack.
    """
    if not frames:
        return None
    for place, pattern in _WORK.items():
        if is_in(frames, pattern):
            return place
    if is_in(frames[:INNERMOST], _COLLECTIVE):
        return "collective"
    if _LOCK.search(frames[0]):
        return "lock"
    return "library" if _LIBRARY.search(frames[0]) else "own code"
