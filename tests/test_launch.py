"""What `nemesis run` reads: torchrun's command line and environment, nodes that meet."""

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemesis.actors.agent.arguments import Asked, LaunchUsageError, asked_of
from nemesis.actors.agent.attached import LongPathError, prepare
from nemesis.actors.agent.job import launch_of, name_of_run
from nemesis.actors.agent.launch import Launch, environment_of
from nemesis.actors.agent.ranks import Rank, end_all
from nemesis.actors.agent.rendezvous import Met, NodesMissingError, meet
from nemesis.actors.agent.running import code_of_stillborn
from nemesis.training.attach import found_beside
from nemesis.training.membership import State
from tests.cells import until


def asked(line: str, **environment: str) -> Asked:
    return asked_of(line.split(), {"PYTHON_EXEC": "py", **environment})


def test_a_command_line_of_torchrun_means_what_it_means_there() -> None:
    one = asked("--nproc-per-node 4 train.py --lr 1e-3 --nnodes 9")
    assert one.command == ("py", "-u", "train.py", "--lr", "1e-3", "--nnodes", "9")
    assert (one.nodes_count, one.ranks_per_node, one.world, one.endpoint) == (1, 4, 4, "")
    many = asked("--nnodes=2:4 --nproc_per_node=8 --rdzv-backend=c10d --rdzv-endpoint=h:1 -m a.b")
    assert (many.command, many.title) == (("py", "-u", "-m", "a.b"), "b")
    assert (many.nodes_count, many.world, many.world_min, many.endpoint) == (4, 32, 16, "h:1")
    static = asked("--nnodes 2 --node-rank 1 --master-addr n1 --master-port 123 --no-python ./run")
    assert (static.command, static.node_at, static.endpoint) == (("./run",), 1, "n1:123")
    assert static.world_min == 1
    assert asked("--nnodes 2 --rdzv-endpoint n1 t.py").endpoint == "n1:29500"
    assert asked("--nnodes 2 --master-port 5 t.py").endpoint == "127.0.0.1:5"
    alone = asked("--standalone --nnodes 2 --rdzv-endpoint n1 t.py")
    assert (alone.nodes_count, alone.endpoint) == (1, "")


def test_torchruns_variables_are_defaults_and_what_only_tunes_it_has_no_effect() -> None:
    given_so = asked("t.py", PET_NNODES="3", PET_NPROC_PER_NODE="2", PET_RDZV_ENDPOINT="h:2")
    assert (given_so.nodes_count, given_so.ranks_per_node, given_so.endpoint) == (3, 2, "h:2")
    assert asked("-m x", PET_STANDALONE="1", PET_NNODES="3").nodes_count == 1
    tuned = asked(
        "--redirects 3 -t 1 --rdzv_conf a=b --monitor-interval 1 --start-method fork t.py"
    )
    assert tuned == asked("t.py")


@pytest.mark.parametrize(
    ("steps_counts", "programs", "code"),
    [
        ((-1, -1), ("exit(2)", "exit(2)"), 2),
        ((-1, -1), ("exit(2)", "import time; time.sleep(100)"), 0),
        ((-1, -1), ("exit(2)", "exit(0)"), 0),
        ((-1, -1), ("exit(2)", "import os; os.kill(os.getpid(), 9)"), 0),
        ((3, -1), ("exit(2)", "exit(2)"), 0),
    ],
    ids=["all", "one runs", "one is done", "one was killed", "one has trained"],
)
def test_nobody_decides_on_ranks_that_all_ended_with_an_error_before_a_step(
    steps_counts: tuple[int, ...], programs: tuple[str, ...], code: int
) -> None:
    children = [
        subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
        for program in programs
    ]

    async def body() -> None:
        ranks = [Rank(at, each.pid, 0, lambda _: None, each) for at, each in enumerate(children)]
        for rank, steps_count in zip(ranks, steps_counts, strict=True):
            rank.state = State(0, steps_count)
        ends = [each for each, how in zip(ranks, programs, strict=True) if "sleep" not in how]
        await until(lambda: not any(rank.is_alive for rank in ends), "they end")
        assert code_of_stillborn(ranks) == code
        end_all(ranks)

    asyncio.run(body())


def test_ranks_are_counted_as_torchrun_counts_them() -> None:
    assert asked("--nproc-per-node gpu t.py", CUDA_VISIBLE_DEVICES="0,3").ranks_per_node == 2
    assert asked("--nproc-per-node auto t.py", CUDA_VISIBLE_DEVICES="5").ranks_per_node == 1
    assert asked("--nproc-per-node cpu t.py").ranks_per_node >= 1


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--nnodes 2", "no script"),
        ("--frob 1 t.py", "--frob"),
        ("--nproc-per-node many t.py", "--nproc-per-node many"),
        ("--nproc-per-node 9999 t.py", "9999"),
        ("--nproc-per-node 0 t.py", "--nproc-per-node 0"),
        ("--nnodes 2 t.py", "no endpoint"),
        ("--nnodes 3:2 t.py", "--nnodes 3:2"),
        ("--nnodes 2 --rdzv-endpoint h:port t.py", "endpoint"),
        ("--virtual-local-rank t.py", "--virtual-local-rank"),
        ("--no-python -m t", "--no-python"),
    ],
)
def test_what_cannot_be_run_is_said_in_a_line(line: str, says: str) -> None:
    with pytest.raises(LaunchUsageError) as told:
        asked(line, CUDA_VISIBLE_DEVICES="")
    assert says in told.value.message
    assert "\n" not in told.value.message


@given(st.text(max_size=8))
def test_the_name_of_a_run_begins_with_a_letter_or_a_digit(title: str) -> None:
    assert name_of_run(title)[0].isalnum()


