"""Everything that is to be seen on one node, poll by poll, as facts.

Each source reads on threads of its own (probe.py); here their readings become one sample, and what
could not be read becomes the coverage. The facts and their encoders are the simulator's, so all
processors work unchanged. Not here: when to poll, and the way to the log (serve.py).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from nemesis.producers.device_state import GPU_NEWS, NIC_NEWS, STATE_POLLS, device_state_of
from nemesis.producers.inventory import inventory_of
from nemesis.producers.log_line import log_line_of
from nemesis.producers.node import clock, machine
from nemesis.producers.node.coverage import NO_BACKLOG, Backlog, Coverage, Seen
from nemesis.producers.node.dcgm import Dcgm, Page
from nemesis.producers.node.gpus import Gpus
from nemesis.producers.node.host import Host
from nemesis.producers.node.inspector import SOURCE as INSPECTOR
from nemesis.producers.node.inspector import Inspector
from nemesis.producers.node.kernel_tail import SOURCE as KERNEL_LOG
from nemesis.producers.node.nic_rows import NicRows
from nemesis.producers.node.probe import DEADLINE_S, Answer, Probe, read_all
from nemesis.producers.node.ranks import Ranks, job_of
from nemesis.producers.node.ras import Ras
from nemesis.producers.node.root import Root
from nemesis.producers.node.xid_events import Xid
from nemesis.producers.origin import Origin
from nemesis.producers.sample import block_of, sample_of
from nemesis.producers.setting import setting_of
from nemesis.schemas import components
from nemesis.schemas.channels import (
    ABSENT,
    GPU_CHANNELS,
    GPU_STATE_CHANNELS,
    HOST_CHANNELS,
    NIC_CHANNELS,
    NIC_STATE_CHANNELS,
)
from nemesis.schemas.observed import InventoryReported, Observation

PERIOD_NS: Final = 5_000_000_000


class NodeWatch:
    """Reads one node; one life of its producer."""

    def __init__(
        self,
        root: Root,
        origin: Origin,
        *,
        period_ns: int = PERIOD_NS,
        deadline_s: float = DEADLINE_S,
        dcgm: Dcgm | None = None,
        ras: Ras | None = None,
        inspector: Inspector | None = None,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._root: Final = root
        self._origin: Final = origin
        self._deadline_s: Final = deadline_s
        self._monotonic_ns: Final = monotonic_ns
        self._component: Final = f"node/{origin.node}"
        self._ranks: Final = Ranks(root)
        host = Host(root)
        self._host: Final = self._probe("proc", lambda: Answer(host.read(monotonic_ns())))
        self._seats: Final = self._probe("ranks", self._read_ranks)
        self._clock: Final = self._probe(clock.SOURCE, clock.Clock(root).read)
        self._nics: Final = NicRows(root, origin.node)
        self._polls_count = 0
        self._gpus: Final = Gpus(root, origin.node)
        self._dcgm: Final = dcgm
        self._exporters: Final = [self._probe("dcgm", dcgm.read)] if dcgm else []
        self._ras: Final = ras
        self._inspector: Final = inspector
        self._inspectors: Final = (
            [self._probe(INSPECTOR, inspector.read)] if inspector is not None else []
        )
        self._news_told: tuple[bytes, bytes] | None = None
        self._inventory: InventoryReported | None = None
        self._settings: dict[tuple[str, str], str] = {}
        self.period_ns = period_ns
        """May be changed between polls: the log says when it fills up."""
        self.coverage: Final = Coverage(origin, period_ns)

    def poll(
        self, now_ns: int, others: Sequence[Seen] = (), backlog: Backlog = NO_BACKLOG
    ) -> list[Observation]:
        """Read everything once, within the deadline; `others`: what else is watched here."""
        facts: list[Observation] = []
        if self._polls_count % STATE_POLLS == 0:
            read_all([self._gpus.driver, *self._exporters], self._deadline_s)
            self._take_page()
            facts += self._describe(now_ns)
        devices = [*self._nics.probes(), *self._gpus.probes()]
        own = [self._host, self._seats, self._clock]
        probes = [*own, *devices, *self._exporters, *self._inspectors]
        read_all(probes, self._deadline_s)
        xids = self._take_page()
        ranks, waits_ppm = self._seats.value or ((), ABSENT)
        host: Mapping[str, int] = self._host.value or {}
        host = {**host, "run_queue_wait_ppm": waits_ppm, "clock_offset_ns": self._set_clock()}
        facts.append(
            sample_of(
                self._origin,
                now_ns,
                period_ns=self.period_ns,
                gpu=block_of(GPU_CHANNELS, self._gpus.rows("sample")) if self._gpus.pcis else None,
                nic=self._nics.block(NIC_CHANNELS, "sample") if self._nics.nics else None,
                host=block_of(HOST_CHANNELS, [host]),
                job=job_of(ranks),
            )
        )
        facts += self._states(now_ns)
        is_due = self._polls_count % STATE_POLLS == 0
        if self._inspector is not None and is_due:
            facts += self._inspector.fact(job_of(ranks), ranks, now_ns)
        if self._ras is not None:
            facts += self._ras.poll(ranks, now_ns, is_due=is_due)
            others = [*others, self._ras.seen]
        if any(each.source == KERNEL_LOG and each.state != "read" for each in others):
            facts += self._xids(xids)
        self._polls_count += 1
        self.coverage.period_ns = self.period_ns
        seen = [*(self._seen(each) for each in probes), *self._missing(), *others]
        return facts + self.coverage.report(seen, now_ns, self._monotonic_ns(), backlog)

    def _probe(self, source: str, read: Callable[[], Answer]) -> Probe:
        return Probe(self._component, source, read)

    def _set_clock(self) -> int:
        """What facts say of their clock from here on; its offset, ABSENT where nobody knows."""
        read: clock.ClockRead | None = self._clock.value
        self._origin.clock_error_ns = read.error_ns if read else 0
        return read.offset_ns if read else ABSENT

    def _read_ranks(self) -> Answer:
        ranks, waits_ppm = self._ranks.read()
        denied, every = self._ranks.denied_count, self._ranks.processes_count
        if not ranks and 2 * denied > every:
            says = f"of {every} processes {denied} may not be asked which rank they are: needs"
            says += " CAP_SYS_PTRACE"
            return Answer((ranks, waits_ppm), "denied", says)
        return Answer((ranks, waits_ppm))

    def _describe(self, now_ns: int) -> list[Observation]:
        """What the node is made of and how it is set, where that is news; probes for new parts."""
        fresh: dict[str, Any] = {
            "gpus": self._gpus.describe(),
            "nics": self._nics.describe(self._inventory.nics if self._inventory else ()),
            "model": machine.model_of(self._root),
            "nvswitches": machine.nvidia_devices(self._root)[1],
        }
        facts: list[Observation] = []
        was = self._inventory
        if was is None or any(getattr(was, name) != _tuple(fresh[name]) for name in fresh):
            self._inventory = inventory_of(self._origin, now_ns, **fresh)
            facts.append(self._inventory)
        settings = machine.settings(self._root, self._origin.node, self._nics.nics)
        for (component, name), value in settings.items():
            if self._settings.get((component, name)) != value:
                facts.append(
                    setting_of(self._origin, now_ns, component=component, name=name, value=value)
                )
        self._settings = settings
        return facts

    def _states(self, now_ns: int) -> list[Observation]:
        """What samples leave out, where it is time to or where it is news."""
        if not self._nics.nics and not self._gpus.pcis:
            return []
        gpu = block_of(GPU_STATE_CHANNELS, self._gpus.rows("state"))
        nic = self._nics.block(NIC_STATE_CHANNELS, "state")
        news = gpu[:, GPU_NEWS].tobytes(), nic[:, NIC_NEWS].tobytes()
        if news == self._news_told and self._polls_count % STATE_POLLS:
            return []
        self._news_told = news
        return [device_state_of(self._origin, now_ns, gpu=gpu, nic=nic)]

    def _take_page(self) -> list[Xid]:
        """Hand on what an exporter told; the Xids that are new on its page."""
        xids: list[Xid] = []
        for probe in self._exporters:
            page: Page | None = probe.value
            self._gpus.exported = page.rows if page else {}
            if page and self._dcgm:
                now_ns = time.time_ns()
                xids += [Xid(pci, xid, now_ns) for pci, xid in self._dcgm.new_xids(page)]
        return xids

    def _xids(self, exported: Sequence[Xid]) -> list[Observation]:
        """Xids that the driver or an exporter announced: the kernel's words are out of reach."""
        events = self._gpus.listen()
        return [
            log_line_of(self._origin, xid.at_ns, source="health", text=xid.text)
            for xid in (events.take() if events else exported)
        ]

    def _seen(self, probe: Probe) -> Seen:
        return Seen(probe.component, probe.source, probe.state, probe.says)

    def _missing(self) -> list[Seen]:
        """What nodes of a GPU cluster have, and this one has not."""
        found: list[Seen] = []
        driver = self._gpus.driver
        if not self._gpus.pcis:
            says = "no NVIDIA GPU among the PCI devices"
            found.append(Seen(self._component, driver.source, "absent", says))
        elif driver.state != "read":
            found.append(self._seen(driver))
        for pci in self._gpus.unread():
            gpu, says = components.gpu(self._origin.node, pci), driver.says
            if driver.state == "read":
                found.append(Seen(gpu, driver.source, "lost", "the driver does not have it"))
            else:
                found.append(Seen(gpu, driver.source, driver.state, says))
        if not self._nics.has_rdma:
            says = "no RDMA device below /sys/class/infiniband"
            found.append(Seen(self._component, "rdma", "absent", says))
        return found


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
