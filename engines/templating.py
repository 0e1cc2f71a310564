"""The parent's side of the template process: start it, ask it, replace it when it dies."""

import signal
import subprocess
import sys
import threading
from typing import IO, Any, cast

from appliance.errors import RequestError
from engines.template_frames import TIME_LIMIT_S, read_frame, write_frame


class TemplateProcess:
    """Renders one template; safe to call from several threads, which take turns.

    The process starts with this object and gets ready on its own; it ends with `close`, or when
    its parent does.
    """

    def __init__(self, template: str) -> None:
        self._template = template
        self._lock = threading.Lock()
        self._has_template = False
        self._process = _spawn()

    def render(self, variables: dict[str, Any]) -> str:
        """The template's text. Raises RequestError `request.template_failed`."""
        with self._lock:
            try:
                if self._process.poll() is not None:
                    self._replace()
                if not self._has_template:
                    self._ask({"template": self._template})
                    self._has_template = True
                return self._ask(variables)
            except OSError:
                self._replace()
                raise _failure("the chat template's process ended early") from None

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._stop()

    def _ask(self, content: dict[str, Any]) -> str:
        write_frame(cast("IO[bytes]", self._process.stdin), content)
        answer = read_frame(cast("IO[bytes]", self._process.stdout))
        if answer is None:
            raise self._died()
        if "error" in answer:
            raise _failure(answer["error"])
        return str(answer["text"])

    def _died(self) -> RequestError:
        status = self._process.wait()
        self._replace()
        if status == -signal.SIGALRM:
            return _failure(f"the chat template took longer than {TIME_LIMIT_S:g} seconds")
        return _failure("the chat template's process ended early")

    def _replace(self) -> None:
        self._stop()
        self._has_template = False
        self._process = _spawn()

    def _stop(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def _spawn() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "engines.template_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def _failure(message: str) -> RequestError:
    return RequestError("request.template_failed", message, status=400, param="messages")
