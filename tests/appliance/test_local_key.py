"""The first key is made once, for the person at the machine."""

from pathlib import Path

from appliance.api_keys import matches, parse
from appliance.clock import utc_now
from appliance.home import Home
from appliance.identity import Scope
from appliance.local_key import ensure_local_key
from appliance.secrets import load_secrets
from appliance.store.store import open_store


async def test_the_first_key_works_and_is_private_and_made_once(tmp_path: Path) -> None:
    home = Home(root=tmp_path)
    secrets = load_secrets(home)
    store = await open_store("", home)
    assert await ensure_local_key(store, home, secrets.pepper, utc_now)
    text = home.local_key.read_text().strip()
    assert not await ensure_local_key(store, home, secrets.pepper, utc_now)
    (key,) = await store.keys.list()
    parsed = parse(text)
    assert parsed is not None
    assert matches(key, parsed, secrets.pepper)
    assert set(key.scopes) == {Scope.GENERATE, Scope.ADMIN}
    assert home.local_key.stat().st_mode & 0o777 == 0o600
    await store.close()


async def test_a_removed_or_revoked_first_key_is_not_made_again(tmp_path: Path) -> None:
    home = Home(root=tmp_path)
    pepper = load_secrets(home).pepper
    store = await open_store("", home)
    await ensure_local_key(store, home, pepper, utc_now)
    home.local_key.unlink()
    await store.keys.revoke((await store.keys.list())[0].id, utc_now())
    assert not await ensure_local_key(store, home, pepper, utc_now)
    assert not home.local_key.exists()
    await store.close()


async def test_a_new_database_gets_a_new_key_in_place_of_the_old_file(tmp_path: Path) -> None:
    home = Home(root=tmp_path)
    home.keys.mkdir()
    home.local_key.write_text("left over")
    store = await open_store("", home)
    assert await ensure_local_key(store, home, load_secrets(home).pepper, utc_now)
    assert parse(home.local_key.read_text().strip()) is not None
    await store.close()
