"""A board's own log, hosts of one job on two networks, and waits that are no collective's."""

from pathlib import Path

from tests.told import summary, told

EVENT = "  {n:x} | 12/14/22 | 23:09:{n:02} CET | Memory #0x88 | {what} | Asserted\n"
USES = "{host}:31:40 [0] NCCL INFO Using network {network}\n"
STACK = (
    "Process {pid}: python train.py\nPython v3.10.12\n\n"
    'Thread {pid} (idle): "MainThread"\n    {frame}\n    main (train.py:9)\n\n'
)


def events(count: int, what: str) -> str:
    return "".join(EVENT.format(n=n, what=what) for n in range(1, count + 1))


def test_a_board_that_corrected_little_blames_nothing(tmp_path: Path) -> None:
    assert told(tmp_path, sel=events(3, "Correctable ECC (CPU0_G1)")).culprits == []


def test_a_board_that_corrected_much_names_the_module(tmp_path: Path) -> None:
    named = ("attributed", "host.memory", ["dimm/localhost/CPU0_G1"])
    assert summary(told(tmp_path, sel=events(5, "Correctable ECC (CPU0_G1)"))) == named


def test_a_module_that_the_board_does_not_name_is_the_kind_of_fault(tmp_path: Path) -> None:
    answer = told(tmp_path, sel=events(1, "Uncorrectable ECC"))
    assert summary(answer) == ("class-only", "host.memory", [])


def test_what_went_again_is_no_event(tmp_path: Path) -> None:
    gone = events(1, "Uncorrectable ECC (P2-DIMMF1)").replace("Asserted", "Deasserted")
    assert told(tmp_path, sel=gone).fault_class != "host.memory"


def test_hosts_that_all_take_sockets_are_as_they_should_be(tmp_path: Path) -> None:
    alike = USES.format(host="n1", network="Socket") + USES.format(host="n2", network="Socket")
    assert told(tmp_path, log=alike).fault_class != "network.config"
    mixed = USES.format(host="n1", network="Socket") + USES.format(host="n2", network="IB")
    assert summary(told(tmp_path, log=mixed)) == ("class-only", "network.config", [])


def test_a_process_that_waits_for_a_queue_is_not_in_the_collective(tmp_path: Path) -> None:
    reduces = "all_reduce (torch/distributed/distributed_c10d.py:1320)"
    stacks = "".join(STACK.format(pid=pid, frame=reduces) for pid in (2, 3, 4))
    stacks += STACK.format(pid=1, frame="get (queue.py:170)")
    assert [each.id for each in told(tmp_path, stacks=stacks).culprits] == ["process/localhost/1"]
