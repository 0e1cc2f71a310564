"""Llama and what is built like it (arXiv:2302.13971): Mistral, Mixtral, Qwen 2 and 3."""

from msgspec import Struct
from torch import Tensor

from engines.pytorch.ingredients import Ingredients
from engines.pytorch.kv_cache import LayerCache
from engines.pytorch.layers.attention import Attention, load_attention
from engines.pytorch.layers.embedding import Embedding, Head, load_embedding, load_head
from engines.pytorch.layers.experts import Experts, load_experts
from engines.pytorch.layers.mlp import Mlp, load_mlp
from engines.pytorch.model_config import LayerConfig
from engines.pytorch.ops import Ops
from engines.pytorch.step_inputs import StepInputs


class LlamaLayer(Struct, frozen=True, kw_only=True):
    """Norm, attention, sum; norm, network, sum."""

    attention_norm: Tensor
    attention: Attention
    mlp_norm: Tensor
    mlp: Mlp | Experts


class Llama(Struct, frozen=True, kw_only=True):
    """Layers that each add to what the one before left."""

    embedding: Embedding
    layers: tuple[LlamaLayer, ...]
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
            normed, total = ops.add_rms_norm(attended, total, layer.mlp_norm, eps)
            normed, total = ops.add_rms_norm(layer.mlp(normed), total, next_norm, eps)
        return self.head(normed[inputs.output_rows])


def load(made_of: Ingredients) -> Llama:
    """The model, layer by layer."""
    config = made_of.config
    embedding = load_embedding(made_of)
    return Llama(
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


def _load_layer(made_of: Ingredients, name: str, layer: LayerConfig) -> LlamaLayer:
    size = made_of.config.hidden_size
    return LlamaLayer(
        attention_norm=made_of.norm(f"{name}.input_layernorm", size),
        attention=load_attention(made_of, f"{name}.self_attn", layer),
        mlp_norm=made_of.norm(f"{name}.post_attention_layernorm", size),
        mlp=_load_mlp(made_of, f"{name}.mlp", layer),
    )


def _load_mlp(made_of: Ingredients, name: str, layer: LayerConfig) -> Mlp | Experts:
    if layer.has_experts and made_of.config.experts is not None:
        return load_experts(made_of, name, made_of.config.experts, made_of.ops.silu_mul)
    return load_mlp(made_of, name, made_of.config.intermediate_size, made_of.ops.silu_mul)
