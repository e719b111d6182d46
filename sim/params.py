"""What the simulator assumes, from one file of parameters that are argued line by line.

Why: figures on a simulated cluster are worth what its assumptions are, so these stand in one place
with their sources, and their hash stands wherever a figure does. Not here: a scenario's own words.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from nemesis.schemas.errors import NemesisError
from nemesis.streams.documents import BadDocumentError, explained, read_document, read_toml

NUMBER_MAX: Final = 10**12
"""No counter of a minute is larger; a sum of several stays within 64 bits."""
_MOST: Final = {"_ppm": 1_000_000, "_per_mille": 1_000}
DEFAULT: Final = Path(__file__).with_name("params.toml")
Quartiles = Annotated[tuple[float, float, float, float, float], "minimum to maximum"]
"""A distribution: minimum, quartiles and maximum, straight in between."""


class BadParamsError(NemesisError):
    """A file of parameters that cannot be used."""

    exit_code = 2


class GpuParams(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What GPUs of one family read, by what they do."""

    power_limit_w: int
    power_idle_w: Quartiles
    power_stalled_w: Quartiles
    power_training_w: Quartiles
    temp_idle_c: Quartiles
    temp_stalled_c: Quartiles
    temp_training_c: Quartiles
    memory_temp_idle_c: Quartiles
    memory_temp_stalled_c: Quartiles
    memory_temp_training_c: Quartiles
    sm_clock_mhz: int
    sm_clock_idle_mhz: int
    memory_clock_mhz: int
    pcie_gen: int
    nvlink_links: int
    banks: int
    memory_mib: int


