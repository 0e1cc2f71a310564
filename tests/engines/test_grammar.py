"""Whatever a model would rather write, an answer held to a grammar is what was asked for."""

import json
from random import Random
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.errors import RequestError
from appliance.generation import OutputFormat, Tool
from engines.constraint import Constraint, ConstraintError
from engines.echo.tokenizer import EchoTokenizer
from engines.grammar import MAX_GRAMMAR_BYTES, GrammarCompiler
from engines.grammar_text import AnswerShape, Calls
from engines.tool_calls.formats import FORMATS, HERMES, LLAMA3, MISTRAL, MISTRAL_NAMED, CallFormat
from engines.tool_calls.reader import CallPiece, CallReader
from engines.vocabulary import Vocabulary

TOKENIZER = EchoTokenizer()
VOCABULARY = Vocabulary(TOKENIZER)
COMPILER = GrammarCompiler(VOCABULARY)
ENDINGS = list(VOCABULARY.ending_ids)

FIND = Tool(
    name="find",
    parameters=json.dumps(
        {
            "type": "object",
            "properties": {"no": {"$ref": "#/$defs/no"}},
            "required": ["no"],
            "additionalProperties": False,
            "$defs": {"no": {"type": "integer", "minimum": 1, "maximum": 999}},
        }
    ),
)
SEND = Tool(name="send", parameters='{"type":"object","additionalProperties":false}')


def wanted(kind: Any, text: str = "") -> AnswerShape:
    return AnswerShape(output_format=OutputFormat(kind=kind, text=text))


def schema_shape(schema: object) -> AnswerShape:
    return wanted("json_schema", json.dumps(schema))


def calls(
    call_format: CallFormat, *, is_required: bool = False, takes_many: bool = True
) -> AnswerShape:
    return AnswerShape(
        calls=Calls(
            call_format=call_format,
            tools=(FIND, SEND),
            is_required=is_required,
            takes_many=takes_many,
        )
    )


def accepts(shape: AnswerShape, text: str) -> bool:
    """Whether `text` may be written, and may end there."""
    constraint = COMPILER.compile(shape).begin()
    for token_id in TOKENIZER.encode(text, markers=False):
        if not constraint.allowed()[token_id]:
            return False
        constraint.accept(token_id)
    return bool(constraint.allowed()[ENDINGS].all())


def write(constraint: Constraint, rng: Random, num_tokens: int = 400) -> str | None:
    """What a model with random likings writes; None where it has not ended by then."""
    liking = np.array([rng.random() for _ in range(TOKENIZER.vocabulary_size)])
    written = b""
    for _ in range(num_tokens):
        allowed = constraint.allowed()
        assert allowed.any()
        token_id = int(np.where(allowed, liking, -1.0).argmax())
        if token_id in ENDINGS:
            return written.decode()
        constraint.accept(token_id)
        written += TOKENIZER.piece(token_id)
        if constraint.is_complete:
            assert not np.delete(constraint.allowed(), ENDINGS).any()
            return written.decode()
        if rng.random() < 0.3:
            liking = np.array([rng.random() for _ in range(TOKENIZER.vocabulary_size)])
    return None


LEAVES = st.sampled_from(
    [
        {"type": "integer"},
        {"type": "integer", "minimum": -3, "maximum": 7},
        {"type": "number"},
        {"type": "boolean"},
        {"type": "null"},
        {"type": "string", "maxLength": 5},
        {"type": "string", "pattern": "^[a-c]{1,3}$"},
        {"enum": ["x", 1, None]},
        {"const": {"k": [1]}},
    ]
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: (
        st.builds(lambda items: {"type": "array", "items": items, "maxItems": 3}, inner)
        | st.builds(lambda options: {"anyOf": options}, st.lists(inner, min_size=1, max_size=3))
        | st.builds(
            lambda fields, required: {
                "type": "object",
                "properties": fields,
                "required": [key for key in fields if key in required],
                "additionalProperties": False,
            },
            st.dictionaries(st.sampled_from(["a", "b", "ğü", "c d"]), inner, max_size=3),
            st.sets(st.sampled_from(["a", "b", "ğü", "c d"])),
        )
    ),
    max_leaves=6,
)


