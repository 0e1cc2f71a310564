"""What a model takes in memory: byte arithmetic only, no machine is asked here.

What a step computes in between is small beside the rest and counted with the worker.
"""

from typing import Final

from msgspec import Struct

from appliance.catalogue import ModelSpec

# What a worker takes before its weights: 30 MB with the echo engine, 130 MB with llama.cpp.
WORKER_BYTES: Final = 192 * 1024 * 1024
# 450 MB with torch; with a GPU's libraries loaded some gigabytes.
TORCH_WORKER_BYTES: Final = 640 * 1024 * 1024
GPU_WORKER_BYTES: Final = 4 * 1024 * 1024 * 1024
# A processor computes with torch in float32, and keeps keys and values so: 16 bits are counted.
_TORCH_WEIGHT_BYTES: Final = 4
_TORCH_KV_FACTOR: Final = 2
# Where nobody has counted the weights: those of a file with four bits each.
_MOST_UNPACKED: Final = 8
# The context of a sequence where nobody says another.
DEFAULT_CONTEXT_TOKENS: Final = 4096
# Engines set memory aside in pieces of so many tokens.
_PIECE_TOKENS: Final = 256


class Footprint(Struct, frozen=True, kw_only=True):
    """The memory of one model, in bytes, for `num_slots` sequences of `context_tokens`."""

    worker_bytes: int = WORKER_BYTES
    weights_bytes: int
    kv_bytes: int
    context_tokens: int
    num_slots: int

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return self.worker_bytes + self.weights_bytes + self.kv_bytes


def share_for_prefixes(need: Footprint, spare_bytes: int, share: float) -> int:
    """What prefixes beyond the slots may take of the bytes that a model leaves over.

    None for a model that keeps no keys and values.
    """
    return int(max(0, spare_bytes) * share) if need.kv_bytes else 0


def measure(
    spec: ModelSpec,
    *,
    runner: str = "",
    has_gpu: bool = False,
    context_tokens: int = 0,
    num_slots: int = 0,
) -> Footprint:
    """What a model takes of the machine's memory, on `runner` (its own where none is named).

    0: its usual context, and one sequence, the least it can run with.
    """
    usual = spec.context_tokens or min(
        spec.trained_tokens or DEFAULT_CONTEXT_TOKENS, DEFAULT_CONTEXT_TOKENS
    )
    tokens, slots = context_tokens or usual, num_slots or 1
    slot_tokens = -(-tokens // _PIECE_TOKENS) * _PIECE_TOKENS
    in_torch = (runner or spec.runner) == "pytorch"
    kv_factor = _TORCH_KV_FACTOR if in_torch and not has_gpu else 1
    return Footprint(
        worker_bytes=_torch_worker_bytes(has_gpu=has_gpu) if in_torch else WORKER_BYTES,
        weights_bytes=_torch_bytes(spec, has_gpu=has_gpu) if in_torch else spec.weights_bytes,
        kv_bytes=spec.kv_bytes_per_token * kv_factor * slot_tokens * slots,
        context_tokens=tokens,
        num_slots=slots,
    )


def _torch_worker_bytes(*, has_gpu: bool) -> int:
    return GPU_WORKER_BYTES if has_gpu else TORCH_WORKER_BYTES


def _torch_bytes(spec: ModelSpec, *, has_gpu: bool) -> int:
    """The weights as torch holds them: unpacked, and where there is a GPU, in its memory alone."""
    if has_gpu:
        return 0
    return _TORCH_WEIGHT_BYTES * spec.num_weights or _MOST_UNPACKED * spec.weights_bytes
