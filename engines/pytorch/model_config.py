"""What a model is made of, whatever kind of file said so."""

from typing import Literal, TypeAlias

from msgspec import Struct

RopeKind: TypeAlias = Literal["default", "linear", "llama3", "yarn"]


class RopeConfig(Struct, frozen=True, kw_only=True):
    """How positions become angles (RoFormer, arXiv:2104.09864), and how they are stretched.

    - `rotated_dim`: how many numbers of a head are turned; 0: all
    - `original_context`: tokens that the model had been trained for before it was stretched
    - `divisors`: one a frequency, where a file holds the stretching ready made
    - `attention_factor`: what YaRN (arXiv:2309.00071) multiplies cosines and sines by; 0: as the
      paper says
    """

    theta: float = 10_000.0
    rotated_dim: int = 0
    kind: RopeKind = "default"
    factor: float = 1.0
    original_context: int = 0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncates: bool = True
    attention_factor: float = 0.0
    divisors: tuple[float, ...] = ()


class ExpertsConfig(Struct, frozen=True, kw_only=True):
    """Layers of which each token uses some of many small networks (arXiv:1701.06538).

    `normalises`: the weights of the chosen ones are made to sum to 1. `shared_size`: width of the
    expert that every token uses; 0: there is none.
    """

    num_experts: int
    num_active: int
    size: int
    normalises: bool = True
    shared_size: int = 0


class LayerConfig(Struct, frozen=True, kw_only=True):
    """Where one layer differs from others. `window` as in `engines.pytorch.ops.AttentionShape`."""

    window: int = 0
    uses_local_rope: bool = False
    has_experts: bool = False


class QuantizationConfig(Struct, frozen=True, kw_only=True):
    """How the matrices of a checkpoint are packed, those that are: its tensors tell which.

    - `group_size`: inputs that share a scale; -1: all of a row
    - `is_zero_less_one`: GPTQ's first format stores zeros so
    - `block`: rows and columns that share an fp8 scale; None: the whole matrix does
    """

    method: Literal["awq", "gptq", "fp8"]
    group_size: int = -1
    is_zero_less_one: bool = True
    block: tuple[int, int] | None = None


class ModelConfig(Struct, frozen=True, kw_only=True):
    """One model. `family` names the module in `engines.pytorch.architectures` that computes it.

    - `norm_offset`: what is added to the weights of RMS norms when they are read
    - `is_tied`: the embedding also makes the logits
    - `normalises_heads`: RMS norms over each head of queries and keys
    """

    family: Literal["llama", "gemma"]
    architecture: str
    vocabulary_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context_length: int
    norm_eps: float
    layers: tuple[LayerConfig, ...]
    rope: RopeConfig
    attention_scale: float
    local_rope: RopeConfig | None = None
    experts: ExpertsConfig | None = None
    norm_offset: float = 0.0
    is_tied: bool = False
    has_qkv_bias: bool = False
    has_output_bias: bool = False
    has_mlp_bias: bool = False
    normalises_heads: bool = False
    attention_soft_cap: float = 0.0
    logits_soft_cap: float = 0.0
    quantization: QuantizationConfig | None = None
