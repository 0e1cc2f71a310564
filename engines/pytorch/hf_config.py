"""A model's make-up from the `config.json` of a Hugging Face folder."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

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
from engines.pytorch.quantization_config import read_quantization

_FILE: Final = "config.json"
_SILU: Final = frozenset({"silu", "swish"})
_GELU: Final = frozenset({"gelu_pytorch_tanh", "gelu_new", "gelu_fast"})
_GEMMA3_PATTERN: Final = 6
# Eight times as many as the deepest known model has.
_MOST_LAYERS: Final = 1024


def read_json(path: Path) -> dict[str, Any]:
    """An object in a JSON file. Raises CatalogueError `model.config_invalid`."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        message = f"{path.name} cannot be read: {error.strerror}"
        raise CatalogueError("model.config_invalid", message) from None
    except (ValueError, RecursionError) as error:
        message = f"{path.name} is not JSON: {error}"
        raise CatalogueError("model.config_invalid", message) from None
    if not isinstance(value, dict):
        raise CatalogueError("model.config_invalid", f"{path.name} is not an object")
    return cast("dict[str, Any]", value)


def read_hf_config(folder: Path) -> ModelConfig:
    """The make-up of the model in a folder.

    Raises CatalogueError `model.config_invalid` or `model.architecture_unknown`.
    """
    whole = read_json(folder / _FILE)
    architectures = whole.get("architectures")
    if not (isinstance(architectures, list) and architectures):
        raise CatalogueError("model.config_invalid", f"{_FILE}: architectures is missing")
    name = str(architectures[0])
    read = _READERS.get(name)
    if read is None:
        raise CatalogueError(
            "model.architecture_unknown",
            f"{_FILE}: this engine does not know the architecture {name}",
            hint=f"it knows {', '.join(_READERS)}",
        )
    # A model that also sees keeps what concerns its text apart.
    text = whole.get("text_config")
    fields = Fields(text if isinstance(text, dict) else whole, _FILE)
    config = replace(read(fields, name), quantization=read_quantization(Fields(whole, _FILE)))
    _check(fields, config)
    return config


def _check(fields: Fields, config: ModelConfig) -> None:
    if config.num_heads % config.num_kv_heads:
        raise fields.invalid("does not divide num_attention_heads", of="num_key_value_heads")
    if config.head_dim % 2:
        raise fields.invalid("must be even", of="head_dim")
    for rope in filter(None, (config.rope, config.local_rope)):
        if rope.rotated_dim % 2 or rope.rotated_dim > config.head_dim:
            raise fields.invalid("does not turn pairs of a head", of="partial_rotary_factor")
        if rope.theta <= 1:
            raise fields.invalid("must be more than 1", of="rope_theta")
    if config.experts and config.experts.num_active > config.experts.num_experts:
        raise fields.invalid("is more than there are experts", of="num_experts_per_tok")


