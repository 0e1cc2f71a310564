"""How a checkpoint says that its matrices are packed (`quantization_config` in config.json)."""

from typing import Final, Literal, cast

from appliance.errors import CatalogueError
from engines.pytorch.fields import Fields
from engines.pytorch.model_config import QuantizationConfig

_KEY: Final = "quantization_config"
_KNOWN: Final = ("awq", "gptq", "fp8")
# Another tool's name for fp8 with a scale an output.
_FLOATS: Final = ("compressed-tensors", "float-quantized")
_BITS: Final = 4


def read_quantization(fields: Fields) -> QuantizationConfig | None:
    """None where matrices are stored as they are.

    Raises CatalogueError `model.quantization_unknown` or `model.config_invalid`.
    """
    packed = fields.nested(_KEY)
    if not fields.has(_KEY):
        return None
    method = packed.text("quant_method")
    if method == "fp8" or (method == _FLOATS[0] and packed.get("format") == _FLOATS[1]):
        return QuantizationConfig(method="fp8", block=_block(packed))
    if method in ("awq", "gptq"):
        if packed.integer("bits") != _BITS:
            raise _unknown(packed, f"{method} with {packed.get('bits')} bits")
        return QuantizationConfig(
            method=cast("Literal['awq', 'gptq']", method),
            group_size=packed.integer("group_size", least=-1),
            is_zero_less_one=packed.get("checkpoint_format") != "gptq_v2",
        )
    raise _unknown(packed, method)


def _block(packed: Fields) -> tuple[int, int] | None:
    block = packed.get("weight_block_size")
    if block is None:
        return None
    if not (isinstance(block, list) and len(block) == 2 and all(isinstance(n, int) for n in block)):
        raise packed.invalid("must be two whole numbers", of="weight_block_size")
    return block[0], block[1]


def _unknown(packed: Fields, what: str) -> CatalogueError:
    return CatalogueError(
        "model.quantization_unknown",
        f"{packed.file}: this engine does not know matrices packed as {what}",
        hint=f"it knows {', '.join(_KNOWN)} (the first two with {_BITS} bits)",
    )
