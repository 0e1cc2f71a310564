"""Where prompts are tokenised: beside the step loop, so that a long one stalls no stream."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from msgspec import Struct

from appliance.errors import EngineError, HisarError
from appliance.generation import GenerationRequest
from engines.prompting import PromptEncoder

# Two, so that a short prompt does not wait behind one of megabytes.
_NUM_THREADS: Final = 2


class Encoded(Struct, frozen=True, kw_only=True):
    """The token ids of a request's prompts, or why there are none."""

    request: GenerationRequest
    prompts: list[list[int]] = []
    error: HisarError | None = None


class Intake:
    """Threads that turn requests into `Encoded`, handed to `deliver` from one of them."""

    def __init__(self, encoder: PromptEncoder, deliver: Callable[[Encoded], None]) -> None:
        self._encoder = encoder
        self._deliver = deliver
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="tokenise")

    def submit(self, request: GenerationRequest) -> None:
        """Have a request's prompts tokenised."""
        self._threads.submit(lambda: self._deliver(self.encode(request)))

    def encode(self, request: GenerationRequest) -> Encoded:
        """The same, here and now."""
        try:
            prompts = [self._encoder.encode(prompt) for prompt in request.prompts]
        except HisarError as error:
            return Encoded(request=request, error=error)
        except Exception as error:  # noqa: BLE001 - a thread's outermost frame: the request must end
            name = type(error).__name__
            failure = EngineError("engine.row_failed", f"the prompt could not be encoded: {name}")
            return Encoded(request=request, error=failure)
        return Encoded(request=request, prompts=prompts)

    def close(self) -> None:
        """Finish what is being tokenised, drop what has not begun, end the encoder."""
        self._threads.shutdown(cancel_futures=True)
        self._encoder.close()
