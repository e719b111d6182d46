"""The table that `nvidia-smi` prints, `--query-gpu` as CSV, and `nvidia-smi nvlink -s` and `-e`.

The table and the list of links name GPUs by their index; the table gives the PCI address with it.
"""

import re
from collections.abc import Iterable
from typing import Final

from nemesis.producers.readers.notes import Note, Reader, TextLine, note
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.components import pci_address
from nemesis.schemas.observed import CountersRead, SettingRead

_PCI: Final = r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])"
_HEAD: Final = re.compile(r"\|\s*NVIDIA-SMI \d")
_ROW: Final = re.compile(rf"\|\s*(\d+)\s+(\S.*?)\s*\|\s*{_PCI}\s+\S+\s*\|\s*(\S+)\s*\|")
_USE: Final = re.compile(
    r"\|\s*(?:\S+)\s+(\d+C|ERR!|N/A|Unknown Error)\s+P?\S*\s+(\S+W|ERR!|N/A) ?/ ?(\d+W)?.*?"
    r"\|\s*\d+MiB /.*?\|\s*(\d+)%"
)
_PERSISTENCE: Final = re.compile(r"\s+(?:On|Off)\Z")
POWER_DRAW: Final = "power_readings.power_draw"
POWER_LIMIT: Final = "power_readings.power_limit"
_LINKS_OF: Final = re.compile(r"GPU (\d+): .*\(UUID: (\S+)\)")
_LINK: Final = re.compile(r"\s+Link (\d+): (<inactive>|[\d.]+ GB/s)\s*\Z")
_LINK_ERRORS: Final = re.compile(
    r"\s+Link (\d+): ((?:\w+ ){1,3}(?:[Ee]rrors|FLIT|Errors?)[\w ]*): (\d{1,18})\s*\Z"
)
_CSV_HEAD: Final = re.compile(r"gpu_bus_id|pci\.bus_id")
_CSV_PCI: Final = re.compile(rf"(?:{_CSV_HEAD.pattern})\Z")
# fields of --query-gpu that have another name in the report of -q
_CSV_NAMES: Final = {
    "temperature.gpu": "temperature.gpu_current_temp",
    "clocks.sm": "clocks.sm",
    "clocks.current.sm": "clocks.sm",
    "utilization.gpu": "utilization.gpu",
    "clocks_throttle_reasons.hw_slowdown": "clocks_event_reasons.hw_slowdown",
    "clocks_throttle_reasons.hw_thermal_slowdown": "clocks_event_reasons.hw_thermal_slowdown",
    "clocks_event_reasons.hw_thermal_slowdown": "clocks_event_reasons.hw_thermal_slowdown",
    "clocks_event_reasons.hw_power_brake_slowdown": "clocks_event_reasons.hw_power_brake_slowdown",
    "name": "product_name",
    "power.draw": POWER_DRAW,
    "power.limit": POWER_LIMIT,
    "enforced.power.limit": POWER_LIMIT,
    "pcie.link.width.current": "gpu_link_info.link_width.current",
    "pcie.link.width.max": "gpu_link_info.link_width.max",
    "ecc.errors.uncorrected.volatile.total": "ecc_errors.volatile.uncorrectable",
    "ecc.errors.uncorrected.aggregate.total": "ecc_errors.aggregate.uncorrectable",
}


class NvidiaSmiTable(Reader):
    """Reads tables of GPUs."""

    starts = (_HEAD, _ROW, _USE, _LINKS_OF, _LINK, _LINK_ERRORS)
    holds = (_CSV_HEAD,)

    def __init__(self) -> None:
        self._gpu = ""
        self._columns: list[str] = []

    @property
    def busy(self) -> bool:
        """Below the head of a CSV."""
        return bool(self._columns)

    def take(self, line: TextLine) -> Iterable[Note]:
        """What a row says of a GPU."""
        text = line.text
        if _HEAD.match(text):
            self.known = True
        elif match := _ROW.match(text):
            self.known, self._gpu = True, f"gpu//{pci_address(match[3])}"
            make = self._setting(line, "product_name", _PERSISTENCE.sub("", match[2]))
            return [make, *self._errors(line, match[4])]
        elif self._gpu and (match := _USE.match(text)):
            return self._use(line, match[1], match[2], match[3] or "", match[4])
        elif match := _LINKS_OF.match(text):
            self.known, self._gpu = True, f"gpu//{match[1]}"
        elif self._gpu and (match := _LINK.match(text)):
            self.known = True
            value = "inactive" if match[2].startswith("<") else match[2]
            return [self._setting(line, f"nvlink.{match[1]}.state", value)]
        elif self._gpu and (match := _LINK_ERRORS.match(text)):
            self.known = True
            name = f"nvlink.{match[1]}.{match[2].lower().replace(' ', '_')}"
            return [self._counter(line, name, int(match[3]))]
        elif ", " in text:
            return self._csv(line)
        return ()

    def _errors(self, line: TextLine, cell: str) -> Iterable[Note]:
        if cell == "ERR!":
            return [self._setting(line, "answers", "ERR!")]
        if cell.isdecimal():
            return [self._counter(line, "ecc_errors.volatile.uncorrectable", int(cell[:15]))]
        return ()

    def _use(
        self, line: TextLine, temperature: str, power: str, limit: str, busy: str
    ) -> Iterable[Note]:
        if "ERR!" in (temperature, power) or temperature == "Unknown Error":
            yield self._setting(line, "answers", "ERR!")
        elif temperature.endswith("C"):
            yield self._setting(line, "temperature.gpu_current_temp", f"{temperature[:-1]} C")
        yield self._setting(line, "utilization.gpu", f"{busy} %")
        if limit and power.endswith("W"):
            yield self._setting(line, POWER_DRAW, f"{power[:-1]} W")
            yield self._setting(line, POWER_LIMIT, f"{limit[:-1]} W")

    def _csv(self, line: TextLine) -> Iterable[Note]:
        cells = [cell.strip() for cell in line.text.split(",")]
        names = [cell.partition(" [")[0] for cell in cells]
        if any(_CSV_PCI.match(name) for name in names):
            self.known, self._columns = True, names
        elif self._columns and len(cells) == len(self._columns):
            return self._csv_row(line, dict(zip(self._columns, cells, strict=True)))
        return ()

    def _csv_row(self, line: TextLine, row: dict[str, str]) -> Iterable[Note]:
        pci = next((value for name, value in row.items() if _CSV_PCI.match(name)), "")
        if not re.fullmatch(_PCI, pci):
            return
        self._gpu = f"gpu//{pci_address(pci)}"
        for column, value in row.items():
            name = _CSV_NAMES.get(column)
            if name is not None and name.startswith("ecc_errors.") and value.isdecimal():
                yield self._counter(line, name, int(value[:15]))
            elif name is not None:
                yield self._setting(line, name, value)

    def _setting(self, line: TextLine, name: str, value: str) -> Note:
        component = self._gpu
        return note(
            line, SettingRead(**unplaced(line.host), component=component, name=name, value=value)
        )

    def _counter(self, line: TextLine, name: str, value: int) -> Note:
        counters = ((name, value),)
        return note(
            line, CountersRead(**unplaced(line.host), component=self._gpu, counters=counters)
        )
