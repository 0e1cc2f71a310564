"""`hisar doctor`: what is wrong with this box, and what to do about it."""

import click

from appliance.checkup import Check, examine
from appliance.commands.show import print_json
from appliance.commands.status import find_standing
from appliance.environment import read_environment
from appliance.errors import ConfigError
from appliance.standing import Standing


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Look at the machine, the state and the running box. Exit code 1: something is wrong."""
    standing = _standing()
    checks = (*examine(read_environment(), is_running=standing.running), _gateway(standing))
    is_well = all(check.ok for check in checks)
    if as_json:
        print_json({"ok": is_well, "checks": checks})
    else:
        for check in checks:
            click.echo(f"{'ok' if check.ok else 'WRONG':6} {check.name:12} {check.found}")
            if check.hint:
                click.echo(f"{'':19} {check.hint}")
    if not is_well:
        ctx.exit(1)


def _standing() -> Standing:
    try:
        return find_standing()
    except ConfigError:  # reported by the check of the configuration
        return Standing(running=False)


def _gateway(standing: Standing) -> Check:
    if not standing.running:
        return Check(name="gateway", ok=True, found="not running; `hisar up` starts it")
    if standing.ready:
        return Check(name="gateway", ok=True, found=f"ready at {standing.base_url}")
    return Check(
        name="gateway",
        ok=False,
        found="not ready: " + ", ".join(standing.reasons),
        hint="the logs are in the folder logs/ of HISAR_HOME",
    )
