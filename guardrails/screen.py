"""The judgement on texts that enter and leave, by everything the box is configured to look for."""

from collections.abc import Iterable

from guardrails.detectors.denylist import DenyList, Search
from guardrails.verdict import Action, Finding, Verdict


class Screen:
    """What is looked for. Raises ConfigError for a denied word without a character."""

    def __init__(self, denied_words: Iterable[str] = ()) -> None:
        self._denied = DenyList(denied_words)

    @property
    def is_empty(self) -> bool:
        """Every text is allowed."""
        return self._denied.is_empty

    def check(self, text: str) -> Verdict:
        """The verdict on a whole text. Pure computing, about 1 s for 2 MB: not for an event loop
        when the text is large."""
        if self.is_empty:
            return Verdict()
        search = self.search()
        search.feed(text)
        search.finish()
        if not search.is_hit:
            return Verdict()
        finding = Finding(detector="denylist", start=search.start, end=search.end)
        return Verdict(action=Action.BLOCK, findings=(finding,))

    def search(self) -> Search:
        """A search through a text that is still being written."""
        return Search(self._denied)
