"""GPUs as DCGM's exporter tells of them, for a node on which NVML may not be asked.

Why: in many clusters the exporter runs already, and a container without the driver's library can
still read its page. How: one GET a poll; a field goes to the channel that NVML would fill, by the
name that the exporter prints (NVIDIA/dcgm-exporter etc/default-counters.csv, dcgm_fields.h). Most
counters of memory errors are off in the exporter's default list: what is not printed is absent. The
last Xid stays on the page for ever, so only a change of it is told.
"""

import http.client
import math
import re
import urllib.parse
from collections.abc import Mapping
from typing import Final, NamedTuple

from nemesis.producers.node.probe import Answer, NotReadError
from nemesis.producers.node.root import INT64_MAX
from nemesis.schemas.channels import GPU_CHANNELS
from nemesis.schemas.components import pci_address
from nemesis.schemas.errors import BadNameError

TIMEOUT_S: Final = 1.5
PAGE_BYTES_MAX: Final = 4 << 20
BLANK: Final = float(0x7FFFFFF0)
"""From here on a value of DCGM says that there is none (DCGM_INT32_BLANK, dcgm_structs.h); no
counter here reaches it."""
_SAMPLE: Final = re.compile(r"(DCGM_FI_DEV_\w+)\{([^}]*)\} (\S+)")
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
_XID: Final = "DCGM_FI_DEV_XID_ERRORS"
FIELDS: Final[Mapping[str, tuple[str, int]]] = {
    "DCGM_FI_DEV_ECC_SBE_VOL_DEV": ("dram_ce_count", 1),
    "DCGM_FI_DEV_ECC_DBE_VOL_DEV": ("dram_ue_count", 1),
    "DCGM_FI_DEV_ECC_SBE_VOL_SRM": ("sram_ce_count", 1),
    "DCGM_FI_DEV_ECC_DBE_VOL_SRM": ("sram_ue_count", 1),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": ("remapped_rows_count", 1),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": ("remapped_rows_count", 1),
    "DCGM_FI_DEV_ROW_REMAP_PENDING": ("remap_pending", 1),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": ("remap_failed", 1),
    "DCGM_FI_DEV_GPU_TEMP": ("temp_c", 1),
    "DCGM_FI_DEV_MEMORY_TEMP": ("memory_temp_c", 1),
    "DCGM_FI_DEV_POWER_USAGE": ("power_mw", 1000),
    "DCGM_FI_DEV_SM_CLOCK": ("sm_clock_mhz", 1),
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": ("clock_event_reasons", 1),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": ("clock_event_reasons", 1),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": ("pcie_replay_count", 1),
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": ("nvlink_replay_count", 1),
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": ("nvlink_crc_count", 1),
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": ("nvlink_crc_count", 1),
    "DCGM_FI_DEV_GPU_UTIL": ("utilization_ppm", 10_000),
}
"""Field to (channel, factor); fields of one channel are summed where both are printed."""
assert {channel for channel, _ in FIELDS.values()} <= set(GPU_CHANNELS)
_EITHER: Final = frozenset({"clock_event_reasons"})  # one field under its old name or its new one


class Page(NamedTuple):
    """What one page tells, by the PCI addresses of GPUs."""

    rows: dict[str, dict[str, int]]
    last_xids: dict[str, int]


class Dcgm:
    """Reads an exporter's page."""

    def __init__(self, url: str) -> None:
        """`url`: `http://host:9400/metrics`."""
        self._url: Final = urllib.parse.urlsplit(url)
        self._xids: dict[str, int] | None = None

    def read(self) -> Answer:
        """The page as it is now, a Page.

        Raises:
            NotReadError: nobody answers, or it is not the exporter.
        """
        place = self._url.netloc or str(self._url.path)
        connection = http.client.HTTPConnection(place, timeout=TIMEOUT_S)
        try:
            connection.request("GET", self._url.path or "/metrics")
            answer = connection.getresponse()
            raw = answer.read(PAGE_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            raise NotReadError("absent", f"no DCGM exporter at {place}: {error}") from error
        finally:
            connection.close()
        page = page_of(raw.decode(errors="replace"))
        if answer.status != 200 or not page.rows:
            says = f"{place} answers {answer.status} and tells of no GPU by its PCI address"
            raise NotReadError("broken", says)
        return Answer(page)

    def new_xids(self, page: Page) -> list[tuple[str, int]]:
        """(GPU, Xid) of each that was not on the page before; none of the first page."""
        before, self._xids = self._xids, page.last_xids
        if before is None:
            return []
        return [
            (pci, xid) for pci, xid in sorted(page.last_xids.items()) if xid != before.get(pci, 0)
        ]


def page_of(text: str) -> Page:
    """The rows of a page; lines that are no sample of a GPU are passed over."""
    rows: dict[str, dict[str, int]] = {}
    xids: dict[str, int] = {}
    for field, labels, number in _SAMPLE.findall(text):
        pci = dict(_LABEL.findall(labels)).get("pci_bus_id", "")
        value = _value(number)
        try:
            pci = pci_address(pci)
        except BadNameError:
            continue
        row = rows.setdefault(pci, {})
        if value is None:
            continue
        if field == _XID:
            xids[pci] = int(value)
        elif field in FIELDS:
            channel, factor = FIELDS[field]
            before = 0 if channel in _EITHER else row.get(channel, 0)
            row[channel] = before + round(value * factor)
    return Page(rows, {pci: xid for pci, xid in xids.items() if xid})


def _value(text: str) -> float | None:
    """A number as the exporter prints it; None for what is none, and for DCGM's blanks."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value < min(BLANK, INT64_MAX) else None
