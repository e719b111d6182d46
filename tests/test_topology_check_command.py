"""`nemesis topology check` and `models`."""

from pathlib import Path

import msgspec
import pytest

from tests.commands import nemesis


def test_an_accepted_job_is_told_with_what_was_understood() -> None:
    ran = nemesis(
        *("topology", "check", "tp8_nvl12+pp4_ib2", "--cluster", "superpod-h100"),
        *("--model", "llama3-70b", "--gpus", "512", "--set", "recompute=full"),
    )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[0] == "accepted: TP8_NVL12+PP4_IB2 on 512 GPUs"
    assert "  ranks, innermost first: TP8 x PP4 x DP16" in lines
    assert "  tensor parallel: 8, inside one NVLink domain, at least 12 NVLinks a GPU" in lines
    assert "  pipeline stages: 4, over InfiniBand, at least 2 rails" in lines


def test_a_rejection_points_at_the_place_and_says_what_would_do() -> None:
    ran = nemesis("topology", "check", "PP4+TP16_NVL12", "--cluster", "superpod-h100")
    assert ran.returncode == 1
    lines = ran.stdout.splitlines()
    at = next(at for at, line in enumerate(lines) if "error F1" in line)
    assert lines[at].endswith("the widest has 8; TP 16 -> 8")
    assert lines[at + 1 : at + 3] == ["    PP4+TP16_NVL12", "             ^^^^^"]


def test_programs_get_the_same_as_a_document() -> None:
    ran = nemesis("topology", "check", "TP8+CP16+PP16+DP4", "--gpus", "16384", "--json")
    assert ran.returncode == 1
    found = msgspec.json.decode(ran.stdout)
    assert found["outcome"] == "rejected"
    assert found["findings"] == [
        {
            "code": "W1",
            "severity": "error",
            "text": "TP8·CP16·PP16·DP4 = 8192, not 16384 GPUs",
            "legal": "DP 4 -> 8",
            "span": [14, 17],
            "waits": False,
        }
    ]
    assert found["not_judged"] == []


@pytest.mark.parametrize(
    ("options", "rest"),
    [
        (("--model", "llama3-405b"), "memory, fabric, capacity (--cluster would tell)"),
        (("--cluster", "superpod-h100"), "shape, memory (--model would tell)"),
        ((), "shape, memory, fabric, capacity (--model and --cluster would tell)"),
    ],
)
def test_what_was_not_judged_is_said_with_the_option_that_is_missing(
    options: tuple[str, ...], rest: str
) -> None:
    told = nemesis("topology", "check", "TP8;gbs=256", "--gpus", "8", *options).stdout
    assert told.startswith("accepted as far as judged: ")
    assert told.endswith(f"  not judged: {rest}\n")


def test_a_job_that_waits_for_others_ends_with_3() -> None:
    shape = ("--cluster", "coreweave-rno2a")
    asked = ("topology", "check", "TP8_NVL18+DP8", *shape)
    assert nemesis(*asked, "--taken", "n[001-056]").returncode == 0
    ran = nemesis(*asked, "--taken", "n[001-056]", "--taken", "n064")
    assert ran.returncode == 3
    assert ran.stdout.startswith("waits: ")


def test_the_number_after_a_network_may_be_read_as_a_tier() -> None:
    asked = ("topology", "check", "TP8+DP8_IB1", "--cluster", "coreweave-rno2a")
    assert "at least 1 rail" in nemesis(*asked).stdout
    told = nemesis(*asked, "--bare-number", "tier").stdout
    assert "below one leaf (tier 1)" in told
    assert told.startswith("accepted as far as judged: TP8+DP8_IB@t1 ")


def test_nodes_that_are_held_ready_are_whole_and_beside_the_job() -> None:
    def told(spec: str, *taken: str) -> tuple[int, str]:
        ran = nemesis("topology", "check", spec, "--cluster", "superpod-h100", *taken)
        return ran.returncode, ran.stdout

    assert told("TP8+DP126;spare=1")[0] == 0
    code, text = told("TP8+DP126;spare=2")
    assert (code, "2 spare nodes beside 1008 GPUs: never" in text) == (1, True)
    code, text = told("TP8+DP2;spare=1", "--taken", "n[003-127]")
    assert (code, "1 spare nodes beside 16 GPUs: not now, 2 nodes" in text) == (3, True)
    assert "on 1000 GPUs" in told("TP8+DP*;spare=2")[1]


def test_a_model_of_ones_own_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("layers=4\nhidden=512\nheads=6\nhead_dim=64\nffn=2048\nvocab=32000\nseq=1024\n")
    ran = nemesis("topology", "check", "TP4", "--model", str(file))
    assert ran.returncode == 1
    assert "S1: 6 heads over TP 4; TP 4 -> 3 or 6" in ran.stdout
    file.write_text(file.read_text() + "attention_parameters=-5\n")
    ran = nemesis("topology", "check", "TP4", "--model", str(file))
    assert (ran.returncode, "attention_parameters must be 0 to" in ran.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("TP8_NVLX",), "L2 at 7 of 'TP8_NVLX'"),
        (("TP8", "--model", "gpt5"), "nemesis topology models"),
        (("TP8", "--model", "none.toml"), "cannot read none.toml"),
        (("TP8", "--set", "foo=1"), "NAME one of seq, recompute"),
        (("TP8", "--set", "recompute=often"), "Invalid enum value 'often'"),
        (("TP8", "--set", "seq=-1"), "--set seq=-1: expected 1 to 100000000"),
        (("TP8", "--set", "seq=0"), "--set seq=0: expected 1 to"),
        (("TP8", "--set", "seq=99999999999999999999"), "expected 1 to"),
        (("TP8", "--set", "weight_bytes=-4"), "--set weight_bytes=-4: expected 1 to 4"),
        (("TP8+PP2", "--set", "stages=4,-1"), "--set stages=-1: expected 0 to"),
        (("TP8", "--cluster", "superpod-h100", "--taken", "n999"), "n001 to n127"),
        (("TP8", "--cluster", "superpod-h100", "--taken", "n[5-1]"), "'n[5-1]' names no node"),
    ],
)
def test_a_slip_is_one_line_and_ends_with_2(arguments: tuple[str, ...], word: str) -> None:
    ran = nemesis("topology", "check", *arguments)
    assert ran.returncode == 2
    assert word in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_models_are_listed_for_people_and_programs() -> None:
    told = nemesis("topology", "models").stdout
    assert "llama3-405b        405.8B  126 layers of 16384  128 heads  dense" in told
    found = msgspec.json.decode(nemesis("topology", "models", "--json").stdout)
    assert {each["name"] for each in found} >= {"llama3-8b", "deepseek-v3"}
