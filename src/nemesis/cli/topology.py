"""`nemesis topology`: what a cluster is made of, what shares what in it, what could run on it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nemesis.cli.output import JsonOption, print_json, say
from nemesis.cli.topology_check import check, models
from nemesis.cli.topology_place import place
from nemesis.cli.topology_trace import trace

if TYPE_CHECKING:
    from nemesis.sim.topology.cluster import Cluster

topology = typer.Typer(
    no_args_is_help=True, help="Clusters: shapes, ways, cuts, and whether a job could run."
)
topology.command()(check)
topology.command()(models)
topology.command()(place)
topology.command()(trace)

ClusterOption = Annotated[
    Path | None, typer.Option("--cluster", help="A cluster file, or the name of a shape.")
]


@topology.command("list")
def list_shapes(json: JsonOption = False) -> None:
    """List the published shapes that `--cluster` takes by name."""
    from nemesis.sim.topology.cluster_file import published, shapes

    rows = [summary(published(name)) for name in sorted(shapes())]
    if json:
        print_json(rows)
        return
    for row in rows:
        switches = " + ".join(f"{count} {tier}" for tier, count in row["switches"].items() if count)
        say(f"{row['name']:<20} {row['gpus']:>6} GPUs  {row['fabric']:<15} {switches}")


@topology.command()
def show(cluster: ClusterOption = None, *, json: JsonOption = False) -> None:
    """Say what a cluster is made of."""
    described = _load(cluster)
    row = summary(described)
    if json:
        print_json(row)
        return
    say(f"{row['name']}: {row['nodes']} nodes x {row['gpus_per_node']} GPUs = {row['gpus']} GPUs")
    node = described.node
    say(f"  node    {row['node']}, {len(node.nics)} NICs of {node.nic_rate_mbps // 1000} Gbit/s")
    say(f"  racks   {row['racks']}, NVLink domain: a {node.nvlink_domain}")
    say(f"  fabric  {row['fabric']}, {row['transport']}, {row['links']} links")
    for tier, count in row["switches"].items():
        if count:
            ports = [len(described.ports_of(s)) for s in described.switches if s.startswith(tier)]
            span = str(max(ports)) if min(ports) == max(ports) else f"{min(ports)}-{max(ports)}"
            say(f"  {tier:<7} {count} of {span} ports")
    for job in described.jobs:
        say(f"  job     {job.name}: {job.nodes} nodes, {described.world_of(job)} ranks")
    say(f"  spares  {row['spares']}")


@topology.command()
def path(
    nic: Annotated[str, typer.Argument(help="nic/n001/mlx5_0")],
    other: Annotated[str, typer.Argument(help="nic/n009/mlx5_0")],
    *,
    cluster: ClusterOption = None,
    failed: Annotated[
        list[str] | None, typer.Option(help="Go around this component; several times.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Name all that a flow between two NICs passes; exit status 3 where no way is left."""
    way = _load(cluster).path(nic, other, failed=failed or ())
    if json:
        print_json({"path": way})
    else:
        say(" > ".join(way) if way else "no way is left")
    if not way:
        raise typer.Exit(3)


@topology.command()
def cut(
    component: Annotated[str, typer.Argument(help="switch/leaf03, rack/rack02, nic/n001/mlx5_0")],
    *,
    cluster: ClusterOption = None,
    json: JsonOption = False,
) -> None:
    """Name what the failure of a component takes with it."""
    found = _load(cluster).cut(component)
    parts = {name: sorted(getattr(found, name)) for name in found.__struct_fields__}
    if json:
        print_json(parts)
        return
    for name, names in parts.items():
        few = " ".join(names[:4]) + (" ..." if len(names) > 4 else "")
        say(f"{name:<6} {len(names):>6}  {few}")


def _load(cluster: Path | None) -> "Cluster":
    from nemesis.sim.topology.cluster_file import DEFAULT, load_cluster

    return load_cluster(cluster or DEFAULT)


def summary(cluster: "Cluster") -> dict[str, Any]:
    """A cluster in numbers."""
    return {
        "name": cluster.cluster.name,
        "nodes": cluster.cluster.nodes,
        "gpus_per_node": len(cluster.node.gpus),
        "gpus": cluster.cluster.nodes * len(cluster.node.gpus),
        "node": cluster.node.model,
        "racks": len(cluster.racks),
        "fabric": cluster.fabric.kind,
        "transport": cluster.fabric.transport,
        "switches": dict(zip(("leaf", "spine", "core"), cluster.wiring.counts, strict=True)),
        "links": cluster.wiring.link_count,
        "jobs": [job.name for job in cluster.jobs],
        "spares": len(cluster.spares),
    }
