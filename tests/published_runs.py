"""Rows of data/mfu_tables as jobs that somebody really ran."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

from nemesis.processors.parallelism.case import Case, Recompute, Settings
from nemesis.processors.parallelism.model import ModelShape, published_models
from nemesis.processors.parallelism.parsing import parse
from nemesis.processors.topology.gpu_class import class_of
from nemesis.processors.topology.pool import Pool

TABLE: Final = Path(__file__).parent.parent / "data" / "mfu_tables" / "ALL.csv"
NAMES: Final = {
    "deepseek": "deepseek-v3",
    "gpt oss 120b": "gpt-oss-120b",
    "grok1": "grok-1",
    "kimi_k2": "kimi-k2",
    "llama3-405b": "llama3-405b",
    "llama3.1-405b": "llama3-405b",
    "llama3.1_405b": "llama3-405b",
    "llama3.1-70b": "llama3-70b",
    "llama3_70b": "llama3-70b",
    "llama3.1-8b": "llama3-8b",
    "llama3_8b": "llama3-8b",
    "llama4-maverick": "llama4-maverick",
    "nemotron-4-15b": "nemotron-4-15b",
    "nemotron-4-340b": "nemotron-4-340b",
    "qwen3_235b": "qwen3-235b-a22b",
    "qwen3_30b": "qwen3-30b-a3b",
}
"""How a published model's name in the table begins."""
UNEVEN: Final = "deepseek"
"""61 layers never come out even: its recipes list the layers of each stage."""


class Run(NamedTuple):
    """One row."""

    name: str
    text: str
    """The description that its degrees make."""
    case: Case


def runs() -> Iterator[Run]:
    """Every row that prints its degrees."""
    with TABLE.open(encoding="utf-8") as file:
        for number, row in enumerate(csv.DictReader(file), 2):
            if row["dp"]:
                yield _run(number, row)


def _run(number: int, row: dict[str, str]) -> Run:
    text = _spec(row)
    model = _model(row)
    stages = _number(row["pp"]) * _chunks(row)
    settings = Settings(
        seq=_number(row["seq_len"]),
        recompute=_recompute(row["recompute"]),
        weight_bytes=1 if row["precision"][:3] in ("FP8", "NVF", "MXF") else 2,
        adapters="LoRA" in row["note"],
        stages=_uneven(model, stages) if row["model"].lower().startswith(UNEVEN) else (),
    )
    case = Case(
        spec=parse(text),
        gpu_count=_number(row["gpus"]),
        model=model,
        pool=_pool(row),
        settings=settings,
    )
    return Run(f"line {number}: {row['source_id']} {row['model']} on {row['gpus']}", text, case)


def _number(text: str) -> int:
    return int(float(text)) if text else 1


def _chunks(row: dict[str, str]) -> int:
    """Virtual stages mean nothing where there is one stage, and some tables print them there."""
    return _number(row["vp"]) if _number(row["pp"]) > 1 else 1


def _spec(row: dict[str, str]) -> str:
    tp, cp, pp, dp, ep, etp = (_number(row[key]) for key in ("tp", "cp", "pp", "dp", "ep", "etp"))
    if "EP=32 at 128 GPUs" in row["note"] and row["gpus"] == "128":
        ep = 32
    shards = _number(row["fsdp"]) if row["fsdp"].isdigit() else dp if row["fsdp"] == "full" else 1
    terms = [f"TP{tp}", f"CP{cp}"] + ([f"ETP{etp}", f"EP{ep}"] if ep > 1 else []) + [f"PP{pp}"]
    if _chunks(row) > 1:
        terms[-1] += f"v{_chunks(row)}"
    if shards > 1 and dp % shards == 0:
        terms += [f"FSDP{shards}"] + ([f"DPR{dp // shards}"] if dp > shards else [])
    else:
        terms.append(f"FSDP{dp}" if row["fsdp"] not in ("", "0", "1") else f"DP{dp}")
    options = [f"{key}={_number(row[key])}" for key in ("mbs", "gbs") if row[key] and row["mbs"]]
    if tp > 1 and (ep > 1 or row["source_id"].startswith("torchtitan")):
        options.append("sp")
    order = ["order=tp-cp-dp-pp"] if ep > 1 and "DPR" not in "+".join(terms) else []
    return "+".join(terms) + ";" * bool(options or order) + ",".join(options + order)


def _model(row: dict[str, str]) -> ModelShape | None:
    own = next((v for k, v in NAMES.items() if row["model"].lower().startswith(k)), "")
    if not row["layers"] or "hybrid" in row["model"]:
        return None
    layers, hidden, heads = (_number(row[key]) for key in ("layers", "hidden", "heads"))
    if own:
        return replace(published_models()[own], layers=layers, hidden=hidden, heads=heads)
    return ModelShape(
        name=row["model"],
        layers=layers,
        hidden=hidden,
        heads=heads,
        ffn=4 * hidden,
        vocab=51_200,
        tied=True,
        seq=_number(row["seq_len"]),
    )


def _uneven(model: ModelShape | None, parts: int) -> tuple[int, ...]:
    if model is None:
        return ()
    least, more = divmod(model.layers, parts)
    return (least + 1,) * more + (least,) * (parts - more)


def _recompute(text: str) -> Recompute:
    if text == "none":
        return "none"
    return "full" if text == "full" else ""  # torchtitan's "selective" is another thing


def _pool(row: dict[str, str]) -> Pool:
    """Nodes enough, one leaf; an NVL72 rack is one domain."""
    gpus, width = _number(row["gpus"]), _number(row["gpus_per_node"])
    nodes = -(-gpus // width)
    trays = 72 // width if row["gpu"].startswith("GB") else 1
    return Pool(
        nodes=tuple(f"n{at}" for at in range(nodes)),
        gpu_classes=("V100-32GB" if row["gpu"] == "V100" else class_of(row["gpu"]).name,) * nodes,
        gpu_counts=(width,) * nodes,
        free_counts=(width,) * nodes,
        domains=tuple(at // trays for at in range(nodes)),
        tiers=((0,) * nodes,),
        rail_counts=(width,) * nodes,
        nic_mbps=(400_000,) * nodes,
        transport="infiniband",
        tapers=(1.0,),
    )
