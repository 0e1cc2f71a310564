"""How long a sequence may get where a model says what it was trained for."""

from appliance.errors import ConfigError
from appliance.footprint import DEFAULT_CONTEXT_TOKENS


def choose_context_tokens(asked: int, trained: int) -> int:
    """What is asked for, else what suits the model; 0 stands for neither said.

    Raises ConfigError `engine.context_too_long`.
    """
    if trained and asked > trained:
        raise ConfigError(
            "engine.context_too_long",
            f"context_tokens is {asked}, but the model was trained for {trained}",
            hint=f"set it to {trained} or less",
        )
    return asked or min(trained or DEFAULT_CONTEXT_TOKENS, DEFAULT_CONTEXT_TOKENS)
