"""`hisar identity`: the Keycloak realm whose tokens the box takes."""

import sys

import click
from msgspec import Struct

from appliance.commands.show import print_json
from appliance.config_file import load
from appliance.environment import read_environment
from appliance.errors import ConfigError
from appliance.keycloak_realm import Administrator, RealmKeeper
from appliance.secrets import SecretBytes


class Provisioned(Struct, frozen=True, kw_only=True):
    """What was made in the realm."""

    issuer: str
    made: tuple[str, ...]


@click.group()
def identity() -> None:
    """Set up single sign-on."""


@identity.command()
@click.option("--admin", default="admin", show_default=True, help="An administrator of Keycloak.")
@click.option("--admin-realm", default="master", show_default=True, help="The realm he is of.")
@click.option("--password-stdin", is_flag=True, help="Read his password from standard input.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def bootstrap(admin: str, admin_realm: str, password_stdin: bool, as_json: bool) -> None:
    """Make what the box needs in the realm of `identity.issuer`; a second time nothing changes."""
    config = load(read_environment().home.config).identity
    if not config.issuer:
        raise ConfigError(
            "identity.not_configured",
            "no realm is configured",
            hint="write identity.issuer and identity.audience, see the manual's page on identity",
        )
    password = sys.stdin.readline().rstrip("\r\n") if password_stdin else _ask_password()
    secret = SecretBytes(password.encode())
    keeper = RealmKeeper(config, Administrator(name=admin, password=secret, realm=admin_realm))
    made = keeper.provision()
    if as_json:
        print_json(Provisioned(issuer=config.issuer, made=made))
        return
    for thing in made:
        click.echo(f"made: {thing}")
    if not made:
        click.echo("everything is there already")


def _ask_password() -> str:
    password: str = click.prompt("Password", hide_input=True, err=True)
    return password
