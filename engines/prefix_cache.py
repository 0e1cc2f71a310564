"""Who holds the computed prefix of a prompt: a radix tree over token ids, one root per cache salt.

A holder is any hashable that names a place (a slot, a block list) whose keys and values cover a
path of tokens from the first one on. The tree only knows who covers what; what a holder is worth,
and whether it may be evicted now, is its KvManager's business. Two salts never meet: a lookup
under one salt cannot see a path inserted under another.
"""

from array import array
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from typing import Final

_ARRAY_TYPE: Final = "q"


class _Node:
    """An edge of the tree with its lower end: tokens in `label`, holders whose path ends here.

    A root has an empty label and is its own parent.
    """

    __slots__ = ("children", "holders", "label", "parent")

    def __init__(self, label: "array[int]", parent: "_Node | None" = None) -> None:
        self.label = label
        self.parent = parent or self
        self.children: dict[int, _Node] = {}
        self.holders: dict[Hashable, None] = {}

    def split(self, length: int) -> "_Node":
        """Cut this edge after `length` tokens; answers the new upper node. Ends stay in place."""
        upper = _Node(self.label[:length], self.parent)
        self.parent.children[upper.label[0]] = upper
        self.label = self.label[length:]
        self.parent = upper
        upper.children[self.label[0]] = self
        return upper

    def any_holder(self) -> Hashable:
        """A holder at or below this node; every leaf has one."""
        node = self
        while not node.holders:
            node = next(iter(node.children.values()))
        return next(iter(node.holders))


class PrefixCache:
    """Paths of computed tokens and their holders, in order of last use.

    Every operation costs time linear in the number of tokens it is given, in slice comparisons.
    """

    def __init__(self) -> None:
        self._roots: dict[bytes, _Node] = {}
        self._ends: OrderedDict[Hashable, tuple[bytes, _Node]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ends)

    def __contains__(self, holder: Hashable) -> bool:
        return holder in self._ends

    def insert(self, salt: bytes, token_ids: Sequence[int], holder: Hashable) -> None:
        """`holder` now covers exactly this path, as the most recently used of all."""
        self.remove(holder)
        root = self._roots.get(salt)
        if root is None:
            root = self._roots[salt] = _Node(array(_ARRAY_TYPE))
        tokens = array(_ARRAY_TYPE, token_ids)
        node, num_matched, num_in_edge = _descend(root, tokens)
        if num_in_edge < len(node.label):
            node = node.split(num_in_edge)
        if num_matched < len(tokens):
            leaf = _Node(tokens[num_matched:], node)
            node.children[leaf.label[0]] = leaf
            node = leaf
        node.holders[holder] = None
        self._ends[holder] = (salt, node)

    def longest(self, salt: bytes, token_ids: Sequence[int]) -> tuple[Hashable | None, int]:
        """A holder of the longest known prefix of `token_ids`, and that prefix's length."""
        root = self._roots.get(salt)
        if root is None:
            return None, 0
        node, num_matched, _ = _descend(root, array(_ARRAY_TYPE, token_ids))
        if not num_matched:
            return None, 0
        return node.any_holder(), num_matched

    def num_covered_by_others(self, holder: Hashable) -> int:
        """How many tokens of a known holder's path, from the first one on, another covers, too."""
        node = self._ends[holder][1]
        if len(node.holders) == 1 and not node.children:
            node = node.parent  # Above a leaf somebody else ends, or the paths of others go on.
        num_tokens = len(node.label)
        while node.parent is not node:
            node = node.parent
            num_tokens += len(node.label)
        return num_tokens

    def remove(self, holder: Hashable) -> None:
        """Forget a holder and its path; one that is not known is ignored."""
        salt, node = self._ends.pop(holder, (b"", None))
        if node is None:
            return
        del node.holders[holder]
        _prune(node)
        root = self._roots[salt]
        if not root.children and not root.holders:
            del self._roots[salt]

    def touch(self, holder: Hashable) -> None:
        """Make a known holder the most recently used."""
        self._ends.move_to_end(holder)

    def holders(self) -> Iterator[Hashable]:
        """All holders, the least recently used first."""
        return iter(self._ends)


def _descend(root: _Node, tokens: "array[int]") -> tuple[_Node, int, int]:
    """Follow `tokens` down: the last node entered, tokens matched in all, and on its own edge."""
    node, num_matched = root, 0
    while num_matched < len(tokens):
        child = node.children.get(tokens[num_matched])
        if child is None:
            break
        num_shared = shared_length(
            child.label, tokens[num_matched : num_matched + len(child.label)]
        )
        node = child
        num_matched += num_shared
        if num_shared < len(child.label):
            return node, num_matched, num_shared
    return node, num_matched, len(node.label)


def shared_length(left: Sequence[int], right: Sequence[int]) -> int:
    """How many leading tokens two runs share, by halving: whole slices are compared in C."""
    low, high = 0, min(len(left), len(right))
    if left[:high] == right[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low


def _prune(node: _Node) -> None:
    """Drop branches without holders, and join an only child to a node that nobody ends at."""
    while not node.holders and not node.children and node.parent is not node:
        del node.parent.children[node.label[0]]
        node = node.parent
    if not node.holders and len(node.children) == 1 and node.parent is not node:
        (child,) = node.children.values()
        child.label = node.label + child.label
        child.parent = node.parent
        node.parent.children[child.label[0]] = child
