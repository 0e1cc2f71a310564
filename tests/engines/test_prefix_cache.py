"""The radix tree finds the longest covered prefix, keeps salts apart and leaks nothing."""

from hypothesis import given
from hypothesis import strategies as st

from engines.prefix_cache import PrefixCache

SALT = b"tenant-a"


def common_prefix(left: list[int], right: list[int]) -> int:
    shared = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        shared += 1
    return shared


def test_an_empty_cache_knows_no_prefix() -> None:
    assert PrefixCache().longest(SALT, [1, 2, 3]) == (None, 0)


def test_a_lookup_ends_where_the_paths_part_even_inside_an_edge() -> None:
    cache = PrefixCache()
    cache.insert(SALT, [1, 2, 3, 4, 5], "slot-0")
    assert cache.longest(SALT, [1, 2, 3, 9]) == ("slot-0", 3)
    assert cache.longest(SALT, [1, 2, 3, 4, 5, 6]) == ("slot-0", 5)
    assert cache.longest(SALT, [9]) == (None, 0)


def test_one_tenants_prefix_is_invisible_to_another() -> None:
    """vllm#16016: a prefix computed for tenant A must not speed up tenant B."""
    cache = PrefixCache()
    cache.insert(b"tenant-a", [1, 2, 3], "slot-0")
    assert cache.longest(b"tenant-b", [1, 2, 3]) == (None, 0)


def test_inserting_again_replaces_the_holders_earlier_path() -> None:
    cache = PrefixCache()
    cache.insert(SALT, [1, 2, 3], "slot-0")
    cache.insert(SALT, [7, 8], "slot-0")
    assert cache.longest(SALT, [1, 2, 3]) == (None, 0)
    assert cache.longest(SALT, [7, 8]) == ("slot-0", 2)
    assert len(cache) == 1


def test_holders_come_least_recently_used_first() -> None:
    cache = PrefixCache()
    for slot in range(3):
        cache.insert(SALT, [slot], slot)
    cache.touch(0)
    assert list(cache.holders()) == [1, 2, 0]


def test_what_others_cover_too_is_counted_from_the_first_token_on() -> None:
    cache = PrefixCache()
    cache.insert(SALT, [1, 2, 3, 4], "a")
    assert cache.num_covered_by_others("a") == 0
    cache.insert(SALT, [1, 2, 9], "b")
    assert (cache.num_covered_by_others("a"), cache.num_covered_by_others("b")) == (2, 2)
    cache.insert(SALT, [1, 2, 3], "c")
    assert (cache.num_covered_by_others("a"), cache.num_covered_by_others("c")) == (3, 3)
    cache.insert(SALT, [1, 2, 3, 4], "d")
    assert cache.num_covered_by_others("a") == 4


def test_a_long_shared_path_is_split_and_joined_again() -> None:
    cache = PrefixCache()
    long_path = list(range(10_000))
    cache.insert(SALT, long_path, "a")
    cache.insert(SALT, [*long_path[:7_777], -1], "b")
    assert cache.longest(SALT, [*long_path[:7_777], -1])[1] == 7_778
    cache.remove("b")
    assert cache.longest(SALT, long_path) == ("a", 10_000)


tokens = st.lists(st.integers(0, 2), max_size=8)
salts = st.sampled_from([b"a", b"b"])
inserts = st.tuples(st.just("insert"), salts, tokens, st.integers(0, 5))
removes = st.tuples(st.just("remove"), salts, tokens, st.integers(0, 5))


@given(st.lists(inserts | removes, max_size=40), salts, tokens)
def test_the_tree_agrees_with_a_plain_list_of_paths(
    operations: list[tuple[str, bytes, list[int], int]], salt: bytes, asked: list[int]
) -> None:
    cache = PrefixCache()
    paths: dict[int, tuple[bytes, list[int]]] = {}
    for verb, its_salt, path, holder in operations:
        paths.pop(holder, None)
        if verb == "insert":
            cache.insert(its_salt, path, holder)
            paths[holder] = (its_salt, path)
        else:
            cache.remove(holder)
        assert list(cache.holders()) == list(paths)
    found, num_matched = cache.longest(salt, asked)
    shared = {h: common_prefix(p, asked) for h, (s, p) in paths.items() if s == salt}
    assert num_matched == max(shared.values(), default=0)
    if num_matched:
        assert isinstance(found, int)
        assert shared[found] == num_matched
    for holder, (its_salt, path) in paths.items():
        others = [p for h, (s, p) in paths.items() if s == its_salt and h != holder]
        covered = max((common_prefix(path, other) for other in others), default=0)
        assert cache.num_covered_by_others(holder) == covered
    for holder in list(paths):
        cache.remove(holder)
    assert not cache._roots
