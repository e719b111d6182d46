"""What the hook does over NCCL, on the GPUs of this machine that torch sees: for gpu-check."""

import importlib
import threading
from collections.abc import Callable
from typing import Any, Final

from nemesis.schemas.layout import Degrees
from nemesis.training.gloo_group import BrokenGroupError, GivenUpError, Grounds
from nemesis.training.groups import Groups, form
from nemesis.training.nccl_lane import Lane
from nemesis.training.nccl_lanes import lanes_on, nccl_backend
from nemesis.training.nccl_library import NcclError

HOST: Final = "127.0.0.1"


def lane_checks() -> list[tuple[str, Callable[[], None]]]:
    """Name and check of each; none where torch is not there or sees no GPU."""
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        return []
    count = torch.cuda.device_count()
    checks: list[tuple[str, Callable[[], None]]] = []
    if count:
        checks.append(("torch: group, all-reduce, abort", lambda: _alone(torch)))
    if count > 1:
        checks.append(("hook: groups, all-reduce, shrink", lambda: _shrinks(torch, count)))
    return checks


def _alone(torch: Any) -> None:
    device = torch.device("cuda", 0)
    try:
        backend = nccl_backend(torch, device, torch.distributed.HashStore(), 0, 1)
        lane = Lane(backend, "cuda")
        lane.allreduce([torch.ones(4, device=device)]).wait()
        torch.cuda.synchronize(device)
        lane.abort()
    except RuntimeError as error:
        raise NcclError(str(error).partition("\n")[0]) from error


def _shrinks(torch: Any, count: int) -> None:
    """A rank a GPU, in threads; the last one leaves at a boundary."""
    store = torch.distributed.TCPStore(HOST, 0, None, is_master=True, wait_for_workers=False)
    failed: list[str] = []
    met = threading.Barrier(count)

    def run(rank: int) -> None:
        try:
            _rank(torch, rank, count, store.port, met)
        except (BrokenGroupError, GivenUpError, RuntimeError, NcclError) as error:
            failed.append(f"rank {rank}: {error}")
            met.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if failed:
        raise NcclError(failed[0])


def _rank(torch: Any, rank: int, count: int, port: int, met: threading.Barrier) -> None:
    torch.cuda.set_device(rank)
    grounds = Grounds(torch, HOST)
    lanes = lanes_on(torch, grounds, (torch.nn.Linear(1, 1).to(f"cuda:{rank}"),))
    groups: Groups | None = None
    for epoch in range(2):
        members = tuple(range(count - epoch))
        if rank in members:
            new = form(
                grounds,
                str(epoch),
                members,
                rank,
                degrees=Degrees(),
                store=f"{HOST}:{port}",
                given_up=lambda: False,
            )
            lanes.lay(groups, epoch - 1, new, lambda: False)
            groups = new
            tensor = torch.ones(4, device=f"cuda:{rank}")
            groups.world.reduce(tensor, lambda: False)
            if float(tensor[0]) != len(members):
                raise NcclError(f"a sum over {len(members)} is {float(tensor[0])}")
        met.wait()
    if groups is not None:
        groups.close_lanes()
