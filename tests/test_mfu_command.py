"""Promises of `nemesis mfu`."""

import json

import pytest
from typer.testing import CliRunner

from nemesis.cli.app import app

LLAMA = ["mfu", "TP8+PP4;gbs=256", "--model", "llama3-70b", "--gpus", "512"]


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*LLAMA, *words])
    told = str(done.exception) if done.exception and done.exit_code == 1 else ""
    return done.exit_code, done.output + told


def test_it_prints_parts_with_bars_and_what_each_rests_on() -> None:
    code, text = run("--gpu", "H100")
    assert code == 0
    assert "MFU" in text.splitlines()[1]
    assert "products" in text
    assert "█" in text
    assert "scaled from h100_1n_azure" in text


def test_json_has_integers_that_sum_to_the_step() -> None:
    code, text = run("--gpu", "H100", "--json")
    document = json.loads(text)
    assert code == 0
    assert sum(document["parts_ns"].values()) == document["step_ns"]
    assert "best" not in document


def test_it_says_what_a_worse_place_costs() -> None:
    code, text = run("--gpu", "H100", "--torn", "tp=2", "--taper", "3", "--compare", "--json")
    document = json.loads(text)
    assert code == 0
    assert document["lost_ns"] == document["step_ns"] - document["best"]["step_ns"] > 0
    code, text = run("--gpu", "H100", "--torn", "tp=2", "--taper", "3", "--compare")
    times = document["step_ns"] / document["best"]["step_ns"]
    lost = 100 * document["lost_ns"] / document["step_ns"]
    assert f"here {times:.2f} times as long, {lost:.1f} % of throughput lost" in text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("TP8;gbs=256", "--model", "llama3-405b", "--gpu", "H100", "--gpus", "8"), "error M1"),
        (("TP8;gbs=256", "--model", "llama3-405b", "--gpu", "V100", "--gpus", "8"), "of 32 GiB"),
        (("TP8_NVL99;gbs=256", "--model", "llama3-8b", "--gpu", "H100", "--gpus", "8"), "error F2"),
    ],
)
def test_a_class_of_gpu_alone_tells_that_a_job_can_never_run(
    words: tuple[str, ...], told: str
) -> None:
    done = CliRunner().invoke(app, ["mfu", *words])
    assert getattr(done.exception, "exit_code", 0) == 1
    assert told in str(done.exception)


def test_the_fullest_of_listed_stages_sets_the_pace() -> None:
    def parts(*words: str) -> dict[str, int]:
        found: dict[str, int] = json.loads(run("--gpu", "B300", "--json", *words)[1])["parts_ns"]
        return found

    even = parts()
    assert parts("--set", "stages=20,20,20,20") == even
    for stages, most in (("77,1,1,1", 77), ("1,1,1,77", 77), ("80,0,0,0", 80)):
        uneven = parts("--set", f"stages={stages}")
        for part in ("products", "attention", "tensor"):
            assert uneven[part] == pytest.approx(even[part] * most / 20), (stages, part)
        assert uneven["optimizer"] > 3 * even["optimizer"]
        assert uneven["bubble"] < even["bubble"]
    relieved = parts("--set", "stages=21,21,20,18")
    assert relieved["head"] == 0 < even["head"]


def test_a_cluster_file_says_gpus_and_rails() -> None:
    code, text = run("--cluster", "superpod-h100")
    assert code == 0
    assert "H100" in text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--gpu", "H9"), "no GPU 'H9' is known; expected --gpu V100"),
        ((), "neither --cluster nor --gpu is said"),
        (("--gpu", "H100", "--torn", "qp=2"), "expected DIM=DOMAINS"),
        (("--gpu", "H100", "--torn", "tp=9"), "expected 1 to 8 domains, it has 8 ranks"),
        (("--gpu", "H100", "--torn", "tp=²"), "expected DIM=DOMAINS"),
        (("--gpu", "H100", "--torn", "dp=1"), "expected 2 to 16 domains"),
        (("--gpu", "H100", "--set", "seq"), "expected NAME=VALUE"),
    ],
)
def test_a_mistake_is_told_in_one_line(words: tuple[str, ...], told: str) -> None:
    done = CliRunner().invoke(app, [*LLAMA, *words])
    assert done.exit_code != 0
    assert told in str(done.exception)


def test_a_job_that_could_never_run_is_not_predicted() -> None:
    words = ["mfu", "TP7;gbs=8", "--model", "llama3-8b", "--gpu", "H100", "--gpus", "7"]
    done = CliRunner().invoke(app, words)
    assert "error S1" in str(done.exception)


def test_a_batch_that_is_not_said_is_asked_for() -> None:
    words = ["mfu", "TP8", "--model", "llama3-8b", "--gpu", "H100", "--gpus", "8"]
    assert "the batch is not said" in str(CliRunner().invoke(app, words).exception)
