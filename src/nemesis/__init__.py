"""NEMESIS keeps GPU training jobs running through hardware faults."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nemesis.training.hook import Hook, Stateful

__version__ = "0.1.0"


def attach(
    *things: "Stateful", seed: int = 0, tp: int = 1, cp: int = 1, pp: int = 1, ep: int = 1
) -> "Hook":
    """Tie this training process to its node's agent (training/hook.py shows the loop).

    `things`: whatever has `state_dict` and `load_state_dict` and is changed by a step, in an order
    that is the same on all ranks; `seed`: of the order of samples, the same too; `tp`, `cp`, `pp`,
    `ep`: parallel degrees, as the job was submitted with (schemas/layout.py).
    """
    import importlib

    module = importlib.import_module("nemesis.training.attach")
    attached: Hook = module.attach(
        importlib.import_module("torch"), things, seed=seed, tp=tp, cp=cp, pp=pp, ep=ep
    )
    return attached
