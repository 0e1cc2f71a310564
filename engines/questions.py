"""The questions a worker was asked and has not answered: text in threads, vectors between steps."""

from typing import Final, TypeAlias

from appliance.errors import EngineError
from engines.embedding_queue import EmbeddingQueue, Endings
from engines.intake import Intake
from engines.protocol import Answer, Ask, Forget, Refused
from engines.refusals import to_refused
from engines.replies import Replies, ToEmbed
from engines.runner import Runner

# As with requests: the gateway bounds them long before.
MAX_OPEN: Final = 4096

_DRAINING: Final = EngineError(
    "engine.draining", "the engine takes no new request", retry_after_s=1
)
_OVERLOADED: Final = EngineError(
    "engine.overloaded", f"the engine already has {MAX_OPEN} questions", retry_after_s=1
)

Received: TypeAlias = Ask | Forget | Answer | Refused | ToEmbed


class Questions:
    """What is asked comes in by `receive`, and its answers come out of `step`."""

    def __init__(self, runner: Runner, intake: Intake) -> None:
        embedder = runner.embedder
        self._intake = intake
        self._max_tokens = 0 if embedder is None else embedder.max_tokens
        self._step_tokens = runner.step_tokens
        self._replies = Replies(intake.encoder, runner.facts, self._max_tokens)
        self._queue = None if embedder is None else EmbeddingQueue(embedder)
        self._open: set[int] = set()
        self._endings: Endings = []
        self.is_draining = False

    @property
    def is_idle(self) -> bool:
        """Whether every question is answered."""
        return not self._open

    @property
    def has_work(self) -> bool:
        """Whether there is something to compute or to tell."""
        return bool(self._endings or self._queue)

    def receive(self, message: Received) -> None:
        """Take in a question, or what the threads made of one."""
        if isinstance(message, Ask):
            self._begin(message)
        elif isinstance(message, Forget):
            self._forget(message.call_id)
        elif message.call_id not in self._open:
            return  # Forgotten while it was in a thread.
        elif not isinstance(message, ToEmbed):
            self._endings.append(message)
        elif self._queue is not None:
            self._queue.add(message)

    def step(self, *, beside_streams: bool) -> Endings:
        """Compute at most one batch, a small one where streams wait for it; what has ended."""
        if self._queue is not None:
            max_tokens = self._step_tokens if beside_streams else self._max_tokens
            self._endings += self._queue.step(max_tokens)
        endings, self._endings = self._endings, []
        self._open.difference_update(ending.call_id for ending in endings)
        return endings

    def _begin(self, ask: Ask) -> None:
        self._open.add(ask.call_id)
        if self.is_draining:
            self._endings.append(to_refused(ask.call_id, _DRAINING))
        elif len(self._open) > MAX_OPEN:
            self._endings.append(to_refused(ask.call_id, _OVERLOADED))
        else:
            self._intake.run(lambda: self._replies.reply(ask))

    def _forget(self, call_id: int) -> None:
        self._open.discard(call_id)
        if self._queue is not None:
            self._queue.drop(call_id)
