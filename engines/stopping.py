"""Where an answer is cut: at the first occurrence of any stop string, wherever tokens split it.

The stop strings form one Aho-Corasick automaton (Aho and Corasick, 1975), so a character costs the
same however many stops there are, and the depth of the current state is exactly the length of the
text that must not be shown yet.
"""

from msgspec import Struct


class _Node(Struct, eq=False):
    """A prefix of some stop string. `longest_stop` is the length of the longest that ends here."""

    depth: int = 0
    longest_stop: int = 0
    children: "dict[str, _Node]" = {}
    fallback: "_Node | None" = None


class StopMatcher:
    """Shows text as soon as it cannot be part of a stop string, and nothing from a stop on.

    Of overlapping stops the one that starts first counts, as if the whole text had been searched.
    So `matched` may turn true one push later than a stop was complete, or at `finish`.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._root = _build_automaton(stops)
        self._node = self._root
        self._held = ""
        self._cut: int | None = None
        self._found: str | None = None
        self.matched = False

    @property
    def matched_stop(self) -> str | None:
        """The stop string that counts, once `matched`."""
        return self._found if self.matched else None

    def push(self, text: str) -> str:
        """The text that may be shown now; empty for ever once `matched`."""
        if self.matched:
            return ""
        if not self._root.children:
            return text
        searched = len(self._held)
        self._held += text
        steps = (self._step(character, end) for end, character in enumerate(text, searched + 1))
        self.matched = any(steps)
        return self._show(end=len(self._held) - self._node.depth)

    def finish(self) -> str:
        """The text still held back, when no text follows."""
        if self.matched:
            return ""
        self.matched = self._cut is not None
        return self._show(end=len(self._held))

    def _step(self, character: str, end: int) -> bool:
        """Read one character; true when there is a cut and no earlier one can still come."""
        self._node = node = _follow(self._node, character)
        if node.longest_stop:
            start = end - node.longest_stop
            if self._cut is None or start < self._cut:
                self._cut = start
                self._found = self._held[start:end]
        return self._cut is not None and self._cut <= end - node.depth

    def _show(self, end: int) -> str:
        if self._cut is not None:
            end = min(end, self._cut)
            self._cut -= end
        shown, self._held = self._held[:end], self._held[end:]
        return shown


def _follow(node: _Node, character: str) -> _Node:
    """The node of the longest suffix of the text so far that is a prefix of a stop."""
    while (child := node.children.get(character)) is None:
        if node.fallback is None:
            return node
        node = node.fallback
    return child


def _build_automaton(stops: tuple[str, ...]) -> _Node:
    root = _Node()
    for stop in stops:
        node = root
        for character in stop:
            node = node.children.setdefault(character, _Node(depth=node.depth + 1))
        node.longest_stop = node.depth
    level = [root]
    while level:
        for node in level:
            for character, child in node.children.items():
                child.fallback = (
                    root if node.fallback is None else _follow(node.fallback, character)
                )
                child.longest_stop = max(child.longest_stop, child.fallback.longest_stop)
        level = [child for node in level for child in node.children.values()]
    return root
