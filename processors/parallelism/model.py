"""What a transformer is made of, as far as cutting it over GPUs needs it, and published ones.

A description is a handful of numbers that travels with a submission. `models.toml` holds those of
published models; a person's own is a table of the same fields.
"""

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec

from nemesis.schemas.errors import NemesisError

PACKAGE: Final = "nemesis.processors.parallelism"
COUNT_MAX: Final = 100_000_000
PARAMETERS_MAX: Final = 10**15
"""Hundreds of times the largest published model."""


class BadModelError(NemesisError):
    """A description of a model that is none."""

    exit_code = 2


class ModelShape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A decoder of equal layers, some of which may have experts in place of one feed-forward."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int = 0
    """Groups of grouped-query attention; 0: as many as heads."""
    head_dim: int = 0
    """0: hidden / heads."""
    ffn: int
    """Width between the two halves of a feed-forward; of a layer with experts: of a dense one."""
    gated: bool = False
    """Three matrices in a feed-forward (SwiGLU), not two."""
    vocab: int
    tied: bool = False
    """Input and output embeddings are one matrix."""
    seq: int
    """Tokens of a sequence in training."""
    attention_parameters: int = 0
    """Of a layer, where it is not four projections (multi-head latent attention); 0: derived."""
    experts: int = 0
    """Of a layer; 0: a dense model."""
    top_k: int = 0
    """Experts that a token passes."""
    expert_ffn: int = 0
    shared_ffn: int = 0
    """Width of the expert that every token passes; 0: none."""
    dense_layers: int = 0
    """Layers without experts in a model that has them."""
    parameters: int = 0
    """As published, for people; nothing is computed from it."""
    source: str = ""

    @property
    def kv_groups(self) -> int:
        """Pairs of key and value of a layer."""
        return self.kv_heads or self.heads

    @property
    def head_width(self) -> int:
        """Width of an attention head."""
        return self.head_dim or self.hidden // self.heads

    @property
    def moe_layers(self) -> int:
        """Layers with experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def matrices(self) -> int:
        """Of a feed-forward."""
        return 3 if self.gated else 2

    @property
    def attention(self) -> int:
        """Parameters of the attention of a layer."""
        width = self.head_width
        derived = self.hidden * width * (2 * self.heads + 2 * self.kv_groups)
        return self.attention_parameters or derived

    @property
    def embedding(self) -> int:
        """Parameters of one embedding."""
        return self.vocab * self.hidden

    @property
    def expert(self) -> int:
        """Parameters of one expert."""
        return self.matrices * self.hidden * self.expert_ffn

    @property
    def dense_layer(self) -> int:
        """Parameters of a layer without experts."""
        return self.attention + self.matrices * self.hidden * self.ffn

    @property
    def moe_rest(self) -> int:
        """Parameters of a layer with experts that are in none of them."""
        shared = self.matrices * self.hidden * self.shared_ffn
        return self.attention + shared + self.hidden * self.experts

    @property
    def total(self) -> int:
        """All parameters; norms and biases, a thousandth, are left out."""
        embeddings = self.embedding * (1 if self.tied else 2)
        dense = (self.layers - self.moe_layers) * self.dense_layer
        return embeddings + dense + self.moe_layers * (self.moe_rest + self.experts * self.expert)

    @property
    def active(self) -> int:
        """Parameters that one token passes."""
        skipped = self.moe_layers * (self.experts - self.top_k) * self.expert
        return self.total - skipped

    def rules(self) -> Iterator[tuple[bool, str]]:
        """(whether it holds, what must hold) for every field by itself."""
        for field in ("layers", "hidden", "heads", "ffn", "vocab", "seq"):
            value = getattr(self, field)
            yield 1 <= value <= COUNT_MAX, f"{field} must be 1 to {COUNT_MAX}, not {value}"
        for field in ("kv_heads", "head_dim", "experts", "top_k", "expert_ffn", "shared_ffn"):
            value = getattr(self, field)
            yield 0 <= value <= COUNT_MAX, f"{field} must be 0 to {COUNT_MAX}, not {value}"
        for field in ("attention_parameters", "parameters"):
            value, most = getattr(self, field), PARAMETERS_MAX
            yield 0 <= value <= most, f"{field} must be 0 to {most}, not {value}"
        yield (
            0 <= self.dense_layers <= self.layers,
            f"dense_layers must be 0 to {self.layers}, not {self.dense_layers}",
        )
        yield bool(self.experts) == bool(self.expert_ffn), "experts and expert_ffn go together"


def model_of(document: Mapping[str, Any], name: str) -> ModelShape:
    """The model that a table describes.

    Raises:
        BadModelError: a field is missing, unknown, of another type or impossible.
    """
    try:
        model = msgspec.convert({"name": name, **document}, ModelShape)
    except msgspec.ValidationError as error:
        raise BadModelError(
            f"model {name}: {error}", hint="docs/scheduling.md lists the fields"
        ) from error
    for holds, text in model.rules():
        if not holds:
            raise BadModelError(f"model {name}: {text}")
    return model


@cache
def published_models() -> Mapping[str, ModelShape]:
    """Published models by name, in alphabetical order."""
    text = (files(PACKAGE) / "models.toml").read_text(encoding="utf-8")
    tables: dict[str, dict[str, Any]] = tomllib.loads(text)
    return {name: model_of(tables[name], name) for name in sorted(tables)}
