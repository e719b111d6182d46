"""The command line of torchrun, read as torchrun reads it: what is to run, and on how many nodes.

Names, spellings, defaults and the variables `PET_<OPTION>` are those of torch.distributed.run of
torch 2.13 (pytorch/pytorch, torch/distributed/run.py, argparse_util.py). What NEMESIS cannot do is
refused; what only tunes torchrun's own agent (log filters, start method, health checks) is taken
and has no effect, so that a command line that works goes on working.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

from nemesis.schemas.errors import NemesisError
from nemesis.schemas.operated import RANKS_PER_NODE_MAX

HERE: Final = "127.0.0.1"
PORT: Final = 29_500
"""torchrun's own, where an endpoint names none."""
_GPUS: Final = Path("/proc/driver/nvidia/gpus")
"""One folder a GPU, by NVIDIA's driver."""
_WITH_VALUE: Final = {
    "nnodes": "1:1",
    "nproc-per-node": "1",
    "rdzv-backend": "static",
    "rdzv-endpoint": "",
    "rdzv-id": "none",
    "node-rank": "-1",
    "master-addr": "",
    "master-port": "",
    "local-addr": "",
    "max-restarts": "0",
    "role": "default",
    "log-dir": "",
}
_WITHOUT_EFFECT: Final = (
    "rdzv-conf",
    "monitor-interval",
    "start-method",
    "event-log-handler",
    "redirects",
    "tee",
    "local-ranks-filter",
    "duplicate-stdout-filters",
    "duplicate-stderr-filters",
    "logs-specs",
    "signals-to-handle",
    "shutdown-timeout",
)
_FLAGS: Final = ("standalone", "module", "no-python", "virtual-local-rank", "run-path")
_REFUSED: Final = ("numa-binding", "virtual-local-rank", "run-path")
_SHORT: Final = {"redirects": "-r", "tee": "-t", "module": "-m"}


class LaunchUsageError(NemesisError):
    """What is to be started cannot be understood as it was typed."""

    exit_code = 2


class Asked(msgspec.Struct, kw_only=True, frozen=True):
    """What a command line of torchrun asks for."""

    command: tuple[str, ...]
    """Of each rank."""
    title: str
    """Of the script or module, without folder and ending."""
    nodes_count: int = 1
    nodes_min: int = 1
    """Fewer than this many nodes are not worth going on with."""
    ranks_per_node: int = 1
    node_at: int = -1
    """Of this node among them; -1: whichever is free."""
    endpoint: str = ""
    """`host:port` where the nodes meet; "" for a node that is alone."""
    local_address: str = ""
    """By which address other nodes reach this one; "": the one that leads to the endpoint."""
    restarts_max: int = 0
    """Of the whole job, where nobody recovers it."""
    run_id: str = "none"
    role: str = "default"
    log_folder: str = ""

    @property
    def world(self) -> int:
        """Ranks in all."""
        return self.nodes_count * self.ranks_per_node

    @property
    def world_min(self) -> int:
        """How far the job may shrink: to the ranks of MIN nodes, where MIN:MAX was asked for."""
        return self.nodes_min * self.ranks_per_node if self.nodes_min < self.nodes_count else 1


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise LaunchUsageError(
            message, hint="what follows `nemesis run --` is what follows `torchrun`"
        )


