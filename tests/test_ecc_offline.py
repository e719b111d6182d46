"""A learned model in a simulated cluster: what it says is answered as any prediction is."""

from pathlib import Path

import msgspec
import pytest

from nemesis.processors.catalogue import CATALOGUE, Catalogue
from nemesis.processors.ecc_model.channels import STEP_NS
from nemesis.processors.ecc_model.ecc_model import EccModel
from nemesis.replay.verify import plans_of, verify_log
from nemesis.schemas.decided import Mode, RecoveryDecided
from nemesis.schemas.facts import Record
from nemesis.schemas.inferred import FailurePredicted, IncidentOpened
from nemesis.schemas.operated import ProcessorActivated
from nemesis.sim.faults.courses import plan_faults
from nemesis.sim.offline import START_NS
from nemesis.sim.offline_log import OfflineLog
from nemesis.sim.operator import beginning
from nemesis.sim.simulation import Simulation
from tests.clusters import fat
from tests.failure_models import filed, watching_model
from tests.planned import planned

MODEL, FILE = filed(watching_model("ce_hours", weight=127))
"""One corrected error in the last hours, and it is sure."""
WITH_MODEL: Catalogue = {**CATALOGUE, "ecc_model": {1: lambda: EccModel({MODEL: FILE}.get)}}
RISES_S = 1_900.0  # when every GPU has been looked at for half an hour
QUANTUM_NS = 200_000_000


def logged(folder: Path, mode: Mode) -> tuple[OfflineLog, list[Record]]:
    """Errors begin to pile up after half an hour, and nothing has failed yet at the end."""
    cluster = fat(nodes=2)
    fault = planned("ecc-precursor", after_s=RISES_S, fails_after_s=300.0)
    faults = plan_faults(cluster, (fault,), 7, lasts_s=4_000.0)
    simulation = Simulation(cluster, faults, seed=7, folder=folder, start_ns=START_NS)
    records: list[Record] = []
    log = OfflineLog(WITH_MODEL, simulation, START_NS, keep=records.append)
    log.begin(beginning(cluster, WITH_MODEL, START_NS, mode))
    settings = msgspec.Raw(msgspec.json.encode({"model": MODEL}))
    log.say(
        [
            (
                ProcessorActivated(
                    at_ns=START_NS, by="op", reason="test", name="ecc_model", version=1,
                    settings=settings,
                ),
                "ecc_model",
            )
        ]
    )  # fmt: skip
    until_ns = START_NS + round((RISES_S + 60) * 1e9)
    while log.now_ns < until_ns:
        if not log.pass_calm(min(until_ns, log.now_ns + STEP_NS), QUANTUM_NS):
            log.look(log.now_ns + QUANTUM_NS)
    return log, records


@pytest.mark.parametrize("mode", ["act", "shadow"])
def test_a_prediction_of_the_model_is_answered_by_policy_and_replays_equal(
    mode: Mode, tmp_path: Path
) -> None:
    log, records = logged(tmp_path, mode)
    told = [each.data for each in log.facts if isinstance(each.data, FailurePredicted)]
    own = [each for each in told if each.rule == "ecc_model"]
    assert [each.band for each in own] == ["act"]
    assert own[0].at_ns > START_NS + round(RISES_S * 1e9)
    assert own[0].fault_class == "gpu.memory"
    opened = [each.data for each in log.facts if isinstance(each.data, IncidentOpened)]
    assert own[0].incident in {each.incident for each in opened}
    decided = [each.data for each in log.facts if isinstance(each.data, RecoveryDecided)]
    leaving = [each for each in decided if each.incident == own[0].incident]
    assert [(each.action, each.mode) for each in leaving] == [("shrink", mode)]
    report = verify_log(
        records, plans_of(records), {}, lambda name, version: WITH_MODEL[name][version]()
    )
    assert report.verdict == "equal", report.first
    (replayed,) = [each for each in report.processors if each.name == "ecc_model"]
    assert replayed.equal_count == 1
