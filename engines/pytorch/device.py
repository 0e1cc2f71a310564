"""What models are computed on: a GPU where torch finds one, else the processor; and with what."""

import os

import torch

from engines.pytorch.kernels.torch_ops import torch_ops
from engines.pytorch.ops import Ops


def choose_device(num_threads: int = 0) -> torch.device:
    """The first GPU; else the processor, with so many threads (0: all it may use)."""
    if torch.cuda.is_available():
        return torch.device("cuda", 0)
    torch.set_num_threads(num_threads or len(os.sched_getaffinity(0)))
    return torch.device("cpu")


def ops_for(device: torch.device) -> Ops:
    """Triton's kernels on a GPU, the same operations in plain torch elsewhere."""
    if device.type != "cuda":
        return torch_ops()
    from engines.pytorch.kernels.triton_ops import triton_ops

    return triton_ops()


def weights_dtype(device: torch.device) -> torch.dtype:
    """What matrices are held and multiplied in. Not every processor has a quick bfloat16."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def kv_dtype(device: torch.device) -> torch.dtype:
    """What keys and values are kept in.

    Rounded to 16 bits, they would make of the last bit of a sum, which depends on what is computed
    together, a difference that tells: drawn tokens then differ from batch to batch.
    """
    return torch.bfloat16 if device.type == "cuda" else torch.float32
