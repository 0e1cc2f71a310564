"""The first API key: made once for the person at the machine, so that the box can be used at all.

There is no access without a key, also not from localhost; this one is written to a file that only
its owner can read.
"""

from typing import Final

from appliance.api_keys import KeyGrant, issue
from appliance.clock import Now
from appliance.errors import MachineError
from appliance.home import Home
from appliance.identity import Scope, Tenant
from appliance.secrets import SecretBytes, write_private
from appliance.store.store import Store

LOCAL_TENANT: Final = Tenant(id="local", name="This machine")
_NAME: Final = "local"


async def ensure_local_key(store: Store, home: Home, pepper: SecretBytes, now: Now) -> bool:
    """Make the default tenant and, in a store without any key, its first key; True when made.

    A key that was revoked, or whose file was removed, is not made again: `hisar keys create` is.
    """
    await store.tenants.ensure(LOCAL_TENANT)
    if await store.keys.list():
        return False
    grant = KeyGrant(tenant_id=LOCAL_TENANT.id, name="local", scopes=(Scope.GENERATE, Scope.ADMIN))
    key, text = issue(grant, pepper, now())
    # The file first: a key that nobody could read would never be made again.
    try:
        write_private(home.local_key, text + "\n", replace=True)
    except OSError as error:
        raise MachineError(
            "home.unwritable",
            f"cannot write {home.local_key}: {error.strerror}",
            hint="check who owns the folder, and the space left",
        ) from error
    await store.keys.add(key)
    return True