def asked_of(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Asked:
    """What these arguments of torchrun ask for; `environment` has defaults, as torchrun takes them.

    Raises:
        LaunchUsageError: what torchrun would refuse, or what NEMESIS cannot do.
    """
    given, script = _read(arguments, environment)
    for name in _REFUSED:
        if getattr(given, _dest(name)):
            raise LaunchUsageError(
                f"--{name} is not for NEMESIS", hint=f"start it without, or by torchrun --{name}"
            )
    if given.module and given.no_python:
        raise LaunchUsageError("--module and --no-python exclude each other", hint="leave one out")
    nodes_min, nodes_count = _nodes(given.nnodes)
    ranks = _ranks(given.nproc_per_node, environment)
    endpoint = "" if given.standalone or nodes_count == 1 else _endpoint(given)
    return Asked(
        command=_command(given, script, environment),
        title=script[0].rpartition(".")[2] if given.module else Path(script[0]).stem,
        nodes_count=1 if given.standalone else nodes_count,
        nodes_min=1 if given.standalone else nodes_min,
        ranks_per_node=ranks,
        node_at=_whole(given.node_rank, "--node-rank", minimum=-1),
        endpoint=endpoint,
        local_address=given.local_addr,
        restarts_max=_whole(given.max_restarts, "--max-restarts", minimum=0),
        run_id=given.rdzv_id,
        role=given.role,
        log_folder=given.log_dir,
    )


def check_command(command: Sequence[str]) -> None:
    """See that a command can be started, before anybody waits for what it does.

    Raises:
        LaunchUsageError: there is no such program.
    """
    if shutil.which(command[0]) is None:
        raise LaunchUsageError(
            f"no such command: {command[0][:60] or 'an empty name'}",
            hint="a program of the PATH, or the path of a file that may be executed",
        )


def _parser(environment: Mapping[str, str]) -> _Parser:
    parser = _Parser(prog="nemesis run --", add_help=False)
    for name, usual in _WITH_VALUE.items():
        default = environment.get(f"PET_{_dest(name).upper()}", usual)
        parser.add_argument(*_spellings(name), default=default)
    for name in (*_WITHOUT_EFFECT, "numa-binding"):
        parser.add_argument(*_spellings(name), default="")
    for name in _FLAGS:
        is_set = environment.get(f"PET_{_dest(name).upper()}", "0") not in ("", "0")
        parser.add_argument(*_spellings(name), action="store_true", default=is_set)
    return parser


def _read(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[Any, tuple[str, ...]]:
    """Options, and the script with its own arguments, of which nothing is read here."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] != "--":
        name, has_value, _ = arguments[at].partition("=")
        is_glued = not name.startswith("--") and len(name) > len("-t")
        is_flag = any(each.startswith(name) for flag in _FLAGS for each in _spellings(flag))
        at += 1 if has_value or is_glued or is_flag else 2
    given = _parser(environment).parse_args(list(arguments[:at]))
    script = tuple(arguments[at:])
    if script[:1] == ("--",):
        script = script[1:]
    if not script:
        raise LaunchUsageError(
            "no script is named", hint="for example `nemesis run -- --nproc-per-node 4 train.py`"
        )
    return given, script


def _dest(name: str) -> str:
    return name.replace("-", "_")


def _spellings(name: str) -> list[str]:
    found = [_SHORT[name]] if name in _SHORT else []
    return list(dict.fromkeys([*found, f"--{name}", f"--{_dest(name)}"]))


def _whole(text: str, option: str, *, minimum: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = minimum - 1
    if value < minimum:
        raise LaunchUsageError(
            f"{option} {text[:60]}: expected a whole number", hint=f"{minimum} or more"
        )
    return value


def _nodes(text: str) -> tuple[int, int]:
    first, colon, last = text.partition(":")
    least = _whole(first, "--nnodes", minimum=1)
    most = _whole(last, "--nnodes", minimum=1) if colon else least
    if least > most:
        raise LaunchUsageError(f"--nnodes {text[:60]}: expected MIN:MAX", hint="for example 2:4")
    return least, most


def _ranks(text: str, environment: Mapping[str, str]) -> int:
    gpus = _visible_gpus(environment)
    if text == "gpu" and not gpus:
        raise LaunchUsageError(
            "--nproc-per-node gpu: no NVIDIA GPU is here", hint="say a number, or cpu"
        )
    counts = {"gpu": gpus, "auto": gpus or _cores(), "cpu": _cores()}
    found = counts[text] if text in counts else _whole(text, "--nproc-per-node", minimum=1)
    if found > RANKS_PER_NODE_MAX:
        raise LaunchUsageError(
            f"--nproc-per-node {found}: too many", hint=f"at most {RANKS_PER_NODE_MAX}"
        )
    return found


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _visible_gpus(environment: Mapping[str, str]) -> int:
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([each for each in visible.split(",") if each.strip() not in ("", "-1")])
    return len(list(_GPUS.iterdir())) if _GPUS.is_dir() else 0


def _endpoint(given: Any) -> str:
    if given.rdzv_endpoint:
        host, colon, port = given.rdzv_endpoint.rpartition(":")
        host, port = (host, port) if colon else (given.rdzv_endpoint, str(PORT))
    elif given.master_addr or given.master_port:
        host, port = given.master_addr or HERE, given.master_port or str(PORT)
    else:
        raise LaunchUsageError(
            f"--nnodes {given.nnodes}: no endpoint where the nodes meet",
            hint="--rdzv-endpoint HOST:PORT, the same on each of them",
        )
    if not host or not 0 < _whole(port, "port of the endpoint", minimum=1) < 1 << 16:
        raise LaunchUsageError(
            f"no endpoint: {given.rdzv_endpoint[:60]}", hint="--rdzv-endpoint HOST:PORT"
        )
    return f"{host}:{port}"


def _command(
    given: Any, script: tuple[str, ...], environment: Mapping[str, str]
) -> tuple[str, ...]:
    if given.no_python:
        return script
    python = environment.get("PYTHON_EXEC", sys.executable)
    return (python, "-u", *(["-m"] if given.module else []), *script)
