"""From a checked description and a pool to a job whose step can be predicted."""

from typing import Final, Literal

from msgspec.structs import replace

from nemesis.processors.mfu.constants import constants
from nemesis.processors.mfu.gpus import GPUS, TUNED_MONTHS, Gpu
from nemesis.processors.mfu.layout import Layout, Precision, Software
from nemesis.processors.mfu.layout import Recompute as Recomputed
from nemesis.processors.mfu.spans import Order, packed
from nemesis.processors.mfu.step import Job
from nemesis.processors.parallelism.case import Case
from nemesis.processors.topology.pool import Pool, sums
from nemesis.schemas.errors import NemesisError

WRITTEN: Final = 2026 * 12 + 11
"""Months: kernels of this release's figures are not taken for younger than that."""
MEGABITS: Final = 8_000
"""Of a gigabyte."""


class UnpredictableError(NemesisError):
    """A job or a cluster that the MFU model knows too little of."""

    exit_code = 2


def gpu_of(pool: Pool) -> tuple[Gpu, float]:
    """The GPUs of a pool in its domains, and GB/s of the network that each has.

    Where no rate of a NIC is told, it is what the class usually has.

    Raises:
        UnpredictableError: classes are mixed, or one that was never measured.
    """
    names = sorted(set(pool.gpu_classes))
    if len(names) != 1 or names[0] not in GPUS:
        known = ", ".join(GPUS)
        what = " and ".join(name or "an unknown GPU" for name in names)
        raise UnpredictableError(f"GPUs: {what}; expected one of {known}")
    widths = sums(pool.domains, pool.gpu_counts)
    rates = [
        rails * mbps / gpus / MEGABITS
        for rails, mbps, gpus in zip(pool.rail_counts, pool.nic_mbps, pool.gpu_counts, strict=True)
    ]
    gpu = replace(GPUS[names[0]], domain=min(widths.values()))
    return gpu, min(rates) or float(gpu.rail_gbps)


def software_of(gpu: Gpu, sequence_parallel: bool = True) -> Software:
    """A current stack on that architecture."""
    age = min(TUNED_MONTHS, WRITTEN - gpu.months)
    return Software(sequence_parallel=sequence_parallel, age_months=age)


def layout_of(case: Case, precision: Precision = "bf16") -> tuple[Layout, Order]:
    """Degrees and batch of a description that passed the checker.

    Raises:
        UnpredictableError: batch or sequence is not said.
    """
    cut, spec = case.layout, case.spec
    if not spec.global_batch:
        raise UnpredictableError("the batch is not said", hint="add ;gbs=2048 to the description")
    if not case.seq:
        raise UnpredictableError("no length of sequence is known", hint="--set seq=8192")
    told: dict[str, Recomputed] = {"full": "full", "selective": "core"}
    order: Order = "tp-cp-dp-pp"
    if cut.degree("PP") > 1 and cut.stride("PP") < cut.stride("DP"):
        order = "tp-cp-pp-dp"
    layout = Layout(
        tp=cut.degree("TP"),
        cp=cut.degree("CP"),
        pp=cut.degree("PP"),
        chunks=cut.chunks,
        stages=case.stage_layers,
        dp=cut.replicas,
        ep=cut.expert_parallel,
        etp=cut.expert_tensor,
        shard=cut.degree("FSDP") * cut.degree("CP") if cut.sharded else 0,
        micro_batch=case.micro_batch,
        global_batch=spec.global_batch,
        sequence=case.seq,
        recompute=told.get(case.settings.recompute, "none"),
        precision=precision,
        gradient_bytes=case.settings.gradient_bytes or 2,
    )
    return layout, order


Dim = Literal["tp", "cp", "ep", "pp", "dp"]


def job_of(case: Case, gpu: Gpu, rail_gbps: float, precision: Precision = "bf16") -> Job:
    """The job on GPUs that it fills domain by domain.

    Raises:
        UnpredictableError: no model, batch or sequence is said.
    """
    if case.model is None:
        raise UnpredictableError("no model is said", hint="`nemesis topology models` lists them")
    layout, order = layout_of(case, precision)
    return Job(
        shape=case.model,
        layout=layout,
        software=software_of(gpu, case.layout.degree("TP") > 1),
        gpu=gpu,
        rail_gbps=rail_gbps,
        spans=packed(layout, gpu.domain, order),
        fitted=constants(),
    )
