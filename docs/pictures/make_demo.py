"""Draws docs/pictures/demo.svg: what `nemesis demo` shows in a terminal.

python docs/pictures/make_demo.py
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS = 120


def main() -> None:
    """Run the demo as in a terminal of 120 columns and keep what it printed."""
    shown = subprocess.run(
        [sys.executable, "-m", "nemesis.cli", "demo"],
        env=os.environ | {"FORCE_COLOR": "1", "COLUMNS": str(COLUMNS)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True)
        console.print(Text.from_ansi(without_progress(shown)))
        svg = console.export_svg(title="make sim")
    # a picture that loads nothing from anywhere: the viewer's own monospace font will do
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL).replace("Fira Code, ", "")
    Path(__file__).with_name("demo.svg").write_text(svg)


def without_progress(shown: str) -> str:
    """What stays on the screen: no cursor movements, no lines with a spinner."""
    still = re.sub(r"\x1b\[[0-9;?]*[A-LN-Za-ln-z]", "", shown)
    lines = [line.rpartition("\r")[2] for line in still.split("\n")]
    spinning = re.compile(r"^(\x1b\[[0-9;]*m)*[\u2800-\u28ff]")
    return "\n".join(line for line in lines if not spinning.match(line)).strip("\n")


main()
