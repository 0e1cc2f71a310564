"""Which models a principal sees, under which names."""

from pathlib import Path

import pytest

from appliance.catalogue import Library, ModelSpec
from appliance.errors import RequestError
from appliance.identity import Principal, Scope
from gateway.auth.access import Access


@pytest.fixture
def access(tmp_path: Path) -> Access:
    library = Library(tmp_path)
    for name in ("sonnet", "haiku"):
        library.add(ModelSpec(name=name, runner="echo"))
    return Access(library, {"fast": "haiku", "lost": "removed"})


def who(*models: str) -> Principal:
    return Principal(id="p", tenant_id="t", scopes=(Scope.GENERATE,), models=models)


def names(access: Access, principal: Principal) -> list[str]:
    return [offer.name for offer in access.offers(principal)]


def test_no_list_means_every_model_that_is_there(access: Access) -> None:
    assert names(access, who()) == ["fast", "haiku", "sonnet"]


def test_an_alias_leads_to_its_target(access: Access) -> None:
    offer = access.find(who(), "fast")
    assert (offer.name, offer.spec.name) == ("fast", "haiku")


@pytest.mark.parametrize("allowed", ["fast", "haiku"])
def test_either_name_allows_an_alias(access: Access, allowed: str) -> None:
    assert access.find(who(allowed), "fast").spec.name == "haiku"


def test_an_alias_allows_nothing_but_itself(access: Access) -> None:
    assert names(access, who("fast")) == ["fast"]


@pytest.mark.parametrize("name", ["fast", "haiku", "removed", "lost", "nothing", "", "../sonnet"])
def test_forbidden_and_unknown_are_one(access: Access, name: str) -> None:
    """BerriAI/litellm#40957: an alias reached a model its key was not for."""
    with pytest.raises(RequestError) as refused:
        access.find(who("sonnet"), name)
    assert refused.value.status == 404
    assert refused.value.message.replace(repr(name), "NAME") == (
        "the model NAME does not exist or you may not use it"
    )


def test_a_model_is_matched_whole(access: Access) -> None:
    """BerriAI/litellm#33030: `bedrockz/x` was let in by `bedrock/*`."""
    for allowed in ("son", "sonnet2", "sonne*", "Sonnet"):
        with pytest.raises(RequestError):
            access.find(who(allowed), "sonnet")
