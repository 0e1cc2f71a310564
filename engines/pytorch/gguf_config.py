"""A model's make-up from the header of a GGUF file, with the defaults that llama.cpp has."""

import math
from collections.abc import Callable
from typing import Final, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from appliance.errors import CatalogueError
from engines.pytorch.fields import Fields
from engines.pytorch.model_config import (
    ExpertsConfig,
    LayerConfig,
    ModelConfig,
    RopeConfig,
    RopeKind,
)


class _Gemma(Struct, frozen=True, kw_only=True):
    """What a header does not tell of a generation.

    - `window` and `pattern`: which layers see a window, every so many see all, where it says none
    - `layers_of_largest`: its largest model scales scores by another number than the size of a
      head; only the number of layers tells it from the others
    """

    window: int
    pattern: int
    layers_of_largest: int


_GEMMA2: Final = _Gemma(window=4096, pattern=2, layers_of_largest=46)
_GEMMA3: Final = _Gemma(window=0, pattern=6, layers_of_largest=62)


def read_gguf_config(
    fields: Fields, architecture: str, *, vocabulary_size: int, tensors: frozenset[str]
) -> ModelConfig:
    """The make-up that a header describes; `tensors` are the names in the file.

    Raises CatalogueError `model.config_invalid` or `model.architecture_unknown`.
    """
    read = _READERS.get(architecture)
    if read is None:
        raise CatalogueError(
            "model.architecture_unknown",
            f"{fields.file}: this engine does not know the architecture {architecture}",
            hint=f"it knows {', '.join(_READERS)}",
        )
    config = read(_plain(fields, architecture, vocabulary_size), fields)
    return replace(
        config,
        is_tied="output.weight" not in tensors,
        has_qkv_bias="blk.0.attn_q.bias" in tensors,
        has_output_bias="blk.0.attn_output.bias" in tensors,
        has_mlp_bias="blk.0.ffn_up.bias" in tensors,
    )


