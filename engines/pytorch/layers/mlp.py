"""The gated network of a layer (arXiv:2002.05202)."""

from collections.abc import Callable

from msgspec import Struct
from torch import Tensor

from engines.pytorch.ingredients import Ingredients
from engines.pytorch.layers.linear import Linear, by_inputs, by_outputs


class Mlp(Struct, frozen=True, kw_only=True):
    """`activate([T, 2 I]) -> [T, I]` is one of the activations of `engines.pytorch.ops.Ops`."""

    gate_up: Linear
    down: Linear
    activate: Callable[[Tensor], Tensor]

    def __call__(self, hidden: Tensor) -> Tensor:
        """[T, C] to [T, C]."""
        return self.down(self.activate(self.gate_up(hidden)))


def load_mlp(
    made_of: Ingredients, name: str, size: int, activate: Callable[[Tensor], Tensor]
) -> Mlp:
    """The network of that name, `size` wide."""
    weights, hidden_size = made_of.weights, made_of.config.hidden_size
    has_bias = made_of.config.has_mlp_bias
    names = (f"{name}.gate_proj", f"{name}.up_proj")
    return Mlp(
        gate_up=by_outputs(weights, names, (size, size), hidden_size, has_bias=has_bias),
        down=by_inputs(weights, f"{name}.down_proj", hidden_size, size, has_bias=has_bias),
        activate=activate,
    )
