"""Models on the Hugging Face Hub: `hf:org/repository[@revision][/file.gguf]`.

The library huggingface_hub finds the files, with the person's token and endpoint as it is
configured; the bytes come by the same resumable download as from anywhere else.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from appliance.errors import CatalogueError
from appliance.sources.connection import connect
from appliance.sources.download import Remote, download
from appliance.sources.fetching import Fetched, Fetching
from appliance.sources.weights import select

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo


class _Address(Struct, frozen=True):
    repository: str
    revision: str
    file: str


def fetch(reference: str, fetching: Fetching) -> Fetched:
    """Bring in the GGUF or the safetensors set of a repository."""
    address = _parse(reference)
    info = _look_up(address)
    sizes = {item.rfilename: item for item in info.siblings or ()}
    chosen = select(sizes, origin=address.repository, wanted=address.file)
    fetching.reserve(sum(sizes[path].size or 0 for path in chosen.paths))
    with connect() as client:
        files = tuple(
            download(client, _remote(address, info, sizes[path]), fetching.folder / path, fetching)
            for path in chosen.paths
        )
    return Fetched(
        files=files, main_file=chosen.main_file, runner=chosen.runner, licence=_licence(info)
    )


def _parse(reference: str) -> _Address:
    place, _, file = _split_repository(reference)
    repository, _, revision = place.partition("@")
    if "/" not in repository:
        raise CatalogueError(
            "model.source_invalid",
            f"hf:{reference} does not name a repository",
            hint="write hf:org/repository or hf:org/repository/file.gguf",
        )
    return _Address(repository, revision, file)


def _split_repository(reference: str) -> tuple[str, str, str]:
    """`org/name@revision`, `/`, `file`."""
    organisation, _, rest = reference.partition("/")
    name, slash, file = rest.partition("/")
    return f"{organisation}/{name}" if name else organisation, slash, file


def _look_up(address: _Address) -> "ModelInfo":
    import httpx2  # what huggingface_hub speaks HTTP with
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

    try:
        return HfApi().model_info(
            address.repository, revision=address.revision or None, files_metadata=True
        )
    except HFValidationError as error:
        raise CatalogueError("model.source_invalid", f"{address.repository}: {error}") from error
    except HfHubHTTPError as error:
        raise _refusal(address, error.response.status_code) from error
    except (httpx2.TransportError, OfflineModeIsEnabled) as error:
        raise CatalogueError(
            "model.source_unreachable",
            f"the Hugging Face Hub cannot be reached for {address.repository}",
            hint="without a network, import a file: `hisar models import PATH`;"
            " HF_ENDPOINT names a mirror",
        ) from error


def _refusal(address: _Address, status: int) -> CatalogueError:
    where = f"{address.repository} on the Hugging Face Hub"
    if status in {401, 403}:  # the Hub answers 401 for what does not exist, too
        return CatalogueError(
            "model.source_refused",
            f"{where} does not exist or is not open to you ({status})",
            hint="check the name; accept its licence there and set HF_TOKEN",
        )
    if status == 404:
        return CatalogueError("model.source_not_found", f"{where} does not exist")
    return CatalogueError("model.source_unreachable", f"{where}: the Hub answered {status}")


def _remote(address: _Address, info: "ModelInfo", sibling: Any) -> Remote:  # noqa: ANN401 - untyped library
    from huggingface_hub import hf_hub_url
    from huggingface_hub.utils import build_hf_headers

    url = hf_hub_url(address.repository, sibling.rfilename, revision=info.sha)
    headers: Mapping[str, str] = build_hf_headers()
    lfs = sibling.lfs
    return Remote(
        url=url, size_bytes=sibling.size or 0, sha256=lfs.sha256 if lfs else "", headers=headers
    )


def _licence(info: "ModelInfo") -> str:
    tags = (tag for tag in info.tags or () if tag.startswith("license:"))
    return next(tags, "").removeprefix("license:")
