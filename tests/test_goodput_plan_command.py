"""`nemesis goodput` of a job that is only planned."""

import msgspec
import pytest

from nemesis.cli.durations import BadDurationError, seconds, spoken
from tests.commands import nemesis

LLAMA = ("goodput", "--mtbf", "3h5m35s", "--save", "20s", "--restart", "5m")


def test_a_plan_says_how_often_to_save_and_what_would_help_most() -> None:
    ran = nemesis(*LLAMA, "--gpus", "16384", "--interval", "30m", "--goal", "0.9")
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[0].startswith("save every 10 min 54 s: 91.6% of the time is work")
    assert "  every 30 min 0 s, as today: 88.6%, 11,816 GPU-hours a day lost" in lines
    first = next(line for line in lines if "points" in line)
    assert first.startswith("  failures half as often: 94.5%, +2.9 points")
    assert lines[-1] == "  90% can be reached with saves of at most 33.4 s"


def test_programs_get_it_as_a_document() -> None:
    found = msgspec.json.decode(nemesis(*LLAMA, "--json").stdout)
    assert found["ettr"] == pytest.approx(0.9162, abs=1e-4)
    assert found["intervals_s"]["young"] == pytest.approx(667.4, abs=0.1)
    assert [each["gpu_hours_a_day"] for each in found["improvements"]] == [None] * 3


def test_a_cluster_and_a_rate_of_its_nodes_say_how_often_a_job_fails() -> None:
    found = nemesis("goodput", "--rate", "6.5", "--cluster", "llama3-24k", "--json")
    document = msgspec.json.decode(found.stdout)
    assert document["gpus"] == 24_576
    assert document["mtbf_s"] == pytest.approx(86_400 * 1000 / 6.5 / 3072)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--rate", "6.5"), "say --gpus or --cluster"),
        (("--cluster", "llama3-24k"), "--mtbf 3h5m"),
        (("--mtbf", "1h", "--rate", "2", "--gpus", "8"), "say once how often"),
        (("--mtbf", "often"), "'often', expected a duration"),
        (("--mtbf", "3"), "--mtbf: '3', expected a duration with its units, such as 90s"),
        (("--mtbf", "0s"), "longer than nothing"),
        (("--rate", "-2", "--gpus", "8"), "must be positive"),
        (("--rate", "nan", "--gpus", "8"), "must be positive, not nan"),
        (("--rate", "inf", "--gpus", "8"), "--rate inf: expected a failure in a second"),
        (("--rate", "1e-308", "--gpus", "8"), "--rate 1e-308: expected a failure in"),
        (("--mtbf", "9" * 400 + "d"), "expected at most 100 years"),
        (("--mtbf", ""), "--mtbf: '', expected a duration"),
        (("--mtbf", "3h", "--save", "9999d"), "no work is ever done"),
        (("--mtbf", "3h", "--restart", "9" * 400 + "d"), "expected at most 100 years"),
        (("--save", "20s"), "say once how often"),
        (("--mtbf", "3h", "--interval", "0s"), "--interval 0s: expected longer than nothing"),
        (("--mtbf", "3h", "--interval", ""), "--interval: '', expected a duration"),
        (("--mtbf", "3h", "--goal", "0"), "--goal must be above 0"),
        (("llama", "--mtbf", "3h"), "'llama' beside a plan"),
    ],
)
def test_a_slip_is_one_line(arguments: tuple[str, ...], word: str) -> None:
    ran = nemesis("goodput", *arguments)
    assert ran.returncode == 2
    assert word in ran.stderr


def test_an_approximation_that_does_not_hold_is_not_told_as_an_interval() -> None:
    words = ("goodput", "--mtbf", "3s")
    assert "daly first order out of its range, young 19.0 s" in nemesis(*words).stdout
    found = msgspec.json.decode(nemesis(*words, "--json").stdout)
    assert found["intervals_s"]["daly_first_order"] is None


def test_durations_are_read_and_told_in_units() -> None:
    assert [seconds(text, "x") for text in ("90s", "1m30s", "1.5m", "2d", "3H5M")] == [
        *(90, 90, 90, 172_800, 11_100)
    ]
    assert [spoken(each) for each in (3.26, 90, 11_100, 259_200)] == [
        *("3.3 s", "1 min 30 s", "3 h 5 min", "3.0 days")
    ]
    with pytest.raises(BadDurationError, match="--save: '5 weeks'"):
        seconds("5 weeks", "--save")
