"""JSON says the same behind its escapes, in whatever pieces it comes."""

import json

from hypothesis import given
from hypothesis import strategies as st

from guardrails.json_text import JsonText, unescape

PARTS = st.lists(
    st.sampled_from(
        [
            *("\\", "u", "\\u", "0061", "\\u0061", "\\ud835", "\\udc00", "d835", "\\n", '\\"'),
            *("\\\\", "a", '"', " ", "{", "ğ", "0", "\n", "\\x"),
        ]
    ),
    max_size=12,
).map("".join)


@given(st.text(), st.booleans())
def test_the_escapes_of_any_string_are_undone(text: str, is_ascii: bool) -> None:
    written = json.dumps(text, ensure_ascii=is_ascii)
    assert unescape(written) == f'"{text}"'


@given(PARTS, st.data())
def test_pieces_cut_anywhere_say_the_same_and_come_back_as_written(
    text: str, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)))
    reader = JsonText()
    said, written, num_released = "", "", 0
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        said += reader.read(text[start:end])
        num_free = data.draw(st.integers(0, len(said) - num_released))
        written += reader.release(num_free)
        num_released += num_free
    said += reader.finish()
    assert said == unescape(text)
    assert written + reader.release(len(said) - num_released) == text


def test_what_is_no_escape_stands_for_itself() -> None:
    assert unescape(r"C:\windows\u12") == r"C:\windows\u12"