@settings(deadline=None, max_examples=60)
@given(SCHEMAS, st.integers())
def test_an_answer_that_ends_satisfies_its_schema(schema: dict[str, Any], seed: int) -> None:
    """vllm#38696, vllm#52011: required keys are there, and space does not go on for ever."""
    answer = write(COMPILER.compile(schema_shape(schema)).begin(), Random(seed))  # noqa: S311
    if answer is not None:
        jsonschema.validate(json.loads(answer), schema)
    assert answer is None or " " * 9 not in answer


@pytest.mark.parametrize("opening", ["{", '{"a":', '{"a":[1,'])
def test_space_is_bounded_wherever_json_allows_it(opening: str) -> None:
    """vllm#38696: a model that likes nothing better than space filled its answer with it."""
    constraint = COMPILER.compile(wanted("json_object")).begin()
    for token_id in TOKENIZER.encode(opening, markers=False):
        constraint.accept(token_id)
    num_spaces = 0
    while constraint.allowed()[ord(" ")]:
        constraint.accept(ord(" "))
        num_spaces += 1
        assert num_spaces <= 8


@pytest.mark.parametrize(
    ("shape", "good", "bad"),
    [
        (wanted("json_object"), '{"a": [1, {"b": null}]}', "[1]"),
        (wanted("json_object"), "{}", "{} "),
        (wanted("regex", r"^[a-c]+/\d$"), "abc/7", "abc/"),
        (wanted("regex", "a|b"), "b", "ab"),
        (wanted("grammar", 'start: "yes" | "no" " " /[x]+/'), "no xx", "maybe"),
        (wanted("json_schema", "true"), "[]", "]"),
        (schema_shape({"type": "string", "x-guidance": {"lenient": True}}), '"x"', "1"),
    ],
)
def test_formats(shape: AnswerShape, good: str, bad: str) -> None:
    assert accepts(shape, good)
    assert not accepts(shape, bad)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (schema_shape({"type": "integer", "minimum": 5, "maximum": 3}), "minimum (5)"),
        (schema_shape({"type": "array", "uniqueItems": True}), "uniqueItems"),
        (schema_shape({"type": "flurb"}), "Invalid type"),
        (schema_shape({"$ref": "#"}), "no text"),
        (wanted("json_schema", "false"), "no JSON object"),
        (wanted("json_schema", "[" * 100_000), "no JSON object"),
        (wanted("json_schema", '{"items":' * 5_000 + "{}" + "}" * 5_000), ""),
        (wanted("regex", "(?=a)b"), "regex"),
        (wanted("regex", "(" * 5_000), "regex"),
        (wanted("regex", r"[^\s\S]"), "no text"),
        (wanted("grammar", "start: other"), "unknown name"),
        (schema_shape({"enum": ["x" * MAX_GRAMMAR_BYTES]}), "larger than"),
    ],
)
def test_what_cannot_be_held_to_is_refused_with_the_reason(shape: AnswerShape, reason: str) -> None:
    with pytest.raises(RequestError) as refused:
        COMPILER.compile(shape)
    error = refused.value
    assert (error.code, error.status, error.param) == (
        *("request.grammar_refused", 400, "response_format"),
    )
    assert reason in error.message


@pytest.mark.parametrize(
    "shape",
    [
        schema_shape({"type": "object", "properties": {"Ayşe": False}, "required": ["Ayşe"]}),
        wanted("grammar", 'start: "Ayşe" other'),
        wanted("regex", "Ayşe(?=x)"),
    ],
)
def test_a_reason_quotes_none_of_the_callers_words(shape: AnswerShape) -> None:
    with pytest.raises(RequestError) as refused:
        COMPILER.compile(shape)
    assert "Ay" not in refused.value.message


