"""Where prompts are tokenised and grammars compiled: beside the step loop, so that neither a long
prompt nor a large schema stalls a stream.
"""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from appliance.errors import EngineError, HisarError
from appliance.generation import ChatPrompt, GenerationRequest, Prompt
from engines.grammar import GrammarCompiler
from engines.grammar_text import AnswerShape
from engines.prepared import Prepared
from engines.prompting import IsWanted, PromptEncoder
from engines.protocol import Answer, Refused
from engines.replies import ToEmbed
from engines.sequence import Withheld
from engines.token_range import check_parameters
from engines.vocabulary import Vocabulary

# Two, so that a short prompt does not wait behind one of megabytes. As many for requests with a
# grammar: they wait for each other, and nobody waits for them.
_NUM_THREADS: Final = 2


class Encoded(Struct, frozen=True, kw_only=True):
    """A request's prompts, ready to be computed, or why there are none."""

    request: GenerationRequest
    prompts: list[Prepared] = []
    error: HisarError | None = None


Delivered: TypeAlias = Encoded | Answer | Refused | ToEmbed


class Intake:
    """Threads that turn requests into `Encoded`, handed to `deliver` from one of them."""

    def __init__(self, encoder: PromptEncoder, deliver: Callable[[Delivered], None]) -> None:
        self.encoder = encoder
        self._deliver = deliver
        self._vocabulary = Vocabulary(encoder.tokenizer)
        self._grammars = GrammarCompiler(self._vocabulary)
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="tokenise")
        self._grammar_threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="compile")

    def submit(self, request: GenerationRequest, is_wanted: IsWanted) -> None:
        """Have a request's prompts made ready, and given up when they are wanted no more."""
        threads = self._grammar_threads if _may_need_grammar(request) else self._threads
        threads.submit(lambda: self._deliver(self.encode(request, is_wanted)))

    def run(self, work: Callable[[], Delivered]) -> None:
        """Have something else done in a thread; it raises nothing."""
        self._threads.submit(lambda: self._deliver(work()))

    def encode(self, request: GenerationRequest, is_wanted: IsWanted = lambda: True) -> Encoded:
        """The same, here and now."""
        try:
            check_parameters(request, self._vocabulary.tokenizer.vocabulary_size)
            prompts = [self._prepare(request, prompt, is_wanted) for prompt in request.prompts]
        except HisarError as error:
            return Encoded(request=request, error=error)
        except Exception as error:  # noqa: BLE001 - a thread's outermost frame: the request must end
            name = type(error).__name__
            failure = EngineError("engine.row_failed", f"the prompt could not be encoded: {name}")
            return Encoded(request=request, error=failure)
        return Encoded(request=request, prompts=prompts)

    def close(self) -> None:
        """Finish what is under way, drop what has not begun, end the encoder."""
        self._threads.shutdown(cancel_futures=True)
        self._grammar_threads.shutdown(cancel_futures=True)
        self.encoder.close()

    def _prepare(self, request: GenerationRequest, prompt: Prompt, is_wanted: IsWanted) -> Prepared:
        prepared = self.encoder.encode(prompt, is_wanted)
        shape = AnswerShape(
            thinking=prepared.thinking,
            calls=prepared.calls,
            output_format=request.output_format,
        )
        return replace(
            prepared,
            grammar=None if shape.is_free else self._grammars.compile(shape, request.cache_salt),
            withheld=self._withheld(request),
        )

    def _withheld(self, request: GenerationRequest) -> tuple[Withheld, ...]:
        """The tokens that may not end an answer yet, or ever."""
        stopping = request.stopping
        if not stopping.min_tokens and not stopping.ignores_eos:
            return ()
        eos_until = sys.maxsize if stopping.ignores_eos else stopping.min_tokens
        return (
            Withheld(token_ids=self._vocabulary.ending_ids, until_tokens=eos_until),
            Withheld(token_ids=stopping.stop_token_ids, until_tokens=stopping.min_tokens),
        )


def _may_need_grammar(request: GenerationRequest) -> bool:
    has_tools = any(isinstance(prompt, ChatPrompt) and prompt.tools for prompt in request.prompts)
    return has_tools or request.output_format is not None
