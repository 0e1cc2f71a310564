"""The operations in Triton."""

from engines.pytorch.kernels.activations_kernel import gelu_mul, silu_mul
from engines.pytorch.kernels.attention_kernel import attend
from engines.pytorch.kernels.kv_store_kernel import store_kv
from engines.pytorch.kernels.norms_kernel import add_rms_norm, rms_norm
from engines.pytorch.kernels.rotation_kernel import rotate
from engines.pytorch.ops import Ops


def triton_ops() -> Ops:
    """Every operation's launcher."""
    return Ops(
        rms_norm=rms_norm,
        add_rms_norm=add_rms_norm,
        rotate=rotate,
        silu_mul=silu_mul,
        gelu_mul=gelu_mul,
        store_kv=store_kv,
        attend=attend,
    )
