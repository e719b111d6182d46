"""A gated recurrent network, learning from the same cuts by the same loss as the model: a baseline.

It is asked what a network with a memory of its own makes of the same inputs. Its sums are floats
and its state feeds back, so nothing of it is exact, and it is not shipped.
"""

from pathlib import Path
from typing import Any, Final

import numpy as np

from nemesis.processors.ecc_model.inputs import INPUTS
from nemesis.processors.ecc_model.model import HORIZONS_S, RECEPTIVE_STEPS
from nemesis.schemas.errors import NemesisError
from nemesis.sim.prediction.float_network import INPUT_BITS, SPARSE_STEPS, torch_module
from nemesis.sim.prediction.scored import Scored
from nemesis.sim.prediction.splits import DataSet
from nemesis.sim.telemetry.draws import Ints

GPUS_AT_ONCE: Final = 64


class NoRunError(NemesisError):
    """A folder without the run that is asked for."""

    exit_code = 2


class RecurrentNetwork:
    """One layer of gated units and a line."""

    def __init__(self, channels: int, seed: int) -> None:
        torch = torch_module()
        self.torch: Final[Any] = torch
        self.channels: Final = channels
        self.exact = False
        """Never: it has only floats."""
        torch.manual_seed(seed)
        self._units: Final[Any] = torch.nn.GRU(len(INPUTS), channels, batch_first=True)
        self._line: Final[Any] = torch.nn.Linear(channels, len(HORIZONS_S))

    def parameters(self) -> list[Any]:
        """Everything that is learnt."""
        return [*self._units.parameters(), *self._line.parameters()]

    def sparse(self, codes: Any) -> Any:
        """[batch, HORIZONS_S, judged] logits of int8 codes [batch, INPUTS, step]."""
        states, _ = self._units(codes.float().transpose(1, 2) / (1 << INPUT_BITS))
        return self._line(states[:, RECEPTIVE_STEPS::SPARSE_STEPS]).transpose(1, 2)

    def ranks(self, data: DataSet, found: Scored) -> Ints:
        """[HORIZONS_S, n]: log odds of failing within each horizon, in millionths."""
        torch, codes = self.torch, data.lives.codes
        logits = np.empty((len(HORIZONS_S), len(found.gpus)))
        for begin in range(0, codes.shape[2], GPUS_AT_ONCE):
            own = (found.gpus >= begin) & (found.gpus < begin + GPUS_AT_ONCE)
            part = torch.from_numpy(codes[:, :, begin : begin + GPUS_AT_ONCE].transpose(2, 0, 1))
            with torch.no_grad():
                states, _ = self._units(part.float() / (1 << INPUT_BITS))
                every = self._line(states).numpy()
            logits[:, own] = every[found.gpus[own] - begin, found.steps[own]].T
        return ranked(logits)


def recurrent(folder: Path) -> RecurrentNetwork:
    """The best weights of a run of `nemesis ecc train --network gru`.

    Raises:
        NoTorchError: torch is not installed.
        NoRunError: there is no such run.
    """
    torch = torch_module()
    try:
        kept = torch.load(folder / "state.pt", weights_only=True)
        weights = (kept["best"] or kept)["now"]
        network = RecurrentNetwork(weights[1].shape[1], 1)
        with torch.no_grad():
            for own, other in zip(network.parameters(), weights, strict=True):
                own.copy_(other)
    except (OSError, KeyError, IndexError, ValueError, RuntimeError) as error:
        raise NoRunError(f"{folder}: not a run of `train --network gru`: {error}") from error
    return network


def ranked(logits: Any) -> Ints:
    """Log odds of failing within each horizon from logits of hazards [HORIZONS_S, n]."""
    survived = -np.logaddexp(0.0, np.float64(logits)).cumsum(axis=0)
    odds = np.log(-np.expm1(survived)) - survived
    found: Ints = np.floor(np.clip(odds, -700, 700) * 1e6).astype(np.int64)
    return found
