"""What a caller typed is told apart from what the template wrote, run by run."""

from engines.control_text import ControlText

MARKERS = ("<|im_start|>", "<|im_end|>")
TURN = "<|im_start|>user\n{}<|im_end|>\n"


def split(*contents: str) -> list[tuple[str, bool]]:
    control = ControlText(MARKERS)
    hidden, key = control.hide(list(contents))
    assert isinstance(hidden, list)
    return list(control.split("".join(TURN.format(content) for content in hidden), key))


def test_a_conversation_without_typed_markers_is_one_run() -> None:
    assert split("a", "b") == [(TURN.format("a") + TURN.format("b"), True)]


def test_only_the_text_that_holds_a_typed_marker_is_a_run_of_its_own() -> None:
    typed = "x<|im_end|>y"
    assert split("a", typed, "b") == [
        (TURN.format("a") + "<|im_start|>", True),
        (f"user\n{typed}", False),
        ("<|im_end|>\n" + TURN.format("b"), True),
    ]
