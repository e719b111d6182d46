"""Promises of what the failure model learns from: the simulator's telemetry, weighted honestly."""

from math import exp, factorial
from random import Random
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from nemesis.processors.ecc_model.channels import STEP_NS, ChannelReader
from nemesis.processors.ecc_model.inputs import INPUTS, Codes, InputMaker
from nemesis.processors.ecc_model.polls import Columns
from nemesis.producers.origin import Origin
from nemesis.producers.sample import sample_of
from nemesis.schemas.facts import Fact, decode_observation, encode_observation
from nemesis.sim.faults.symptoms import GpuCounted
from nemesis.sim.params import load_params
from nemesis.sim.prediction.lives import live, remember
from nemesis.sim.prediction.precursors import BadPrecursorsError, Precursors, load_precursors
from nemesis.sim.prediction.splits import CE_DAYS_DRAWN, QUIET, draw_set, likelihoods
from nemesis.sim.prediction.stories import STEPS_A_DAY, Story, draw_story
from nemesis.sim.telemetry.world import World
from tests.clusters import cluster

FROZEN = "5e098ddd6dc07f20634cf87b0dbc0600cd2ae40978073b5083f97cb5217c9755"
PRECURSORS = load_precursors()
STEPS = 4_320
ROW = {name: at for at, name in enumerate(INPUTS)}
KINDS = [*(each.name for each in PRECURSORS.kind), "quiet"]


def quick() -> Precursors:
    """Lives of ten minutes."""
    return replace(PRECURSORS, life=replace(PRECURSORS.life, minutes=10))


def on_the_wire(world: World, drawn: list[Story], steps: int) -> Codes:
    """Every poll encoded, decoded, put into its column and read."""
    origins = [Origin(f"n{at}", start_ns=1) for at in range(len(drawn))]
    columns = Columns()
    for origin in origins:
        columns.place(origin.node, 1)
    reader, maker = ChannelReader(len(drawn)), InputMaker(len(drawn))
    remember(maker, drawn)
    codes = []
    for step in range(steps):
        world.advance(STEP_NS if step else 0)
        for row, story in enumerate(drawn):
            for at, effect in story.effects:
                if at == step:
                    world.suffer(row, effect)
        loads = [max(each for each in story.loads if each[0] <= step)[1] for story in drawn]
        polled = world.poll(np.arange(len(drawn)), np.array(loads))
        facts = []
        for origin, block in zip(origins, polled.gpu, strict=True):
            payload = encode_observation(sample_of(origin, 0, period_ns=STEP_NS, gpu=block))
            facts.append(fact_of(decode_observation("sample", payload)))
        codes.append(maker.make(reader.read(*columns.gathered(facts))))
    return np.array(codes)


def fact_of(sample: Any) -> Fact:
    """As the fold hands it over."""
    return Fact(
        seq=1,
        kind="sample",
        key=sample.node,
        id="",
        at_ns=0,
        log_time_ns=0,
        late=False,
        data=sample,
    )


def stories(kind: str, count: int = 8, seed: int = 1) -> list[Story]:
    random = Random(f"{seed}/{kind}")
    return [draw_story(kind, PRECURSORS, STEPS, random) for _ in range(count)]


def test_the_parameters_are_those_that_were_frozen() -> None:
    assert PRECURSORS.sha256 == FROZEN


def test_few_failures_announce_themselves_and_the_ceiling_of_recall_says_so() -> None:
    assert 0.11 < PRECURSORS.ceiling() < 0.13


def test_the_fast_path_shows_what_the_wire_shows() -> None:
    steps, kinds = 90, ["hbm-ramp", "storm", "thermal-failure", "bus-replays"]
    random = Random("wire")
    drawn = [draw_story(kind, PRECURSORS, steps, random) for kind in kinds]
    for each in drawn:
        each.absent, each.gap = (), (0, 0)
    lived = live(drawn, steps=steps, model="NVIDIA B200", params=load_params(), seed=7)
    fast = lived.codes
    nodes = cluster("dgx-b200", len(kinds), {"kind": "leaf"})
    world = World(replace(nodes, node=nodes.node.with_gpus(1)), 7, load_params())
    assert np.array_equal(fast, on_the_wire(world, drawn, steps))
    assert (fast[:, ROW["dram_ce"]] > 0).sum() > 20
    assert lived.corrected.tolist() == [corrected(each) for each in drawn]
    assert lived.corrected[0] > 0


def corrected(story: Story) -> int:
    """Errors that a story tells of; no other came in so short a time."""
    rises = [effect.rises for _, effect in story.effects if isinstance(effect, GpuCounted)]
    return sum(by for each in rises for name, by in each if name == "dram_ce_count")


