"""Promises of the readers of JSON documents."""

from pathlib import Path
from typing import Any

import msgspec

from nemesis.cli.triage import triage_paths


def written(tmp_path: Path, document: dict[str, Any]) -> Path:
    path = tmp_path / "document"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document)))
    return path


def test_an_event_of_a_cluster_names_the_node_and_is_cited_by_its_line(tmp_path: Path) -> None:
    event = {
        "kind": "Event",
        "type": "Warning",
        "reason": "NodeNotReady",
        "message": "Node n7 status is now: NodeNotReady",
        "involvedObject": {"kind": "Node", "name": "n7"},
    }
    path = written(tmp_path, {"apiVersion": "v1", "items": [event]})
    answer = triage_paths([path])
    assert [each.id for each in answer.culprits] == ["node/n7"]
    (cited,) = answer.evidence
    assert cited.line is not None
    assert "NodeNotReady" in path.read_text().splitlines()[cited.line - 1]


def test_a_test_of_dcgm_that_failed_names_its_gpu(tmp_path: Path) -> None:
    tests = [
        {"name": "Memory", "results": [{"gpu_id": "3", "status": "Fail"}]},
        {"name": "PCIe", "results": [{"gpu_id": "3", "status": "Pass"}]},
    ]
    document = {"DCGM Diagnostic": {"test_categories": [{"category": "HW", "tests": tests}]}}
    answer = triage_paths([written(tmp_path, document)])
    assert (answer.fault_class, answer.culprits[0].id) == ("gpu.memory", "gpu/localhost/3")


def test_counters_of_a_switch_read_once_prove_little(tmp_path: Path) -> None:
    ports = {
        f"Ethernet{at}": {"SAI_PORT_STAT_IF_IN_ERRORS": "7" if at == 2 else "0"} for at in range(4)
    }
    answer = triage_paths([written(tmp_path, {"switch": "leaf1", "COUNTERS": ports})])
    assert answer.verdict in ("insufficient", "no-fault")
    assert answer.culprits == []


def test_ranks_that_differ_by_an_operation_in_one_poll_of_ras_are_no_fault(tmp_path: Path) -> None:
    ranks = [{"rank": at, "collective_counts": {"AllReduce": 70 + at % 2}} for at in range(4)]
    document = {"communicators": [{"hash": "0x12ab34cd56", "size": 4, "ranks": ranks}]}
    assert triage_paths([written(tmp_path, document)]).verdict == "no-fault"


def test_a_document_of_nobody_knows_what_is_unread(tmp_path: Path) -> None:
    answer = triage_paths([written(tmp_path, {"a": {"b": [1, {"c": None}]}})])
    assert [each.why for each in answer.unread] == ["JSON without messages of a kernel"]
