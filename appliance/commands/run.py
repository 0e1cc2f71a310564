"""`hisar run`: one question, one answer."""

import os
import stat
import sys
from pathlib import Path
from typing import Any

import click

from appliance.commands.door import Reply, open_door, stream_chat
from appliance.commands.options import FiniteRange
from appliance.commands.show import print_json, printable
from appliance.errors import UsageError


@click.command()
@click.argument("model")
@click.argument("prompt", nargs=-1)
@click.option("--system", default="", help="An instruction that stands before the prompt.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Longest answer, in tokens.")
@click.option("--temperature", type=FiniteRange(0, 2), help="0 is the likeliest answer.")
@click.option("--seed", type=int, help="The same seed gives the same answer.")
@click.option("--key-file", type=click.Path(path_type=Path), help="A file that holds an API key.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
def run(
    model: str,
    prompt: tuple[str, ...],
    system: str,
    max_tokens: int | None,
    temperature: float | None,
    seed: int | None,
    key_file: Path | None,
    as_json: bool,
) -> None:
    """Ask MODEL one question and print its answer.

    What is piped in is put after PROMPT; a lone `-` reads the whole prompt from stdin.
    """
    options = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
    body: dict[str, Any] = {
        "model": model,
        "messages": [*_instruction(system), {"role": "user", "content": _question(prompt)}],
        **{name: value for name, value in options.items() if value is not None},
    }
    reply = Reply()
    with open_door(key_file) as client:
        pieces = stream_chat(client, body, reply)
        if as_json:
            text = "".join(pieces)
            print_json({"model": model, "text": text,
                        "finish_reason": reply.finish_reason, "usage": reply.usage})  # fmt: skip
            return
        for piece in pieces:
            click.echo(printable(piece) if sys.stdout.isatty() else piece, nl=False)
        click.echo()


def _instruction(system: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": system}] if system else []


def _question(prompt: tuple[str, ...]) -> str:
    """Raises UsageError `usage.no_prompt`."""
    asks_for_stdin = "-" in prompt
    parts = [" ".join(word for word in prompt if word != "-")]
    if asks_for_stdin or _is_piped():
        parts.append(sys.stdin.buffer.read().decode(errors="replace").strip())
    question = "\n\n".join(part for part in parts if part)
    if not question:
        raise UsageError(
            "usage.no_prompt",
            "there is nothing to ask",
            hint='hisar run MODEL "the question", or pipe it in',
        )
    return question


def _is_piped() -> bool:
    """Whether stdin is a pipe or a file: something that was meant to be read, and ends."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):  # closed, or no file at all
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)
