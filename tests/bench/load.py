"""A load generator that costs little: raw HTTP/1.1 streams over asyncio, one connection each.

On a machine with two cores a comfortable client would take the time it is meant to measure.
"""

import asyncio
import json
import re
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct

WORDS = ["river", "stone", "lamp", "cloud", "table", "green", "seven", "paper", "north", "glass"]
# A chunk with text in it, as any of the servers writes JSON.
_TOKEN = re.compile(rb'"content": ?"(?!")')


class Stream(Struct, frozen=True, kw_only=True):
    """What one client saw: when its tokens came, counted from when it asked, in seconds."""

    token_times: tuple[float, ...]
    total_s: float

    @property
    def ttft_s(self) -> float:
        """Time to the first token."""
        return self.token_times[0]


def words(num_words: int, salt: int) -> str:
    """Plain text of so many words; another salt gives another text from the first word on."""
    return " ".join(WORDS[(salt + i * (1 + salt % 7)) % len(WORDS)] for i in range(num_words))


def chat_body(model: str, text: str, max_tokens: int, **more: Any) -> bytes:
    """A streamed greedy chat completion as request bytes."""
    body = {
        "model": model,
        "stream": True,
        "temperature": 0,
        "max_tokens": max_tokens,
        "messages": [{"role": "user", "content": text}],
        **more,
    }
    return json.dumps(body).encode()


async def stream(port: int, key: str, body: bytes) -> Stream:
    """Ask once and read to the end."""
    started = time.perf_counter()
    token_times: list[float] = []
    await watch(port, key, body, lambda: token_times.append(time.perf_counter() - started))
    return Stream(token_times=tuple(token_times), total_s=time.perf_counter() - started)


async def watch(port: int, key: str, body: bytes, on_token: Callable[[], None]) -> None:
    """Ask once and tell of each token as it comes. When cancelled, it hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Content-Type: application/json\r\nConnection: close\r\n"
            b"Authorization: Bearer %b\r\nContent-Length: %d\r\n\r\n"
            % (key.encode(), len(body))
            + body
        )
        status = int((await reader.readline()).split(b" ")[1])
        num_tokens = 0
        while line := await reader.readline():
            if _TOKEN.search(line):
                num_tokens += 1
                on_token()
    finally:
        writer.close()
    if status != HTTPStatus.OK or not num_tokens:
        raise RuntimeError(f"a stream was answered {status} with {num_tokens} tokens")


async def streams(port: int, key: str, bodies: list[bytes]) -> list[Stream]:
    """Ask all at once and read them all to the end."""
    return list(await asyncio.gather(*(stream(port, key, body) for body in bodies)))


def decode_rate(answers: list[Stream]) -> float:
    """Tokens a second while all streams decode: from the last first token to the first end."""
    begin = max(answer.ttft_s for answer in answers)
    end = min(answer.token_times[-1] for answer in answers)
    num_tokens = sum(begin < at <= end for answer in answers for at in answer.token_times)
    return num_tokens / (end - begin)


def read_key(home: Path) -> str:
    """The local API key of a box."""
    return (home / "keys" / "local.key").read_text().strip()


def spread(values: list[float]) -> str:
    """Median and range, for a table cell."""
    return f"{_short(median(values))} ({_short(min(values))}-{_short(max(values))})"


def _short(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
