"""What the GPUs of a node are doing, as far as their readings show it."""

from typing import Final, Literal

Load = Literal["training", "stalled", "idle"]
LOADS: Final[tuple[Load, ...]] = ("idle", "stalled", "training")
IDLE: Final = 0
STALLED: Final = 1
TRAINING: Final = 2
LOAD_INDEX: Final[dict[Load, int]] = {load: at for at, load in enumerate(LOADS)}
