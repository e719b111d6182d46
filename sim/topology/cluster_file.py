"""The TOML file that describes a cluster, read into one."""

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from nemesis.schemas.errors import NemesisError
from nemesis.sim.jobs.model import JobModel
from nemesis.sim.topology import fabric
from nemesis.sim.topology.cluster import NODES_MAX, Cluster, ClusterSize
from nemesis.sim.topology.fabric import FabricModel
from nemesis.sim.topology.node import NodeModel, node_kinds
from nemesis.sim.topology.scheduled import scheduled
from nemesis.streams.documents import BadDocumentError, explained, read_toml

DEFAULT: Final = Path(__file__).with_name("cluster.toml")
SHAPES: Final = Path(__file__).with_name("shapes.toml")
Described = TypeVar("Described")
DAY_MS: Final = 86_400_000  # a scenario takes no longer
CHUNKS_MAX: Final = 64
STEPS_MAX: Final = 1_000_000_000
PERIOD_MS: Final = 5_000  # what a shape is polled at where no file says otherwise


_HINT: Final = "`nemesis topology list` names the shapes that need no file"


class BadClusterError(NemesisError):
    """A cluster file that cannot be simulated."""

    exit_code = 2


class ClusterFile(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A cluster file: `[node]` may name a kind and change some of it; one `[job]` or `[[job]]`s."""

    cluster: ClusterSize
    node: dict[str, Any]
    fabric: FabricModel = FabricModel()
    job: JobModel | tuple[JobModel, ...]


def load_cluster(path: Path = DEFAULT) -> Cluster:
    """The cluster that a file describes, or the published shape of that name with one job.

    Raises:
        BadClusterError: no such file, not TOML, or a field that is missing, unknown or impossible.
    """
    try:
        if str(path) in shapes() and not path.exists():
            return published(str(path))
        return cluster_of(read_toml(path))
    except BadDocumentError as error:
        raise BadClusterError(error.message, hint=_HINT) from error
    except BadClusterError as error:
        raise BadClusterError(f"{path}: {error}") from error


@cache
def shapes() -> dict[str, dict[str, Any]]:
    """Published shapes: the tables `cluster`, `node` and `fabric` of each, by name."""
    return read_toml(SHAPES)


def published(name: str, **cluster: Any) -> Cluster:
    """A published shape with the built-in job on fifteen of sixteen nodes.

    `cluster`: other values for its `[cluster]`, as `nodes` for a shape that is regular.

    Raises:
        BadClusterError: there is no such shape, or not with these values.
    """
    document = {"cluster": {"shape": name, **cluster}, "job": read_toml(DEFAULT)["job"]}
    nodes = _shaped(document)["cluster"]["nodes"]
    document["job"] |= {"nodes": max(1, nodes - nodes // 16), "world_min": 1}
    return cluster_of(document)


def cluster_of(document: dict[str, Any]) -> Cluster:
    """The cluster that a document describes.

    Raises:
        BadClusterError: a field is missing, unknown or of another type, or it is impossible.
    """
    file = _converted(_shaped(document), ClusterFile)
    node = _node(file.node)
    jobs = (file.job,) if isinstance(file.job, JobModel) else file.job
    cluster = Cluster(cluster=file.cluster, node=node, fabric=file.fabric, jobs=jobs)
    _hold(_size_rules(cluster))
    _hold(node.rules())
    _hold(fabric.model_rules(file.fabric))
    _hold(fabric.rules(file.fabric, cluster.shape, cluster.cluster.nodes, len(node.nics)))
    _hold(_job_rules(cluster))
    return scheduled(cluster) if any(job.spec for job in jobs) else cluster


def _shaped(document: dict[str, Any]) -> dict[str, Any]:
    """The document with what its shape says where it says nothing itself."""
    own = document.get("cluster")
    if not isinstance(own, dict) or "shape" not in own:
        return document
    name = own["shape"]
    if not isinstance(name, str) or name not in shapes():
        raise BadClusterError(f"cluster.shape: {name!r}: expected {', '.join(sorted(shapes()))}")
    tables = shapes()[name]
    given = {table: document.get(table, {}) for table in tables}
    for table, said in given.items():
        _hold([(isinstance(said, dict), f"{table}: {said!r}: expected a table, [{table}]")])
    rest = {key: value for key, value in own.items() if key != "shape"}
    named = {"name": name, "sample_period_ms": PERIOD_MS, **tables["cluster"], **rest}
    merged = {table: {**said, **given[table]} for table, said in tables.items()}
    return {**document, **merged, "cluster": named}


def _node(table: dict[str, Any]) -> NodeModel:
    kind = table.get("kind", "")
    if not kind:
        return _converted(table, NodeModel, "node: ")
    known = node_kinds().get(kind) if isinstance(kind, str) else None
    if known is None:
        raise BadClusterError(f"node.kind: {kind!r}: expected {', '.join(sorted(node_kinds()))}")
    own = {name: value for name, value in table.items() if name != "kind"}
    return _converted({**msgspec.to_builtins(known), **own}, NodeModel, "node: ")


def _converted(document: dict[str, Any], kind: type[Described], table: str = "") -> Described:
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise BadClusterError(f"{table}{explained(error, document)}") from error


def _hold(rules: Iterable[tuple[bool, str]]) -> None:
    for holds, rule in rules:
        if not holds:
            raise BadClusterError(rule)


def _size_rules(cluster: Cluster) -> Iterator[tuple[bool, str]]:
    size = cluster.cluster
    yield 0 < size.nodes <= NODES_MAX, f"cluster.nodes must be 1 to {NODES_MAX}"
    period = 0 < size.sample_period_ms <= DAY_MS
    yield period, f"cluster.sample_period_ms must be positive, {DAY_MS} at most"
    racks = not size.rack_sizes or sum(size.rack_sizes) == size.nodes
    yield racks, f"cluster.rack_sizes must sum to cluster.nodes, {size.nodes}"
    yield all(count > 0 for count in size.rack_sizes), "cluster.rack_sizes must be positive"


def _job_rules(cluster: Cluster) -> Iterator[tuple[bool, str]]:
    jobs, nodes = cluster.jobs, cluster.cluster.nodes
    yield len(jobs) > 0, "job: at least one"
    yield len({job.name for job in jobs}) == len(jobs), "job.name: two jobs of one name"
    yield all(job.nodes > 0 for job in jobs), "job.nodes must be positive"
    total = sum(job.nodes for job in jobs)
    yield total <= nodes, f"job.nodes must be {nodes} at most, of all jobs, not {total}"
    asking = [job for job in jobs if job.spec]
    yield len(asking) in (0, len(jobs)), "job.spec: all jobs say what they need, or none"
    for job in jobs:
        timed = 0 < job.step_ms <= DAY_MS and 0 < job.allreduce_ms <= DAY_MS
        yield timed, f"job.step_ms, allreduce_ms must be positive, {DAY_MS} at most"
        waits = (job.shrink_ms, job.start_ms, job.save_ms, job.grace_s * 1000)
        held = all(0 <= each <= DAY_MS for each in waits)  # false of NaN
        yield held, f"job.shrink_ms, start_ms, save_ms, grace_s must be 0 to a day, {DAY_MS} ms"
        counts = (job.checkpoint_steps, job.stall_steps, job.microbatches)
        counted = all(0 < each <= STEPS_MAX for each in counts)
        yield counted, f"job.checkpoint_steps, stall_steps, microbatches must be 1 to {STEPS_MAX}"
        divides = job.chunks == 1 or (job.pp > 1 and job.microbatches % max(1, job.pp) == 0)
        fits = divides and 1 <= job.chunks <= CHUNKS_MAX
        yield (
            fits,
            f"job.chunks must be 1 to {CHUNKS_MAX}, above 1 with microbatches that pp divides",
        )
        small = job.world_min <= cluster.world_of(job)
        yield small, f"job.world_min is larger than the world of {job.name}"
