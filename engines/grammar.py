"""Grammars, compiled beside the step loop: what an answer must look like becomes a `Grammar`,
from which every choice takes its own `Constraint`.

llguidance bounds the size of what it builds; here are the bounds on what it is given and on the
time it may take. It runs without Python's lock, so streams go on meanwhile.
"""

import re
import time
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from appliance.errors import RequestError
from appliance.generation import Tool
from engines.constraint import Constraint
from engines.grammar_text import AnswerShape, Calls, refusal, write_grammar
from engines.vocabulary import Vocabulary

if TYPE_CHECKING:
    from llguidance import LLMatcher

MAX_GRAMMAR_BYTES: Final = 256 * 1024
# Of one core. 5,000 properties take 3 s; what needs as much for the first token needs it again.
MAX_COMPILE_S: Final = 10.0
MAX_FIRST_TOKEN_S: Final = 1.0

# What is compiled takes some hundred times the memory of its text.
_NUM_KEPT: Final = 64
_KEPT_BYTES: Final = 512 * 1024
_LOG_NOTHING: Final = 0
_MAX_REASON: Final = 160
_POSITION: Final = re.compile(r"^at \d+\(\d+\): (failed to compile JSON schema: )?")
_QUOTED: Final = re.compile(r'"[^"]*"|\'[^\']*\'|`[^`]*`|/.*/')
# Names of the JSON Schema vocabulary may be quoted back; a caller's own words are not.
_KEYWORD: Final = re.compile(
    r"[\"'](\$?(ref|defs|dynamicRef|anchor|schema)|unique[A-Z]\w+|unevaluated\w+|dependent\w+|"
    r"(min|max)[A-Z]\w+|contains|not|if|then|else|propertyNames|patternProperties|multipleOf|"
    r"format|type|integer|number|string|object|array)[\"']"
)


class Grammar:
    """A compiled grammar, good for any number of choices."""

    def __init__(self, matcher: "LLMatcher", vocabulary_size: int) -> None:
        self._matcher = matcher
        self._vocabulary_size = vocabulary_size

    def begin(self) -> Constraint:
        """A choice's own position at the start of the grammar."""
        return Constraint(self._matcher.deep_copy(), self._vocabulary_size)


class GrammarCompiler:
    """Compiles for one vocabulary and keeps the latest. Safe to use from several threads."""

    def __init__(
        self, vocabulary: Vocabulary, thread_clock: Callable[[], float] = time.thread_time
    ) -> None:
        self._vocabulary = vocabulary
        self._clock = thread_clock
        self._kept: OrderedDict[tuple[bytes, str], Grammar] = OrderedDict()
        self._lock = Lock()

    def compile(self, shape: AnswerShape, salt: bytes = b"") -> Grammar:
        """The grammar of a shape; another caller with the same salt may have had it compiled.

        Raises RequestError `request.grammar_refused` (400). The parameters of a function that is
        not strict are a wish: where they cannot be held to, any object will do.
        """
        try:
            return self._find(shape, salt)
        except RequestError:
            looser = _loosen(shape)
            if looser == shape:
                raise
            return self._find(looser, salt)

    def _find(self, shape: AnswerShape, salt: bytes) -> Grammar:
        text = write_grammar(shape, self._vocabulary.control_ids)
        key = (salt, text)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        param = "response_format" if shape.output_format is not None else "tools"
        grammar = self._compile(text, param)
        with self._lock:
            self._kept[key] = grammar
            while len(self._kept) > 1 and self._keeps_too_much():
                self._kept.popitem(last=False)
        return grammar

    def _keeps_too_much(self) -> bool:
        num_bytes = sum(len(text) for _, text in self._kept)
        return len(self._kept) > _NUM_KEPT or num_bytes > _KEPT_BYTES

    def _compile(self, text: str, param: str) -> Grammar:
        import llguidance

        if len(text.encode()) > MAX_GRAMMAR_BYTES:
            raise refusal(f"it is larger than {MAX_GRAMMAR_BYTES} bytes", param)
        tokenizer = self._vocabulary.for_grammars()
        started_at = self._clock()
        limits = llguidance.LLParserLimits(verbose_errors=False)
        matcher = llguidance.LLMatcher(tokenizer, text, log_level=_LOG_NOTHING, limits=limits)
        compiled_at = self._clock()
        # The first token shows what the text does not: that nothing fits, or that it is too much.
        matcher.compute_bitmask()
        if matcher.is_error():
            raise refusal(_reason(matcher.get_error()), param)
        if compiled_at - started_at > MAX_COMPILE_S:
            raise refusal("it takes too long to compile", param)
        if self._clock() - compiled_at > MAX_FIRST_TOKEN_S:
            raise refusal("it takes too long to find the tokens that may come next", param)
        return Grammar(matcher, self._vocabulary.tokenizer.vocabulary_size)


def _loosen(shape: AnswerShape) -> AnswerShape:
    """The same with no more asked of the functions that are not strict than an object."""
    if shape.calls is None:
        return shape
    tools = tuple(
        tool if tool.strict else Tool(name=tool.name, description=tool.description)
        for tool in shape.calls.tools
    )
    calls: Calls = replace(shape.calls, tools=tools)
    return replace(shape, calls=calls)


def _reason(error: str) -> str:
    """The compiler's reason, without a word that the caller has quoted in the schema."""
    first_line = _POSITION.sub("", error.partition("\n")[0])
    if first_line.startswith("NoExtension"):
        return "no text satisfies it"
    shown = _QUOTED.sub(
        lambda found: found[0] if _KEYWORD.fullmatch(found[0]) else "...", first_line
    )
    return shown[:_MAX_REASON]
