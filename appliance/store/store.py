"""The store: opened once by a process, it holds a repository for each kind of thing kept."""

from sqlalchemy.ext.asyncio import AsyncEngine

from appliance.home import Home
from appliance.store.connect import create_engine, name_of
from appliance.store.failures import told_as_store_errors
from appliance.store.keys import KeyRepository, TenantRepository
from appliance.store.migrate import migrate
from appliance.store.requests import RequestRepository


class Store:
    """An open database. Made by `open_store`; whoever opened it closes it."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self.tenants = TenantRepository(engine)
        self.keys = KeyRepository(engine)
        self.requests = RequestRepository(engine)

    @property
    def name(self) -> str:
        """The database's address, without a password."""
        return name_of(self._engine)

    async def close(self) -> None:
        """Let all connections go."""
        await self.requests.close()
        await self._engine.dispose()


async def open_store(url: str, home: Home) -> Store:
    """Open the database at `url` (empty: the embedded one in the home folder), made or upgraded.

    Raises StoreError, see `appliance.store.failures` and `appliance.store.migrate`.
    """
    with told_as_store_errors(url.partition("://")[0] or str(home.database)):
        engine = create_engine(url, home)
        try:
            await migrate(engine)
        except BaseException:
            await engine.dispose()
            raise
    return Store(engine)