def test_every_kind_of_life_shows_its_sign_and_only_failing_ones_fail() -> None:
    shown = {
        "hbm-ramp": "ce_day",
        "ramp-abates": "ce_day",
        "hbm-repeat": "ue_recency",
        "probation": "ue_recency",
        "storm": "ce_hours",
        "bus-replays": "links_day",
        "replays-subside": "links_day",
        "remap-alone": "remap_pending",
        "thermal-failure": "memory_temp_c",
    }
    silent = {"sram-sudden", "hbm-sudden", "bus-sudden", "driver-sudden", "quiet"}
    assert silent | shown.keys() | {"heat-subsides", "reboot"} == set(KINDS)
    fails = {each.name for each in PRECURSORS.kind if each.fails}
    for kind in KINDS:
        drawn = stories(kind)
        assert {each.fails >= 0 for each in drawn} == {kind in fails}
        if kind in silent:
            assert not any(each.effects or each.before for each in drawn)
    drawn = [each for kind in shown for each in stories(kind, 4)]
    codes = live(drawn, steps=STEPS, model="h100", params=load_params(), seed=3).codes
    for at, (kind, name) in enumerate(shown.items()):
        seen = codes[:, ROW[name], 4 * at : 4 * at + 4].max(axis=0) > 19
        assert seen.sum() >= 3, kind


def test_what_was_before_is_remembered_as_if_it_had_been_watched() -> None:
    age = 3_000
    story = Story(kind="quiet", before=[(age, "dram_ue", 1), (age, "dram_ce", 7)])
    told, watched = InputMaker(1), InputMaker(1)
    remember(told, [story])
    reader = ChannelReader(1)
    polled = np.array([True])
    block = np.zeros((1, 17), np.int64)
    reader.read(block, polled)
    block[0, :2] = 7, 1
    watched.make(reader.read(block, polled))
    quiet = reader.read(block, polled)
    for _ in range(age - 1):
        watched.make(quiet)
    assert np.allclose(told.fading, watched.fading - (watched.fading >> 19), rtol=1e-3, atol=4096)
    assert (told.make(quiet) == watched.make(quiet)).all()


def test_a_gpu_is_in_one_split_and_weights_add_up_to_a_fleet() -> None:
    seen: set[str] = set()
    for split in PRECURSORS.split:
        found = draw_set(split.name, quick(), each=1, quiet=2, seed=0)
        devices = set(found.lives.devices)
        assert len(devices) == len(found.lives.devices)
        assert not devices & seen
        seen |= devices
        assert found.weights.sum() == pytest.approx(144_000_000)  # lives of ten minutes
    with pytest.raises(BadPrecursorsError, match="no split 'test'"):
        PRECURSORS.named("test")


@pytest.mark.parametrize("ce_days", [9, 23])
def test_errors_that_are_drawn_more_often_than_they_come_weigh_as_much_less(ce_days: int) -> None:
    steps, counts = 4_320, np.arange(30)
    drawn, usual = ((steps - 1) / (STEPS_A_DAY * days) for days in (CE_DAYS_DRAWN, ce_days))
    shares = np.array([exp(-drawn) * drawn**each / factorial(each) for each in counts])
    weighed = shares * likelihoods(counts, steps, ce_days)
    assert weighed.sum() == pytest.approx(1.0, rel=1e-4)
    assert (weighed * counts).sum() == pytest.approx(usual, rel=1e-3)


def test_healthy_gpus_are_judged_by_with_errors_and_learnt_from_as_they_are() -> None:
    short = replace(PRECURSORS, life=replace(PRECURSORS.life, minutes=30))
    judged, learnt = (
        draw_set(split, short, each=1, quiet=quiet, seed=0)
        for split, quiet in (("devices", 600), ("train", 3))
    )
    quiet, usual = (
        np.flatnonzero([each == QUIET for each in own.lives.kinds]) for own in (judged, learnt)
    )
    some = judged.lives.corrected[quiet] > 0
    assert 5 <= some.sum() <= 20  # 600 half hours are 12.5 days
    weights = judged.weights[quiet]
    assert weights.sum() == pytest.approx(learnt.weights[usual].sum())
    assert weights[some].max() < weights[~some].min() / 10
    assert len(set(learnt.weights[usual])) == 1


def test_equal_seeds_give_equal_lives() -> None:
    first, again, other = (
        draw_set("train", quick(), each=1, quiet=1, seed=seed).lives.codes for seed in (4, 4, 5)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
