"""The process that renders chat templates, which are programs that came with a model file.

`python -m engines.template_process` reads frames on its standard input and answers each on its
standard output. The first frame holds the template, every other the variables of one rendering.
The process can open no file, socket or program and can write to none; its memory is bounded, and
a rendering that takes too long ends it.
"""

import json
import resource
import signal
import sys
from datetime import datetime
from typing import IO, Any, Final, NoReturn

from jinja2 import Environment, Template, TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engines.template_frames import TIME_LIMIT_S, read_frame, write_frame

MEMORY_LIMIT_BYTES: Final = 512 * 1024 * 1024
OUTPUT_LIMIT_CHARACTERS: Final = 16 * 1024 * 1024


class TemplateRaisedError(TemplateError):
    """The template called `raise_exception`."""


class GenerationBlock(Extension):
    """`{% generation %}` marks the assistant's part for training; here it renders its body."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Keep the block's body and drop its tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def raise_exception(message: str) -> NoReturn:
    """Refuse the conversation, as templates do."""
    raise TemplateRaisedError(message)


def strftime_now(pattern: str) -> str:
    """The time on this machine's clock."""
    return datetime.now().strftime(pattern)


def to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as models were trained on it: no HTML escapes and, unless asked for, no ASCII ones."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def make_environment() -> Environment:
    """Jinja as chat templates expect it: the settings of Hugging Face transformers, sandboxed."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, GenerationBlock]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


class Renderer:
    """One compiled template."""

    def __init__(self, source: str) -> None:
        environment = make_environment()
        self._template: Template = environment.from_string(source)
        constants = environment.parse(source).find_all(nodes.Const)
        self._own_words = [node.value for node in constants if isinstance(node.value, str)]

    def render(self, variables: dict[str, Any]) -> dict[str, str]:
        """The answer to one frame: `text`, or `error` without a character of the variables."""
        try:
            text = self._template.render(variables)
        except TemplateRaisedError as raised:
            return {"error": f"the chat template says: {self._quote(str(raised))}"}
        except Exception as error:  # noqa: BLE001  a template may raise anything Python can
            return {"error": f"the chat template failed with {type(error).__name__}"}
        if len(text) > OUTPUT_LIMIT_CHARACTERS:
            return {"error": f"the chat template wrote over {OUTPUT_LIMIT_CHARACTERS} characters"}
        return {"text": text}

    def _quote(self, message: str) -> str:
        """The part of a message that stands in the template itself; the rest may be a prompt.

        On one line, as an error is.
        """
        own = max((w for w in self._own_words if message.startswith(w)), key=len, default="")
        return " ".join([*own.split(), *([] if own == message else ["..."])])


def compile_template(source: str) -> tuple[Renderer | None, dict[str, str]]:
    """The template, or none, and what to answer to the frame that brought it."""
    try:
        return Renderer(source), {"text": ""}
    except TemplateSyntaxError as error:
        return None, {"error": f"the chat template is broken at line {error.lineno}"}
    except Exception as error:  # noqa: BLE001  compiling runs constant parts of the template
        return None, {"error": f"the chat template cannot be read: {type(error).__name__}"}


def warm_up() -> None:
    """Use once what Python loads on first use, while files can still be opened."""
    Renderer("{{ raise_exception('\\u0131' ~ strftime_now('%c')) }}").render({})
    Renderer("{{ x.__class__ }}").render({"x": ""})


def lock_down() -> None:
    """From here on this process opens nothing, grows no further and cannot outlive its time."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    limits = {
        resource.RLIMIT_AS: MEMORY_LIMIT_BYTES,
        resource.RLIMIT_NOFILE: 3,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
    }
    for kind, limit in limits.items():
        resource.setrlimit(kind, (limit, limit))


def serve(source: IO[bytes], sink: IO[bytes]) -> None:
    """Answer frames until the other side closes."""
    renderer: Renderer | None = None
    while (content := read_frame(source)) is not None:
        signal.setitimer(signal.ITIMER_REAL, TIME_LIMIT_S)
        if renderer is None:
            renderer, answer = compile_template(content["template"])
        else:
            answer = renderer.render(content)
        signal.setitimer(signal.ITIMER_REAL, 0)
        write_frame(sink, answer)


if __name__ == "__main__":
    warm_up()
    lock_down()
    serve(sys.stdin.buffer, sys.stdout.buffer)
