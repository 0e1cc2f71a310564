"""The console script `hisar`: which verbs there are, and how a run of one ends.

A verb's module is imported only when it is called, so that `hisar --help` answers at once.
Exit codes: 0, that of the HisarError (`appliance.errors`), 2 for wrong arguments, 130 after Ctrl-C,
1 where a reader of the output left early.
"""

import importlib
import os
import sys
from typing import Final

import click

from appliance.errors import HisarError, MachineError

_INTERRUPTED: Final = 130

# The verb, where it is, and what `hisar --help` says of it.
VERBS: Final = {
    "up": ("appliance.commands.up:up", "Start the box in the foreground."),
    "chat": ("appliance.commands.chat:chat", "Talk with a model in the terminal."),
    "run": ("appliance.commands.run:run", "Ask a model one question."),
    "models": ("appliance.commands.models:models", "Fetch, list and remove models."),
    "fit": ("appliance.commands.fit:fit", "What a model would take in memory."),
    "keys": ("appliance.commands.keys:keys", "Make, list and revoke API keys."),
    "identity": ("appliance.commands.identity:identity", "Set up single sign-on."),
    "config": ("appliance.commands.config:config", "Check and show the configuration."),
    "status": ("appliance.commands.status:status", "How the running box stands."),
    "doctor": ("appliance.commands.doctor:doctor", "What is wrong with this box, if anything."),
}


class _Verbs(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in VERBS:
            return None
        module, _, name = VERBS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(verb, summary) for verb, (_, summary) in VERBS.items()])


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hisar", message="%(prog)s %(version)s")
def cli() -> None:
    """Hisar: large language models on your own machine, behind one door.

    State is kept in HISAR_HOME (default: ~/.local/share/hisar).
    """


def main() -> None:
    """Run the command line and leave with its exit code."""
    _open_what_is_closed()
    _speak_utf8()
    sys.exit(_run())


def _run() -> int:
    try:
        code = cli.main(prog_name="hisar", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except HisarError as error:
        return _fail(error)
    except OSError as error:
        return _fail(_to_machine_error(error))
    except click.Abort:
        return _INTERRUPTED
    return code if isinstance(code, int) else 0


def _fail(error: HisarError) -> int:
    click.echo(f"error: {error}", err=True)
    return error.exit_code


def _to_machine_error(error: OSError) -> MachineError:
    """What no verb has foreseen: a file that cannot be used, or the output."""
    if error.filename is not None:
        return MachineError("machine.disk_failed", f"{error.filename}: {error.strerror}")
    # What could not be written would be tried once more on the way out.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return MachineError(
        "machine.output_failed", f"the output cannot be written: {error.strerror or error}"
    )


def _open_what_is_closed() -> None:
    """Give a run that was started without stdin, stdout or stderr empty ones."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115


def _speak_utf8() -> None:
    """Write UTF-8 whatever the locale says, and never fail on a character."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
