"""What a model is computed with: one set of operations in Triton, one in plain torch.

Every operation exists twice, side by side in `engines.pytorch.kernels`: the kernel's launcher and
the reference that says what it means. Layers are given an `Ops` and do not know which it is.
"""

from collections.abc import Callable

from msgspec import Struct
from torch import Tensor

from engines.pytorch.kv_cache import LayerCache
from engines.pytorch.step_inputs import StepInputs


class AttentionShape(Struct, frozen=True, kw_only=True):
    """How one layer attends. `window` 0: to everything before; else to the last `window` tokens,
    its own included. `soft_cap` 0: none; else scores are soft_cap * tanh(score / soft_cap).
    """

    scale: float
    window: int = 0
    soft_cap: float = 0.0


class Rotation(Struct, frozen=True, kw_only=True):
    """How a layer turns queries and keys by their positions.

    - `cosines`, `sines`: float32 [max_positions, rotated_dim / 2]; dimension i of the first half
      is paired with i of the second (Hugging Face's order); dimensions after rotated_dim stay
    - `query_norm`, `key_norm`: [head_dim], RMS norms over each head before turning; None: none
    """

    cosines: Tensor
    sines: Tensor
    query_norm: Tensor | None = None
    key_norm: Tensor | None = None
    eps: float = 1e-6


class Ops(Struct, frozen=True, kw_only=True):
    """The operations between matrix products. T tokens, hidden size C, H query heads, G KV heads,
    head size D. All compute in float32 and answer in the dtype they were given.

    - `rms_norm(x [T, C], weight [C], eps) -> [T, C]`
    - `add_rms_norm(x [T, C], residual [T, C], weight [C], eps) -> (normed [T, C], x + residual)`
    - `rotate(queries [T, H, D], keys [T, G, D], positions [T], rotation) -> (queries, keys)`
    - `silu_mul`, `gelu_mul(gate_up [T, 2 I]) -> [T, I]`: the activated first half times the second
      (gelu in its tanh form)
    - `store_kv(cache, keys [T, G, D], values [T, G, D], slots [T])`
    - `attend(queries [T, H, D], cache, inputs, shape) -> [T, H, D]`: each token over its sequence's
      cache up to itself; the step's own keys and values are stored before
    """

    rms_norm: Callable[[Tensor, Tensor, float], Tensor]
    add_rms_norm: Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]
    rotate: Callable[[Tensor, Tensor, Tensor, Rotation], tuple[Tensor, Tensor]]
    silu_mul: Callable[[Tensor], Tensor]
    gelu_mul: Callable[[Tensor], Tensor]
    store_kv: Callable[[LayerCache, Tensor, Tensor, Tensor], None]
    attend: Callable[[Tensor, LayerCache, StepInputs, AttentionShape], Tensor]
