"""`hisar identity` where there is no realm to set up; with one it is tested on the walk."""

from tests.appliance.commands.conftest import Hisar, free_port


def test_without_a_realm_there_is_nothing_to_set_up(hisar: Hisar) -> None:
    done = hisar("identity", "bootstrap", "--password-stdin", stdin="secret\n")
    assert done.returncode == 78
    assert "identity.not_configured" in done.stderr


def test_a_realm_that_does_not_answer_is_said_without_the_password(hisar: Hisar) -> None:
    hisar.home.mkdir(parents=True)
    (hisar.home / "config.toml").write_text(
        f'[identity]\nissuer = "http://127.0.0.1:{free_port()}/realms/bank"\n'
        'audience = "hisar"\ntenant_claim = "tenant"\n'
    )
    done = hisar("identity", "bootstrap", "--password-stdin", stdin="canary-9c1d\n")
    assert done.returncode == 69
    assert "identity.not_provisioned" in done.stderr
    assert "canary-9c1d" not in done.stdout + done.stderr
