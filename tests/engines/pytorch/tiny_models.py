"""Tiny seeded models of every architecture, as transformers writes and computes them."""

from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

VOCABULARY = 96
_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "head_dim": 16,
}
_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 24}
_THETA = {"rope_theta": 10_000.0}

# By a name for the test: the class of its configuration, and what is set beside the sizes.
MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "llama2": (transformers.LlamaConfig, {"num_key_value_heads": 4}),
    "llama3": (
        transformers.LlamaConfig,
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500_000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            },
            "tie_word_embeddings": True,
        },
    ),
    "llama-biased": (transformers.LlamaConfig, {"attention_bias": True, "mlp_bias": True}),
    "llama-linear": (
        transformers.LlamaConfig,
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, **_THETA}},
    ),
    "llama-yarn": (
        transformers.LlamaConfig,
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 32,
                **_THETA,
            }
        },
    ),
    "mistral": (transformers.MistralConfig, {"sliding_window": 7}),
    "qwen2": (transformers.Qwen2Config, {}),
    "qwen2-sliding": (
        transformers.Qwen2Config,
        {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1},
    ),
    "qwen3": (transformers.Qwen3Config, {"head_dim": 32}),
    "gemma2": (transformers.Gemma2Config, {"sliding_window": 6, "query_pre_attn_scalar": 24}),
    "gemma3": (
        transformers.Gemma3TextConfig,
        {
            "sliding_window": 6,
            "query_pre_attn_scalar": 24,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "mixtral": (transformers.MixtralConfig, {"num_local_experts": 4}),
    "qwen2-moe": (
        transformers.Qwen2MoeConfig,
        {
            "num_experts": 5,
            "shared_expert_intermediate_size": 40,
            "mlp_only_layers": [1],
            **_EXPERTS,
        },
    ),
    "qwen3-moe": (
        transformers.Qwen3MoeConfig,
        {"num_experts": 6, "norm_topk_prob": True, **_EXPERTS},
    ),
}


def make(name: str, **settings: Any) -> transformers.PreTrainedModel:
    """The model of that name, seeded; its norms and biases are random, too."""
    kind, own = MODELS[name]
    config = kind(**{**_SIZES, **own, **settings}, attn_implementation="eager")
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def save(model: transformers.PreTrainedModel, folder: Path, **how: Any) -> Path:
    """The model as a folder of config.json and safetensors."""
    model.save_pretrained(folder, **how)
    return folder


def logits_of(model: transformers.PreTrainedModel, token_ids: list[int]) -> Tensor:
    """What transformers computes after each token, [T, vocabulary]."""
    with torch.no_grad():
        logits: Tensor = model(torch.tensor([token_ids])).logits[0]
    return logits
