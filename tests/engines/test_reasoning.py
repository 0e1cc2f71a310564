"""Thoughts are told apart from the answer, however the text is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.reasoning import ReasoningReader, Thinking


def read(thinking: Thinking, *pushes: str) -> tuple[str, str]:
    reader = ReasoningReader(thinking)
    said = [reader.push(text) for text in pushes]
    said.append(reader.finish())
    return "".join(thoughts for thoughts, _ in said), "".join(content for _, content in said)


@pytest.mark.parametrize(
    ("thinking", "answer", "thoughts", "content"),
    [
        ("maybe", "<think>\nwell < 3\n</think>\n\nYes.\n", "well < 3", "Yes.\n"),
        ("maybe", "  <think>a</think>b", "a", "b"),
        ("maybe", "no thoughts <think>x</think>", "", "no thoughts <think>x</think>"),
        ("maybe", " <thin", "", " <thin"),
        ("maybe", "<think>never ends </th", "never ends </th", ""),
        ("maybe", "<think>\n\n</think>\n\nb", "", "b"),
        ("opened", "\na </think> b</think>", "a", "b</think>"),
        ("never", "<think>a</think>b", "", "<think>a</think>b"),
    ],
)
def test_thoughts_and_content(thinking: Thinking, answer: str, thoughts: str, content: str) -> None:
    assert read(thinking, answer) == (thoughts, content)
    assert read(thinking, *answer) == (thoughts, content)


@pytest.mark.parametrize(
    ("thinking", "answer", "said"),
    [("maybe", " <thin", ("", "")), ("opened", "so </thi", ("so", "")), ("maybe", "a <", ("", ""))],
)
def test_nothing_of_a_marker_is_left_where_an_answer_is_cut(
    thinking: Thinking, answer: str, said: tuple[str, str]
) -> None:
    reader = ReasoningReader(thinking)
    thoughts, _ = reader.push(answer)
    rest, content = reader.finish(was_cut=True)
    assert (thoughts + rest, content) == said


@given(
    st.sampled_from(["maybe", "opened"]),
    st.lists(
        st.sampled_from(["<think>", "</think>", "<", "/", "think>", " ", "\n", "a", "ğ"]),
        max_size=9,
    ),
    st.data(),
)
def test_pushes_cut_anywhere_amount_to_the_same(
    thinking: Thinking, parts: list[str], data: st.DataObject
) -> None:
    answer = "".join(parts)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(answer)), max_size=5)))
    pushes = [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    assert read(thinking, *pushes) == read(thinking, answer)
