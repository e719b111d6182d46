"""What a token costs in FLOPs, the numerator of MFU.

A multiply and an add are two. Backward is twice forward; what is computed again is never counted
(MFU, not hardware utilisation). Attention is counted over the whole sequence, as PaLM, Megatron-LM,
MosaicML and torchtitan do: the numerators of two figures must be the same before they are compared
(docs/mfu.md says what each source counts).
"""

from nemesis.processors.parallelism.model import ModelShape


def flops_per_token(shape: ModelShape, sequence: int) -> int:
    """Forward and backward of one token, without what is recomputed."""
    inputs = 0 if shape.tied else shape.embedding
    scores = 4 * shape.heads * shape.head_width * sequence * shape.layers
    return 6 * (shape.active - inputs) + 3 * scores
