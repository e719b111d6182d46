"""What the demo trains: a small transformer that learns a text, byte by byte. Run by each rank.

Under an agent its loop is tied to NEMESIS; under torchrun the same model learns from the same
samples, saves each SAVE_EVERY steps and goes on from there when it is started anew. Writes a line
of JSON a step to `rank_<n>.jsonl`. Environment: DEMO_TEXT, DEMO_OUT, DEMO_STEPS, DEMO_TIMEOUT_S.
"""

import ctypes
import importlib
import json
import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TextIO

import nemesis
from nemesis.training.samples import sample_ids

LENGTH: Final = 64
WIDTH: Final = 64
BATCH: Final = 8
SEED: Final = 7
SAVE_EVERY: Final = 10
_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h

torch: Any = importlib.import_module("torch")


class Learner:
    """Model, optimizer and text; equal in every process."""

    def __init__(self, text: bytes) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(SEED)
        nn = torch.nn
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.model: Final[Any] = nn.ModuleDict(
            {
                "bytes": nn.Embedding(256, WIDTH),
                "places": nn.Embedding(LENGTH, WIDTH),
                "layers": nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
                "out": nn.Linear(WIDTH, 256),
            }
        )
        self.optimizer: Final[Any] = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.text: Final[Any] = torch.tensor(list(text), dtype=torch.long)
        self.samples_count: Final = len(text) - LENGTH
        self._mask: Final[Any] = nn.Transformer.generate_square_subsequent_mask(LENGTH)

    def loss(self, ids: list[int]) -> Any:
        """Mean cross entropy of the next byte, in nats, over windows that start at these places."""
        parts = self.model
        windows = torch.stack([self.text[at : at + LENGTH + 1] for at in ids])
        seen = parts["bytes"](windows[:, :-1]) + parts["places"](torch.arange(LENGTH))
        known = parts["layers"](seen, mask=self._mask, is_causal=True)
        return torch.nn.functional.cross_entropy(
            parts["out"](known).flatten(0, 1), windows[:, 1:].flatten()
        )


def main() -> None:
    """Train to the end."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    learner = Learner(Path(os.environ["DEMO_TEXT"]).read_bytes())
    out, rank = Path(os.environ["DEMO_OUT"]), int(os.environ["RANK"])
    with (out / f"rank_{rank}.jsonl").open("a", buffering=1) as told:
        life = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        told.write(json.dumps({"pid": os.getpid(), "life": life}) + "\n")
        if os.environ.get("NEMESIS_AGENT"):
            _train(learner, told)
        else:
            _train_and_save(learner, out, told, life)


def _train(learner: Learner, told: TextIO) -> None:
    last = int(os.environ["DEMO_STEPS"])
    hook = nemesis.attach(learner.model, learner.optimizer, seed=SEED)
    while hook.steps_count < last:
        with hook.step() as step:
            learner.optimizer.zero_grad()
            loss = learner.loss(step.samples(learner.samples_count, BATCH))
            loss.backward()
            step.average(learner.model.parameters())
            learner.optimizer.step()
            tell(told, hook.steps_count, loss, hook.members)


def _train_and_save(learner: Learner, out: Path, told: TextIO, life: int) -> None:
    dist: Any = importlib.import_module("torch.distributed")
    dist.init_process_group("gloo", timeout=timedelta(seconds=float(os.environ["DEMO_TIMEOUT_S"])))
    rank, world, saved = dist.get_rank(), dist.get_world_size(), out / "checkpoint.pt"
    done = 0
    if saved.exists():
        state = torch.load(saved, weights_only=True)
        learner.model.load_state_dict(state["model"])
        learner.optimizer.load_state_dict(state["optimizer"])
        done = state["done"]
    while done < int(os.environ["DEMO_STEPS"]):
        taken = done * BATCH * world
        ids = sample_ids(taken, length=learner.samples_count, batch=BATCH, position=rank, seed=SEED)
        learner.optimizer.zero_grad()
        loss = learner.loss(ids)
        loss.backward()
        _average(learner.model, dist.all_reduce, world)
        learner.optimizer.step()
        done += 1
        tell(told, done, loss, tuple(range(world)), life)
        if done % SAVE_EVERY == 0 and rank == 0:
            whole = {
                "model": learner.model.state_dict(),
                "optimizer": learner.optimizer.state_dict(),
                "done": done,
            }
            torch.save(whole, f"{saved}.new")
            Path(f"{saved}.new").replace(saved)
    dist.destroy_process_group()


def _average(model: Any, reduce: Callable[[Any], Any], world: int) -> None:
    gradients = [each.grad for each in model.parameters()]
    flat = torch.cat([each.reshape(-1) for each in gradients])
    reduce(flat)
    flat /= world
    at = 0
    for each in gradients:
        each.copy_(flat[at : at + each.numel()].view_as(each))
        at += each.numel()


def tell(told: TextIO, step: int, loss: Any, members: tuple[int, ...], life: int = 0) -> None:
    """Write that a step was applied; `loss`: of this rank's samples."""
    line = {
        "step": step,
        "loss": round(float(loss.detach()), 4),
        "members": members,
        "life": life,
        "at_ns": time.time_ns(),
    }
    told.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
