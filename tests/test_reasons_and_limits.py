"""Promises about reasons of schedulers, limits, health tables, and trouble that nobody knows."""

from pathlib import Path

import pytest

from nemesis.producers.readers.kernel_line import parse_line
from tests.told import summary, told


@pytest.mark.parametrize(
    ("reason", "verdict"),
    [
        ("gres/gpu count reported lower than configured (6 < 8)", ("class-only", "gpu.off_bus")),
        ("gres/gpu count reported lower than configured (0 < 8)", ("insufficient", "unknown")),
        ("Kill task failed", ("insufficient", "unknown")),
        ("none", ("no-fault", "none")),
    ],
)
def test_the_reason_for_which_a_node_was_drained_is_told(
    tmp_path: Path, reason: str, verdict: tuple[str, str]
) -> None:
    text = f"NodeName=a7 Arch=x86_64\n   State=IDLE+DRAIN\n   Reason={reason}\n"
    answer = told(tmp_path, node=text)
    assert summary(answer) == (*verdict, [])


def test_a_process_that_may_open_no_more_files_meets_its_limit(tmp_path: Path) -> None:
    line = "[rank0]: OSError: [Errno 24] Too many open files: '/d/x'\n"
    assert summary(told(tmp_path, log=line)) == ("class-only", "host.config", [])
    limits = "Max open files            1024                 4096                 files\n"
    answer = told(tmp_path, log=line, limits=limits.replace("1024", "9999999"))
    assert answer.culprits == []
    answer = told(tmp_path, log=line, limits=limits)
    assert summary(answer) == ("attributed", "host.config", ["config/localhost/nofile"])


def test_a_worker_that_found_no_shared_memory_is_a_setting(tmp_path: Path) -> None:
    line = (
        "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible"
        " that dataloader's workers are out of shared memory.\n"
    )
    assert summary(told(tmp_path, log=line))[:2] == ("attributed", "host.config")


def test_a_worker_that_was_killed_is_no_setting_whatever_is_advised_beside_it(
    tmp_path: Path,
) -> None:
    line = (
        "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. It is possible"
        " that dataloader's workers are out of shared memory.\n"
    )
    assert summary(told(tmp_path, log=line)) == ("class-only", "host.oom", [])


def test_gpu_memory_that_ran_out_in_older_words_is_the_programs(tmp_path: Path) -> None:
    line = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 MiB (GPU 0; 9 GiB total)\n"
    assert summary(told(tmp_path, log=line)) == ("attributed", "app.oom", ["program/job"])


def test_a_driver_that_is_too_old_is_named(tmp_path: Path) -> None:
    line = "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).\n"
    assert summary(told(tmp_path, log=line))[:2] == ("attributed", "software.version")


def health(status: str, system: str, gpu: int = 3) -> str:
    return (
        "| Health Monitor Report                                |\n"
        "| Overall Health            | Warning                  |\n"
        f"| -> {gpu}                      | {status}                  |\n"
        f"|       -> {system} system   | {status}                  |\n"
    )


def test_heat_that_dcgm_warns_of_is_of_the_gpu_above_it(tmp_path: Path) -> None:
    answer = told(tmp_path, health=health("Warning", "Thermal"))
    assert summary(answer) == ("attributed", "gpu.thermal", ["gpu/localhost/3"])


def test_links_that_dcgm_shows_down_on_one_gpu_are_its_own(tmp_path: Path) -> None:
    table = "|  NvLink Link Status  |\nGPUs:\n" + "".join(
        f"    gpuId {gpu}:\n        {'D' if gpu == 2 else 'U'} U X _\n" for gpu in range(8)
    )
    answer = told(tmp_path, links=table)
    assert summary(answer) == ("attributed", "nvlink", ["gpu/localhost/2"])
    assert told(tmp_path, links=table.replace("D U", "U U")).verdict == "no-fault"


def test_other_warnings_of_dcgm_name_nobody(tmp_path: Path) -> None:
    assert told(tmp_path, health=health("Warning", "PCIe")).culprits == []


@pytest.mark.parametrize(
    "line",
    [
        "2026-01-01 00:00:00 FATAL engine: could not go on",
        "ERROR:some.module:it went wrong",
        "[63.0] error: *** STEP 63.0 STEPD TERMINATED ON a6 DUE TO JOB NOT ENDING WITH SIGNALS ***",
        "_job_complete: JobId=7 WTERMSIG 9",
        "a watcher saw Xid 119 somewhere",
        "RuntimeError: assertion of the sampler failed",
        "fork: Cannot allocate memory",
        "[CUDA_ERROR_NOT_PERMITTED] operation not permitted in expression cuMemCreate(&h)",
        "ERROR:rerun:Unexpected result nan on rank 3 at iteration #3",
    ],
)
def test_trouble_that_no_rule_knows_is_no_all_clear(tmp_path: Path, line: str) -> None:
    answer = told(tmp_path, log=f"{line}\n")
    assert summary(answer) == ("insufficient", "unknown", [])
    assert [each.line for each in answer.evidence] == [1]


@pytest.mark.parametrize("year", ["4050", "0001", "9999"])
def test_a_time_that_no_machine_could_tell_is_none(year: str) -> None:
    line = parse_line(f"{year}-10-16T08:47:29Z gh-03 something")
    assert line is not None
    assert line.clock == "none"
