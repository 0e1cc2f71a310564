"""A step loop over the echo engine, driven by hand, that remembers what every request was told."""

from collections import defaultdict
from collections.abc import Callable
from itertools import count

from appliance.generation import (
    ChoiceFinished,
    EngineEvent,
    Failed,
    Finished,
    FinishReason,
    GenerationRequest,
    Prompt,
    SamplingParams,
    StopConditions,
    TextDelta,
    TextPrompt,
    ToolCall,
    ToolCallDelta,
)
from engines.echo.kv_blocks import EchoKv
from engines.echo.runner import EchoRunner
from engines.echo.tokenizer import EchoTokenizer
from engines.intake import Encoded, Intake
from engines.prompting import PromptEncoder
from engines.protocol import Generate, ModelFacts
from engines.step_loop import StepLoop

CONTEXT_TOKENS = 256


def make_runner(
    pool: int = 4096,
    num_slots: int = 8,
    step_tokens: int = 64,
    context_tokens: int = CONTEXT_TOKENS,
) -> EchoRunner:
    facts = ModelFacts(
        model="echo",
        runner="echo",
        context_tokens=context_tokens,
        vocabulary_size=EchoTokenizer.vocabulary_size,
        num_slots=num_slots,
        scores_prompts=True,
        verifies_drafts=True,
        is_batch_invariant=True,
    )
    return EchoRunner(facts, EchoKv(pool, block_tokens=4), step_tokens)


class Engine:
    """A step loop whose prompts are tokenised at once, and the record of what it said."""

    def __init__(
        self,
        runner: EchoRunner,
        encoder: PromptEncoder | None = None,
        *,
        speculates: bool = False,
    ) -> None:
        self.runner = runner
        self.encoded: list[Encoded] = []
        encoder = encoder or PromptEncoder(runner.tokenizer, None)
        self.intake = Intake(encoder, self.encoded.append)
        ticks = count(1)
        self.loop = StepLoop(runner, self, lambda: float(next(ticks)), speculates=speculates)
        self.said: dict[str, list[EngineEvent]] = defaultdict(list)

    def submit(self, request: GenerationRequest, is_wanted: Callable[[], bool]) -> None:
        self.encoded.append(self.intake.encode(request, is_wanted))

    def ask(
        self,
        *prompts: str | Prompt,
        id: str = "r",  # noqa: A002 - the field's own name
        max_tokens: int | None = None,
        stop: tuple[str, ...] = (),
        n: int = 1,
        sampling: SamplingParams | None = None,
        salt: bytes = b"",
    ) -> str:
        request = GenerationRequest(
            id=id,
            model="echo",
            prompts=tuple(TextPrompt(text=p) if isinstance(p, str) else p for p in prompts),
            sampling=sampling or SamplingParams(),
            stopping=StopConditions(max_tokens=max_tokens, stop=stop),
            n=n,
            cache_salt=salt,
        )
        return self.send(request)

    def send(self, request: GenerationRequest) -> str:
        self.loop.receive(Generate(request=request))
        return request.id

    def step(self) -> None:
        encoded, self.encoded = self.encoded, []
        for each in encoded:
            self.loop.receive(each)
        for request_id, event in self.loop.step():
            self.said[request_id].append(event)

    def run(self) -> None:
        while self.encoded or self.loop.has_work:
            self.step()

    def text(self, request_id: str, index: int = 0) -> str:
        return "".join(d.text for d in self.deltas(request_id, index))

    def deltas(self, request_id: str, index: int = 0) -> list[TextDelta]:
        said = self.said[request_id]
        return [e for e in said if isinstance(e, TextDelta) and e.index == index]

    def reasons(self, request_id: str) -> dict[int, FinishReason]:
        said = self.said[request_id]
        return {e.index: e.finish_reason for e in said if isinstance(e, ChoiceFinished)}

    def calls(self, request_id: str, index: int = 0) -> list[ToolCall]:
        """The tool calls, put together from their deltas."""
        calls: dict[int, ToolCall] = {}
        for event in self.said[request_id]:
            if isinstance(event, ToolCallDelta) and event.index == index:
                known = calls.get(event.call_index, ToolCall(id="", name="", arguments=""))
                calls[event.call_index] = ToolCall(
                    id=known.id + event.id,
                    name=known.name + event.name,
                    arguments=known.arguments + event.arguments,
                )
        return list(calls.values())

    def ending(self, request_id: str) -> Finished | Failed:
        """The last event, which is the only ending."""
        endings = [e for e in self.said[request_id] if isinstance(e, Finished | Failed)]
        assert endings == self.said[request_id][-1:]
        return endings[0]

    def failure(self, request_id: str) -> Failed:
        ending = self.ending(request_id)
        assert isinstance(ending, Failed)
        return ending

    def finished(self, request_id: str) -> Finished:
        ending = self.ending(request_id)
        assert isinstance(ending, Finished)
        return ending

    def is_empty(self) -> bool:
        stats = self.loop.stats()
        counts = (stats.num_running, stats.num_waiting, stats.kv_used_tokens)
        return counts == (0, 0, 0) and self.loop.is_idle
