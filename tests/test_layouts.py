"""Which ranks form which groups; what published models are made of; clusters as pools."""

from pathlib import Path

import pytest

from nemesis.processors.parallelism.layout import layout_of, order_of
from nemesis.processors.parallelism.model import BadModelError, model_of, published_models
from nemesis.processors.parallelism.parsing import parse
from nemesis.processors.topology.gpu_class import class_of
from nemesis.sim.topology.cluster_file import load_cluster, shapes
from nemesis.sim.topology.node import node_kinds
from nemesis.sim.topology.pool import pool_of


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("TP8+DP16+PP4", ("TP", "DP", "PP")),
        ("TP8+PP4+DP16", ("TP", "PP", "DP")),
        ("TP8+PP4", ("TP", "PP", "DP")),
        ("PP4+TP8+FSDP2;order=torchtitan", ("TP", "FSDP", "PP")),
        ("TP8+EP4+PP4+DP16;order=megatron", ("TP", "EP", "DP", "PP")),
        ("TP8+EP4+PP4+DP16;order=tp-dp-pp", ("TP", "DP", "PP", "EP")),
        ("TP8+PP4+DP16;order=tp-dp", ()),
        ("TP8+PP4+DP16;order=tp-xx-pp-dp", ()),
        ("TP8+CP2+PP4+DP16;order=llama3", ("TP", "CP", "PP", "DP")),
    ],
)
def test_ranks_are_ordered_as_terms_stand_or_as_a_framework_does(
    text: str, order: tuple[str, ...]
) -> None:
    assert order_of(parse(text)) == order


def test_a_group_is_what_differs_in_one_coordinate() -> None:
    layout = layout_of(parse("TP8+PP4"), 16)
    assert layout.dense == (("TP", 8), ("PP", 4), ("DP", 16))
    assert [layout.stride(dim) for dim in ("TP", "PP", "DP")] == [1, 8, 32]
    assert (layout.gpu_count, layout.replicas) == (512, 16)


def test_experts_take_their_ranks_out_of_the_others() -> None:
    layout = layout_of(parse("TP2+CP2+ETP1+EP8+PP4"), 16)
    assert layout.expert_ranks == 64
    assert layout.expert_replicas == 8


def test_published_models_have_the_parameters_that_they_are_published_with() -> None:
    models = published_models()
    wrong = [m.name for m in models.values() if abs(m.total / m.parameters - 1) > 0.02]
    assert wrong == []
    assert len(models) == 22
    assert all(model.source for model in models.values())
    active = {name: models[name].active / 1e9 for name in ("mixtral-8x7b", "qwen3-235b-a22b")}
    assert active == {
        "mixtral-8x7b": pytest.approx(12.9, 0.01),
        "qwen3-235b-a22b": pytest.approx(22.2, 0.01),
    }


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"layers": 0}, "layers must be 1 to"),
        ({"layers": "many"}, "Expected `int`"),
        ({"depth": 3}, "unknown field `depth`"),
        ({"experts": 8}, "experts and expert_ffn go together"),
        ({"dense_layers": 40}, "dense_layers must be 0 to 2"),
    ],
)
def test_a_model_that_cannot_be_is_refused_in_one_line(
    change: dict[str, object], word: str
) -> None:
    plain = {"layers": 2, "hidden": 8, "heads": 2, "ffn": 32, "vocab": 100, "seq": 16}
    assert model_of(plain, "small").total == 2 * 8 * 100 + 2 * (4 * 64 + 2 * 8 * 32)
    with pytest.raises(BadModelError, match=word):
        model_of(plain | change, "small")


def test_every_kind_of_node_has_a_gpu_class_that_is_known() -> None:
    products = {kind: node.gpu_model for kind, node in node_kinds().items()}
    assert {kind: class_of(product).name for kind, product in products.items()} == {
        "dgx-h100": "H100",
        "hgx-h100": "H100",
        "dgx-b200": "B200",
        "gb200-nvl72": "GB200",
        "dgx-a100": "A100",
        "a100-4nic": "A100-40GB",
    }
    assert class_of("NVIDIA H100 PCIe").nvlinks == 0
    assert class_of("Radeon").name == ""


def test_every_published_shape_becomes_a_pool_with_one_group_at_the_top() -> None:
    for name in shapes():
        cluster = load_cluster(Path(name))
        own = pool_of(cluster)
        assert own.gpu_count == own.free_count == cluster.cluster.nodes * len(cluster.node.gpus)
        assert len(set(own.tiers[-1])) == 1
        assert len(own.tapers) == own.depth
        columns = (own.nodes, own.gpu_classes, own.gpu_counts, own.domains, *own.tiers)
        assert {len(column) for column in columns} == {cluster.cluster.nodes}


def test_a_rack_of_trays_is_one_domain_over_eighteen_bays() -> None:
    own = pool_of(load_cluster(Path("gb200-33-racks")))
    assert (len(own.nodes), len(set(own.domains))) == (594, 33)
    assert own.without(("n001", "n594")).free_count == own.gpu_count - 8
