"""The operations in plain torch: what they mean, and what a machine without a GPU serves with."""

from engines.pytorch.kernels.activations import gelu_mul, silu_mul
from engines.pytorch.kernels.attention import attend
from engines.pytorch.kernels.kv_store import store_kv
from engines.pytorch.kernels.norms import add_rms_norm, rms_norm
from engines.pytorch.kernels.rotation import rotate
from engines.pytorch.ops import Ops


def torch_ops() -> Ops:
    """Every operation's reference."""
    return Ops(
        rms_norm=rms_norm,
        add_rms_norm=add_rms_norm,
        rotate=rotate,
        silu_mul=silu_mul,
        gelu_mul=gelu_mul,
        store_kv=store_kv,
        attend=attend,
    )