def test_what_takes_too_long_is_refused() -> None:
    """The time is that of the thread, so other work on the machine changes nothing."""
    seconds = iter([0.0, 11.0, 11.0])
    compiler = GrammarCompiler(VOCABULARY, lambda: next(seconds))
    with pytest.raises(RequestError, match="too long to compile"):
        compiler.compile(wanted("json_object"))
    seconds = iter([0.0, 0.0, 2.0])
    with pytest.raises(RequestError, match="too long to find"):
        compiler.compile(wanted("json_object"))


def test_a_grammar_is_compiled_once_for_a_salt_and_choices_stand_alone() -> None:
    shape = wanted("json_object")
    assert COMPILER.compile(shape, b"a") is COMPILER.compile(shape, b"a")
    assert COMPILER.compile(shape, b"a") is not COMPILER.compile(shape, b"b")
    first, second = (COMPILER.compile(shape).begin() for _ in range(2))
    first.accept(ord("{"))
    assert second.allowed()[ord("{")]
    assert not second.is_complete


def test_a_draft_that_is_not_taken_is_rolled_back() -> None:
    """vllm#9423: the grammar follows drafts and forgets them."""
    constraint = COMPILER.compile(wanted("json_object")).begin()
    constraint.accept(ord("{"))
    before = constraint.allowed()
    for token_id in b'"a"':
        constraint.accept(token_id)
    constraint.rollback(3)
    assert (constraint.allowed() == before).all()


def test_a_token_that_is_not_allowed_ends_the_choice_with_an_error() -> None:
    constraint = COMPILER.compile(wanted("json_object")).begin()
    with pytest.raises(ConstraintError):
        constraint.accept(ord("x"))
    assert not constraint.is_complete


FIND_CALL = '{"name": "find", "arguments": {"no": 417}}'
SEND_CALL = '{"name":"send","arguments":{}}'


@pytest.mark.parametrize(
    ("call_format", "good", "bad"),
    [
        (HERMES, f"<tool_call>\n{FIND_CALL}\n</tool_call>", FIND_CALL),
        (HERMES, f"<tool_call>{FIND_CALL}</tool_call>\n<tool_call>{SEND_CALL}</tool_call>", "Hi"),
        (MISTRAL, f"[TOOL_CALLS] [{FIND_CALL}, {SEND_CALL}]", f"[TOOL_CALLS]{FIND_CALL}"),
        (
            MISTRAL_NAMED,
            '[TOOL_CALLS]find[ARGS]{"no": 417}[TOOL_CALLS]send[CALL_ID]a1B2c3D4e[ARGS]{}',
            '[TOOL_CALLS]find[ARGS]{"no": "417"}',
        ),
        (MISTRAL_NAMED, "[TOOL_CALLS]send[ARGS] {}", f"[TOOL_CALLS][{SEND_CALL}]"),
        (LLAMA3, FIND_CALL.replace("arguments", "parameters"), FIND_CALL),
    ],
)
def test_a_required_call_is_written_in_the_familys_form(
    call_format: CallFormat, good: str, bad: str
) -> None:
    assert accepts(calls(call_format, is_required=True), good)
    assert not accepts(calls(call_format, is_required=True), bad)


@pytest.mark.parametrize("call_format", [HERMES, MISTRAL])
def test_text_is_free_until_a_call_opens(call_format: CallFormat) -> None:
    shape = calls(call_format)
    opening = call_format.opening
    assert accepts(shape, "Any text, <b> [and] {so on}\n")
    assert accepts(shape, f"Sure. {opening}{call_format.prefix}{FIND_CALL}{call_format.closing}")
    for wrong in ("no call", '{"name": "other"', '{"name": "find", "arguments": {"no": "x"'):
        assert not accepts(shape, f"Sure. {opening}{call_format.prefix}{wrong}")


