"""`nemesis host`: what the kernel of this machine tells."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from nemesis.cli.output import JsonOption, print_json, say

if TYPE_CHECKING:
    import subprocess

    from nemesis.producers.node.explain import Explained
    from nemesis.producers.node.root import Root

LOOK_S: Final = 0.2

host = typer.Typer(no_args_is_help=True, help="What the kernel of this machine tells.")


@host.callback()
def _host() -> None:
    """What the kernel of this machine tells."""


@host.command(
    "explain", context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True}
)
def host_explain(
    what: Annotated[
        list[str], typer.Argument(metavar="PID | CMD...", help="A process, or a command to start.")
    ],
    seconds: Annotated[
        float, typer.Option(min=0.1, help="How long to watch; a command: at most until it ends.")
    ] = 5.0,
    root: Annotated[Path, typer.Option(help="Read /proc and /sys below this folder.")] = Path("/"),
    json: JsonOption = False,
) -> None:
    """Say why a workload is slow, from what the kernel counts of it and of this host.

    Changes nothing. Exit 1: a reason was found, or it has ended and not well; 0: none; 2: no such
    command; 3: no such process.
    """
    from nemesis.producers.node.root import Root

    place = Root(root)
    if len(what) == 1 and what[0].isdecimal():
        explained = _watched(place, int(what[0]), seconds)
    else:
        explained = _started(place, what, seconds)
    if json:
        print_json(explained)
    else:
        _print(explained)
    raise typer.Exit(1 if explained.reasons else 0)


def _watched(
    root: "Root", pid: int, seconds: float, child: "subprocess.Popen[bytes] | None" = None
) -> "Explained":
    import time

    from nemesis.producers.node.explain import Explainer
    from nemesis.producers.node.workload import NoProcessError, Workload

    if not Workload(root, pid).is_there:
        raise NoProcessError(f"no process {pid}", hint="`ps -e` lists them")
    explainer = Explainer(root, pid, time.monotonic_ns())
    until_s = time.monotonic() + seconds
    while explainer.look() and (left_s := until_s - time.monotonic()) > 0:
        time.sleep(min(LOOK_S, left_s))
    return explainer.explain(time.monotonic_ns(), child.poll() if child else None)


def _started(root: "Root", command: list[str], seconds: float) -> "Explained":
    import subprocess

    from nemesis.schemas.errors import BadNameError

    try:
        child = subprocess.Popen(command, stdout=2)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise BadNameError(
            f"cannot start {command[0] or 'an empty name'}: {why}", hint="name a PID or a command"
        ) from error
    try:
        return _watched(root, child.pid, seconds, child)
    finally:
        child.terminate()
        child.wait()


def _print(explained: "Explained") -> None:
    watched_s = explained.watched_ns / 1e9
    say(f"{explained.pid} {explained.command}")
    say(
        f"watched {watched_s:.1f} s, {explained.threads_count} threads:"
        f" ran {explained.ran_ns / 1e9:.2f} s, waited {explained.waited_ns / 1e9:.2f} s for a CPU"
    )
    for reason in explained.reasons:
        say(f"  {reason.code:<16} {reason.says}")
    if not explained.reasons and explained.ended:
        say(f"  {explained.ended}; nothing slowed it until then")
    elif not explained.reasons:
        say("  nothing: it runs when it wants to; look at the program, its GPU, or at its peers")
