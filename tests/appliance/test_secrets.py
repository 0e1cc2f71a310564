"""The box's secret keys are made once, kept to their owner, and never shown."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from appliance.errors import MachineError
from appliance.home import Home
from appliance.secrets import SecretBytes, load_secrets, write_private


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(root=tmp_path / "ev ğüş")


def test_keys_are_made_once_and_only_their_owner_can_read_them(home: Home) -> None:
    first, second = load_secrets(home), load_secrets(home)
    assert first.pepper.reveal() == second.pepper.reveal()
    assert len(first.pepper.reveal()) == 32
    assert first.pepper.reveal() != first.salt_key.reveal()
    files = sorted(home.secrets.iterdir())
    assert [file.name for file in files] == ["cache_salt", "pepper"]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_processes_that_start_together_agree_on_the_keys(home: Home) -> None:
    with ThreadPoolExecutor(8) as pool:
        loaded = list(pool.map(lambda _: load_secrets(home), range(16)))
    assert len({secrets.pepper.reveal() for secrets in loaded}) == 1
    assert len(list(home.secrets.iterdir())) == 2


def test_a_key_that_others_can_read_is_refused(home: Home) -> None:
    load_secrets(home)
    (home.secrets / "pepper").chmod(0o644)
    with pytest.raises(MachineError) as caught:
        load_secrets(home)
    assert caught.value.code == "secrets.exposed"
    assert "chmod 600" in caught.value.hint


@pytest.mark.parametrize("content", ["", "abc", "zz" * 32, "00" * 31])
def test_a_damaged_key_is_refused_and_never_replaced(home: Home, content: str) -> None:
    load_secrets(home)
    (home.secrets / "pepper").write_text(content)
    with pytest.raises(MachineError) as caught:
        load_secrets(home)
    assert caught.value.code == "secrets.damaged"
    assert (home.secrets / "pepper").read_text() == content


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MachineError) as caught:
        load_secrets(Home(root=tmp_path / "file"))
    assert caught.value.code == "secrets.unreadable"


def test_each_tenant_has_a_cache_salt_of_its_own_that_stays(home: Home) -> None:
    secrets = load_secrets(home)
    assert secrets.cache_salt("a") == load_secrets(home).cache_salt("a")
    assert secrets.cache_salt("a") != secrets.cache_salt("b")
    assert len(secrets.cache_salt("ğ")) == 16


def test_a_secret_shows_a_mask_wherever_it_is_printed(home: Home) -> None:
    secrets = load_secrets(home)
    shown = f"{secrets} {secrets!r} {secrets.pepper} {SecretBytes(b'x')!r}"
    assert secrets.pepper.reveal().hex() not in shown
    assert "***" in shown


def test_a_private_file_is_kept_or_replaced_as_asked(tmp_path: Path) -> None:
    path = tmp_path / "new" / "key"
    assert write_private(path, "one")
    assert not write_private(path, "two")
    assert path.read_text() == "one"
    assert write_private(path, "three", replace=True)
    assert path.read_text() == "three"
    assert list(path.parent.iterdir()) == [path]