def test_text_is_free_until_a_named_call_opens() -> None:
    shape = calls(MISTRAL_NAMED)
    assert accepts(shape, "Any text, [ARGS] and {so on}")
    assert accepts(shape, "Sure.[TOOL_CALLS]send[ARGS]{}")
    assert accepts(shape, '[TOOL_CALLS]send[ARGS]{}[TOOL_CALLS]find[ARGS]{"no": 1}')
    assert not accepts(shape, "Sure.[TOOL_CALLS]other[ARGS]{}")


def test_only_one_call_where_only_one_is_allowed() -> None:
    block = f"<tool_call>{SEND_CALL}</tool_call>"
    assert accepts(calls(HERMES, is_required=True, takes_many=False), block)
    assert not accepts(calls(HERMES, is_required=True, takes_many=False), block * 2)


def test_a_strict_function_is_held_to_where_calls_open_with_a_brace() -> None:
    free = calls(LLAMA3)
    assert free.is_free
    assert free.calls is not None
    strict = Tool(name="find", parameters=FIND.parameters, strict=True)
    shape = AnswerShape(
        calls=Calls(call_format=LLAMA3, tools=(strict,), is_required=False, takes_many=True)
    )
    assert not shape.is_free
    assert accepts(shape, "text")
    assert accepts(shape, FIND_CALL.replace("arguments", "parameters"))
    assert not accepts(shape, '{"name": "find", "parameters": {"no": "x"}}')


def test_thoughts_come_before_what_is_held_to() -> None:
    shape = AnswerShape(thinking="maybe", output_format=OutputFormat(kind="json_object"))
    assert accepts(shape, "<think>{ not yet }</think>\n{}")
    assert accepts(shape, "{}")
    assert not accepts(shape, "thoughts {}")
    opened = AnswerShape(thinking="opened", output_format=OutputFormat(kind="json_object"))
    assert accepts(opened, "thoughts</think>{}")
    assert not accepts(opened, "{}")
    with_calls = AnswerShape(thinking="maybe", calls=calls(HERMES).calls)
    assert accepts(with_calls, "<think>a <tool_call> is next</think>Well.")


def test_calls_or_the_format_where_both_are_asked_for() -> None:
    shape = AnswerShape(calls=calls(HERMES).calls, output_format=OutputFormat(kind="json_object"))
    assert accepts(shape, "{}")
    assert accepts(shape, f"<tool_call>{FIND_CALL}</tool_call>")
    assert not accepts(shape, "Hi")


def test_parameters_nobody_can_hold_to_are_a_wish_unless_the_function_is_strict() -> None:
    impossible = '{"type":"object","properties":{"a":{"type":"flurb"}}}'

    def shape(*, strict: bool) -> AnswerShape:
        tool = Tool(name="find", parameters=impossible, strict=strict)
        return AnswerShape(
            calls=Calls(call_format=HERMES, tools=(tool,), is_required=True, takes_many=True)
        )

    assert accepts(shape(strict=False), f"<tool_call>{FIND_CALL}</tool_call>")
    with pytest.raises(RequestError) as refused:
        COMPILER.compile(shape(strict=True))
    assert (refused.value.code, refused.value.param) == ("request.grammar_refused", "tools")


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(FORMATS), st.booleans(), st.integers())
def test_required_calls_always_parse(call_format: CallFormat, takes_many: bool, seed: int) -> None:
    shape = calls(call_format, is_required=True, takes_many=takes_many)
    answer = write(COMPILER.compile(shape).begin(), Random(seed))  # noqa: S311
    if answer is None:
        return
    reader = CallReader(call_format, frozenset({"find", "send"}), takes_many=takes_many)
    pieces = reader.push(answer) + reader.finish()
    assert all(isinstance(piece, CallPiece) for piece in pieces)
    assert reader.num_complete >= 1
    assert not reader.is_cut
    assert takes_many or reader.num_complete == 1


