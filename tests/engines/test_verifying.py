"""Drafts are taken as far as they are what would have been chosen."""

from collections.abc import Callable

import pytest

from appliance.generation import OutputFormat, SamplingParams
from engines.constraint import Constraint
from engines.echo.tokenizer import EchoTokenizer
from engines.grammar import GrammarCompiler
from engines.grammar_text import AnswerShape
from engines.runner import Chunk, RowError, Sampled
from engines.sequence import Sequence
from engines.verifying import verify
from engines.vocabulary import Vocabulary

FAILED = RowError(code="engine.row_failed", message="no number")


def make_sequence(constraint: Constraint | None = None) -> Sequence:
    return Sequence(
        request_id="r",
        index=0,
        num_prompt_tokens=2,
        token_ids=[1, 2, 3],
        max_tokens=100,
        sampling=SamplingParams(),
        seed=0,
        constraint=constraint,
    )


def run(
    sequence: Sequence, drafts: str, choose: Callable[[Sequence, int], Sampled | RowError]
) -> str | RowError:
    chunk = Chunk(
        sequence=sequence, start=2, length=1, samples=True, drafts=tuple(map(ord, drafts))
    )
    answer = verify(chunk, range(1 + len(drafts)), choose)
    assert sequence.token_ids == [1, 2, 3]
    if isinstance(answer, RowError):
        return answer
    return "".join(chr(sampled.token_id) for sampled in answer)


def saying(text: str) -> Callable[[Sequence, int], Sampled | RowError]:
    """A model that says this; a "!" is a row that fails."""

    def choose(sequence: Sequence, row: int) -> Sampled | RowError:
        assert sequence.num_output_tokens == 1 + row
        return FAILED if text[row] == "!" else Sampled(token_id=ord(text[row]))

    return choose


@pytest.mark.parametrize(
    ("drafts", "said", "taken"),
    [
        ("abc", "abcd", "abcd"),
        ("abc", "abxy", "abx"),
        ("abc", "xyz?", "x"),
        ("", "a", "a"),
    ],
)
def test_right_drafts_are_taken_and_one_token_more(drafts: str, said: str, taken: str) -> None:
    assert run(make_sequence(), drafts, saying(said)) == taken


def test_each_row_is_sampled_after_the_drafts_before_it() -> None:
    seen: list[list[int]] = []

    def choose(sequence: Sequence, row: int) -> Sampled:
        seen.append(sequence.token_ids.copy())
        return Sampled(token_id=ord("ab"[row]))

    run(make_sequence(), "a", choose)
    assert seen == [[1, 2, 3], [1, 2, 3, ord("a")]]


def test_a_row_that_fails_fails_alone_and_only_when_it_is_next() -> None:
    assert run(make_sequence(), "ab", saying("a!c")) == "a"
    assert run(make_sequence(), "ab", saying("!bc")) == FAILED


def held_to(regex: str) -> Constraint:
    compiler = GrammarCompiler(Vocabulary(EchoTokenizer()))
    shape = AnswerShape(output_format=OutputFormat(kind="regex", text=regex))
    return compiler.compile(shape).begin()


def obedient(sequence: Sequence, wanted: str) -> Sampled:
    """The wanted token where the grammar allows it, else the lowest that it allows."""
    assert sequence.constraint is not None
    allowed = sequence.constraint.allowed()
    token_id = ord(wanted)
    return Sampled(token_id=token_id if allowed[token_id] else int(allowed.argmax()))


def test_a_grammar_follows_the_drafts_and_is_left_where_it_was() -> None:
    """vllm#9423, vllm#40875: guesses broke JSON."""
    constraint = held_to("ab[cd]e")
    for _ in range(2):
        said = run(make_sequence(constraint), "abx", lambda s, row: obedient(s, "abxy"[row]))
        assert said == "abc"
    constraint.accept(ord("a"))
    assert run(make_sequence(constraint), "bde", lambda s, row: obedient(s, "bdez"[row])) == "bde"
    for letter in "bce":
        constraint.accept(ord(letter))
    assert constraint.is_complete


def test_nothing_is_sampled_after_the_end_of_a_grammar() -> None:
    sequence = make_sequence(held_to("ab"))
    assert run(sequence, "abab", lambda s, row: obedient(s, "abab?"[row])) == "ab"


def test_a_grammar_that_can_go_no_further_ends_the_run() -> None:
    """A token that it does not allow is not for this function to judge: its owner hears of it."""
    assert run(make_sequence(held_to("ab")), "xy", saying("xyz")) == "x"
