"""How much of a core attribution costs: `python -m tests.measure_attribution`.

Prints the median of five runs, in µs a fact, for samples of 8 GPUs, NICs and ranks from 12,500
nodes (the rate of 100,000 GPUs polled every 5 s is 2,500 a second) and for four kinds of kernel
lines. Processor time, so that a busy machine does not count.
"""

from collections.abc import Callable
from statistics import median
from time import process_time

import msgspec

from nemesis.processors.attribution.attribution import Attribution
from nemesis.schemas.facts import Fact
from nemesis.schemas.observed import ClockTicked, KernelLineLogged, Observation, SampleTaken
from nemesis.schemas.operated import JobSubmitted
from tests.attribution_log import START_NS, gpu_block, nic_block, step_block, xid

NODES_COUNT = 12_500
RUNS = 5
LINES = {
    "a line about something else": "usb 1-1: new high-speed USB device number 2 using xhci_hcd",
    "a benign line of mlx5": "mlx5_core 0000:63:00.1: Port module event: module 1, Cable unplugged",
    "a symptom (Xid 45)": xid(45, rest="pid=7, name=python3, Ch 00000006"),
    "a repeated root (Xid 119)": xid(119, rest="pid=7, name=python3, Timeout after 6s of waiting"),
}


def fact(seq: int, kind: str, data: Observation) -> Fact:
    return Fact(
        seq=seq,
        kind=kind,
        key=data.node,
        id=f"{data.node}/{kind}/1/{seq}",
        at_ns=data.at_ns,
        log_time_ns=START_NS,
        late=False,
        data=data,
    )


def samples(step: int = 0) -> list[Fact]:
    """A poll of every node; with their ranks' steps if `step` is not 0."""
    gpus = gpu_block(*({"temp_c": 60, "dram_ce_count": 3} for _ in range(8)))
    nics = nic_block(*({"symbol_error_count": 5} for _ in range(8)))
    times = {"step": step, "step_ns": 10**9, "own_ns": 9 * 10**8}
    return [
        fact(
            seq,
            "sample",
            SampleTaken(
                node=f"n{seq}",
                start_ns=1,
                n=1,
                at_ns=START_NS + step * 10**9,
                gpu_count=8,
                gpu=gpus,
                nic_count=8,
                nic=nics,
                job="llama" if step else "",
                step_count=8 if step else 0,
                steps=step_block(*({"rank": 8 * seq - 8 + at, **times} for at in range(8)))
                if step
                else b"",
            ),
        )
        for seq in range(1, NODES_COUNT + 1)
    ]


def lines(text: str) -> list[Fact]:
    return [
        fact(
            seq,
            "kernel",
            KernelLineLogged(node=f"n{seq % 50}", start_ns=1, n=seq, at_ns=START_NS, text=text),
        )
        for seq in range(1, 5_001)
    ]


def cost_us(facts: list[Fact], prepare: Callable[[Attribution], None] = lambda _: None) -> float:
    """Median µs a fact."""
    runs: list[float] = []
    for _ in range(RUNS):
        processor = Attribution()
        prepare(processor)
        before = process_time()
        for each in facts:
            processor.step(each)
        processor.snapshot()  # samples wait for what needs them
        runs.append((process_time() - before) / len(facts) * 1e6)
    return median(runs)


def main() -> None:
    facts = samples()

    def seen_once(processor: Attribution) -> None:
        for each in facts:
            processor.step(each)

    def at_work(processor: Attribution) -> None:
        nodes = tuple(f"n{seq}" for seq in range(1, NODES_COUNT + 1))
        job = JobSubmitted(
            at_ns=START_NS, by="a", reason="r", job="llama", nodes=nodes, ranks_per_node=8
        )
        submitted = fact(1, "tick", ClockTicked(node="c", start_ns=1, n=1, at_ns=START_NS))
        processor.step(msgspec.structs.replace(submitted, kind="job_submitted", data=job))
        for each in samples(step=1):
            processor.step(each)

    print(f"sample, 8 GPUs, 8 NICs:    {cost_us(facts, seen_once):6.2f} µs (goal < 5)")
    print(f"the same with 8 steps:     {cost_us(samples(step=2), at_work):6.2f} µs")
    for what, text in LINES.items():
        print(f"{what + ':':26} {cost_us(lines(text)):6.2f} µs")
    processor = Attribution()
    seen_once(processor)
    ticks = [
        msgspec.structs.replace(
            fact(seq, "tick", ClockTicked(node="clock", start_ns=1, n=seq, at_ns=START_NS)),
            log_time_ns=START_NS + seq * 1_000_000_000,
        )
        for seq in range(1, 6)
    ]
    before = process_time()
    for each in ticks:
        processor.step(each)
    print(f"tick, {NODES_COUNT} nodes:         {(process_time() - before) / 5 * 1e3:6.2f} ms")
    before = process_time()
    size_bytes = len(processor.snapshot())
    print(f"snapshot, {size_bytes} bytes:   {(process_time() - before) * 1e3:6.2f} ms")


if __name__ == "__main__":
    main()
