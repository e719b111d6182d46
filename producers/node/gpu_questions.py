"""What is asked of each GPU at a poll, and which channel each answer goes to.

Functions and fields are NVML's (docs.nvidia.com/deploy/nvml-api; ids from nvml.h as the binding has
them). Each question stands alone: one that a card or a driver does not know leaves its channels
absent and all others as they are.
"""

from collections.abc import Callable, Mapping
from ctypes import byref
from typing import Any, Final, NamedTuple

from nemesis.producers.node.nvml import Nvml
from nemesis.schemas.channels import ABSENT

CORRECTED, UNCORRECTED = 0, 1
VOLATILE, AGGREGATE = 0, 1
DRAM, SRAM = 2, 7  # nvmlMemoryLocation_t
SM_CLOCK, MEMORY_CLOCK = 1, 2
GPU_SENSOR: Final = 0
PERCENT_PPM: Final = 10_000
NVLINKS_MAX: Final = 36

Readings = dict[str, int]
Ask = Callable[[Nvml, Any], Readings]


class Question(NamedTuple):
    """One question and what it fills."""

    origin: str
    """As the generated table names it."""
    channels: tuple[str, ...]
    ask: Ask


def _one(channel: str, name: str, *arguments: Any, factor: int = 1) -> Question:
    """A function that returns one number."""

    def ask(nvml: Nvml, handle: Any) -> Readings:
        return {channel: int(nvml.call(name, handle, *arguments)) * factor}

    shown = ", ".join(map(str, arguments))
    return Question(f"{name}({shown})" if shown else name, (channel,), ask)


def _errors(channel: str, kind: int, count: int, place: int) -> Question:
    return _one(channel, "nvmlDeviceGetMemoryErrorCounter", kind, count, place)


def _sram(nvml: Nvml, handle: Any) -> Readings:
    status: Any = nvml.binding.c_nvmlEccSramErrorStatus_v1_t()
    nvml.call("nvmlDeviceGetSramEccErrorStatus", handle, byref(status))
    return {
        "sram_ce_count": status.volatileCor,
        "sram_ue_count": status.volatileUncParity + status.volatileUncSecDed,
        "sram_ue_parity_count": status.volatileUncParity,
        "sram_ue_secded_count": status.volatileUncSecDed,
        "sram_ce_aggregate_count": status.aggregateCor,
        "sram_ue_aggregate_count": status.aggregateUncParity + status.aggregateUncSecDed,
        "sram_ue_l2_aggregate_count": status.aggregateUncBucketL2,
        "sram_ue_sm_aggregate_count": status.aggregateUncBucketSm,
        "sram_ue_mcu_aggregate_count": status.aggregateUncBucketMcu,
        "sram_ue_pcie_aggregate_count": status.aggregateUncBucketPcie,
        "sram_ue_other_aggregate_count": status.aggregateUncBucketOther,
        "sram_threshold_exceeded": int(bool(status.bThresholdExceeded)),
    }


def _remapped(nvml: Nvml, handle: Any) -> Readings:
    corrected, uncorrected, pending, failed = nvml.call("nvmlDeviceGetRemappedRows", handle)
    return {
        "remapped_rows_count": corrected + uncorrected,
        "remapped_ce_rows_count": corrected,
        "remapped_ue_rows_count": uncorrected,
        "remap_pending": int(bool(pending)),
        "remap_failed": int(bool(failed)),
    }


def _histogram(nvml: Nvml, handle: Any) -> Readings:
    banks: Any = nvml.call("nvmlDeviceGetRowRemapperHistogram", handle)
    return {
        "banks_spare_low_count": banks.none + banks.low + banks.partial,
        "remap_histogram_max_count": banks.max,
        "remap_histogram_high_count": banks.high,
        "remap_histogram_partial_count": banks.partial,
        "remap_histogram_low_count": banks.low,
        "remap_histogram_none_count": banks.none,
    }


def _utilization(nvml: Nvml, handle: Any) -> Readings:
    rates: Any = nvml.call("nvmlDeviceGetUtilizationRates", handle)
    return {"utilization_ppm": rates.gpu * PERCENT_PPM}


def _memory(nvml: Nvml, handle: Any) -> Readings:
    return {"memory_used_mib": nvml.call("nvmlDeviceGetMemoryInfo", handle).used >> 20}


