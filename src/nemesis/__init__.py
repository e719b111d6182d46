"""NEMESIS keeps GPU training jobs running through hardware faults."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nemesis.training.hook import Hook
    from nemesis.training.stateful import Stateful

__version__ = "0.1.0"


def attach(
    *things: "Stateful",
    seed: int = 0,
    tp: int = 1,
    cp: int = 1,
    pp: int = 1,
    ep: int = 1,
    checksum_steps: int = 100,
) -> "Hook":
    """Tie this training process to its node's agent (training/hook.py shows the loop).

    `things`: whatever has `state_dict` and `load_state_dict` and is changed by a step, in an order
    that is the same on all ranks; `seed`: of the order of samples, the same too; `tp`, `cp`, `pp`,
    `ep`: parallel degrees, as the job was submitted with (schemas/layout.py); `checksum_steps`:
    after every so many steps a checksum of the parameters is told, 0 for never.
    """
    import importlib

    module = importlib.import_module("nemesis.training.attach")
    layout = importlib.import_module("nemesis.schemas.layout")
    attached: Hook = module.attach(
        importlib.import_module("torch"),
        things,
        seed=seed,
        degrees=layout.Degrees(tp=tp, cp=cp, pp=pp, ep=ep),
        checksum_steps=checksum_steps,
    )
    return attached
