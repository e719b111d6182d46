"""The loop that tests train: a small network on fixed numbers, four lines of it the hook's.

Run by an interpreter that has torch. Environment: OUT, a folder; STEPS; FATE `KIND:RANK@STEP ...`,
what befalls whom before its reduction of that step: a signal; `cut`: the reduction completes and it
does not see it; `sleep`: it never comes to it; `alter`: one of its numbers changes; `applied+` and
a signal: as soon as it has applied the step; `giving+` and a signal: when it gives its state to a
peer; LATE `RANK:SECONDS`, who is slow after its loop; SAVE,
after how many steps the first member saves; CHECK, after how many parameters are compared. Appends
one line a step: number, members, the loss and the samples' sum, exactly; what it has at the end is
a file of its own.
"""

import importlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import nemesis
from nemesis.training.gloo_group import BrokenGroupError

torch: Any = importlib.import_module("torch")

LENGTH, WIDTH, BATCH, SEED = 512, 16, 4, 5
APPLIED, GIVING = "applied+", "giving+"
OVER_S = 300.0
"""Longer than any test waits."""


def parts() -> tuple[Any, Any, Any, Any]:
    """Network, optimizer, samples and what is to be learnt of them; equal in every process."""
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data = torch.randn(LENGTH, WIDTH)
    return model, optimizer, data, data.sum(1, keepdim=True).tanh()


def checksum(model: Any) -> str:
    """Of all parameters, to the last bit."""
    return float(sum(each.detach().double().sum() for each in model.parameters())).hex()


def fates(rank: int) -> dict[int, str]:
    """What is to befall a rank once, by the steps that it has then."""
    found: dict[int, str] = {}
    for each in os.environ.get("FATE", "").split():
        fate, _, when = each.partition("@")
        kind, _, whom = fate.partition(":")
        if int(whom) == rank:
            found[int(when)] = kind
    return found


def befall(kind: str, hook: Any, model: Any) -> None:
    """What is to befall this rank."""
    if kind == "sleep":
        time.sleep(OVER_S)
    if kind == "alter":
        with torch.no_grad():
            model[0].bias[3] += 0.25
        return
    if kind.startswith(GIVING):
        model.state_dict = lambda: befall(kind.removeprefix(GIVING), hook, model)
        return
    if kind != "cut":
        os.kill(os.getpid(), getattr(signal, kind))
        return
    group = hook._groups.world
    reduce = group.reduce

    def reduce_unseen(tensor: Any, given_up: Any) -> None:
        reduce(tensor, given_up)
        raise BrokenGroupError("cut off")

    group.reduce = reduce_unseen


def resume(hook: Any, model: Any, optimizer: Any) -> None:
    """Load what the job is to go on from, if it is started anew."""
    if hook.checkpoint:
        saved = torch.load(hook.checkpoint)
        for each, state in zip((model, optimizer, hook), saved, strict=True):
            each.load_state_dict(state)


def save(path: Path, hook: Any, model: Any, optimizer: Any) -> None:
    """Write a checkpoint, whole or not at all, and tell of it."""
    beside = path.with_suffix(".part")
    torch.save([each.state_dict() for each in (model, optimizer, hook)], beside)
    beside.replace(path)
    hook.checkpointed(path)


def main() -> None:
    """Train to the end."""
    out, last = Path(os.environ["OUT"]), int(os.environ["STEPS"])
    rank = int(os.environ["RANK"])
    kinds = fates(rank)
    model, optimizer, data, wanted = parts()
    checksum_steps = int(os.environ.get("CHECK", "100"))
    hook = nemesis.attach(model, optimizer, seed=SEED, checksum_steps=checksum_steps)
    resume(hook, model, optimizer)
    save_steps = int(os.environ.get("SAVE", "0"))
    told = (out / f"rank_{rank}.txt").open("a", buffering=1)
    while hook.steps_count < last:
        with hook.step() as step:
            ids = step.samples(LENGTH, BATCH)
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(data[list(ids)]), wanted[list(ids)])
            loss.backward()
            kind = kinds.pop(hook.steps_count, "")
            is_later = kind.startswith(APPLIED)
            if kind and not is_later:
                befall(kind, hook, model)
            step.average(model.parameters())
            optimizer.step()
            members = ",".join(map(str, hook.members))
            told.write(
                f"{hook.steps_count} {members} {float(loss.detach()).hex()} {sum(ids)}"
                f" {checksum(model)}\n"
            )
            if is_later:
                befall(kind.removeprefix(APPLIED), hook, model)
        if save_steps and hook.steps_count % save_steps == 0 and hook.position == 0:
            save(out / f"saved_{hook.steps_count}.pt", hook, model, optimizer)
    (out / f"end_{rank}.txt").write_text(f"{hook.steps_count} {checksum(model)}")
    slow, _, seconds = os.environ.get("LATE", "").partition(":")
    if slow == str(rank):
        time.sleep(float(seconds))


if __name__ == "__main__":
    main()
