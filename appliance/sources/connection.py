"""How the box reaches other machines to fetch models: time limits, proxy, certificates.

Proxies and extra certificate authorities come from the usual variables of the environment
(HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE), which httpx knows, unless a source has settings of its own.
"""

import ssl
from typing import TYPE_CHECKING, Final

from appliance.errors import CatalogueError

if TYPE_CHECKING:
    import httpx

_TIMEOUT_S: Final = 60.0


def connect(*, proxy: str = "", verify: "ssl.SSLContext | bool" = True) -> "httpx.Client":
    """A client that follows redirects. Raises CatalogueError `model.source_invalid`."""
    import httpx

    try:
        return httpx.Client(
            follow_redirects=True, timeout=_TIMEOUT_S, proxy=proxy or None, verify=verify
        )
    except (ValueError, OSError, ImportError) as error:
        raise CatalogueError(
            "model.source_invalid",
            f"the proxy or certificate settings cannot be used: {error}",
            hint="look at HTTPS_PROXY, SSL_CERT_FILE and `pip config list`",
        ) from error
