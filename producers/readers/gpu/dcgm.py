"""DCGM: the text of dcgm-exporter, and the tables of `dcgmi health -c` and `dcgmi diag`.

A field with a meaning that `nvidia-smi -q` prints, too, has its name, so that one rule reads both.
"""

import re
from collections.abc import Iterable
from typing import Final

from nemesis.producers.readers.notes import Note, Reader, TextLine, note
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.components import pci_address
from nemesis.schemas.observed import CountersRead, SettingRead

_SAMPLE: Final = re.compile(r"(DCGM_FI_\w+)\{([^}]*)\} ([-\d.eE+]+)(?: \d+)?\s*\Z")
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
_PCI: Final = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]\Z")
_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
# NVIDIA/dcgm-exporter etc/default-counters.csv, dcgm_fields.h
_COUNTERS: Final = {
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": "ecc_errors.volatile.dram_uncorrectable",
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": "ecc_errors.aggregate.dram_uncorrectable",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": "replays_since_reset",
}
_FLAGS: Final = {
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "remapped_rows.remapping_failure_occurred",
    "DCGM_FI_DEV_ROW_REMAP_PENDING": "remapped_rows.pending",
}
_GAUGES: Final = {
    "DCGM_FI_DEV_SM_CLOCK": ("clocks.sm", " MHz"),
    "DCGM_FI_DEV_GPU_TEMP": ("temperature.gpu_current_temp", " C"),
    "DCGM_FI_DEV_GPU_UTIL": ("utilization.gpu", " %"),
    "DCGM_FI_DEV_XID_ERRORS": ("last_xid", ""),
}
# NVML clocks event reasons, nvml.h
_REASONS: Final = ((0x40, "hw_thermal_slowdown"), (0x80, "hw_power_brake_slowdown"))
_MASKS: Final = ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS")
_TABLE: Final = re.compile(r"\|\s*(?:->)?\s*(\S[^|]*?)\s*\|\s*(\S[^|]*?)\s*\|\s*\Z")
_TITLE: Final = re.compile(r"\|\s*(Health Monitor Report|Diagnostic|Deployment|Hardware|Stress)\b")
_STATUS: Final = re.compile(
    r"(Healthy|Warning|Failure|Pass|Fail|Skip|Error)\b(?:.*?GPUs?:? ?#?([\d, ]+))?"
)


class Dcgm(Reader):
    """Reads samples and tables of DCGM."""

    starts = (_SAMPLE, _TITLE)

    def __init__(self) -> None:
        self._table = False
        self._gpu = ""

    @property
    def busy(self) -> bool:
        """Below the title of a table."""
        return self._table

    def take(self, line: TextLine) -> Iterable[Note]:
        """A sample, or a row."""
        if match := _SAMPLE.match(line.text):
            self.known = True
            return self._sample(line, match[1], dict(_LABEL.findall(match[2])), match[3])
        if _TITLE.match(line.text):
            self.known, self._table, self._gpu = True, True, ""
            return ()
        if self._table and (match := _TABLE.match(line.text)):
            return self._row(line, match[1], match[2])
        return ()

    def _sample(
        self, line: TextLine, field: str, labels: dict[str, str], number: str
    ) -> Iterable[Note]:
        host = labels.get("Hostname") or labels.get("hostname") or line.host
        host = host if _HOST.match(host) else ""
        pci = labels.get("pci_bus_id", "")
        gpu = f"gpu//{pci_address(pci)}" if _PCI.match(pci) else f"gpu//{labels.get('gpu', '0')}"
        try:
            value = int(float(number))
        except (ValueError, OverflowError):
            return
        if field in _COUNTERS and 0 <= value < 2**63:
            counters = ((_COUNTERS[field], value),)
            yield note(line, CountersRead(**unplaced(host), component=gpu, counters=counters))
        for name, said in _states(field, value):
            setting = SettingRead(**unplaced(host), component=gpu, name=name, value=said)
            yield note(line, setting)

    def _row(self, line: TextLine, key: str, value: str) -> Iterable[Note]:
        status = _STATUS.match(value)
        if status is None:
            return
        if key.isdecimal() and len(key) <= 3:
            self._gpu = key  # `dcgmi health`: what follows is of this GPU
            return
        name = "dcgm." + re.sub(r"[^a-z0-9]+", "_", key.lower()).strip("_")
        gpus = [gpu.strip() for gpu in (status[2] or "").split(",") if gpu.strip().isdecimal()]
        for component in [f"gpu//{gpu}" for gpu in gpus[:64] or [self._gpu] if gpu] or ["node//"]:
            setting = SettingRead(
                **unplaced(line.host), component=component, name=name, value=status[1]
            )
            yield note(line, setting)


def _states(field: str, value: int) -> Iterable[tuple[str, str]]:
    if field in _FLAGS:
        yield _FLAGS[field], "Yes" if value else "No"
    elif field in _GAUGES:
        name, unit = _GAUGES[field]
        yield name, f"{value}{unit}"
    elif field in _MASKS:
        for bit, name in _REASONS:
            yield f"clocks_event_reasons.{name}", "Active" if value & bit else "Not Active"
