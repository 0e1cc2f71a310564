"""Gemma 2 and 3 (arXiv:2408.00118, arXiv:2503.19786): norms after each part as well as before it,
an embedding that is scaled, layers that see all before them or the last tokens only.
"""

from msgspec import Struct
from torch import Tensor

from engines.pytorch.ingredients import Ingredients
from engines.pytorch.kv_cache import LayerCache
from engines.pytorch.layers.attention import Attention, load_attention
from engines.pytorch.layers.embedding import Embedding, Head, load_embedding, load_head
from engines.pytorch.layers.mlp import Mlp, load_mlp
from engines.pytorch.model_config import LayerConfig
from engines.pytorch.ops import Ops
from engines.pytorch.step_inputs import StepInputs


class GemmaLayer(Struct, frozen=True, kw_only=True):
    """Norm, attention, norm, sum; norm, network, norm, sum."""

    attention_norm: Tensor
    attention: Attention
    attended_norm: Tensor
    mlp_norm: Tensor
    mlp: Mlp
    output_norm: Tensor


class Gemma(Struct, frozen=True, kw_only=True):
    """Layers that each add to what the one before left."""

    embedding: Embedding
    layers: tuple[GemmaLayer, ...]
    norm: Tensor
    head: Head
    eps: float
    ops: Ops

    def forward(self, inputs: StepInputs, cache: tuple[LayerCache, ...]) -> Tensor:
        """Logits of the rows that are wanted, float32 [R, vocabulary]."""
        ops, eps = self.ops, self.eps
        total = self.embedding(inputs.token_ids)
        normed = ops.rms_norm(total, self.layers[0].attention_norm, eps)
        next_norms = (*(layer.attention_norm for layer in self.layers[1:]), self.norm)
        for layer, kept, next_norm in zip(self.layers, cache, next_norms, strict=True):
            attended = layer.attention(normed, inputs, kept)
            attended = ops.rms_norm(attended, layer.attended_norm, eps)
            normed, total = ops.add_rms_norm(attended, total, layer.mlp_norm, eps)
            output = ops.rms_norm(layer.mlp(normed), layer.output_norm, eps)
            normed, total = ops.add_rms_norm(output, total, next_norm, eps)
        return self.head(normed[inputs.output_rows])


def load(made_of: Ingredients) -> Gemma:
    """The model, layer by layer."""
    config = made_of.config
    embedding = load_embedding(made_of, scale=config.hidden_size**0.5)
    return Gemma(
        embedding=embedding,
        layers=tuple(
            _load_layer(made_of, f"layers.{number}", layer)
            for number, layer in enumerate(config.layers)
        ),
        norm=made_of.norm("norm", config.hidden_size),
        head=load_head(made_of, embedding),
        eps=config.norm_eps,
        ops=made_of.ops,
    )


def _load_layer(made_of: Ingredients, name: str, layer: LayerConfig) -> GemmaLayer:
    config, ops = made_of.config, made_of.ops

    def norm(which: str) -> Tensor:
        return made_of.norm(f"{name}.{which}_layernorm", config.hidden_size)

    return GemmaLayer(
        attention_norm=norm("input"),
        attention=load_attention(made_of, f"{name}.self_attn", layer),
        attended_norm=norm("post_attention"),
        mlp_norm=norm("pre_feedforward"),
        mlp=load_mlp(made_of, f"{name}.mlp", config.intermediate_size, ops.gelu_mul),
        output_norm=norm("post_feedforward"),
    )
