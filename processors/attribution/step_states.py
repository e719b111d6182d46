"""What ranks tell of their own state with each step: parameters that differ, gradients not finite.

Why: a GPU that computes wrong values prints nothing, and after one all-reduce every rank's loss is
NaN; only what a rank saw before the others' values came in tells where it began. How: replicas hold
equal parameters, so at one step their checksums are equal; the one that differs from all others at
two steps is wrong. Of gradients that are not finite before the reduction the earliest step counts.

Checksums over replicas: DESIGN of data parallelism (PyTorch DDP keeps replicas bitwise equal);
gradients before the reduction: Megatron-LM, --check-for-nan-in-loss-and-grad.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import CORRUPTED, Finding, Proof
from nemesis.processors.attribution.inventory import Inventory, JobPlaces
from nemesis.processors.attribution.sample_batch import Stack
from nemesis.processors.attribution.steps import STEP_NS_MAX
from nemesis.schemas import components
from nemesis.schemas.channels import ABSENT, STEP_CHANNELS
from nemesis.schemas.facts import Fact
from nemesis.schemas.inferred import RuledOut

REPLICAS_MIN: Final = 3  # of two that differ, nobody is the odd one
STEPS_MIN: Final = 2  # one reading may be torn
WORLD_MAX: Final = 1 << 20
_RANK, _STEP, _DATA, _SAVE, _NONFINITE, _CHECKSUM, _STATE_STEP = (
    STEP_CHANNELS.index(name)
    for name in (
        "rank",
        "step",
        "data_wait_ns",
        "save_ns",
        "nonfinite_count",
        "state_checksum",
        "state_step",
    )
)
Longs = NDArray[np.int64]


class JobStates(msgspec.Struct):
    """One job: int64 by rank, of the last step that each told of."""

    step: bytearray
    """After which it had the checksum."""
    checksum: bytearray
    data_ns: bytearray
    save_ns: bytearray
    odd: dict[int, tuple[int, int]] = {}
    """Rank to (latest step, number of steps) in which its parameters were not those of the rest."""
    nonfinite: tuple[int, int, int, Proof] | None = None
    """(step, rank, count, proof) of the earliest gradients that were not finite."""
    proofs: dict[int, Proof] = {}
    """The latest facts that told of ranks that somebody looks at."""
    is_new: bool = False
    told: bool = False


class StepStates(msgspec.Struct):
    """All jobs whose ranks tell so much."""

    jobs: dict[str, JobStates] = {}

    def take(self, stack: Stack, inventory: Inventory) -> None:
        """Samples of different nodes, in the order of the log."""
        for facts, whole in _in_order(stack):
            if whole.shape[2] <= _CHECKSUM:
                continue
            jobs = [fact.data.job for fact in facts]
            for name in dict.fromkeys(jobs):
                places = inventory.jobs.get(name)
                if places is not None:
                    own = [at for at, job in enumerate(jobs) if job == name and not facts[at].late]
                    self._take(name, places, [facts[at] for at in own], whole[own])

    def _take(self, name: str, places: JobPlaces, facts: list[Fact], table: Longs) -> None:
        job = self.jobs.get(name)
        if job is None:
            empty = bytearray(8 * min(places.world, WORLD_MAX))
            step = bytearray(np.full(len(empty) // 8, ABSENT, np.int64).tobytes())
            job = JobStates(step, bytearray(empty), bytearray(empty), bytearray(empty))
            self.jobs[name] = job
        rows = table.reshape(-1, table.shape[2])
        rank = rows[:, _RANK]
        known = (rank >= 0) & (rank < len(job.step) // 8) & (rows[:, _STEP] >= 0)
        if not known.all():
            rows, rank = rows[known], rank[known]
        after = rows[:, _STEP]
        if rows.shape[1] > _STATE_STEP:
            after = np.where(rows[:, _STATE_STEP] > 0, rows[:, _STATE_STEP], after)
        np.frombuffer(job.step, np.int64)[rank] = after
        for column, held in (
            (_CHECKSUM, job.checksum),
            (_DATA, job.data_ns),
            (_SAVE, job.save_ns),
        ):
            np.frombuffer(held, np.int64)[rank] = rows[:, column]
        job.is_new = True
        if (table[:, :, _NONFINITE] > 0).any():
            _take_nonfinite(job, facts, table)
        for fact, block in zip(facts, table, strict=True) if job.proofs else ():
            for each in job.proofs.keys() & set(block[:, _RANK].tolist()):
                job.proofs[each] = Proof(fact.id, fact.seq, "")

    def waits_of(self, job: str, rank: int) -> tuple[int, int]:
        """(for data, for a save) in ns of a rank's last step, 0 where it is not told."""
        states = self.jobs.get(job)
        if states is None or rank >= len(states.step) // 8:
            return 0, 0
        data, save = (
            int(np.frombuffer(each, np.int64)[rank]) for each in (states.data_ns, states.save_ns)
        )
        return max(data, 0), max(save, 0)

    def waiting_ns(self, job: str, world: int) -> tuple[Longs, Longs]:
        """By rank: for data and for a save, in its last step; 0 where it is not told."""
        states = self.jobs.get(job)
        if states is None:
            return np.zeros(world, np.int64), np.zeros(world, np.int64)
        data, save = (np.frombuffer(e, np.int64) for e in (states.data_ns, states.save_ns))
        return data.clip(0, STEP_NS_MAX), save.clip(0, STEP_NS_MAX)

    def watch(self, job: str, ranks: Iterable[int]) -> None:
        """Remember from now on which facts tell of these ranks."""
        states = self.jobs.get(job)
        if states is not None:
            for rank in ranks:
                states.proofs.setdefault(rank, Proof("", 0, ""))

    def proof_of(self, job: str, rank: int, says: str) -> Proof | None:
        """The latest fact that told of a rank that is watched; None where none did since."""
        states = self.jobs.get(job)
        proof = states.proofs.get(rank) if states else None
        return replace(proof, says=f"rank {rank} {says}") if proof and proof.fact else None

    def judge(self, inventory: Inventory) -> list[tuple[str, Finding]]:
        """(job, what is wrong with its numbers), each once."""
        found: list[tuple[str, Finding]] = []
        for name, job in self.jobs.items():
            places = inventory.jobs.get(name)
            if not job.is_new or job.told or places is None:
                continue
            job.is_new = False
            _compare(job, places)
            finding = _corrupted(name, job) or _not_finite(name, job)
            if finding is not None:
                job.told = True
                found.append((name, finding))
        return found

    def forget(self, job: str) -> None:
        """The job is over, or goes on in another membership."""
        self.jobs.pop(job, None)


