"""Promises of `nemesis replay` and `nemesis schema` as commands."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from nemesis.processors.attribution.attribution import Attribution
from nemesis.processors.fold import Fold
from nemesis.replay.versions import VersionNotHereError, latest, maker
from nemesis.schemas.facts import Record
from tests.commands import nemesis
from tests.replay_logs import Copy, Log, write


def fallen_gpu(version: int = 1) -> list[Record]:
    """A log in which attribution saw a GPU fall off the bus."""
    log = Log()
    log.activate(version)
    log.tick()
    log.kernel("NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.")
    for _ in range(40):
        log.tick()
    copy = Copy(log, Fold(Attribution()))
    copy.read()
    copy.commit(snapshot=True)
    return log.records


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "x.ndjson.zst", fallen_gpu())


def changed(tmp_path: Path) -> Path:
    records = fallen_gpu()
    at = next(i for i, r in enumerate(records) if "fault_attributed" in r.subject)
    payload = records[at].payload.replace(b'"fault_class":"gpu.off_bus"', b'"fault_class":"nic"')
    assert payload != records[at].payload
    records[at] = msgspec.structs.replace(records[at], payload=payload)
    return write(tmp_path / "changed.ndjson", records)


def test_an_equal_replay_says_so_and_exits_with_0(path: Path) -> None:
    ran = nemesis("replay", str(path))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("equal: ")
    assert "attribution    version 1: 1 conclusions equal, 1 saved states equal" in ran.stdout
    whole = msgspec.json.decode(nemesis("replay", str(path), "--json").stdout)
    assert whole["verdict"] == "equal"


def test_the_first_difference_shows_both_sides_and_exits_with_1(tmp_path: Path) -> None:
    file = changed(tmp_path)
    ran = nemesis("replay", str(file))
    assert ran.returncode == 1
    assert ran.stdout.startswith("different: ")
    shown = ran.stdout[ran.stdout.index("first difference") :].splitlines()
    assert shown[0].startswith("first difference, attribution on input 3: content attribution/3/0")
    assert shown[1:4] == [
        "  data.fault_class",
        '    recorded  "nic"',
        '    replayed  "gpu.off_bus"',
    ]
    whole: Any = msgspec.json.decode(nemesis("replay", str(file), "--json").stdout)
    assert whole["processors"][0]["difference"]["kind"] == "content"


def test_a_missing_conclusion_is_shown_whole(tmp_path: Path) -> None:
    records = [r for r in fallen_gpu() if "fault_attributed" not in r.subject]
    ran = nemesis("replay", str(write(tmp_path / "x.ndjson", records)))
    assert ran.returncode == 1
    assert "    recorded  the log holds no such conclusion" in ran.stdout
    assert "  note: its position says that input" in ran.stdout


def test_a_version_that_is_not_here_exits_with_3_and_says_what_to_install(tmp_path: Path) -> None:
    ran = nemesis("replay", str(write(tmp_path / "x.ndjson", fallen_gpu(version=9))))
    assert ran.returncode == 3
    assert "not verified: attribution version 9 is not in NEMESIS 0.1.0" in ran.stdout
    assert "pip install nemesis-gpu==0.1.0" in ran.stdout


def test_the_table_of_releases_is_asked_for_versions_that_went() -> None:
    make = maker("0.7.0", {"healer": {3: Attribution}}, {"healer": {2: "0.3.1"}})
    with pytest.raises(VersionNotHereError) as caught:
        make("healer", 2)
    assert caught.value.hint == "pip install nemesis-gpu==0.3.1"
    with pytest.raises(VersionNotHereError, match="no processor 'dispatcher'"):
        latest("dispatcher")


def test_other_settings_are_compared(path: Path) -> None:
    ran = nemesis("replay", str(path), "--compare")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("0 conclusions gone, 0 new, 0 changed, 1 the same")
    assert msgspec.json.decode(nemesis("replay", str(path), "--compare", "--json").stdout) == {
        "same_count": 1, "gone": [], "new": [], "changed": [], "notes": []
    }  # fmt: skip
    ran = nemesis("replay", str(path), "--compare", "--settings", "healer={}")
    assert ran.returncode == 2
    assert ran.stderr.startswith("nemesis: --settings healer: no such processor")


def test_what_changed_is_listed(tmp_path: Path) -> None:
    ran = nemesis("replay", str(changed(tmp_path)), "--compare")
    assert '    fault_class: "nic" -> "gpu.off_bus"' in ran.stdout
    records = [r for r in fallen_gpu() if "fault_attributed" not in r.subject]
    ran = nemesis("replay", str(write(tmp_path / "x.ndjson", records)), "--compare")
    assert "+ fault_attributed" in ran.stdout


def test_only_one_processor_can_be_asked_for(path: Path) -> None:
    ran = nemesis("replay", str(path), "--processor", "healer")
    assert ran.returncode == 3
    assert "attribution" not in ran.stdout


def test_a_damaged_file_is_one_line_with_its_place(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])
    for arguments in ([], ["--json"]):
        ran = nemesis("replay", str(path), *arguments)
        assert ran.returncode == 1
        assert "byte" in ran.stderr
        assert ran.stderr.count("\n") == 1
    assert nemesis("replay", str(path) + ".none").returncode == 2


def test_what_only_a_comparison_takes_is_refused_without_one(path: Path) -> None:
    for option in (["--settings", "attribution={}"], ["--policy", str(path)]):
        ran = nemesis("replay", str(path), *option)
        assert ran.returncode == 2
        assert "--compare" in ran.stderr
    ran = nemesis("replay", str(path), "--processor", "nope")
    assert ran.returncode == 2
    assert "nope" in ran.stderr


def test_a_broken_policy_says_which_field_and_where_to_read_about_it(
    path: Path, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.json"
    for text, field in (
        ('{"mode": "loud"}', "`$.mode`"),
        ('{"shrink_max": 1}', "`shrink_max`"),
        ('{"world_min": 0}', "world_min must be"),
    ):
        policy.write_text(text)
        ran = nemesis("replay", str(path), "--compare", "--policy", str(policy))
        assert ran.returncode == 2
        assert field in ran.stderr
        assert "nemesis schema show policy" in ran.stderr


def test_the_schema_of_a_policy_has_its_defaults() -> None:
    shown = msgspec.json.decode(nemesis("schema", "show", "policy").stdout)
    fields = shown["$defs"]["Policy"]["properties"]
    assert fields["mode"]["default"] == "shadow"
    assert fields["shrinks_max"]["default"] == 4


def test_gaps_and_unknown_facts_are_told(tmp_path: Path) -> None:
    records = fallen_gpu()
    del records[10:13]
    records.append(Record(99, "nemesis.events.dimm_suspected.n1", 1, b"{}"))
    ran = nemesis("replay", str(write(tmp_path / "x.ndjson", records)))
    assert "note: unknown fact 'dimm_suspected', 1 times: passed over" in ran.stdout
    assert "sequences of the slice were no longer in the log" in ran.stdout


def test_a_difference_behind_missing_inputs_is_not_verified_rather_than_different(
    tmp_path: Path,
) -> None:
    records = [each for each in fallen_gpu() if each.seq != 2]  # the first tick
    ran = nemesis("replay", str(write(tmp_path / "x.ndjson", records)))
    assert ran.returncode == 3
    assert ran.stdout.startswith("unverified: ")
    assert "not verified: inputs 2 to 2 are missing from the recording" in ran.stdout
