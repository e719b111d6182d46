"""Promises of a policy in sentences: nothing that would happen is left out."""

import msgspec
import pytest

from nemesis.processors.healer.playbooks import playbooks_in_force
from nemesis.schemas.policy import PLAYBOOK_NAMES, Policy, Step, decode_policy
from nemesis.views.policy_words import difference, explained, in_full, rising, seconds_text


def test_a_policy_printed_in_full_is_the_same_policy() -> None:
    given = Policy(
        mode="approve", playbooks={"nic": (Step(action="shrink", spares_min=1), "watch")}
    )
    full = decode_policy(msgspec.json.encode(in_full(given)))
    assert difference(given, full) == []
    assert set(Policy.__struct_fields__) == set(in_full(given))
    assert playbooks_in_force(full.playbooks) == playbooks_in_force(given.playbooks)


def test_every_playbook_is_explained_with_what_becomes_of_each_step() -> None:
    lines = explained(
        Policy(
            mode="act",
            mode_by_action={"shrink": "approve"},
            protected_nodes=("n7",),
            playbooks={"nic": (Step(action="shrink", spares_min=1, nodes_out_max=0), "fix_fabric")},
        )
    )
    (nic,) = [line for line in lines if line.split()[0] == "nic"]
    assert nic.split(maxsplit=1)[1] == (
        "shrink with 1 spare nodes or more and while 0 nodes at most are out of work"
        " (waits for a person), else fix_fabric (advice for a person)"
    )
    (off_bus,) = [line for line in lines if line.split()[0] == "gpu.off_bus"]
    assert off_bus.split(maxsplit=1)[1].startswith(
        "swap_node (is done at once), else shrink (waits"
    )
    assert "shrink waits for a person." in lines
    assert "Left alone whatever happens: n7." in lines
    assert (
        "A part that may fail within hours is left by cost alone from a chance of 56.8 % in a job"
        " of 64 nodes, 15.9 % in a job of 512 nodes, 4.6 % in a job of 4096 nodes: a failure stops"
        " a job for 3 min, a move for 5 s, and a node that was left is tested for 4 h."
    ) in lines
    assert (
        "  predicted.worth               swap_node (is only recorded), else watch (ad"
        in "".join(lines)
    )
    told = {line.split()[0] for line in lines if line.startswith("  ")}
    assert told == set(playbooks_in_force({})) <= set(PLAYBOOK_NAMES)


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (Policy(), "Everything is decided and recorded; nothing is done to any job or node."),
        (
            Policy(mode_by_action={"shrink": "act"}),
            "What is decided is only recorded, but for the actions named below.",
        ),
        (
            Policy(mode="approve"),
            "Nothing is done to a job, it is not even held, before a person has approved; after"
            " 15 min a decision expires.",
        ),
        (
            Policy(mode="act"),
            "A job that lost a rank is held at once; what is decided is done at once.",
        ),
    ],
)
def test_the_first_sentence_says_how_far_it_goes(policy: Policy, says: str) -> None:
    assert explained(policy)[0] == says


def test_a_difference_names_what_changes_and_nothing_else() -> None:
    before = Policy(mode_by_action={"shrink": "act"})
    after = Policy(
        mode="approve",
        nodes_out_window_ns=90_000_000_000,
        protected_nodes=("n1",),
        playbooks={"nic": ("watch",), "gpu.off_bus": ("swap_node", "shrink", "restart_job")},
    )
    assert difference(before, after) == [
        "mode: shadow -> approve",
        "protected_nodes: none -> n1",
        "nodes_out_window_ns: 10 min -> 90 s",
        "mode_by_action.shrink: act -> mode",
        "playbooks.nic: swap_node, shrink, restart_job -> watch",
        "playbooks.nic/link_recovered: reinit_communicator, swap_node, shrink, restart_job"
        " -> watch",
    ]
    assert difference(after, after) == []


def test_what_may_do_more_than_before_is_named() -> None:
    some = Policy(mode_by_action={"shrink": "approve"}, forecast_mode="act")
    assert rising(Policy(), some) == ["shrink (shadow -> approve)", "moves by cost (shadow -> act)"]
    assert rising(Policy(mode="act"), Policy(mode="approve")) == []
    assert len(rising(Policy(mode="approve"), Policy(mode="act"))) == 6


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.5, "1.5 s"), (60, "1 min"), (90, "90 s"), (7200, "2 h"), (86_400, "1 d"), (0, "0 s")],
)
def test_a_duration_is_said_in_the_largest_whole_unit(seconds: float, text: str) -> None:
    assert seconds_text(round(seconds * 1e9)) == text