FIELDS: Final[Mapping[str, tuple[tuple[int, ...], int]]] = {
    "memory_temp_c": ((82,), 1),
    "nvlink_replay_count": ((52,), 1),
    "nvlink_crc_count": ((38, 45), 1),
    "pcie_replay_rollover_count": ((95,), 1),
    "sw_power_cap_us": ((74,), 1000),
    "sw_thermal_us": ((269,), 1000),
    "hw_thermal_us": ((270,), 1000),
    "hw_power_brake_us": ((271,), 1000),
    "nvlink_recovery_count": ((59,), 1),
    "nvlink_flit_crc_count": ((38,), 1),
    "nvlink_ecc_count": ((160,), 1),
    "recovery_action": ((230,), 1),
}
"""Channel to the fields that are summed for it, and by what the sum is divided."""
_IDS: Final = sorted({each for ids, _ in FIELDS.values() for each in ids})
_VALUE: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # nvmlValueType_t


def _fields(nvml: Nvml, handle: Any) -> Readings:
    """All fields in one call; each has a return code of its own."""
    told: Any = nvml.call("nvmlDeviceGetFieldValues", handle, _IDS)
    values = {number: _value(each) for number, each in zip(_IDS, told, strict=True)}
    read: Readings = {}
    for channel, (ids, divisor) in FIELDS.items():
        parts = [values[each] for each in ids]
        read[channel] = ABSENT if ABSENT in parts else sum(parts) // divisor
    return read


def _value(told: Any) -> int:
    if told.nvmlReturn != 0 or not 0 < told.valueType < len(_VALUE):
        return ABSENT  # none of these fields is a float
    return int(getattr(told.value, _VALUE[told.valueType]))


QUESTIONS: Final = (
    _errors("dram_ce_count", CORRECTED, VOLATILE, DRAM),
    _errors("dram_ue_count", UNCORRECTED, VOLATILE, DRAM),
    _errors("dram_ce_aggregate_count", CORRECTED, AGGREGATE, DRAM),
    _errors("dram_ue_aggregate_count", UNCORRECTED, AGGREGATE, DRAM),
    # drivers that know no SRAM status count its errors all the same; where both answer, the later
    _errors("sram_ce_count", CORRECTED, VOLATILE, SRAM),
    _errors("sram_ue_count", UNCORRECTED, VOLATILE, SRAM),
    Question(
        "nvmlDeviceGetSramEccErrorStatus",
        (
            "sram_ce_count",
            "sram_ue_count",
            "sram_ue_parity_count",
            "sram_ue_secded_count",
            "sram_ce_aggregate_count",
            "sram_ue_aggregate_count",
            "sram_ue_l2_aggregate_count",
            "sram_ue_sm_aggregate_count",
            "sram_ue_mcu_aggregate_count",
            "sram_ue_pcie_aggregate_count",
            "sram_ue_other_aggregate_count",
            "sram_threshold_exceeded",
        ),
        _sram,
    ),
    Question(
        "nvmlDeviceGetRemappedRows",
        (
            "remapped_rows_count",
            "remapped_ce_rows_count",
            "remapped_ue_rows_count",
            "remap_pending",
            "remap_failed",
        ),
        _remapped,
    ),
    Question(
        "nvmlDeviceGetRowRemapperHistogram",
        (
            "banks_spare_low_count",
            "remap_histogram_max_count",
            "remap_histogram_high_count",
            "remap_histogram_partial_count",
            "remap_histogram_low_count",
            "remap_histogram_none_count",
        ),
        _histogram,
    ),
    _one("temp_c", "nvmlDeviceGetTemperature", GPU_SENSOR),
    _one("power_mw", "nvmlDeviceGetPowerUsage"),
    _one("power_limit_mw", "nvmlDeviceGetEnforcedPowerLimit"),
    _one("sm_clock_mhz", "nvmlDeviceGetClockInfo", SM_CLOCK),
    _one("memory_clock_mhz", "nvmlDeviceGetClockInfo", MEMORY_CLOCK),
    _one("clock_event_reasons", "nvmlDeviceGetCurrentClocksEventReasons"),
    _one("pcie_replay_count", "nvmlDeviceGetPcieReplayCounter"),
    _one("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"),
    _one("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration"),
    Question("nvmlDeviceGetUtilizationRates", ("utilization_ppm",), _utilization),
    Question("nvmlDeviceGetMemoryInfo", ("memory_used_mib",), _memory),
    Question("nvmlDeviceGetFieldValues", tuple(FIELDS), _fields),
)
