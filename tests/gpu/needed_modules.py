"""What the check on a GPU imports beside Python itself, told before anything is imported."""

from importlib.util import find_spec
from typing import Final

# Those that an image for CUDA with torch and transformers has, and those that may have to travel.
IN_THE_IMAGE: Final = ("numpy", "safetensors", "tokenizers", "torch", "transformers", "triton")
AS_WHEELS: Final = ("msgspec", "psutil")


def missing_modules() -> list[str]:
    """The names of those that are not installed."""
    return [name for name in (*IN_THE_IMAGE, *AS_WHEELS) if find_spec(name) is None]
