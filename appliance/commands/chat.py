"""`hisar chat`: a conversation in the terminal.

The history lives in memory and ends with the conversation: nothing said is written down.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from appliance.commands.door import Reply, first_model, open_door, stream_chat
from appliance.commands.show import printable
from appliance.errors import HisarError

if TYPE_CHECKING:
    import httpx
    from rich.console import Console

_HELP: Final = '/exit leaves, /clear forgets, """ begins and ends a message of several lines'
_FENCE: Final = '"""'


@click.command()
@click.argument("model", default="")
@click.option("--system", default="", help="An instruction that stands before everything.")
@click.option("--key-file", type=click.Path(path_type=Path), help="A file that holds an API key.")
def chat(model: str, system: str, key_file: Path | None) -> None:
    """Talk with MODEL (default: the first one the box has).

    Ctrl-C stops an answer, /exit or Ctrl-D ends the conversation. Without a terminal each line of
    stdin is a message, and only the answers are printed.
    """
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    begin = [{"role": "system", "content": system}] if system else []
    with open_door(key_file) as client:
        model = model or first_model(client)
        conversation = _Conversation(client, console, model, begin)
        if sys.stdin.isatty():
            console.print(f"[bold]{model}[/bold]  {_HELP}")
        for message in _messages():
            if message == "/clear":
                conversation.forget()
            else:
                conversation.say(message)


class _Conversation:
    """What has been said so far."""

    def __init__(
        self, client: "httpx.Client", console: "Console", model: str, begin: list[dict[str, str]]
    ) -> None:
        self._client = client
        self._console = console
        self._model = model
        self._begin = begin
        self._turns: list[dict[str, str]] = []

    def forget(self) -> None:
        self._turns.clear()

    def say(self, message: str) -> None:
        """One turn of each side. A failed one is forgotten."""
        question = {"role": "user", "content": message}
        body = {"model": self._model, "messages": [*self._begin, *self._turns, question]}
        try:
            answer = self._show(stream_chat(self._client, body, Reply()))
        except HisarError as error:
            if not sys.stdin.isatty():
                raise
            self._console.print(f"\nerror: {error}", style="red", markup=False)
            return
        self._turns += [question, {"role": "assistant", "content": answer}]

    def _show(self, pieces: Iterator[str]) -> str:
        """Print the pieces as they come; Ctrl-C keeps what has come so far."""
        said: list[str] = []
        try:
            for piece in pieces:
                said.append(piece)
                self._console.print(printable(piece), end="", markup=False)
        except KeyboardInterrupt:
            if not sys.stdin.isatty():
                raise
        self._console.print()
        return "".join(said)


def _messages() -> Iterator[str]:
    """What the person types, message by message, until they leave."""
    for line in _lines():
        message = line.strip()
        if message in {"/exit", "/quit", "/bye"}:
            return
        if message.startswith(_FENCE):
            message = _fenced(message.removeprefix(_FENCE))
        if message:
            yield message


def _fenced(first: str) -> str:
    lines = [first]
    while not lines[-1].rstrip().endswith(_FENCE):
        line = next(_lines(), None)
        if line is None:
            break
        lines.append(line)
    return "\n".join(lines).rstrip().removesuffix(_FENCE).strip()


def _lines() -> Iterator[str]:
    if not sys.stdin.isatty():
        for raw in sys.stdin.buffer:
            yield raw.decode(errors="replace")
        return
    import readline  # noqa: F401 - gives input() its line editing and history

    while True:
        try:
            yield input("> ")
        except EOFError:
            return
