"""The two gated activations: an activated first half times the second."""

from torch import Tensor
from torch.nn import functional


def silu_mul(gate_up: Tensor) -> Tensor:
    """[T, 2 I] to [T, I]: gate * sigmoid(gate) * up."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (functional.silu(gate) * up).to(gate_up.dtype)


def gelu_mul(gate_up: Tensor) -> Tensor:
    """[T, 2 I] to [T, I]: gelu(gate) * up, gelu in its tanh form."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (functional.gelu(gate, approximate="tanh") * up).to(gate_up.dtype)
