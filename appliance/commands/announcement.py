"""What `hisar up` says while the box starts, and once it is ready."""

import asyncio
import http.client
import json
import shlex
import sys
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

import click
import msgspec
from msgspec import Struct

from appliance.commands.show import print_json
from appliance.home import Home

_ASK_EVERY_S: Final = 0.05
_ANSWER_S: Final = 2.0
_TELL_EVERY_S: Final = 10.0


class Announcement(Struct, frozen=True, kw_only=True):
    """A box that is about to be ready. `host` is a name that the gateway goes by."""

    home: Home
    base_url: str
    host: str
    models: tuple[str, ...]
    as_json: bool


async def announce(announcement: Announcement, tell: Callable[[str], None]) -> None:
    """Wait until the box is ready, telling now and then what is missing; then say it on stdout."""
    told_at = time.monotonic()
    while obstacles := await asyncio.to_thread(find_obstacles, announcement):
        if time.monotonic() - told_at > _TELL_EVERY_S:
            told_at = time.monotonic()
            tell(f"not ready yet: {obstacles}; the logs are in {announcement.home.logs}")
        await asyncio.sleep(_ASK_EVERY_S)
    _say_ready(announcement)


def find_obstacles(announcement: Announcement) -> str:
    """What the gateway says keeps it from serving; empty when it is ready."""
    address = urlsplit(announcement.base_url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_ANSWER_S)
    try:
        connection.request("GET", "/health/ready", headers={"Host": announcement.host})
        answer = connection.getresponse()
        body = answer.read()
        if answer.status == 200:
            return ""
        return ", ".join(json.loads(body)["reasons"])
    except (OSError, http.client.HTTPException):
        return "the gateway does not answer"
    except (ValueError, KeyError):
        return f"the gateway answers {answer.status}"
    finally:
        connection.close()


def _say_ready(announcement: Announcement) -> None:
    """Where the box is, where its key is, and how to try it."""
    base_url, key_file = f"{announcement.base_url}/v1", announcement.home.local_key
    if announcement.as_json:
        print_json({"event": "ready", "base_url": base_url,
                    "key_file": str(key_file), "models": announcement.models})  # fmt: skip
    else:
        click.echo("Hisar is ready. Ctrl-C stops it.")
        click.echo(f"  base URL  {base_url}")
        click.echo(f"  API key   in {key_file}")
        if announcement.models:
            click.echo("  try       " + _curl(announcement))
    sys.stdout.flush()


def _curl(announcement: Announcement) -> str:
    """A line for a shell. Inside `"$( )"` quoting starts afresh."""
    message = {"role": "user", "content": "Say hello."}
    body = {
        "model": announcement.models[0],
        "max_tokens": 64,
        "temperature": 0,  # a small model's likeliest answer is its best one
        "messages": [message],
    }
    return (
        f"curl -s {announcement.base_url}/v1/chat/completions"
        " -H 'Content-Type: application/json'"
        f' -H "Authorization: Bearer $(cat {shlex.quote(str(announcement.home.local_key))})"'
        f" -d '{msgspec.json.encode(body).decode()}'"
    )
