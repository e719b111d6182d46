"""Clusters as a scheduler sees them, made for a test."""

from collections.abc import Sequence

from nemesis.processors.topology.pool import Pool


def pool(
    leaves: Sequence[int] = (4, 4, 4, 4),
    *,
    gpus: int = 8,
    gpu_class: str = "H100",
    classes: Sequence[str] = (),
    domain_nodes: int = 1,
    pods: Sequence[int] = (),
    rails: int = 8,
    transport: str = "infiniband",
    free: Sequence[int] = (),
) -> Pool:
    """Nodes below leaves of so many each; `pods`: leaves of each pod; `free`: by node.

    `domain_nodes` neighbours share an NVLink domain; `classes` name a class for each node.
    """
    count = sum(leaves)
    leaf = [at for at, size in enumerate(leaves) for _ in range(size)]
    pod = [at for at, size in enumerate(pods or (len(leaves),)) for _ in range(size)]
    tiers = [tuple(leaf)] + ([tuple(pod[at] for at in leaf)] if len(pods) > 1 else [])
    return Pool(
        nodes=tuple(f"n{at:03d}" for at in range(1, count + 1)),
        gpu_classes=tuple(classes) or (gpu_class,) * count,
        gpu_counts=(gpus,) * count,
        free_counts=tuple(free) or (gpus,) * count,
        domains=tuple(at // domain_nodes for at in range(count)),
        tiers=(*tiers, (0,) * count),
        rail_counts=(rails,) * count,
        nic_mbps=(400_000,) * count,
        transport=transport,
        tapers=(1.0,) * (len(tiers) + 1),
    )


def nvl72(racks: int = 4) -> Pool:
    """Racks of 18 trays of 4 GPUs each, a leaf group a rack."""
    return pool((18,) * racks, gpus=4, gpu_class="GB200", domain_nodes=18, rails=4)
