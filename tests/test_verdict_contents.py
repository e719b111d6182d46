"""Promises about what a verdict says beside a name: what it is not, and how sure it must be."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from nemesis.cli.triage import triage_paths
from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.attribution import Attribution
from nemesis.processors.healer.playbooks import LADDER
from nemesis.schemas.codes import FAULT_CLASSES
from nemesis.schemas.inferred import FaultAttributed
from nemesis.views import triage_advice
from nemesis.views.triage_page import page_of
from tests.attribution_log import SECOND_NS, Log, cluster, xid
from tests.commands import nemesis

DATA = Path(__file__).parent.parent / "data"
EVIL = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>"


def off_bus(**fields: Any) -> FaultAttributed:
    """A GPU falls off the bus, its neighbour's channels are removed."""
    log = cluster("n1", "n2")
    log.kernel(xid(45, "0000:1c:00", "pid=7, name=python3, Ch 00000006"), **fields)
    log.kernel(xid(79, "0000:1b:00", "GPU has fallen off the bus."), **fields)
    log.tick(3)
    return log.last


def test_a_gpu_that_only_suffers_is_ruled_out_by_the_line_that_it_printed() -> None:
    (other,) = off_bus().ruled_out
    assert other.says == "gpu/n1/0000:1c:00.0"
    assert other.because.startswith("its Xid 45 is printed of any process")
    assert other.fact == "n1/kernel/1/1"


def test_what_follows_from_the_culprit_is_ruled_out_by_its_own_evidence() -> None:
    log = cluster("n1", "n2")
    log.kernel(xid(79, "0000:1b:00", "GPU has fallen off the bus."))
    log.exited(1, signal=9)
    log.tick(3)
    assert [each.says for each in log.last.ruled_out] == ["rank/llama/1 (unknown)"]
    assert log.last.ruled_out[0].fact == "n1/process/1/1"
    assert log.last.culprits[0].id == "gpu/n1/0000:1b:00.0"


def test_a_file_server_that_two_clients_miss_is_at_fault_and_one_client_proves_nothing() -> None:
    log = cluster("n1", "n2", "n3")
    line = "nfs: server 10.0.40.11 not responding, still trying"
    log.kernel(line, "n1")
    log.tick(3)
    assert (log.last.verdict, log.last.culprits) == ("class-only", ())
    log.kernel(line, "n2")
    log.tick(3)
    assert [each.id for each in log.last.culprits] == ["storage/10.0.40.11"]
    assert set(log.last.victims) == {"node/n1", "node/n2"}
    log = cluster("n1", "n2", "n3")
    log.kernel(line, "n1")
    log.kernel(line.replace("40.11", "40.12"), "n2")
    log.tick(3)
    assert not any(each.culprits for each in log.verdicts)


def test_ranks_in_a_cycle_are_named_in_its_order() -> None:
    answer = triage_paths([DATA / "fr_samples" / "order_inversion"])
    assert "(2 -> 3 -> 2)" in answer.reason
    assert [each.says for each in answer.ruled_out] == [
        "the GPUs and the network of these ranks",
        "rank 3",
    ]
    assert answer.ruled_out[1].file == "rank_3"


@pytest.mark.parametrize("scenario", ["hang", "type_mismatch", "missing_rank_subgroup"])
def test_every_name_from_recorders_comes_with_what_it_is_not(scenario: str) -> None:
    answer = triage_paths([DATA / "fr_samples" / scenario])
    assert answer.verdict == "attributed"
    assert answer.ruled_out
    assert all(each.because and each.file for each in answer.ruled_out)


def test_what_is_not_sure_enough_is_told_without_a_name() -> None:
    log = Log(Attribution())
    log.processor.configure(b'{"named_ppm_min": 990000}')
    log = cluster("n1", "n2", log=log)
    log.kernel(xid(79, "0000:1b:00", "GPU has fallen off the bus."))
    log.tick(3)
    assert (log.last.verdict, log.last.fault_class) == ("class-only", "gpu.off_bus")
    assert not log.last.culprits
    assert "98 % sure is too little to name gpu/n1/0000:1b:00.0" in log.last.reason


def test_what_is_not_even_sure_of_its_class_is_insufficient() -> None:
    log = Log(Attribution())
    log.processor.configure(b'{"named_ppm_min": 990000, "class_ppm_min": 985000}')
    log = cluster("n1", "n2", log=log)
    log.kernel(xid(79, "0000:1b:00", "GPU has fallen off the bus."))
    log.tick(3)
    assert (log.last.verdict, log.last.fault_class) == ("insufficient", "unknown")
    assert log.last.confidence_ppm == 0


def test_evidence_that_came_late_lowers_the_confidence() -> None:
    log = cluster("n1", "n2")
    log.tick(100)
    log.kernel(xid(79, "0000:1b:00", "gone"), at_ns=log.now_ns - 60 * SECOND_NS)
    log.tick(3)
    assert log.last.late
    assert log.last.confidence_ppm < off_bus().confidence_ppm


def test_every_thing_to_collect_says_how() -> None:
    named = [text for name, text in vars(wanted).items() if name.isupper()]
    assert len(named) > 20
    without = [text for text in named if not re.search(r": \S", text)]
    assert set(without) == {wanted.SERVER_LOG, wanted.ONE_RUN_EACH}  # no command gets these


def test_every_action_that_triage_advises_has_a_reason() -> None:
    by_hand = set(LADDER) - {"restart_rank", "restore_from_peer", "rebalance", "pause"}
    assert all(triage_advice.why(action) for action in by_hand)
    assert triage_advice._WHAT_NOT.keys() <= set(FAULT_CLASSES)


def test_the_page_holds_all_of_the_answer_and_loads_nothing() -> None:
    answer = triage_paths([DATA / "nvrx_fr_traces" / "gpu_error_1st"])
    page = page_of(answer)
    assert all(each.id in page for each in answer.culprits)
    assert "rank/job/4-11,13,15" in page
    assert answer.recovery.action in page
    assert "default-src 'none'" in page or "default-src &#x27;none&#x27;" in page
    assert not re.search(r"<(script|img|link|iframe)|https?://|url\(|@import", page)


def test_no_line_of_a_log_can_bring_anything_into_the_page(tmp_path: Path) -> None:
    line = f"[ 5.0] NVRM: Xid (PCI:0000:91:00): 79, pid=1, name={EVIL}, GPU has fallen off the bus."
    (tmp_path / "dmesg").write_text(line + "\n")
    page = page_of(triage_paths([tmp_path]))
    assert "GPU has fallen off the bus" in page
    assert "<script" not in page
    assert "<img" not in page


def test_a_page_is_written_once_and_replaced_only_by_force(tmp_path: Path) -> None:
    bundle = tmp_path / "case"
    shutil.copytree(DATA / "fr_samples" / "hang", bundle)
    page = tmp_path / "page.html"
    assert nemesis("triage", str(bundle), "--html", str(page)).returncode == 1
    first = page.read_text()
    assert "rank/job/2" in first
    refused = nemesis("triage", str(bundle), "--html", str(page))
    assert "--force" in refused.stderr
    assert page.read_text() == first
    assert nemesis("triage", str(bundle), "--html", str(page), "--force").returncode == 1
