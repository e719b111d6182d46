"""Rows of published throughput as jobs of the MFU model, and what they measured.

A row says what was measured, on what, with which degrees; what it leaves out follows from rules
that hold for any source: its date, its software, the words of its note. docs/mfu.md lists them.
"""

import csv
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from msgspec.structs import replace

from nemesis.processors.mfu.constants import Constants
from nemesis.processors.mfu.gpus import GPUS, Gpu, with_power
from nemesis.processors.mfu.layout import Attention, Layout, Precision, Recompute, Software
from nemesis.processors.mfu.shape import flops_per_token
from nemesis.processors.mfu.spans import Order, packed
from nemesis.processors.mfu.step import Job, Prediction, predict
from nemesis.processors.parallelism.model import ModelShape, published_models

ROWS = Path(__file__).parent.parent / "data" / "mfu_tables" / "ALL.csv"

FLASH_SINCE = 2022 * 12 + 6
FLASH_2_SINCE = 2024 * 12 + 3
OVERLAP_SINCE = 2024 * 12 + 3
FUSED_SINCE = 2024 * 12 + 6
"""Months: FlashAttention in training stacks, and its second version; NVIDIA's recipes overlap
tensor-parallel traffic and gradients; their attention is cuDNN's."""
RECOMPUTE_COUNTED = (
    "megatron_2104.04473",
    "megatron_readme",
    "megatron_readme_jan2021",
    "megatron_readme_sep2020",
)
"""Sources whose FLOPs count the recomputed forward pass (96 B s L h^2 ...)."""
INTERLEAVED_SINCE = 2021 * 12 + 4
"""Month of Megatron-LM's interleaved schedule."""
GPT_WITHIN = 0.1
"""Up to so much another width than a GPT's is taken for rounding of the number of parameters."""
TORCH_CHUNKS = 2
"""Of a stage, torchtitan's default for interleaved schedules."""
CLASS = re.compile("|".join(sorted((name for name in GPUS if "-" not in name), reverse=True)))
NAMES = {
    r"llama-?3(\.\d)?[-_ ]?8b": "llama3-8b",
    r"llama-?3(\.\d)?[-_ ]?70b": "llama3-70b",
    r"llama-?3(\.\d)?[-_ ]?405b": "llama3-405b",
    r"llama-?2[-_ ]?7b": "llama2-7b",
    r"llama-?2[-_ ]?13b": "llama2-13b",
    r"llama-?2[-_ ]?70b": "llama2-70b",
    r"nemotron-?4-15b": "nemotron-4-15b",
    r"nemotron-?4-340b": "nemotron-4-340b",
    r"grok-?1": "grok-1",
    r"maverick": "llama4-maverick",
    r"deepseek-?v3": "deepseek-v3",
    r"qwen3_30b": "qwen3-30b-a3b",
    r"qwen3_235b": "qwen3-235b-a22b",
    r"gpt oss 120b": "gpt-oss-120b",
    r"mixtral.8x7b": "mixtral-8x7b",
    r"mixtral.8x22b": "mixtral-8x22b",
}
LADDER = (
    "baseline",
    "parallel block",
    "sliding window",
    "tp overlap",
    "pp overlap",
    "dp overlap",
    "efficient ops",
    "misc",
    "lamb",
)
"""MegaScale's improvements in the order in which its ablation adds them."""
WINDOW = 1024
"""Tokens: MegaScale does not print its window; half of its sequence is assumed."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    cells: dict[str, str]

    def text(self, name: str) -> str:
        return (self.cells.get(name) or "").strip()

    def number(self, name: str) -> float:
        try:
            return float(self.text(name))
        except ValueError:
            return 0.0

    def degree(self, name: str) -> int:
        return int(self.number(name)) or 1

    @cached_property
    def words(self) -> str:
        names = ("system", "note", "source_locator")
        return " ".join(self.text(name) for name in names).lower()

    @property
    def source(self) -> str:
        return self.text("source_id")

    @property
    def gpu_name(self) -> str:
        found = CLASS.search(self.text("gpu").upper())
        return found[0] if found else ""

    @property
    def sixteen_bit(self) -> bool:
        return self.text("precision").upper() in ("BF16", "FP16")

    @cached_property
    def month(self) -> int:
        """Since year 0; the middle of a year where no month is printed, its end of a range."""
        found = re.match(r"(\d{4})-(\d{4})$|(\d{4})-(\d{2})|(\d{4})", self.text("date"))
        if not found:
            return 0
        if found[1]:
            return int(found[1]) * 12 + 12
        if found[3]:
            return int(found[3]) * 12 + int(found[4])
        return int(found[5]) * 12 + 6

    @property
    def native_torch(self) -> bool:
        return any(word in self.words for word in ("torchtitan", "foundry"))

    @property
    def nvidia_recipe(self) -> bool:
        words = ("dgx", "nemo", "megatron", "nvidia")
        return "bytedance" not in self.words and any(word in self.words for word in words)

    @cached_property
    def gpu(self) -> Gpu:
        name = self.gpu_name
        if name == "A100" and "40gb" in self.words:
            name = "A100-40GB"
        if name == "H100" and ("500w" in self.words or "torchtitan" in self.words):
            name = "H100-500W"
        gpu = GPUS[name]
        watts = re.search(r"\b(\d{3,4})w\b", self.words)
        return with_power(gpu, int(watts[1])) if watts and "torchtitan" not in self.words else gpu

    @cached_property
    def shape(self) -> ModelShape:
        name = self.text("model").lower()
        for pattern, known in NAMES.items():
            if re.search(pattern, name):
                return published_models()[known]
        layers, hidden, heads = (int(self.number(each)) for each in ("layers", "hidden", "heads"))
        vocab = 50_368 if "mpt" in name else 51_200
        positions = int(self.number("seq_len"))
        ffn = 4 * hidden
        rest = self.number("params_b") * 1e9 - (vocab + positions) * hidden
        told = rest / layers / hidden / 2 - 2 * hidden
        if rest > 0 and abs(told / ffn - 1) > GPT_WITHIN:
            ffn = max(hidden, round(told))  # a gate counts as width: the same FLOPs
        return ModelShape(
            name=name,
            layers=layers,
            hidden=hidden,
            heads=heads,
            ffn=ffn,
            vocab=vocab,
            tied=True,
            seq=int(self.number("seq_len")),
        )

    @cached_property
    def _rung(self) -> int:
        """Of MegaScale's ladder; -1: another source."""
        if not self.source.startswith("megascale"):
            return -1
        system = self.text("system").lower()
        steps = [at for at, word in enumerate(LADDER) if word in system]
        if steps:
            return steps[0]
        return 0 if "megatron" in system else len(LADDER) - 1

    @cached_property
    def software(self) -> Software:
        attention: Attention = (
            "flash" if self._rung >= 0 or self.month >= FLASH_2_SINCE else "early"
        )
        if self.month < FLASH_SINCE or 0 <= self._rung < LADDER.index("efficient ops"):
            attention = "unfused"
        elif self.nvidia_recipe and not self.native_torch and self.month >= FUSED_SINCE:
            attention = "fused"
        overlapped = self.month >= OVERLAP_SINCE
        own_tp = self.nvidia_recipe and not self.native_torch and overlapped
        return Software(
            attention=attention,
            eager="eager" in self.words,
            sequence_parallel=self.month >= FLASH_SINCE or "selective" in self.text("recompute"),
            tp_overlap=self._stated("tp overlap", own_tp or "async" in self.words)
            and "vanilla" not in self.words,
            pp_overlap=self._stated("pp overlap", overlapped),
            dp_overlap=self._stated("dp overlap", overlapped),
            sharded_optimizer=self._stated("dp overlap", overlapped),
            age_months=self.month - self.gpu.months,
            parallel_block=self._rung >= 1,
            window=WINDOW if self._rung >= 2 else 0,
        )

    def _stated(self, rung: str, otherwise: bool) -> bool:
        return otherwise if self._rung < 0 else self._rung >= LADDER.index(rung)

    @property
    def _recompute(self) -> Recompute:
        said = self.text("recompute").lower()
        if said.startswith("full"):
            return "full"
        if said.startswith("none"):
            return "none"
        return "op" if said.startswith("selective") and self.native_torch else "core"

    @property
    def _precision(self) -> Precision:
        name = self.text("precision").upper()
        return "bf16" if name == "BF16" else "fp16" if name == "FP16" else "fp8"

    @cached_property
    def layouts(self) -> list[Layout]:
        """The one that is printed; where chunks or microbatch are not, each that is legal."""
        tp, pp, cp = (self.degree(name) for name in ("tp", "pp", "cp"))
        gpus, batch = int(self.number("gpus")), int(self.number("gbs"))
        dp = max(1, gpus // (tp * pp * cp))
        said = self.text("fsdp").lower()
        llama = self.source.startswith("llama3")
        sharded = llama or said == "full" or self.number("fsdp") > 1
        micro = int(self.number("mbs"))
        if pp > 1 and micro * dp >= batch:
            micro = 0
        layout = Layout(
            tp=tp,
            cp=cp,
            pp=pp,
            dp=dp,
            ep=self.degree("ep"),
            etp=self.degree("etp"),
            shard=dp * cp if sharded else 0,
            reshard=not llama,
            micro_batch=max(1, micro),
            global_batch=batch,
            sequence=int(self.number("seq_len")),
            recompute=self._recompute,
            precision=self._precision,
            gradient_bytes=self._gradient_bytes,
        )
        micros = [micro] if micro else [b for b in (1, 2, 4, 8, 16) if batch % (dp * b) == 0]
        return [
            replace(layout, chunks=chunks, micro_batch=each)
            for chunks in self._chunks(pp)
            for each in micros or [1]
        ]

    @property
    def _gradient_bytes(self) -> int:
        if self._precision == "fp16" or "foundry" in self.words:
            return 2
        if "torchtitan" in self.words or self.source.startswith("llama3"):
            return 4
        return 2 if self.month >= OVERLAP_SINCE else 4

    def _chunks(self, pp: int) -> list[int]:
        printed = int(self.number("vp"))
        if printed or pp == 1:
            return [max(1, printed)]
        interleaved = "interleaved" in self.words
        if ("1f1b" in self.words and not interleaved) or self.month < INTERLEAVED_SINCE:
            return [1]
        if self.native_torch:
            return [TORCH_CHUNKS]
        layers = self.shape.layers
        counted = (layers, layers + 2)
        return [v for v in range(1, 17) if any(each % (pp * v) == 0 for each in counted)] or [1]

    @cached_property
    def measured(self) -> float:
        """Tokens a second and GPU, by the numerator that the source prints where need be."""
        sequence = int(self.number("seq_len"))
        if rate := self.number("tokens_per_s_per_gpu"):
            return rate
        if time := self.number("iter_time_s"):
            return self.number("gbs") * sequence / time / self.number("gpus")
        flops = float(flops_per_token(self.shape, sequence))
        if self.source in RECOMPUTE_COUNTED:
            flops += flops / 3 - 2 * self.shape.embedding
        reached = self.number("tflops_per_gpu")
        reached = reached or self.number("mfu_pct") / 100 * self.number("peak_tflops")
        return 1e12 * reached / flops

    def predicted(self, fitted: Constants) -> Prediction:
        """Of the legal layouts, the fastest."""
        found = [predict(self._job(layout, fitted)) for layout in self.layouts]
        return min(found, key=lambda each: each.step_ns)

    def _job(self, layout: Layout, fitted: Constants) -> Job:
        gpu = self.gpu
        order: Order = "tp-cp-pp-dp" if self.source.startswith("llama3") else "tp-cp-dp-pp"
        return Job(
            shape=self.shape,
            layout=layout,
            software=self.software,
            gpu=gpu,
            rail_gbps=float(gpu.rail_gbps),
            spans=packed(layout, gpu.domain, order),
            fitted=fitted,
        )


def read(path: Path = ROWS) -> list[Row]:
    """The lines that print enough to predict: shape, GPUs, batch, sequence, degrees, a result."""
    with path.open(newline="") as file:
        rows = [Row(cells) for cells in csv.DictReader(file)]
    return [row for row in rows if usable(row)]


def usable(row: Row) -> bool:
    """Is all there that the model needs, and is it of a kind that the model covers?"""
    needed = ("gpus", "gbs", "seq_len")
    if not all(row.number(name) for name in needed) or not row.text("tp"):
        return False
    result = ("tokens_per_s_per_gpu", "iter_time_s", "tflops_per_gpu", "mfu_pct")
    if not any(row.number(name) for name in result) or row.gpu_name not in GPUS:
        return False
    name = row.text("model").lower()
    known = any(re.search(pattern, name) for pattern in NAMES)
    if not known and not all(row.number(each) for each in ("layers", "hidden", "heads")):
        return False
    others = ("hybrid", "mt5", "tokendrop")
    words = (row.text("note") + name).lower()
    tuned = "lora" in words or "sft" in words
    return (
        row.text("quality") != "flag"
        and "NVFP4" not in row.text("precision")
        and not tuned
        and not any(each in words for each in others)
    )
