"""What this installation has: libraries, disk, clock, models, seeds. Starts and changes nothing."""

import hashlib
import shutil
import stat
from collections.abc import Callable, Mapping
from importlib import metadata, util
from pathlib import Path
from typing import Final

from nemesis.processors.ecc_model.shipped import latest, shipped
from nemesis.producers.doctor.finding import Finding
from nemesis.producers.node.machine import nvidia_devices
from nemesis.producers.node.root import Root
from nemesis.training.nccl_library import Library, NcclError
from nemesis.training.nccl_versions import way_of

SPOOL_MIB: Final = 64
"""What a producer's spool may take, and so what must be free (docs/producers.md)."""
FREE_MIB: Final = 1024
_OFTEN_AT: Final = ("nvidia/nccl/lib/libnccl.so.2",)
"""Where torch's wheels keep theirs, in site-packages."""


def nvidia_binding(root: Root) -> Finding:
    """Whether NVML can be asked at all."""
    needed = bool(nvidia_devices(root)[0])
    version = _version("nvidia-ml-py")
    if version:
        return _ok("NVML binding", f"nvidia-ml-py {version}")
    return Finding(
        area="installation",
        name="NVML binding",
        state="gap" if needed else "not here",
        says="nvidia-ml-py is not installed" + ("" if needed else ", and there is no NVIDIA GPU"),
        mend="pip install 'nemesis-gpu[nvidia]'" if needed else "",
    )


def torch() -> Finding:
    """Which torch is beside us, without importing it."""
    if version := _version("torch"):
        return _ok("torch", f"torch {version}")
    says = "not in this environment; only where ranks train it must be"
    return Finding(area="installation", name="torch", state="not here", says=says)


def nccl(named: str = "", load: Callable[[str], Library] = Library) -> Finding:
    """Which NCCL a job here would load, and whether its groups can shrink by it.

    `named`: a library in place of the first that is found.
    """
    for path in [named] if named else _nccl_paths():
        try:
            library = load(path)
        except (OSError, NcclError, AttributeError):
            continue
        version = ".".join(map(str, library.version))
        way = way_of(library.version, "shrink", library.symbols)
        if way.by == "nccl":
            return _ok("NCCL", f"NCCL {version}: groups can shrink by it")
        says = f"NCCL {version}: groups are made anew, {way.why}"
        mend = "take a later NCCL: docs/training.md says which"
        return Finding(area="installation", name="NCCL", state="gap", says=says, mend=mend)
    says = "no libnccl.so.2 is found; NEMESIS_NCCL names one"
    return Finding(
        area="installation",
        name="NCCL",
        state="gap" if named else "not here",
        says=says,
        mend="unset NEMESIS_NCCL, or name a library that loads" if named else "",
    )


def model() -> Finding:
    """Whether the failure model that was shipped is whole."""
    sha256 = latest()
    if not sha256:
        says = "this release ships none"
        return Finding(area="installation", name="failure model", state="not here", says=says)
    content = shipped(sha256)
    if content is not None and hashlib.sha256(content).hexdigest() == sha256:
        return _ok("failure model", f"{sha256[:12]} is what its name says")
    return Finding(
        area="installation",
        name="failure model",
        state="broken",
        says=f"the file of {sha256[:12]} holds something else",
        mend="pip install --force-reinstall nemesis-gpu",
    )


def disk(folder: Path) -> Finding:
    """Whether a spool and a log have room where they lie."""
    there = next(each for each in (folder, *folder.parents) if each.is_dir())
    free_mib = shutil.disk_usage(there).free >> 20
    if free_mib >= FREE_MIB:
        return _ok("disk", f"{free_mib >> 10} GiB free for {folder}")
    return Finding(
        area="installation",
        name="disk",
        state="gap" if free_mib > SPOOL_MIB else "broken",
        says=f"{free_mib} MiB free for {folder}",
        mend="make room, or name another folder: XDG_STATE_HOME, --state",
    )


def seeds(folder: Path | None) -> list[Finding]:
    """Whether seeds are readable by their owner alone."""
    if folder is None or not folder.is_dir():
        return []
    wrong = [path for path in sorted(folder.glob("*.nk")) if _open_to_others(path)]
    if wrong:
        return [
            Finding(
                area="installation",
                name="credentials",
                state="broken",
                says=f"others may read {path}",
                mend=f"chmod 600 {path}; if they did, make new seeds: nemesis credentials",
            )
            for path in wrong
        ]
    count = sum(1 for _ in folder.glob("*.nk"))
    if count:
        return [_ok("credentials", f"{count} seeds in {folder}, for their owner alone")]
    says, mend = f"no seeds in {folder}", "nemesis credentials --out seeds --nodes nodes.txt"
    return [Finding(area="installation", name="credentials", state="gap", says=says, mend=mend)]


def scheduler(environment: Mapping[str, str]) -> Finding:
    """Which workload manager this machine belongs to."""
    found = []
    if "SLURM_CONF" in environment or Path("/etc/slurm").is_dir() or shutil.which("scontrol"):
        found.append("Slurm")
    if "KUBERNETES_SERVICE_HOST" in environment:
        found.append("Kubernetes")
    if found:
        return _ok("workload manager", " and ".join(found))
    says = "neither Slurm nor Kubernetes is seen from here"
    return Finding(area="installation", name="workload manager", state="not here", says=says)


def _ok(name: str, says: str) -> Finding:
    return Finding(area="installation", name=name, state="ok", says=says)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _nccl_paths() -> list[str]:
    here = util.find_spec("nvidia")
    places = list(here.submodule_search_locations or ()) if here else []
    bundled = [str(Path(place).parent / name) for place in places for name in _OFTEN_AT]
    return [path for path in bundled if Path(path).exists()] + ["libnccl.so.2"]


def _open_to_others(path: Path) -> bool:
    try:
        return bool(stat.S_IMODE(path.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO))
    except OSError:
        return False
