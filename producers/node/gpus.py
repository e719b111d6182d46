"""GPUs by NVML: one probe for the driver, one for each GPU, so that one that hangs hides no other.

A GPU that was there keeps its row for as long as the producer lives: lost is not absent.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from nemesis.producers.node import machine, nvml
from nemesis.producers.node.gpu_questions import NVLINKS_MAX, QUESTIONS, Readings
from nemesis.producers.node.nvml import Nvml, NvmlCallError
from nemesis.producers.node.probe import Answer, NotReadError, Probe
from nemesis.producers.node.root import INT64_MAX, Root
from nemesis.producers.node.xid_events import XidEvents
from nemesis.schemas import components
from nemesis.schemas.channels import ABSENT, GPU_CHANNELS, GPU_STATE_CHANNELS
from nemesis.schemas.observed import GpuDescribed

SOURCE: Final = "nvml"
ASK_AGAIN_POLLS: Final = 120  # what a driver does not know it may know after an update


class GpuRead(NamedTuple):
    """One GPU at one moment."""

    sample: Readings
    state: Readings


class Gpus:
    """All GPUs of a node, in the order of their rows."""

    def __init__(self, root: Root, node: str) -> None:
        self.driver: Final = Probe(components.node(node), SOURCE, self._list)
        """Tells which GPUs the driver has."""
        self.pcis: Final[list[str]] = []
        self.exported: dict[str, Readings] = {}
        """What DCGM's exporter told last, by PCI address; counts where NVML has nothing."""
        self._root: Final = root
        self._node: Final = node
        self._nvml: Nvml | None = None
        self._probes: Final[dict[str, Probe]] = {}
        self._xids: XidEvents | None = None
        self._described: dict[str, GpuDescribed] = {}

    def listen(self) -> XidEvents | None:
        """Xids by event, once the driver told of its GPUs; None before."""
        if self._xids is None and self._nvml is not None and self._probes:
            self._xids = XidEvents(self._nvml, list(self._probes))
        return self._xids

    def probes(self) -> list[Probe]:
        """One for each GPU that the driver has had."""
        return list(self._probes.values())

    def describe(self) -> list[GpuDescribed]:
        """The GPUs as the driver and the PCI bus tell of them; new ones get a row and a probe."""
        told: dict[str, GpuDescribed] = self.driver.value or {}
        for pci in self.exported:
            self._described.setdefault(pci, GpuDescribed(pci=pci))
        self._described |= told
        found = {part.pci: part for part in machine.gpu_parts(self._root, self._described)}
        self.pcis.extend(sorted(found.keys() - set(self.pcis)))
        for pci in told:
            if pci not in self._probes and self._nvml is not None:
                component = components.gpu(self._node, pci)
                self._probes[pci] = Probe(component, SOURCE, Gpu(self._nvml, pci).read)
        return [found[pci] for pci in self.pcis]

    def rows(self, which: str) -> list[Readings]:
        """The rows of a block, "sample" or "state"; one that was not read is empty."""
        read = [self._probes[pci].value if pci in self._probes else None for pci in self.pcis]
        own = [getattr(each, which) if each else {} for each in read]
        if which != "sample":
            return own
        return [row or self.exported.get(pci, {}) for pci, row in zip(self.pcis, own, strict=True)]

    def unread(self) -> list[str]:
        """GPUs on the PCI bus that neither the driver nor an exporter has."""
        return [pci for pci in self.pcis if pci not in self._probes and pci not in self.exported]

    def _list(self) -> Answer:
        if self._nvml is None:
            self._nvml = nvml.load()
        library, found = self._nvml, {}
        try:
            for index in range(library.call("nvmlDeviceGetCount")):
                try:
                    part = _described(library, index)
                except NvmlCallError:
                    continue  # a GPU that is lost has no handle: the PCI bus still names it
                found[part.pci] = part
        except NvmlCallError as error:
            if error.code == nvml.UNINITIALIZED:
                self._nvml = None
            raise NotReadError("broken", f"NVML: {library.words(error.code)}") from error
        return Answer(found)


class Gpu:
    """Reads one GPU."""

    def __init__(self, library: Nvml, pci: str) -> None:
        self._nvml: Final = library
        self._pci: Final = pci
        self._handle: Any = None
        self._unknown: set[str] = set()
        """Origins of questions that this card or driver cannot answer."""
        self._links_count = NVLINKS_MAX
        self._polls_count = 0

    def read(self) -> Answer:
        """Its answers to all questions, a GpuRead.

        Raises:
            NotReadError: it is lost, wants a reset, or may not be asked.
        """
        if self._polls_count % ASK_AGAIN_POLLS == 0:
            self._unknown.clear()
        self._polls_count += 1
        read: Readings = {}
        says: list[str] = []
        try:
            if self._handle is None:
                self._handle = self._nvml.call("nvmlDeviceGetHandleByPciBusId", self._pci)
            for question in QUESTIONS:
                if question.origin in self._unknown:
                    continue
                try:
                    read |= question.ask(self._nvml, self._handle)
                except NvmlCallError as error:
                    self._judge(error.code, question.origin, says)
            read["nvlink_up_count"] = self._links_up()
        except NvmlCallError as error:
            self._judge(error.code, "", says)
        kept = {name: value for name, value in read.items() if abs(value) <= INT64_MAX}
        part = GpuRead(_of(GPU_CHANNELS, kept), _of(GPU_STATE_CHANNELS, kept))
        return Answer(part, "denied" if says else "read", "; ".join(says))

    def _judge(self, code: int, origin: str, says: list[str]) -> None:
        """Whether the other questions may go on."""
        words = self._nvml.words(code)
        if code == nvml.LOST:
            raise NotReadError("lost", f"{words}: it has fallen off the bus, or its driver has")
        if code == nvml.RESET_REQUIRED:
            raise NotReadError("broken", f"{words}: nothing of it can be read until it is reset")
        if code == nvml.UNINITIALIZED or not origin:
            self._handle = None
            raise NotReadError("broken", f"{words}: its driver does not know it")
        if code in nvml.NOT_KNOWN:
            self._unknown.add(origin)
        elif code == nvml.NO_PERMISSION:
            self._unknown.add(origin)
            says.append(f"{origin}: {words}")

    def _links_up(self) -> int:
        """NVLinks that are up; ABSENT for a card without any."""
        up = 0
        for link in range(self._links_count):
            try:
                up += self._nvml.call("nvmlDeviceGetNvLinkState", self._handle, link) == 1
            except NvmlCallError as error:
                if error.code in (nvml.LOST, nvml.RESET_REQUIRED):
                    raise
                self._links_count = link
                break
        return up if self._links_count else ABSENT


def _of(channels: Sequence[str], read: Readings) -> Readings:
    return {name: read[name] for name in channels if name in read}


def _described(library: Nvml, index: int) -> GpuDescribed:
    handle = library.call("nvmlDeviceGetHandleByIndex", index)
    return GpuDescribed(
        pci=components.pci_address(_text(library.call("nvmlDeviceGetPciInfo", handle).busId)),
        index=index,
        uuid=_maybe(library, "nvmlDeviceGetUUID", handle),
        serial=_maybe(library, "nvmlDeviceGetSerial", handle),
        model=_maybe(library, "nvmlDeviceGetName", handle),
    )


def _maybe(library: Nvml, name: str, handle: Any) -> str:
    try:
        return _text(library.call(name, handle))
    except NvmlCallError:
        return ""


def _text(said: Any) -> str:
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)
