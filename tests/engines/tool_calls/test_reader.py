"""Answers with tool calls in them are told apart, however they are cut into pushes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from engines.tool_calls.formats import (
    FORMATS,
    HERMES,
    LLAMA3,
    MISTRAL,
    MISTRAL_NAMED,
    CallFormat,
    choose_format,
)
from engines.tool_calls.reader import CallPiece, CallReader, Piece

NAMES = frozenset({"find", "send"})
CALL = '{"name": "find", "arguments": {"no": "41\\"7", "deep": [{"a": 1}, "}"]}}'
ARGUMENTS = '{"no": "41\\"7", "deep": [{"a": 1}, "}"]}'
SEND = '{"arguments": {"to": 2}, "name": "send"}'
LLAMA_CALL = CALL.replace("arguments", "parameters")


class Read(Struct, frozen=True):
    """What an answer amounts to."""

    content: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    is_cut: bool = False
    num_complete: int = 0


def amount(pieces: list[Piece]) -> tuple[str, tuple[tuple[str, str], ...]]:
    calls: dict[int, tuple[str, str]] = {}
    for piece in pieces:
        if isinstance(piece, CallPiece):
            name, arguments = calls.get(piece.call_index, ("", ""))
            assert (piece.name == "") == bool(name), "the name comes once, first"
            calls[piece.call_index] = (name + piece.name, arguments + piece.arguments)
    assert list(calls) == list(range(len(calls)))
    return "".join(p for p in pieces if isinstance(p, str)), tuple(calls.values())


def read(
    call_format: CallFormat, *pushes: str, takes_many: bool = True
) -> tuple[list[Piece], CallReader]:
    reader = CallReader(call_format, NAMES, takes_many=takes_many)
    pieces = [piece for text in pushes for piece in reader.push(text)]
    return pieces + reader.finish(), reader


def whole(call_format: CallFormat, *pushes: str, takes_many: bool = True) -> Read:
    pieces, reader = read(call_format, *pushes, takes_many=takes_many)
    content, calls = amount(pieces)
    return Read(content, calls, reader.is_cut, reader.num_complete)


ANSWERS = [
    (HERMES, "no call, <b>, <tool_ and \n", Read("no call, <b>, <tool_ and \n")),
    (
        HERMES,
        f"Sure.\n<tool_call>\n{CALL}\n</tool_call>\n",
        Read("Sure.", (("find", ARGUMENTS),), num_complete=1),
    ),
    (
        HERMES,
        f"<tool_call>{CALL}</tool_call>\n<tool_call>\n{SEND}\n</tool_call>",
        Read("", (("find", ARGUMENTS), ("send", '{"to": 2}')), num_complete=2),
    ),
    (
        HERMES,
        f"<tool_call>{CALL}</tool_call>Done.",
        Read("Done.", (("find", ARGUMENTS),), num_complete=1),
    ),
    (HERMES, "<tool_call>no call</tool_call>!", Read("no call!")),
    (HERMES, '<tool_call>{"name": "other"}</tool_call>', Read('{"name": "other"}')),
    (
        MISTRAL,
        f"[TOOL_CALLS] [{CALL}, {SEND}]",
        Read("", (("find", ARGUMENTS), ("send", '{"to": 2}')), num_complete=2),
    ),
    (MISTRAL, "a[TOOL_CALLS] [12]", Read("a [12]")),
    (
        MISTRAL_NAMED,
        f"Sure.[TOOL_CALLS]find[ARGS]{ARGUMENTS}[TOOL_CALLS]send[CALL_ID]a1B2c3D4e[ARGS] {{}}",
        Read("Sure.", (("find", ARGUMENTS), ("send", "{}")), num_complete=2),
    ),
    (MISTRAL_NAMED, "a[TOOL_CALLS]other[ARGS]{}", Read("aother{}")),
    (MISTRAL_NAMED, "a[TOOL_CALLS]find[ARGS]12", Read("afind12")),
    (MISTRAL_NAMED, f"[TOOL_CALLS][{CALL}]", Read(f"[{CALL}]")),
    (MISTRAL_NAMED, "[TOOL_CALLS]" + "a" * 300, Read("a" * 300)),
    (
        MISTRAL_NAMED,
        '[TOOL_CALLS]find[ARGS]{"a": oops}',
        Read("", (("find", '{"a": oops}'),), True),
    ),
    (MISTRAL_NAMED, '[TOOL_CALLS]find[ARGS]{"a": ', Read("", (("find", '{"a": '),), True)),
    (LLAMA3, LLAMA_CALL, Read("", (("find", ARGUMENTS),), num_complete=1)),
    (
        LLAMA3,
        f"<|python_tag|>{LLAMA_CALL}; {LLAMA_CALL}",
        Read("", (("find", ARGUMENTS),) * 2, num_complete=2),
    ),
    (LLAMA3, '{"name": "Ada", "age": 36}', Read('{"name": "Ada", "age": 36}')),
    (LLAMA3, f"see {LLAMA_CALL}", Read(f"see {LLAMA_CALL}")),
]


@pytest.mark.parametrize(("call_format", "answer", "expected"), ANSWERS)
def test_an_answer_is_told_apart(call_format: CallFormat, answer: str, expected: Read) -> None:
    assert whole(call_format, answer) == expected
    assert whole(call_format, *answer) == expected


PARTS = st.lists(
    st.sampled_from(
        [
            *("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[", "]", "<|python_tag|>", ";"),
            *("find", "[ARGS]", "[CALL_ID]", "[ARGS]{}", ARGUMENTS),
            *(CALL, LLAMA_CALL, SEND, CALL[:20], "<tool", "{", "}", '"', "\n", " ", "x", "ğ"),
        ]
    ),
    max_size=8,
).map("".join)


@given(st.sampled_from(FORMATS), PARTS, st.booleans(), st.data())
def test_pushes_cut_anywhere_amount_to_the_same(
    call_format: CallFormat, answer: str, takes_many: bool, data: st.DataObject
) -> None:
    """vllm#10781, vllm#45256: joined deltas are the plain answer, and arguments are JSON."""
    cuts = sorted(data.draw(st.sets(st.integers(0, len(answer)), max_size=6)))
    pushes = [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    read_whole = whole(call_format, answer, takes_many=takes_many)
    assert whole(call_format, *pushes, takes_many=takes_many) == read_whole
    for _, arguments in read_whole.calls[: read_whole.num_complete]:
        assert isinstance(json.loads(arguments), dict)
    assert call_format.opening not in read_whole.content


@pytest.mark.parametrize("length", range(len("<tool_call>"), len(f"<tool_call>{CALL}")))
def test_a_call_that_is_never_finished_is_cut(length: int) -> None:
    """vllm#48702: half a call must not look like a whole one."""
    read_cut = whole(HERMES, f"<tool_call>{CALL}"[:length])
    assert read_cut.is_cut
    assert read_cut.num_complete == 0
    assert read_cut.content == ""


@pytest.mark.parametrize("arguments", ['{"a": oops}', '{"a": 1,}', '{"a": 1}]'])
def test_arguments_that_are_no_json_make_a_cut_call(arguments: str) -> None:
    assert whole(HERMES, f'<tool_call>{{"name": "find", "arguments": {arguments}}}').is_cut


@pytest.mark.parametrize(
    ("written", "told"),
    [('"{\\"a\\": 1}"', '{"a": 1}'), ("null", "{}"), ("{}", "{}"), ("{ }", "{ }")],
)
def test_other_ways_to_write_arguments_become_an_object(written: str, told: str) -> None:
    answer = f'<tool_call>{{"name": "find", "arguments": {written}}}</tool_call>'
    assert whole(HERMES, answer) == Read("", (("find", told),), num_complete=1)


def test_a_call_without_arguments_has_an_empty_object() -> None:
    assert whole(HERMES, '<tool_call>{"name": "find"}').calls == (("find", "{}"),)


def test_arguments_are_told_while_they_are_written() -> None:
    reader = CallReader(HERMES, NAMES, takes_many=True)
    assert reader.push('<tool_call>{"name": "find", "arguments": ') == []
    assert reader.push('{"a":') == [CallPiece(call_index=0, name="find", arguments='{"a":')]
    assert reader.push(" 1") == [CallPiece(call_index=0, arguments=" 1")]


def test_where_one_call_is_allowed_the_answer_is_done_after_it() -> None:
    answer = f"<tool_call>{CALL}</tool_call><tool_call>{SEND}</tool_call>"
    _, reader = read(HERMES, answer, takes_many=False)
    assert reader.is_done
    assert whole(HERMES, answer, takes_many=False).calls == (("find", ARGUMENTS),)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ '<tool_call>' }}", HERMES),
        ("{{ '<|python_tag|>' }}", LLAMA3),
        ("{{ '[TOOL_CALLS]' }}", MISTRAL),
        ("{{ '[TOOL_CALLS]' + name + '[ARGS]' + arguments }}", MISTRAL_NAMED),
        ("{{ messages }}", HERMES),
    ],
)
def test_a_template_shows_its_family(template: str, expected: CallFormat) -> None:
    assert choose_format(template) is expected
