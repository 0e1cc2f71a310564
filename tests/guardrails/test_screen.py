"""The verdict on whole texts."""

from guardrails.screen import Screen
from guardrails.verdict import Action


def test_a_denied_word_blocks_and_the_finding_says_where_without_the_text() -> None:
    verdict = Screen(["GIZLIKOD"]).check("bu gizlikod ve")
    assert verdict.action is Action.BLOCK
    (finding,) = verdict.findings
    assert (finding.detector, finding.start, finding.end) == ("denylist", 3, 11)


def test_other_text_is_allowed() -> None:
    verdict = Screen(["GIZLIKOD"]).check("merhaba")
    assert (verdict.action, verdict.findings) == (Action.ALLOW, ())


def test_without_words_everything_is_allowed() -> None:
    screen = Screen([])
    assert screen.is_empty
    assert screen.check("anything").action is Action.ALLOW
