"""How the demo on real ranks looks in a terminal. Pure: a run becomes lines."""

from collections.abc import Sequence
from typing import Final

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text as Words

from nemesis.sim.train.run import Happening, Told

BARS: Final = " ▁▂▃▄▅▆▇█"
WIDTH: Final = 64
HEIGHT: Final = 8
_STYLES: Final = {
    "FAULT": "bold magenta",
    "VERDICT": "bold yellow",
    "DECISION": "bold cyan",
    "DONE": "bold green",
    "FAILED": "bold red",
}


def chart(values: Sequence[float], width: int = WIDTH, height: int = HEIGHT) -> list[str]:
    """Values as bars from 0 to the greatest, the newest at the right; as many columns as fit."""
    if not values:
        return [" " * width] * height
    share = max(1.0, len(values) / width)
    columns = [
        sum(part) / len(part)
        for at in range(min(width, len(values)))
        if (part := values[int(at * share) : max(int(at * share) + 1, int((at + 1) * share))])
    ]
    top = max(columns) or 1.0
    eighths = [round(each / top * height * (len(BARS) - 1)) for each in columns]
    full = len(BARS) - 1
    return [
        "".join(BARS[min(full, max(0, each - row * full))] for each in eighths).ljust(width)
        for row in reversed(range(height))
    ]


def line_of(happening: Happening) -> Words:
    """One line: how long after the fault, what kind, and what was said."""
    when = f"{happening.at_ms:+9,.0f} ms " if happening.at_ms >= 0 else " " * 13
    return Words.assemble(
        (when, "dim"), (f"{happening.kind:<9}", _STYLES[happening.kind]), happening.text
    )


def panel(told: Told) -> Group:
    """A run as it stands."""
    losses = told.steps.losses()
    now = f"{losses[-1]:.3f} nats a byte" if losses else "ranks are starting"
    newest = [each[-1] for each in told.steps.done.values() if each]
    members = max(newest, key=lambda each: each.at_ns).members if newest else ()
    title = f"{told.title}: step {told.steps.last}, ranks {','.join(map(str, members))}, loss {now}"
    return Group(Panel("\n".join(chart(losses)), title=title, width=WIDTH + 4))


def table(runs: Sequence[Told]) -> Table:
    """What the fault cost each run, side by side."""
    found = Table(title=f"{runs[0].fault}, measured here and now")
    found.add_column("")
    for told in runs:
        found.add_column(told.title, justify="right")
    costs = [told.cost for told in runs if told.cost is not None]
    rows = {
        "fault to the next new step": [f"{each.pause_ms:,.0f} ms" for each in costs],
        "steps done again": [str(each.steps_redone) for each in costs],
        "processes started anew": [str(each.processes_restarted) for each in costs],
        "ranks before and after": [f"{e.ranks_before} → {e.ranks_after}" for e in costs],
        "loss before the fault": [f"{each.loss_before:.3f}" for each in costs],
        "loss at the end": [f"{each.loss_after:.3f}" for each in costs],
    }
    for name, values in rows.items():
        found.add_row(name, *values)
    return found
