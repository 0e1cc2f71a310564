"""What the layers of a model are made from."""

from msgspec import Struct
from torch import Tensor

from engines.pytorch.model_config import LayerConfig, ModelConfig
from engines.pytorch.ops import Ops
from engines.pytorch.weights import WeightLoader


class Ingredients(Struct, frozen=True, kw_only=True):
    """`num_tokens` of the vocabulary's rows are tokens. `angles`: cosines and sines, float32
    [positions, rotated_dim / 2], of layers as most are; `local_angles` of those that say so.
    """

    config: ModelConfig
    weights: WeightLoader
    ops: Ops
    num_tokens: int
    angles: tuple[Tensor, Tensor]
    local_angles: tuple[Tensor, Tensor] | None = None

    def angles_of(self, layer: LayerConfig) -> tuple[Tensor, Tensor]:
        """The angles of one layer."""
        return self.local_angles if layer.uses_local_rope and self.local_angles else self.angles

    def norm(self, name: str, size: int) -> Tensor:
        """The weights of an RMS norm."""
        return self.weights.vector(f"{name}.weight", size, offset=self.config.norm_offset)