def _plain(fields: Fields, name: str) -> ModelConfig:
    """What all of them have, as Llama has it (arXiv:2302.13971)."""
    _check_activation(fields, "hidden_act", _SILU)
    num_heads, hidden_size = fields.integer("num_attention_heads"), fields.integer("hidden_size")
    head_dim = fields.integer("head_dim", max(1, hidden_size // num_heads))
    has_bias = fields.flag("attention_bias", default=False)
    return ModelConfig(
        family="llama",
        architecture=name,
        vocabulary_size=fields.integer("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=fields.integer("intermediate_size"),
        num_heads=num_heads,
        num_kv_heads=fields.integer("num_key_value_heads", num_heads),
        head_dim=head_dim,
        context_length=fields.integer("max_position_embeddings"),
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        layers=_layers(fields),
        rope=_rope(fields, head_dim),
        attention_scale=1 / math.sqrt(head_dim),
        is_tied=fields.flag("tie_word_embeddings", default=False),
        has_qkv_bias=has_bias,
        has_output_bias=has_bias,
        has_mlp_bias=fields.flag("mlp_bias", default=False),
    )


def _check_activation(fields: Fields, key: str, known: frozenset[str]) -> None:
    if fields.text(key, next(iter(known))) not in known:
        raise fields.invalid(
            f"{fields.get(key)!r} is not one of {', '.join(sorted(known))}", of=key
        )


def _layers(fields: Fields, *, slides: bool = True) -> tuple[LayerConfig, ...]:
    """Those slide that `layer_types` names; where it is absent, all if there is a window."""
    count = _count_layers(fields)
    window = fields.integer("sliding_window", 0, least=0) if slides else 0
    kinds = (
        fields.get("layer_types") or ["sliding_attention" if window else "full_attention"] * count
    )
    if not isinstance(kinds, list) or len(kinds) != count:
        raise fields.invalid(f"does not name {count} layers", of="layer_types")
    if unknown := [kind for kind in kinds if kind not in ("sliding_attention", "full_attention")]:
        raise fields.invalid(f"has kinds that are not known: {unknown}", of="layer_types")
    return tuple(LayerConfig(window=window if kind == "sliding_attention" else 0) for kind in kinds)


def _count_layers(fields: Fields) -> int:
    count = fields.integer("num_hidden_layers")
    if count > _MOST_LAYERS:
        raise fields.invalid(f"is more than {_MOST_LAYERS}", of="num_hidden_layers")
    return count


def _rope(fields: Fields, head_dim: int, kind: str = "") -> RopeConfig:
    """Angles; `kind` where a model has several, told apart by the kind of layer."""
    parameters = fields.nested("rope_parameters")
    parameters = parameters.nested(kind) if kind and parameters.has(kind) else parameters
    old = fields.nested("rope_scaling")
    scaling = parameters if parameters.has("rope_type") else old
    theta = parameters.number("rope_theta", fields.number("rope_theta", 10_000.0))
    rotated = head_dim * parameters.number(
        "partial_rotary_factor", fields.number("partial_rotary_factor", 1.0)
    )
    return _stretched(
        RopeConfig(theta=theta, rotated_dim=int(rotated)),
        scaling,
        fields.integer("max_position_embeddings"),
    )


def _stretched(rope: RopeConfig, scaling: Fields, context_length: int) -> RopeConfig:
    kind = scaling.text("rope_type", scaling.text("type", "default"))
    if kind == "default":
        return rope
    if kind not in ("linear", "llama3", "yarn"):
        raise scaling.invalid(
            f"{kind!r} is not one of default, linear, llama3, yarn", of="rope_type"
        )
    return replace(
        rope,
        kind=cast("RopeKind", kind),
        factor=scaling.positive("factor"),
        original_context=scaling.integer("original_max_position_embeddings", context_length),
        low_frequency_factor=scaling.number("low_freq_factor", 1.0),
        high_frequency_factor=scaling.number("high_freq_factor", 4.0),
        beta_fast=scaling.positive("beta_fast", 32.0),
        beta_slow=scaling.positive("beta_slow", 1.0),
        truncates=scaling.flag("truncate", default=True),
        attention_factor=scaling.number("attention_factor", 0.0),
    )


def _qwen2(fields: Fields, name: str) -> ModelConfig:
    """Qwen 2 and 2.5: biases on queries, keys and values; later layers may slide."""
    slides = fields.flag("use_sliding_window", default=False)
    config = replace(
        _plain(fields, name),
        layers=_layers(fields, slides=slides),
        has_qkv_bias=fields.flag("qkv_bias", default=True),
        has_output_bias=False,
    )
    if not slides or fields.has("layer_types"):
        return config
    first = fields.integer("max_window_layers", 28, least=0)
    layers = tuple(
        replace(layer, window=layer.window if number >= first else 0)
        for number, layer in enumerate(config.layers)
    )
    return replace(config, layers=layers)


def _qwen3(fields: Fields, name: str) -> ModelConfig:
    """Qwen 3: like Qwen 2 with norms over heads in place of biases."""
    has_bias = fields.flag("attention_bias", default=False)
    return replace(
        _qwen2(fields, name),
        has_qkv_bias=has_bias,
        has_output_bias=has_bias,
        normalises_heads=True,
    )


def _mixtral(fields: Fields, name: str) -> ModelConfig:
    config = _plain(fields, name)
    experts = ExpertsConfig(
        num_experts=fields.integer("num_local_experts"),
        num_active=fields.integer("num_experts_per_tok"),
        size=config.intermediate_size,
    )
    return _with_experts(config, experts, range(len(config.layers)))


def _qwen2_moe(fields: Fields, name: str) -> ModelConfig:
    return _qwen_moe(
        _qwen2(fields, name), fields, fields.integer("shared_expert_intermediate_size")
    )


def _qwen3_moe(fields: Fields, name: str) -> ModelConfig:
    return _qwen_moe(_qwen3(fields, name), fields, 0)


def _qwen_moe(config: ModelConfig, fields: Fields, shared_size: int) -> ModelConfig:
    key = "num_experts" if fields.has("num_experts") else "num_local_experts"
    experts = ExpertsConfig(
        num_experts=fields.integer(key),
        num_active=fields.integer("num_experts_per_tok"),
        size=fields.integer("moe_intermediate_size"),
        normalises=fields.flag("norm_topk_prob", default=False),
        shared_size=shared_size,
    )
    every = fields.integer("decoder_sparse_step", 1)
    dense = fields.get("mlp_only_layers") or []
    if not isinstance(dense, list):
        raise fields.invalid("must be a list", of="mlp_only_layers")
    numbers = range(len(config.layers))
    return _with_experts(
        config, experts, [n for n in numbers if n not in dense and not (n + 1) % every]
    )


def _with_experts(
    config: ModelConfig, experts: ExpertsConfig, numbers: range | list[int]
) -> ModelConfig:
    layers = tuple(
        replace(layer, has_experts=number in numbers) for number, layer in enumerate(config.layers)
    )
    return replace(config, experts=experts, layers=layers)


def _gemma3(fields: Fields, name: str) -> ModelConfig:
    """Gemma 3 (arXiv:2503.19786): five local layers before each global one, turned otherwise."""
    config = _gemma(fields, name, _GEMMA3_PATTERN)
    if fields.has("rope_parameters"):
        rope = _rope(fields, config.head_dim, "full_attention")
        local_rope = _rope(fields, config.head_dim, "sliding_attention")
    else:
        rope = _rope(fields.with_defaults(rope_theta=1_000_000.0), config.head_dim)
        local_rope = RopeConfig(theta=fields.number("rope_local_base_freq", 10_000.0))
    return replace(
        config,
        rope=rope,
        local_rope=local_rope,
        layers=tuple(replace(layer, uses_local_rope=layer.window > 0) for layer in config.layers),
        normalises_heads=True,
    )


def _gemma2(fields: Fields, name: str) -> ModelConfig:
    """Gemma 2 (arXiv:2408.00118): every other layer is local, scores and logits are capped."""
    return _gemma(fields, name, 2)


def _gemma(fields: Fields, name: str, pattern: int) -> ModelConfig:
    """What both have; Gemma's norms multiply by one more than the weights that are stored."""
    _check_activation(fields, "hidden_activation", _GELU)
    fields = fields.with_defaults(**_GEMMA_DEFAULTS).with_values(hidden_act="silu")
    every = fields.integer("sliding_window_pattern", pattern)
    kinds = [
        "sliding_attention" if (number + 1) % every else "full_attention"
        for number in range(_count_layers(fields))
    ]
    return replace(
        _plain(fields.with_defaults(layer_types=kinds), name),
        family="gemma",
        norm_offset=1.0,
        attention_scale=1 / math.sqrt(fields.positive("query_pre_attn_scalar")),
        attention_soft_cap=fields.number("attn_logit_softcapping", 0.0),
        logits_soft_cap=fields.number("final_logit_softcapping", 0.0),
    )


# What a config.json of Gemma leaves out where it is as usual.
_GEMMA_DEFAULTS: Final = {
    "tie_word_embeddings": True,
    "query_pre_attn_scalar": 256,
    "head_dim": 256,
    "sliding_window": 4096,
    "vocab_size": 262_208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 131_072,
}

_Reader: TypeAlias = Callable[[Fields, str], ModelConfig]
_READERS: Final[dict[str, _Reader]] = {
    "LlamaForCausalLM": _plain,
    "MistralForCausalLM": _plain,
    "MixtralForCausalLM": _mixtral,
    "Qwen2ForCausalLM": _qwen2,
    "Qwen2MoeForCausalLM": _qwen2_moe,
    "Qwen3ForCausalLM": _qwen3,
    "Qwen3MoeForCausalLM": _qwen3_moe,
    "Gemma2ForCausalLM": _gemma2,
    "Gemma3ForCausalLM": _gemma3,
    "Gemma3ForConditionalGeneration": _gemma3,
}
