"""Copies what is read of a node into a folder, so that it can be read again without the node.

The copy is a tree that `--root` takes, and beside it the facts that were told and what the machine
is. Of a process's environment only the few variables that name its rank are kept: the rest may hold
secrets. Scrubbed, the node's own name, serial numbers and the boot's id are replaced as well.
"""

import os
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from nemesis import __version__
from nemesis.producers.node.ranks import JOB_NAMES, RANK_NAMES
from nemesis.producers.node.root import Root
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.observed import KernelLineLogged, Observation

TREE: Final = "root"
FACTS: Final = "facts.json"
ABOUT: Final = "about.json"
SCRUBBED: Final = "node1"
_ENVIRON: Final = re.compile(r"proc/\d+/environ\Z")
_WANTED: Final = frozenset({*JOB_NAMES, *RANK_NAMES})
_SECRET: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|(?:[0-9a-f]{2}:){5}[0-9a-f]{2}",
    re.I,
)
"""UUIDs of boots and GPUs, and addresses of network cards."""


class RecordingRoot(Root):
    """A machine's files, each copied as it is read."""

    def __init__(self, path: Path, folder: Path, *, node: str, scrub: bool) -> None:
        """`folder`: takes the copy, must not be there yet; `node`: the name that is scrubbed.

        Raises:
            NemesisError: it is there, or cannot be made.
        """
        super().__init__(path)
        self.folder: Final = folder
        self._node: Final = re.compile(rf"(?<![\w-]){re.escape(node)}(?![\w-])")
        self._scrub: Final = scrub
        try:
            (folder / TREE).mkdir(parents=True)
        except OSError as error:
            raise NemesisError(
                f"cannot record into {folder}: {error.strerror}", hint="name a folder that is new"
            ) from error

    def text(self, name: str) -> str:
        """As read, and copied."""
        text = super().text(name)
        if _ENVIRON.match(name):
            entries = [e for e in text.split("\0") if e.partition("=")[0] in _WANTED]
            text = "".join(f"{entry}\0" for entry in entries)
        self.keep(name, text)
        return text

    def names(self, folder: str) -> list[str]:
        """As read; folders in it are copied, empty."""
        found = super().names(folder)
        for name in found:
            # of /proc only what was read of a process is worth a folder
            if not folder.startswith("proc") and self.at(f"{folder}/{name}").is_dir():
                self._place(f"{folder}/{name}").mkdir(parents=True, exist_ok=True)
        return found

    def pci_path(self, device: str) -> list[str]:
        """As read; the link is copied with the addresses that it leads over."""
        found = super().pci_path(device)
        place = self._place(device)
        if found and not place.is_symlink():
            target = self._place("sys/devices/" + "/".join(("pci", *found)))
            target.mkdir(parents=True, exist_ok=True)
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.is_dir():
                _move_into(place, target)
            place.symlink_to(os.path.relpath(target, place.parent))
        return found

    def keep_rows(self, name: str, rows: Mapping[str, int]) -> None:
        """Put rows into the copy."""
        self.keep(name, "".join(f"{each}: {value}\n" for each, value in rows.items()))

    def keep(self, name: str, text: str) -> None:
        """Put a text into the copy."""
        place = self._place(name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(self.scrubbed(text))

    def scrubbed(self, text: str) -> str:
        """A text without what names this machine, where that is asked."""
        if not self._scrub:
            return text
        return _SECRET.sub("0", self._node.sub(SCRUBBED, text))

    def finish(self, facts: Sequence[Observation], documents: Sequence[dict[str, Any]]) -> None:
        """Write down what was told, as facts and as people read them, and what the machine is."""
        lines = [fact for fact in facts if isinstance(fact, KernelLineLogged)]
        records = (f"{line.priority},{at},{at},-;{line.text}\n" for at, line in enumerate(lines))
        self.keep("dev/kmsg", "".join(records))
        driver = self.line("sys/module/nvidia/version")
        about = {
            "nemesis": __version__,
            "kernel": platform.release(),
            "machine": platform.machine(),
            "nvidia_driver": driver,
        }
        for name, document in ((FACTS, documents), (ABOUT, about)):
            raw = msgspec.json.format(msgspec.json.encode(document), indent=1).decode()
            (self.folder / name).write_text(self.scrubbed(raw))

    def _place(self, name: str) -> Path:
        return self.folder / TREE / name


def _move_into(source: Path, target: Path) -> None:
    """What was copied before the folder was known to be a link."""
    for each in list(source.iterdir()):
        each.rename(target / each.name)
    source.rmdir()
