"""What the GPU at hand has, asked once a device."""

from functools import cache

import torch

# Ada and Hopper are the first with instructions for float8.
_FLOAT8_CAPABILITY = (8, 9)


@cache
def has_float8(device: torch.device) -> bool:
    """Whether it converts float8_e4m3fn itself."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= _FLOAT8_CAPABILITY


@cache
def num_processors(device: torch.device) -> int:
    """Its streaming multiprocessors; 1 where there is no GPU and kernels are interpreted."""
    if device.type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count


@cache
def shared_bytes(device: torch.device) -> int:
    """Shared memory of one of its multiprocessors."""
    if device.type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).shared_memory_per_multiprocessor
