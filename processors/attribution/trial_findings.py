"""What tests of hosts, paths and releases prove when they are laid side by side.

Why: one slow test says nothing, three tell which pair, host or release it is. How: a host is slow
if every test with it is and the others are not; a pair is slow, and neither of its hosts, if both
are fast with others; a release is at fault if every run with it failed and none without it did.
"""

from collections.abc import Sequence
from statistics import median_low
from typing import Final

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import PATH_SLOW, VERSION_DIFFERS, Finding, Proof
from nemesis.processors.attribution.report_rules import HasProof, proofs, proofs_of, shown
from nemesis.processors.attribution.reports import Told, Tried

SLOW_SHARE_PPM: Final = 800_000  # a fifth below the others; runs of one test differ by a tenth
PAIRS_MIN: Final = 3
ALONE_MIN: Final = 2  # tests with a host before it is the host


def judge_trials(told: Told) -> list[Finding]:
    """What the tests prove together."""
    found = [_slow(told), _release(told), _wrong(told)]
    return [each for each in found if each is not None]


def _slow(told: Told) -> Finding | None:
    measured = _of_one_size(told.trials)
    if len(measured) < PAIRS_MIN:
        return _slow_alone(told)
    usual = sorted(each.rate_kbps for each in measured)[len(measured) // 2]
    slow = [each for each in measured if each.rate_kbps * 1_000_000 < usual * SLOW_SHARE_PPM]
    if not slow:
        return None
    fast = [each for each in measured if each not in slow]
    at_fault = [
        name
        for name in sorted({name for each in slow for name in each.components})
        if _count(slow, name) >= ALONE_MIN and _count(fast, name) == 0
    ]
    if len(at_fault) == 1 and all(at_fault[0] in each.components for each in slow):
        of_gpu = at_fault[0].startswith("gpu/")
        return Finding(
            verdict="attributed",
            fault_class="straggler.gpu" if of_gpu else "straggler.network",
            reason=f"every test with {at_fault[0]} is slow, those of the others are not",
            confidence_ppm=750_000,
            level=PATH_SLOW,
            culprits=(at_fault[0],),
            proofs=_rates(slow, fast),
            missing=(wanted.LINK_COUNTERS,),
        )
    if all(name.startswith("gpu/") for each in measured for name in each.components):
        return None  # GPUs of one host differ by how they are wired
    return Finding(
        verdict="class-only",
        fault_class="straggler.network",
        reason=f"between {' and '.join(slow[0].components)} it is slow, and both are fast with"
        " others: it is the way between them",
        confidence_ppm=600_000,
        level=PATH_SLOW,
        proofs=_rates(slow, fast),
        missing=(wanted.PAIR_TESTS, wanted.SWITCH_COUNTERS),
    )


def _of_one_size(trials: Sequence[Tried]) -> list[Tried]:
    """What pairs reached with messages of the size that most pairs ran, the largest of such.

    A small message is slow between healthy hosts (NVIDIA/nccl-tests, doc/PERFORMANCE.md).
    """
    measured = [each for each in trials if each.rate_kbps > 0 and len(each.components) == 2]
    pairs: dict[int, set[tuple[str, ...]]] = {}
    for each in measured:
        pairs.setdefault(each.size_bytes, set()).add(each.components)
    most = max(pairs, key=lambda size: (len(pairs[size]), size), default=0)
    return [each for each in measured if each.size_bytes == most]


def _slow_alone(told: Told) -> Finding | None:
    """One device or host among several that ran the same test with messages of the same size."""
    alone = [e for e in told.trials if e.rate_kbps > 0 and len(e.components) == 1]
    largest = max((each.size_bytes for each in alone), default=0)
    rates: dict[str, Tried] = {e.components[0]: e for e in alone if e.size_bytes == largest}
    if len(rates) <= PAIRS_MIN:
        return None
    usual = median_low(each.rate_kbps for each in rates.values())
    slow = [e for e in rates.values() if e.rate_kbps * 1_000_000 < usual * SLOW_SHARE_PPM]
    names = tuple(sorted(each.components[0] for each in slow))
    if not slow or len(slow) * PAIRS_MIN > len(rates):
        return None
    return Finding(
        verdict="attributed",
        fault_class="straggler.network",
        reason=f"{shown(names)} reached less than the others in the same test",
        confidence_ppm=700_000,
        level=PATH_SLOW,
        culprits=names,
        proofs=_rates(slow, [each for each in rates.values() if each not in slow]),
        missing=(wanted.LINK_COUNTERS,),
    )


def _count(tried: Sequence[Tried], name: str) -> int:
    return sum(name in each.components for each in tried)


def _rates(slow: Sequence[Tried], fast: Sequence[Tried]) -> tuple[Proof, ...]:
    return proofs_of(
        [(each, f"{each.rate_kbps / 1e6:.1f} GB/s, slow") for each in slow]
        + [(each, f"{each.rate_kbps / 1e6:.1f} GB/s") for each in fast[:4]]
    )


def _release(told: Told) -> Finding | None:
    """The one setting that all failed runs have and no good run has."""
    passed = [e for e in told.trials if e.outcome == "passed" and e.settings]
    failed = [e for e in told.trials if e.outcome in ("failed", "hung") and e.settings]
    if not passed or not failed:
        return None
    in_good = {setting for each in passed for setting in each.settings}
    names = {name for name, _ in in_good}
    in_all_bad = set.intersection(*(set(each.settings) for each in failed))
    guilty = sorted(s for s in in_all_bad if s not in in_good and s[0] in names)
    if not guilty:
        return None
    alone = len(guilty) == 1
    words = [f"{name}-{value}" for name, value in guilty]
    return Finding(
        verdict="attributed" if alone else "class-only",
        fault_class="software.version",
        reason=f"every run with {shown(words)} failed, and none without it",
        confidence_ppm=800_000 if alone else 500_000,
        level=VERSION_DIFFERS,
        culprits=(f"software/{words[0]}",) if alone else (),
        proofs=proofs_of(
            [(each, f"{each.outcome} with {shown(words)}") for each in failed]
            + [(each, "passed without it") for each in passed]
        ),
        jobs=(told.job,),
        missing=() if alone else (wanted.ONE_RUN_EACH,),
    )


def _wrong(told: Told) -> Finding | None:
    wrong: list[HasProof] = [*told.of("wrong_values")]
    wrong += [each for each in told.trials if each.says.endswith("wrong values")]
    if not wrong:
        return None
    return Finding(
        verdict="class-only",
        fault_class="silent_corruption",
        reason="a collective gave wrong results: data was changed on its way or in a GPU",
        confidence_ppm=800_000,
        level=VERSION_DIFFERS + 1,
        proofs=proofs(wrong, "results differ from what they must be"),
        jobs=(told.job,),
        missing=(wanted.PAIR_TESTS,),
    )
