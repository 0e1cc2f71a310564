"""Whether a model fits: byte arithmetic only, no machine is asked here."""

from typing import Final

from appliance.errors import EngineError

# Interpreter, tokenizer and compute buffers of a worker, measured at about 130 MB; rounded up.
WORKER_BYTES: Final = 192 * 1024 * 1024
_MIB: Final = 1024 * 1024


def needed_bytes(*, weights_bytes: int, kv_bytes: int = 0) -> int:
    """What a model takes in memory. `kv_bytes` is the room for keys and values of all tokens."""
    return WORKER_BYTES + weights_bytes + kv_bytes


def require_room(model: str, *, needed: int, free: int) -> None:
    """Both in bytes. Raises EngineError `engine.does_not_fit`, naming both."""
    if needed > free:
        raise EngineError(
            "engine.does_not_fit",
            f"the model {model!r} needs {needed // _MIB} MiB of memory and {free // _MIB} MiB"
            " are free",
            hint="unload another model, or choose a smaller one",
        )