def _in_order(stack: Stack) -> Sequence[tuple[list[Fact], Longs]]:
    """The samples, one by one where a job's nodes tell of differently many ranks: who tells of a
    rank last is right."""
    jobs = [{fact.data.job for fact in facts} for facts, _ in stack.shapes]
    if len(jobs) < 2 or sum(map(len, jobs)) == len(set().union(*jobs)):
        return stack.shapes
    each = [
        ([fact], whole[at : at + 1])
        for facts, whole in stack.shapes
        for at, fact in enumerate(facts)
    ]
    return sorted(each, key=lambda one: one[0][0].seq)


def step_block(data: Any) -> tuple[bytes, int]:
    """The ranks of a sample, for `stacked`."""
    return data.steps, data.step_count


def _take_nonfinite(job: JobStates, facts: list[Fact], table: Longs) -> None:
    for at, row in np.argwhere(table[:, :, _NONFINITE] > 0).tolist():
        step, rank, count = (int(table[at, row, each]) for each in (_STEP, _RANK, _NONFINITE))
        if job.nonfinite is None or step < job.nonfinite[0]:
            says = f"step {step}: {count} of its own gradients were not finite"
            job.nonfinite = (step, rank, count, Proof(facts[at].id, facts[at].seq, says))


def _compare(job: JobStates, places: JobPlaces) -> None:
    """Whose checksum is not that of all its replicas at one step; nodes tell of different ones."""
    step, checksum = np.frombuffer(job.step, np.int64), np.frombuffer(job.checksum, np.int64)
    at = ((step != ABSENT) & (checksum != ABSENT) & (checksum != 0)).nonzero()[0]
    if len(at) < REPLICAS_MIN:
        return
    if _are_alike(step[at], checksum[at]):
        return
    shard = places.shard_of(at)
    order = np.lexsort((checksum[at], shard, step[at]))
    at, shard = at[order], shard[order]
    begins = np.ones(len(at), np.bool_)
    begins[1:] = (np.diff(step[at]) != 0) | (np.diff(shard) != 0)
    first = begins.nonzero()[0]
    last = np.append(first[1:], len(at)) - 1
    differ = (checksum[at[first]] != checksum[at[last]]) & (last - first + 1 >= REPLICAS_MIN)
    for low, high in zip(first[differ].tolist(), last[differ].tolist(), strict=True):
        own = at[low : high + 1]
        values, counts = np.unique(checksum[own], return_counts=True)
        if len(values) != 2 or int(counts.min()) != 1:
            continue
        odd = int(own[checksum[own] == values[int(counts.argmin())]][0])
        seen, count = job.odd.get(odd, (ABSENT, 0))
        if int(step[odd]) > seen:
            job.odd[odd] = (int(step[odd]), count + 1)
            job.proofs.setdefault(odd, Proof("", 0, ""))


def _are_alike(step: Longs, checksum: Longs) -> bool:
    """Whether all at one step hold equal parameters, so that all replicas do: nearly always, where
    each rank holds the whole model."""
    order = step.argsort(kind="stable")
    step, checksum = step[order], checksum[order]
    return not bool(((step[1:] == step[:-1]) & (checksum[1:] != checksum[:-1])).any())


def _corrupted(name: str, job: JobStates) -> Finding | None:
    odd = sorted(rank for rank, (_, count) in job.odd.items() if count >= STEPS_MIN)
    if len(odd) != 1 or not job.proofs[odd[0]].fact:
        return None
    says = f"rank {odd[0]}: its parameters differ from those of all its replicas"
    proof = replace(job.proofs[odd[0]], says=says)
    because = "replicas that computed alike hold equal parameters, and all others do"
    return Finding(
        verdict="attributed",
        fault_class="silent_corruption",
        reason=f"the parameters of rank {odd[0]} of {name} are not those of its replicas",
        confidence_ppm=850_000,
        level=CORRUPTED,
        culprits=(components.rank(name, odd[0]),),
        proofs=(proof,),
        missing=(wanted.GPU_DIAGNOSIS,),
        ruled_out=(RuledOut(says="the other replicas", because=because, fact=proof.fact),),
        jobs=(name,),
    )


def _not_finite(name: str, job: JobStates) -> Finding | None:
    if job.nonfinite is None:
        return None
    step, rank, _, proof = job.nonfinite
    because = "their gradients were finite until they were summed with its own"
    return Finding(
        verdict="attributed",
        fault_class="silent_corruption",
        reason=f"the gradients of rank {rank} of {name} were the first that were not finite, at"
        f" step {step}",
        confidence_ppm=700_000,
        level=CORRUPTED,
        culprits=(components.rank(name, rank),),
        proofs=(proof,),
        missing=(wanted.GPU_DIAGNOSIS, wanted.BATCH),
        ruled_out=(RuledOut(says="the other ranks", because=because, fact=proof.fact),),
        jobs=(name,),
    )