class MarkupTokenizer(EchoTokenizer):
    """The echo vocabulary with markup as control tokens, which no text can spell."""

    MARKUP = (
        *("</tool_call>", "<tool_call>", "[TOOL_CALLS]", "</think>", "<think>"),
        *("[ARGS]", "[CALL_ID]"),
    )
    vocabulary_size = EchoTokenizer.vocabulary_size + len(MARKUP)
    control_markers = (*MARKUP, *EchoTokenizer.control_markers)

    def encode(self, text: str, *, markers: bool) -> list[int]:
        if markers and text in self.MARKUP:
            return [EchoTokenizer.vocabulary_size + self.MARKUP.index(text)]
        return super().encode(text, markers=markers)

    def piece(self, token_id: int) -> bytes:
        return super().piece(token_id) if token_id < EchoTokenizer.vocabulary_size else b""

    def ends_generation(self, token_id: int) -> bool:
        return token_id < EchoTokenizer.vocabulary_size and super().ends_generation(token_id)


@pytest.mark.parametrize("is_required", [True, False])
@pytest.mark.parametrize(
    ("call_format", "call"),
    [
        (HERMES, (SEND_CALL,)),
        (MISTRAL, (f"[{SEND_CALL}",)),
        (MISTRAL_NAMED, ("send", "[ARGS]", "{}")),
        (MISTRAL_NAMED, ("send", "[CALL_ID]", "a1B2c3D4e", "[ARGS]", "{}")),
    ],
)
def test_markup_is_a_control_token_where_the_vocabulary_has_one(
    call_format: CallFormat, call: tuple[str, ...], is_required: bool
) -> None:
    tokenizer = MarkupTokenizer()
    shape = AnswerShape(thinking="maybe", calls=calls(call_format, is_required=is_required).calls)
    constraint = GrammarCompiler(Vocabulary(tokenizer)).compile(shape).begin()
    parts = ["<think>", "so", "</think>", call_format.opening, *call]
    for part in [*parts, call_format.closing]:
        for token_id in tokenizer.encode(part, markers=True):
            assert constraint.allowed()[token_id]
            constraint.accept(token_id)
    assert constraint.allowed()[ENDINGS].all()


class SpacingTokenizer(EchoTokenizer):
    """Puts a space before every text, as SentencePiece vocabularies do."""

    def encode(self, text: str, *, markers: bool) -> list[int]:
        return super().encode(f" {text}", markers=markers)


def test_a_tokenizer_that_adds_a_space_cannot_add_it_to_what_is_forced() -> None:
    compiler = GrammarCompiler(Vocabulary(SpacingTokenizer()))
    constraint = compiler.compile(wanted("regex", "hello world, assistant ğ!")).begin()
    written = b""
    while not constraint.is_complete:
        token_id = int(np.flatnonzero(constraint.allowed())[-1])
        constraint.accept(token_id)
        written += TOKENIZER.piece(token_id)
    assert written.decode() == "hello world, assistant ğ!"


@pytest.mark.parametrize("pattern", ["a\nb", "a/b", r"a\/b", 'say "x"', r"\$5$", "ğ+"])
def test_patterns_are_taken_as_they_are_written(pattern: str) -> None:
    good = {"a\nb": "a\nb", r"a\/b": "a/b", r"\$5$": "$5", "ğ+": "ğğ"}.get(pattern, pattern)
    assert accepts(wanted("regex", pattern), good)


def test_old_grammars_make_room_for_new_ones() -> None:
    compiler = GrammarCompiler(VOCABULARY)
    first = compiler.compile(wanted("regex", "a"))
    assert compiler.compile(wanted("regex", "a")) is first
    for size in range(3):
        compiler.compile(schema_shape({"enum": ["x" * 200_000 + str(size)]}))
    assert compiler.compile(wanted("regex", "a")) is not first
