"""Promises of the tables: what is enough for which fault."""

import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from nemesis.processors.healer.playbooks import (
    LADDER,
    driver_rung,
    playbook_of,
    playbooks_in_force,
    triage_recovery,
)
from nemesis.schemas.codes import ACTIONS, FAULT_CLASSES, FaultClass, Signature
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.inferred import Culprit, FaultAttributed
from nemesis.schemas.policy import Playbook, Policy, Step, decode_policy

SIGNATURES = get_args(Signature)


def verdict(**fields: Any) -> FaultAttributed:
    base: dict[str, Any] = {
        "at_ns": 0,
        "reason": "",
        "incident": "i",
        "revision": 0,
        "verdict": "attributed",
    }
    return FaultAttributed(**(base | fields))


def test_every_action_has_its_place_on_the_ladder() -> None:
    assert sorted(LADDER) == sorted(ACTIONS)


@pytest.mark.parametrize("fault_class", FAULT_CLASSES)
def test_every_class_has_an_answer_for_a_job_and_for_a_part(fault_class: FaultClass) -> None:
    for signature in SIGNATURES:
        assert playbook_of(fault_class, signature, {})
        assert triage_recovery(verdict(fault_class=fault_class, signature=signature))[0] in LADDER


def test_the_shipped_policy_means_what_is_built_in() -> None:
    shipped = decode_policy((Path(__file__).parents[1] / "docs" / "policy.json").read_bytes())
    assert playbooks_in_force(shipped.playbooks) == playbooks_in_force({})
    assert msgspec.structs.replace(shipped, playbooks={}) == Policy()


def test_a_policy_of_before_names_actions_and_means_the_same() -> None:
    old = decode_policy(b'{"playbooks":{"nic":["shrink","restart_job"]}}')
    steps = playbooks_in_force(old.playbooks)["nic/link_recovered"]
    assert steps == (Step(action="shrink"), Step(action="restart_job"))
    assert msgspec.json.encode(old) == b'{"playbooks":{"nic":["shrink","restart_job"]}}'


@pytest.mark.parametrize(
    ("playbooks", "says"),
    [
        (b'{"gpu.offbus":["shrink"]}', "playbooks.gpu.offbus is no fault class"),
        (b'{"nic":[]}', "playbooks.nic must name at least one action"),
        (b'{"nic":[{"action":"shrink","spare_min":1}]}', "unknown field `spare_min`"),
        (b'{"nic":["shirnk"]}', "Invalid enum value 'shirnk'"),
    ],
)
def test_a_playbook_that_would_not_be_understood_is_refused(playbooks: bytes, says: str) -> None:
    with pytest.raises(MalformedFactError, match=says):
        decode_policy(b'{"playbooks":' + playbooks + b"}")


def test_a_policy_replaces_a_class_with_all_its_signatures_or_one_signature() -> None:
    watch: Playbook = (Step(action="watch"),)
    assert playbook_of("nic", "", {"nic": watch}) == watch
    assert playbook_of("nic", "link_recovered", {"nic": watch}) == watch
    only: dict[str, Playbook] = {"nic": ("shrink",), "nic/link_recovered": watch}
    assert playbook_of("nic", "link_recovered", only) == watch
    assert playbook_of("nic", "", only) == (Step(action="shrink"),)
    assert playbook_of("nic", "", {"nic/link_recovered": watch}) == playbook_of("nic", "", {})
    assert playbook_of("nic", "link_recovered", {})[0] == Step(action="reinit_communicator")


@pytest.mark.parametrize(
    ("word", "action"),
    [
        ("0x1 (GPU Reset Required)", "reset_gpu"),
        ("1", "reset_gpu"),
        ("Node Reboot Required", "reboot_node"),
        ("OS Reboot", "reboot_node"),
        ("2", "reboot_node"),
        ("0x4 (Drain and Reset)", "drain_node"),
        ("3", "drain_node"),
        ("6", "reset_gpu"),
        ("0x0 (None)", None),
        ("", None),
    ],
)
def test_the_drivers_word_becomes_a_rung(word: str, action: str | None) -> None:
    assert driver_rung(word) == action


def test_the_driver_sets_the_rung_and_never_for_a_gpu_that_is_gone() -> None:
    word = "0x1 (GPU Reset Required)"
    assert triage_recovery(verdict(fault_class="nvlink", driver_action=word))[0] == "reset_gpu"
    assert triage_recovery(verdict(fault_class="gpu.off_bus", driver_action=word))[0] == (
        "drain_node"
    )


def test_a_stopped_service_is_restarted_even_where_the_class_says_configuration() -> None:
    culprit = Culprit(kind="service", id="service/a/nvidia-fabricmanager")
    assert triage_recovery(verdict(fault_class="host.config", culprits=(culprit,))) == (
        "restart_service",
        "service/a/nvidia-fabricmanager",
    )


def test_insufficient_evidence_asks_for_more_and_no_fault_for_nothing() -> None:
    assert triage_recovery(verdict(verdict="insufficient", fault_class="unknown")) == (
        "collect_more",
        "",
    )
    assert triage_recovery(verdict(verdict="no-fault", fault_class="none")) == ("none", "")


def test_an_action_on_a_part_names_the_node_where_the_part_is_unknown() -> None:
    answer = triage_recovery(verdict(verdict="class-only", fault_class="nvlink"))
    assert answer == ("drain_node", "node/localhost")


SIGNED = {
    "04-gpu-row-remap-pending-xid63": {"signature": "row_remap_pending"},
    "05-gpu-sram-uncorrectable-rma": {"signature": "hardware_defect"},
    "68-nvlink-many-links-driver-says-reset": {"driver_action": "0x1 (GPU Reset Required)"},
}


def test_every_case_gets_an_action_that_its_people_accepted() -> None:
    cases = Path(__file__).parents[1].resolve().parent / "shared" / "cases"
    if not cases.is_dir():
        pytest.skip("no incident cases beside the checkout")
    for path in sorted(cases.glob("*/expected.json")):
        expected = json.loads(path.read_text())
        culprits = tuple(
            Culprit(kind=each["example"]["kind"], id=each["example"]["id"])
            for each in expected["culprits"]
        )
        action, _ = triage_recovery(
            verdict(
                verdict=expected["verdict"],
                fault_class=expected["fault_class"],
                culprits=culprits,
                **SIGNED.get(path.parent.name, {}),
            )
        )
        assert action in expected["accept_actions"], path.parent.name