@given(
    nodes=st.integers(1, 5),
    ranks=st.integers(1, 8),
    script=st.lists(st.text("ab-= ", max_size=6), max_size=4),
)
def test_each_rank_of_a_job_has_one_place_and_finds_it_as_torchrun_says_it(
    nodes: int, ranks: int, script: list[str]
) -> None:
    line = [
        "--nnodes",
        str(nodes),
        "--rdzv-endpoint",
        "h",
        "--nproc-per-node",
        str(ranks),
        "t.py",
        *script,
    ]
    wanted = asked_of(line, {})
    assert wanted.command[-len(script) - 1 :] == ("t.py", *script)
    met = Met(job="j", nodes=tuple(f"n{at}" for at in range(nodes)), store="10.0.0.1:5")
    told = [
        environment_of(launch, rank, met.store, {})
        for name in met.nodes
        for launch in [launch_of(wanted, met, name, "h")]
        for rank in launch.ranks
    ]
    assert [int(each["RANK"]) for each in told] == list(range(nodes * ranks))
    for rank, each in enumerate(told):
        assert divmod(rank, ranks) == (int(each["GROUP_RANK"]), int(each["LOCAL_RANK"]))
        assert {each["WORLD_SIZE"], each["ROLE_WORLD_SIZE"]} == {str(nodes * ranks)}
        assert (each["MASTER_ADDR"], each["MASTER_PORT"]) == ("10.0.0.1", "5")
        assert (each["LOCAL_WORLD_SIZE"], each["GROUP_WORLD_SIZE"]) == (str(ranks), str(nodes))
        assert ("OMP_NUM_THREADS" in each) == (ranks > 1)


def test_what_a_user_set_is_left_to_the_ranks() -> None:
    launch = Launch(node="n", job="j", ranks=(0, 1), world=2, environment={"A": "1"})
    found = environment_of(launch, 1, "h:1", {"OMP_NUM_THREADS": "8", "A": "0", "B": "2"})
    assert (found["OMP_NUM_THREADS"], found["A"], found["B"]) == ("8", "1", "2")


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def meeting(*nodes: tuple[str, str], timeout_s: float = 20.0) -> list[Met | NodesMissingError]:
    """What each node, by name and options, knows at the end; all at once."""
    port = free_port()

    async def one(name: str, options: str) -> Met | NodesMissingError:
        async def open_store(host: str) -> str:
            return f"{host}:7"

        line = f"--nnodes {len(nodes)} --rdzv-endpoint 127.0.0.1:{port} {options} t.py"
        try:
            return (
                await meet(asked(line), name, f"job of {name}", open_store, timeout_s=timeout_s)
            )[0]
        except NodesMissingError as error:
            return error

    async def all_of_them() -> list[Met | NodesMissingError]:
        return await asyncio.gather(*(one(name, options) for name, options in nodes))

    return asyncio.run(all_of_them())


def test_nodes_that_run_the_same_command_meet_and_know_the_same() -> None:
    told = meeting(("a", ""), ("b", ""), ("c", ""))
    first = told[0]
    assert isinstance(first, Met)
    assert told == [first] * 3
    assert sorted(first.nodes) == ["a", "b", "c"]
    assert first.job == f"job of {first.nodes[0]}"
    assert first.store == "127.0.0.1:7"


def test_a_node_that_names_its_place_has_it() -> None:
    told = meeting(("a", "--node-rank 2"), ("b", "--node-rank 0"), ("c", "--node-rank 1"))
    assert told == [Met(job="job of b", nodes=("b", "c", "a"), store="127.0.0.1:7")] * 3


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (("a", "--node-rank 1"), "name this one with --node"),
        (("b", "--node-rank 1 --nproc-per-node 3"), "nodes of 1 ranks"),
        (("b", "--node-rank 5"), "--node-rank 5"),
    ],
)
def test_who_does_not_belong_to_the_others_is_told_why(second: tuple[str, str], says: str) -> None:
    first, refused = meeting(("a", "--node-rank 0"), second, timeout_s=0.3)
    assert isinstance(refused, NodesMissingError)
    assert says in refused.message
    assert isinstance(first, NodesMissingError)
    assert first.message.startswith("1 of 2 nodes came within 0.3 s: a")


def test_a_rank_of_torchrun_learns_all_from_the_socket_that_it_was_told_of(tmp_path: Path) -> None:
    launch = Launch(node="n", job="llama", ranks=(4, 5), world=8, host="10.0.0.9")
    path = prepare(tmp_path / "a", launch)
    found = found_beside(path, {"RANK": "5", "TORCHELASTIC_RESTART_COUNT": "1"})
    assert found == {
        "NEMESIS_RANK": "5",
        "NEMESIS_JOB": "llama.1",
        "NEMESIS_HOST": "10.0.0.9",
        "NEMESIS_TAP": str(tmp_path / "a" / "rank_5.tap"),
    }
    slurm = found_beside(path, {"SLURM_PROCID": "4", "SLURM_STEP_ID": "7"})
    assert (slurm["NEMESIS_RANK"], slurm["NEMESIS_JOB"]) == ("4", "llama.7")
    assert found_beside(tmp_path / "agent.sock", {}) == {}


def test_what_an_agent_kept_counts_only_while_ranks_of_it_live(tmp_path: Path) -> None:
    kept = tmp_path / "plan.json"
    kept.write_bytes(b"{}")
    prepare(tmp_path, Launch(node="n", job="j", ranks=(0,), world=1))
    assert not kept.exists()
    deep = tmp_path / ("d" * 100)
    with pytest.raises(LongPathError):
        prepare(deep, Launch(node="n", job="j", ranks=(0,), world=1))
    assert msgspec.json.decode((tmp_path / "attached.json").read_bytes())["job"] == "j"
