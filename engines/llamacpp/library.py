"""How libllama is loaded once, and how what it has to say reaches Python's logging."""

import logging
from functools import cache
from typing import Any, Final

import llama_cpp.llama_cpp as llama

_logger: Final = logging.getLogger("engines.llamacpp")

# ggml's levels: debug, info, warning, error. Nobody can act on its infos and warnings.
_LEVELS: Final = {1: logging.DEBUG, 2: logging.DEBUG, 3: logging.INFO, 4: logging.ERROR}


class Library:
    """libllama, ready for use.

    `first_error` is the first line it logged as an error since that was last emptied: the cause;
    what follows it says only that something failed.
    """

    def __init__(self) -> None:
        self.first_error = ""
        _logger.addHandler(logging.NullHandler())
        self._callback = llama.llama_log_callback(self._log)
        llama.llama_log_set(self._callback, None)
        llama.llama_backend_init()

    def _log(self, ggml_level: int, text: bytes, _user_data: Any) -> None:  # noqa: ANN401
        line = text.decode(errors="replace").strip()
        level = _LEVELS.get(ggml_level)
        if level is None or not line:
            return
        if level == logging.ERROR:
            self.first_error = self.first_error or line
        _logger.log(level, "%s", line)


@cache
def load_library() -> Library:
    """The one Library of this process."""
    return Library()