class GpuNoise(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What all GPUs have in common."""

    power_ppm: int
    """Of the power: how far one reading lies from the next, either way."""
    sm_clock_steps: int
    thermal_s: int
    """How fast a heat sink follows its load."""
    utilization_training_ppm: int
    pcie_replays_at_start_max: int
    ce_days: int


class NicParams(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What a NIC counts while all is well."""

    load_ppm: int
    load_noise_ppm: int
    out_of_sequence_per_s: int
    ecn_marked_per_s: int
    adp_retrans_at_start_max: int
    rcv_errors_at_start_max: int
    share_with_history_ppm: int
    fec_corrected_bits_per_s: int
    module_temp_c: Quartiles


class PortParams(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What a switch port towards a NIC counts while all is well; means over all ports."""

    ecn_marked_per_s: int
    fec_corrected_per_s: int


class HostParams(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What a host reads while all is well."""

    cpu_pressure_idle_ppm: Quartiles
    cpu_pressure_training_ppm: Quartiles
    run_queue_wait_ppm: Quartiles
    memory_pressure_ppm: Quartiles
    io_pressure_ppm: Quartiles
    memory_mib: int
    memory_used_idle_ppm: Quartiles
    memory_used_training_ppm: Quartiles
    disk_wait_ppm: Quartiles
    disk_latency_us: Quartiles
    clock_offset_ns: Quartiles
    major_faults_per_s: int
    thp_fallback_per_s: int
    numa_remote_ppm: Quartiles


class StepParams(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """How healthy ranks differ."""

    jitter_per_mille: int
    """A step's compute takes up to so much longer, evenly."""


class DefectParams(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """How often evidence itself is missing or wrong, by node and run where nothing else is said."""

    no_kernel_log_ppm: int
    single_snapshot_ppm: int
    no_dump_ppm: int
    samples_lost_ppm: int
    samples_lost_per_mille: int
    """Of the samples of such a node."""
    doubled_ppm: int
    doubled_per_mille: int
    leaf_cut_off_ppm: int
    """Of runs: all nodes of one leaf switch spool and come back."""
    leaf_cut_off_s: int
    clock_off_ppm: int
    clock_off_ms: int
    """At most, either way."""


class TruthParams(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """When evidence counts as delivered."""

    window_s: int
    """From when it should show."""
    late_s: int
    """What is older when it arrives proves nothing in time."""
    rounds_min: int
    """In so many of a job's steps a rank must be seen late, or it is noise."""
    silent_s: int
    """Who is heard after so long was not silent."""


class Params(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A file of parameters."""

    gpu: dict[str, GpuParams]
    """By family: `h100`."""
    gpu_noise: GpuNoise
    nic: NicParams
    port: PortParams
    host: HostParams
    steps: StepParams
    defects: DefectParams
    truth: TruthParams
    sha256: str = ""
    """Of the file and of what was changed, so that a figure says what it assumes."""

    def gpu_family(self, model: str) -> GpuParams:
        """The parameters of a GPU by the name of its model: of the longest family in it.

        Raises:
            BadParamsError: no family is part of the name.
        """
        known = [name for name in self.gpu if name in model.lower()]
        if not known:
            families = ", ".join(sorted(self.gpu))
            raise BadParamsError(f"no parameters for GPU model {model!r}: there are {families}")
        return self.gpu[max(known, key=len)]


@cache
def load_params(path: Path = DEFAULT) -> Params:
    """The parameters that a file gives.

    Raises:
        BadParamsError: no such file, not TOML, or a field that is missing, unknown or impossible.
    """
    document: dict[str, Any] = {}
    try:
        document = read_toml(path)
        digest = sha256(read_document(path)).hexdigest()
        params = msgspec.convert({**document, "sha256": digest}, Params)
    except BadDocumentError as error:
        raise BadParamsError(error.message) from error
    except msgspec.ValidationError as error:
        raise BadParamsError(f"{path}: {explained(error, document)}") from error
    _expect_possible(params, str(path))
    return params


def changed(params: Params, changes: Mapping[str, Any], *, where: str) -> Params:
    """The same but for some lines, as a file of parameters would have them, by section.

    Raises:
        BadParamsError: a field that is unknown or impossible; `where` says whose.
    """
    if not changes:
        return params
    written = msgspec.json.encode(changes, order="deterministic")
    document = {
        **_merged(msgspec.to_builtins(params), changes),
        "sha256": sha256(params.sha256.encode() + written).hexdigest(),
    }
    try:
        other = msgspec.convert(document, Params)
    except msgspec.ValidationError as error:
        raise BadParamsError(f"{where}: {explained(error, document)}") from error
    _expect_possible(other, where)
    return other


def _merged(before: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return dict(before) | {
        name: _merged(before.get(name, {}), value) if isinstance(value, dict) else value
        for name, value in changes.items()
    }


def _expect_possible(params: Params, where: str) -> None:
    for name, value, most in _impossible(msgspec.to_builtins(params)):
        raise BadParamsError(f"{where}: {name}: {value}: expected 0 to {most}")
    for name in _falling(msgspec.to_builtins(params)):
        raise BadParamsError(f"{where}: {name} must not fall: minimum, quartiles, maximum")


def _impossible(section: dict[str, object], prefix: str = "") -> Iterator[tuple[str, int, int]]:
    """Single numbers that nothing can be, by their dotted names, with the most that they can be."""
    for name, value in section.items():
        if isinstance(value, dict):
            yield from _impossible(value, f"{prefix}{name}.")
        elif isinstance(value, int):
            most = next((most for unit, most in _MOST.items() if name.endswith(unit)), NUMBER_MAX)
            if not 0 <= value <= most:
                yield f"{prefix}{name}", value, most


def _rises(values: Sequence[float]) -> bool:
    bounded = (-NUMBER_MAX, *values, NUMBER_MAX)
    return all(low <= high for low, high in pairwise(bounded))  # false of NaN


def _falling(section: dict[str, object], prefix: str = "") -> list[str]:
    """Distributions whose numbers are not in order, by their dotted names."""
    found: list[str] = []
    for name, value in section.items():
        if isinstance(value, dict):
            found += _falling(value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple) and not _rises(value):
            found.append(f"{prefix}{name}")
    return found
