"""The table of every number that producers emit: block, channel, unit, origin."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from nemesis.producers.node import clock, ethtool, host, nics, ras
from nemesis.producers.node.gpu_questions import FIELDS, QUESTIONS
from nemesis.producers.switch import ports
from nemesis.schemas.channels import (
    GPU_CHANNELS,
    GPU_STATE_CHANNELS,
    HOST_CHANNELS,
    NIC_CHANNELS,
    NIC_STATE_CHANNELS,
)

_UNITS: Final[Mapping[str, str]] = {
    "ppm": "parts per million",
    "count": "count, raw",
    "mib": "MiB",
    "bytes": "bytes, raw",
    "mbps": "Mbit/s",
    "us": "µs",
    "ns": "ns",
    "c": "°C",
    "mw": "mW",
    "mhz": "MHz",
}
_NOT_READ: Final = "not read by this release"
_WAITS: Final = "/proc/<rank>/task/*/schedstat, waited / (ran + waited) of the rank that waits most"


def field_table() -> str:
    """The page, as markdown."""
    lines = [
        "# Numbers that a producer reads",
        "",
        "Made by `python -m tests.generate` from the code that reads them.",
        "A reading that could not be taken is absent, never 0.",
        "Which of them this node can read: `nemesis producer --once`. Where NVML cannot be asked,",
        "DCGM's exporter fills what it prints (producers/node/dcgm.py).",
        "",
    ]
    for title, channels, origins in _blocks():
        lines += [f"## {title}", "", "| channel | unit | from |", "|---|---|---|"]
        lines += [
            f"| `{channel}` | {_unit(channel)} | {_safe(origins.get(channel, _NOT_READ))} |"
            for channel in channels
        ]
        lines.append("")
    return "\n".join(lines)


def _blocks() -> Iterator[tuple[str, Sequence[str], Mapping[str, str]]]:
    gpu, nic = _gpu_origins(), _nic_origins()
    yield "GPU, each poll", GPU_CHANNELS, gpu
    yield "GPU, once a minute and at news", GPU_STATE_CHANNELS, gpu
    yield "NIC, each poll", NIC_CHANNELS, nic
    yield "NIC, once a minute and at news", NIC_STATE_CHANNELS, nic
    hosts = {**host.ORIGINS, **clock.ORIGINS, "run_queue_wait_ppm": _WAITS}
    yield "Host, each poll", HOST_CHANNELS, hosts
    yield "NCCL's RAS, of a job that stands still (`counters`)", list(ras.ORIGINS), ras.ORIGINS
    yield "Port of a switch (`nemesis collector`)", list(ports.ORIGINS), ports.ORIGINS


def _gpu_origins() -> dict[str, str]:
    origins: dict[str, str] = {"nvlink_up_count": "nvmlDeviceGetNvLinkState, links that are up"}
    for question in QUESTIONS:
        for channel in question.channels:
            fields = FIELDS.get(channel)
            said = question.origin
            if fields is not None:
                said += f", field {' + '.join(map(str, fields[0]))}"
            origins[channel] = f"{said}; else {origins[channel]}" if channel in origins else said
    return origins


def _nic_origins() -> dict[str, str]:
    origins = dict(nics.ORIGINS)
    for channel, said in ethtool.ORIGINS.items():
        origins[channel] = f"{origins[channel]}; else {said}" if channel in origins else said
    return origins


def _unit(channel: str) -> str:
    return _UNITS.get(channel.rpartition("_")[2], "number")


def _safe(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
