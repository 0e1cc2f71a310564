"""Whether a model fits: byte arithmetic only, no machine is asked here.

The host counts what it can see, the weights; a runner, which knows its keys and values, counts
again and refuses by the same rule.
"""

from typing import Final

from appliance.errors import EngineError

# What a worker takes before its weights: 30 MB with the echo engine, 130 MB with llama.cpp.
WORKER_BYTES: Final = 192 * 1024 * 1024
_MIB: Final = 1024 * 1024


def require_room(model: str, *, model_bytes: int, free_bytes: int) -> None:
    """Raises EngineError `engine.does_not_fit`, naming what is needed and what is free."""
    needed_bytes = WORKER_BYTES + model_bytes
    if needed_bytes > free_bytes:
        raise EngineError(
            "engine.does_not_fit",
            f"the model {model!r} needs {needed_bytes // _MIB} MiB of memory"
            f" and {free_bytes // _MIB} MiB are free",
            hint="unload another model, or choose a smaller one",
        )
