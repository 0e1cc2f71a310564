"""What each of two processes does that share a model; it imports little, for each does so anew."""

from pathlib import Path

import torch
from torch import Tensor, distributed

from engines.pytorch.kernels.torch_ops import torch_ops
from engines.pytorch.layers.shard import ALONE, Shard
from engines.pytorch.models import Model, load_model
from tests.engines.pytorch.paged_steps import PagedSteps

TEXT = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38]


def load(folder: Path, shard: Shard = ALONE) -> Model:
    return load_model(
        folder, dtype=torch.float32, device=torch.device("cpu"), ops=torch_ops(), shard=shard
    )


def reduce(tensor: Tensor) -> Tensor:
    distributed.all_reduce(tensor)
    return tensor


def gather(tensor: Tensor) -> Tensor:
    parts = [torch.empty_like(tensor) for _ in range(distributed.get_world_size())]
    distributed.all_gather(parts, tensor.contiguous())
    return torch.cat(parts, dim=-1)


def compute_part(rank: int, folder: Path, names: list[str]) -> None:
    """Compute the text with this part of every model, and save the logits."""
    torch.set_num_threads(1)
    meeting = f"file://{folder / 'meeting'}"
    distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    shard = Shard(rank=rank, size=2, reduce=reduce, gather=gather)
    for name in names:
        model = load(folder / name, shard)
        torch.save(PagedSteps(model).step({"text": TEXT})["text"], folder / f"{name}-{rank}.pt")
    distributed.destroy_process_group()
