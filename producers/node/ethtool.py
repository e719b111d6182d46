"""What a NIC's driver counts of pauses and of its wire, asked as `ethtool -S` asks it.

Why: who holds whom back by pause frames, and a fibre that loses bits before it loses the link, is
in no file of /sys. How: pyroute2 asks the driver by ioctl for the names of its counters and for
their values; no process, no right, two calls a poll once the names are known. A copied tree has
them as lines `name: value`. What /sys tells of a NIC is read there and not here: one counter, one
source. The module's temperature is the driver's sensor below the device.

Names: mlx5 (Linux Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst),
bnxt_en (drivers/net/ethernet/broadcom/bnxt/bnxt_ethtool.c). Not here: drivers that count frames of
pause and no time, as Intel's do.
"""

import errno
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from nemesis.producers.node.nics import NicRead
from nemesis.producers.node.probe import Answer, NotReadError
from nemesis.producers.node.root import INT64_MAX, Root
from nemesis.schemas.channels import ABSENT, NIC_CHANNELS

SOURCE: Final = "ethtool"
COPIED: Final = "ethtool"
"""Folder of a copied tree: a file for each interface."""
_ROCE: Final = 3  # the priority of RoCE where nobody chose another, as the channels have it
_PAUSED: Final = ("{way}_prio{at}_pause_duration", "pfc_pri{at}_{way}_duration_us")
_COUNTERS: Final[Mapping[str, tuple[str, ...]]] = {
    **{
        f"{way}_pause_duration_us": (
            *(each.format(way=way, at=_ROCE) for each in _PAUSED),
            f"{way}_global_pause_duration",  # pause without priorities stops them all
        )
        for way in ("rx", "tx")
    },
    "symbol_error_count": ("rx_symbol_err_phy",),
    "fec_corrected_bits_count": ("rx_corrected_bits_phy", "rx_corrected_bits"),
    "fec_uncorrectable_count": ("rx_pcs_symbol_err_phy", "rx_pcs_symbol_err"),
    "crc_error_count": ("rx_crc_errors_phy", "rx_fcs_err_frames"),
    "discard_count": ("rx_discards_phy",),
    "tx_discard_count": ("tx_discards_phy", "tx_stat_discard"),
    "rx_prio3_pause_count": ("rx_prio3_pause", "rx_pfc_ena_frames_pri3"),
    "tx_prio3_pause_count": ("tx_prio3_pause", "tx_pfc_ena_frames_pri3"),
    "pause_storm_warning_count": ("tx_pause_storm_warning_events",),
    "pause_storm_error_count": ("tx_pause_storm_error_events",),
}
"""Channel to the names of its counter; the first that a driver has."""
_OTHER_PAUSES: Final = "rx_other_pause_duration_us"
_OTHERS: Final = [
    each.format(way="rx", at=at) for each in _PAUSED for at in range(8) if at != _ROCE
]
_MODULE: Final = "module_temp_c"
_MILLI: Final = 1000

ORIGINS: Final[Mapping[str, str]] = {
    **{channel: f"ethtool: {' or '.join(names)}" for channel, names in _COUNTERS.items()},
    _OTHER_PAUSES: "ethtool: rx_prio<other>_pause_duration or pfc_pri<other>_rx_duration_us, sum",
    _MODULE: "the driver's sensor, /sys/class/net/<nic>/device/hwmon/hwmon*/temp*_input",
}
"""Channel to where it comes from."""


class Ethtool:
    """Reads what one interface's driver counts."""

    def __init__(self, root: Root, interface: str, known: Collection[str]) -> None:
        """`known`: channels that another source of this NIC reads."""
        self._root: Final = root
        self._interface: Final = interface
        self._known: Final = frozenset(known)
        self._driver: Final = Driver(interface) if root.path == Path("/") else None

    def read(self) -> Answer:
        """The counters as they are, a NicRead.

        Raises:
            NotReadError: the driver tells none of them, or may not be asked.
        """
        copy = f"{COPIED}/{self._interface}"
        counters = self._driver.counters() if self._driver else self._root.rows(copy)
        row = {
            channel: next((counters[name] for name in names if name in counters), ABSENT)
            for channel, names in _COUNTERS.items()
        }
        others = [counters[name] for name in _OTHERS if name in counters]
        row[_OTHER_PAUSES] = sum(others) if others else ABSENT
        row[_MODULE] = self._module_temp_c()
        row = {
            channel: value if value <= INT64_MAX else ABSENT
            for channel, value in row.items()
            if channel not in self._known
        }
        if all(value == ABSENT for value in row.values()):
            says = f"the driver of {self._interface} tells nothing of pauses and of the wire"
            raise NotReadError("unsupported", says)
        self._root.keep_rows(copy, counters)
        sample: dict[str, int] = {name: row.pop(name) for name in NIC_CHANNELS if name in row}
        return Answer(NicRead(sample, row))

    def _module_temp_c(self) -> int:
        """Of the module in the cage; ABSENT where the driver has no sensor of that name."""
        sensors = f"sys/class/net/{self._interface}/device/hwmon"
        for sensor in self._root.names(sensors):
            for name in self._root.names(f"{sensors}/{sensor}"):
                if not name.endswith("_label") or not name.startswith("temp"):
                    continue
                if self._root.line(f"{sensors}/{sensor}/{name}").lower().startswith("module"):
                    at = f"{sensors}/{sensor}/{name.removesuffix('_label')}_input"
                    milli = self._root.number(at)
                    return milli // _MILLI if milli != ABSENT else ABSENT
        return ABSENT


class Driver:
    """The driver of one interface of this machine."""

    def __init__(self, interface: str) -> None:
        self._interface: Final = interface
        self._asked: Any = None

    def counters(self) -> dict[str, int]:
        """Every counter by its name.

        Raises:
            NotReadError: it has none, may not be asked, or there is no such interface here.
        """
        # some MiB and a tenth of a second, which a node without NICs need not pay
        from pyroute2.ethtool import ioctl

        if self._asked is None:
            self._asked = ioctl.IoctlEthtool(self._interface)
        asked = self._asked
        try:
            # who sets more queues makes more counters, and the driver writes all that it has
            if asked.get_stringset_length(ioctl.ETH_SS_STATS) != len(asked.stat_names or ()):
                asked.stat_names = None
            return {name: int(value) for name, value in asked.get_statistics()}
        except (OSError, ioctl.EthtoolError) as error:
            asked.close()
            self._asked = None
            raise self._refusal(error) from error

    def _refusal(self, error: Exception) -> NotReadError:
        own = {"NotSupportedError": errno.EOPNOTSUPP, "NoSuchDevice": errno.ENODEV}
        match own.get(type(error).__name__, getattr(error, "errno", 0)):
            case errno.EOPNOTSUPP:
                says = f"the driver of {self._interface} has no counters"
                return NotReadError("unsupported", says)
            case errno.ENODEV:
                says = f"{self._interface} is not here: let the producer share the host's network"
                return NotReadError("absent", says)
            case errno.EPERM | errno.EACCES:
                return NotReadError("denied", f"{self._interface} may not be asked")
            case _:
                return NotReadError("broken", f"{self._interface}: {error}")
