"""Attention of one layer over the paged cache."""

from msgspec import Struct
from torch import Tensor

from engines.pytorch.ingredients import Ingredients
from engines.pytorch.kv_cache import LayerCache
from engines.pytorch.layers.linear import Linear, by_inputs, by_outputs
from engines.pytorch.model_config import LayerConfig
from engines.pytorch.ops import AttentionShape, Ops, Rotation
from engines.pytorch.step_inputs import StepInputs


class Attention(Struct, frozen=True, kw_only=True):
    """`num_heads` query and `num_kv_heads` key-value heads, those of this shard."""

    qkv: Linear
    output: Linear
    rotation: Rotation
    shape: AttentionShape
    num_heads: int
    num_kv_heads: int
    ops: Ops

    def __call__(self, hidden: Tensor, inputs: StepInputs, cache: LayerCache) -> Tensor:
        """[T, C] to [T, C]; keys and values go into the cache."""
        heads = self.qkv(hidden).view(len(hidden), self.num_heads + 2 * self.num_kv_heads, -1)
        first_value = self.num_heads + self.num_kv_heads
        queries, keys, values = heads.tensor_split((self.num_heads, first_value), dim=1)
        queries, keys = self.ops.rotate(queries, keys, inputs.positions, self.rotation)
        self.ops.store_kv(cache, keys, values, inputs.slots)
        attended = self.ops.attend(queries, cache, inputs, self.shape)
        return self.output(attended.flatten(1))


def load_attention(made_of: Ingredients, name: str, layer: LayerConfig) -> Attention:
    """The attention of that name in a layer."""
    config, weights = made_of.config, made_of.weights
    sizes = [heads * config.head_dim for heads in (config.num_heads, *[config.num_kv_heads] * 2)]
    return Attention(
        qkv=by_outputs(
            weights,
            [f"{name}.{which}_proj" for which in "qkv"],
            sizes,
            config.hidden_size,
            has_bias=config.has_qkv_bias,
        ),
        output=by_inputs(
            weights,
            f"{name}.o_proj",
            config.hidden_size,
            sizes[0],
            has_bias=config.has_output_bias,
        ),
        rotation=_load_rotation(made_of, name, layer),
        shape=AttentionShape(
            scale=config.attention_scale,
            window=layer.window,
            soft_cap=config.attention_soft_cap,
        ),
        num_heads=weights.shard.share(config.num_heads),
        num_kv_heads=weights.shard.share(config.num_kv_heads),
        ops=made_of.ops,
    )


def _load_rotation(made_of: Ingredients, name: str, layer: LayerConfig) -> Rotation:
    config = made_of.config
    cosines, sines = made_of.angles_of(layer)
    query_norm = key_norm = None
    if config.normalises_heads:
        query_norm = made_of.norm(f"{name}.q_norm", config.head_dim)
        key_norm = made_of.norm(f"{name}.k_norm", config.head_dim)
    return Rotation(
        cosines=cosines,
        sines=sines,
        query_norm=query_norm,
        key_norm=key_norm,
        eps=config.norm_eps,
    )
