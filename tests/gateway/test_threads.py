"""Long data is computed beside the event loop."""

import threading

import pytest

from gateway.threads import compute


def who(_: bytes) -> int:
    return threading.get_ident()


@pytest.mark.parametrize(("data", "is_here"), [(b"", True), (b"abc", True), (b"abcd", False)])
async def test_long_data_goes_to_a_thread_and_short_data_does_not(
    data: bytes, is_here: bool
) -> None:
    assert (await compute(who, data, 3) == threading.get_ident()) is is_here


@pytest.mark.parametrize("data", [b"", b"abcd"])
async def test_what_it_raises_is_raised(data: bytes) -> None:
    def fail(_: bytes) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await compute(fail, data, 3)
