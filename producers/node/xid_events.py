"""Xids as NVML announces them, for a node whose kernel log may not be read.

Why: in a container the kernel's log is often out of reach, and an Xid is the one word that names a
GPU. How: a thread waits for the event set; an event has the number and the GPU, without the
kernel's words, so where the log is read nobody listens here. The line that is told is not the
kernel's and does not look like it.
"""

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from nemesis.producers.node.nvml import Nvml, NvmlCallError
from nemesis.schemas.components import pci_address

CRITICAL: Final = 0x8  # nvmlEventTypeXidCriticalError
TIMEOUT: Final = 10
WAIT_MS: Final = 1000
KEPT_MAX: Final = 1000  # between two polls; a GPU that repeats itself says nothing new


class Xid(NamedTuple):
    """One event."""

    pci: str
    number: int
    at_ns: int

    @property
    def text(self) -> str:
        """As a line for people and readers."""
        return f"Xid {self.number} on GPU {self.pci}, as the driver announced it"


class XidEvents:
    """Listens to all GPUs of a node."""

    def __init__(self, library: Nvml, pcis: Sequence[str]) -> None:
        self._nvml: Final = library
        self._told: Final[deque[Xid]] = deque(maxlen=KEPT_MAX)
        self._set: Any = None
        self.deaf: Final[list[str]] = []
        """GPUs that announce nothing."""
        try:
            self._set = library.call("nvmlEventSetCreate")
        except NvmlCallError:
            self.deaf.extend(pcis)
            return
        for pci in pcis:
            try:
                handle = library.call("nvmlDeviceGetHandleByPciBusId", pci)
                known = library.call("nvmlDeviceGetSupportedEventTypes", handle)
                library.call("nvmlDeviceRegisterEvents", handle, CRITICAL & known, self._set)
            except NvmlCallError:
                self.deaf.append(pci)
        threading.Thread(target=self._listen, name="xid events", daemon=True).start()

    def take(self) -> list[Xid]:
        """What was announced since the last call."""
        return [self._told.popleft() for _ in range(len(self._told))]

    def _listen(self) -> None:
        while True:
            try:
                event = self._nvml.call("nvmlEventSetWait_v2", self._set, WAIT_MS)
                bus = self._nvml.call("nvmlDeviceGetPciInfo", event.device).busId
            except NvmlCallError as error:
                if error.code != TIMEOUT:
                    time.sleep(WAIT_MS / 1000)  # a GPU that is lost answers so at once, for ever
                continue
            text = bus.decode() if isinstance(bus, bytes) else str(bus)
            self._told.append(Xid(pci_address(text), int(event.eventData), time.time_ns()))