def _plain(fields: Fields, architecture: str, vocabulary_size: int) -> ModelConfig:
    num_heads = _same_in_all(fields, "attention.head_count")
    hidden_size = fields.integer("embedding_length")
    head_dim = fields.integer("attention.key_length", max(1, hidden_size // num_heads))
    if fields.integer("attention.value_length", head_dim) != head_dim:
        raise fields.invalid("is not that of keys", of="attention.value_length")
    return ModelConfig(
        family="llama",
        architecture=architecture,
        vocabulary_size=vocabulary_size,
        hidden_size=hidden_size,
        intermediate_size=_same_in_all(fields, "feed_forward_length", 0),
        num_heads=num_heads,
        num_kv_heads=_same_in_all(fields, "attention.head_count_kv", num_heads),
        head_dim=head_dim,
        context_length=fields.integer("context_length"),
        norm_eps=fields.number("attention.layer_norm_rms_epsilon"),
        layers=(LayerConfig(),) * fields.integer("block_count"),
        rope=_rope(fields, head_dim),
        attention_scale=1 / math.sqrt(head_dim),
    )


def _same_in_all(fields: Fields, key: str, default: int | None = None) -> int:
    """A number that may be told layer by layer."""
    values = fields.get(key)
    if not isinstance(values, list):
        return fields.integer(key, default, least=0)
    if len(set(values)) != 1:
        raise fields.invalid("must be the same in all layers", of=key)
    return fields.with_values(**{key: values[0]}).integer(key)


def _rope(fields: Fields, head_dim: int) -> RopeConfig:
    rotated = fields.integer("rope.dimension_count", head_dim)
    rope = RopeConfig(theta=fields.number("rope.freq_base", 10_000.0), rotated_dim=rotated)
    kind = fields.text("rope.scaling.type", "linear")
    if kind == "none":
        return rope
    if kind not in ("linear", "yarn"):
        raise fields.invalid(f"{kind!r} is not one of none, linear, yarn", of="rope.scaling.type")
    context = fields.integer(
        "rope.scaling.original_context_length", fields.integer("context_length")
    )
    factor = fields.number("rope.scaling.factor", fields.number("rope.scale_linear", 1.0)) or 1.0
    sharper = fields.number("rope.scaling.attn_factor", 1.0)
    return replace(
        rope,
        kind=cast("RopeKind", kind),
        factor=factor,
        original_context=context,
        attention_factor=sharper * (1 + 0.1 * math.log(max(factor, 1.0))),
        beta_fast=fields.number("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=fields.number("rope.scaling.yarn_beta_slow", 1.0),
    )


def _llama(config: ModelConfig, fields: Fields) -> ModelConfig:
    """Llama, Mistral and Mixtral go by one name."""
    num_experts = fields.integer("expert_count", 0, least=0)
    if not num_experts:
        return config
    return _with_experts(config, fields, size=config.intermediate_size, normalises=True)


def _qwen(config: ModelConfig, _fields: Fields) -> ModelConfig:
    return config


def _qwen3(config: ModelConfig, _fields: Fields) -> ModelConfig:
    return replace(config, normalises_heads=True)


def _qwen2_moe(config: ModelConfig, fields: Fields) -> ModelConfig:
    return _with_experts(
        config,
        fields,
        size=_size_of_experts(config, fields),
        normalises=False,
        shared_size=fields.integer("expert_shared_feed_forward_length", config.intermediate_size),
    )


def _qwen3_moe(config: ModelConfig, fields: Fields) -> ModelConfig:
    config = replace(config, normalises_heads=True)
    size = _size_of_experts(config, fields)
    return _with_experts(config, fields, size=size, normalises=True)


def _size_of_experts(config: ModelConfig, fields: Fields) -> int:
    """Older files only tell how wide those are together that a token uses."""
    used = fields.integer("expert_used_count")
    return fields.integer("expert_feed_forward_length", config.intermediate_size // used)


def _with_experts(
    config: ModelConfig, fields: Fields, *, size: int, normalises: bool, shared_size: int = 0
) -> ModelConfig:
    experts = ExpertsConfig(
        num_experts=fields.integer("expert_count"),
        num_active=fields.integer("expert_used_count"),
        size=size,
        normalises=normalises,
        shared_size=shared_size,
    )
    layers = tuple(replace(layer, has_experts=True) for layer in config.layers)
    return replace(config, experts=experts, layers=layers)


def _gemma2(config: ModelConfig, fields: Fields) -> ModelConfig:
    return replace(
        _gemma(config, fields, _GEMMA2),
        attention_soft_cap=fields.number("attn_logit_softcapping", 50.0),
        logits_soft_cap=fields.number("final_logit_softcapping", 30.0),
    )


def _gemma3(config: ModelConfig, fields: Fields) -> ModelConfig:
    config = _gemma(config, fields, _GEMMA3)
    return replace(
        config,
        normalises_heads=True,
        logits_soft_cap=fields.number("final_logit_softcapping", 0.0),
        local_rope=RopeConfig(
            theta=fields.number("rope.freq_base_swa", 10_000.0), rotated_dim=config.rope.rotated_dim
        ),
        layers=tuple(replace(layer, uses_local_rope=layer.window > 0) for layer in config.layers),
    )


def _gemma(config: ModelConfig, fields: Fields, kind: _Gemma) -> ModelConfig:
    """Gemma's norms are stored with one added, unlike in a Hugging Face folder."""
    window = fields.integer("attention.sliding_window", kind.window, least=0)
    count = len(config.layers)
    are_local = _are_local(fields, kind.pattern, count)
    by = (
        config.hidden_size // config.num_heads
        if count == kind.layers_of_largest
        else config.head_dim
    )
    return replace(
        config,
        family="gemma",
        attention_scale=1 / math.sqrt(by),
        layers=tuple(LayerConfig(window=window if is_local else 0) for is_local in are_local),
    )


def _are_local(fields: Fields, pattern: int, count: int) -> list[bool]:
    """Which layers see a window only: listed, or all but every so many; 0: all."""
    key = "attention.sliding_window_pattern"
    listed = fields.get(key)
    if not isinstance(listed, list):
        every = fields.integer(key, pattern, least=0)
        return [every == 0 or (number + 1) % every != 0 for number in range(count)]
    if len(listed) != count:
        raise fields.invalid(f"must be {count} long, one for each layer", of=key)
    return [bool(is_local) for is_local in listed]


_Reader: TypeAlias = Callable[[ModelConfig, Fields], ModelConfig]
_READERS: Final[dict[str, _Reader]] = {
    "llama": _llama,
    "qwen2": _qwen,
    "qwen2moe": _qwen2_moe,
    "qwen3": _qwen3,
    "qwen3moe": _qwen3_moe,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
}
