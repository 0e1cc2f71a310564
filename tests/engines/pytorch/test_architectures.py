"""Every architecture computes the logits that transformers computes, however its tokens come in."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from engines.pytorch.kernels.torch_ops import torch_ops
from engines.pytorch.models import Model, load_model
from tests.engines.pytorch import tiny_models
from tests.engines.pytorch.paged_steps import PagedSteps

# In float32, of logits that are a few units large.
TOLERANCE = 1e-4
_seeded = torch.Generator().manual_seed(1)
TEXTS = {
    name: torch.randint(tiny_models.VOCABULARY, (length,), generator=_seeded).tolist()
    for name, length in (("long", 41), ("one", 1), ("short", 9), ("blocks", 16))
}


class Pair:
    """A model as we compute it, and what transformers says of the texts."""

    def __init__(self, name: str, folder: Path) -> None:
        theirs = tiny_models.make(name)
        self.model = load(tiny_models.save(theirs, folder))
        self.expected = {
            text: tiny_models.logits_of(theirs, token_ids) for text, token_ids in TEXTS.items()
        }


def load(folder: Path) -> Model:
    return load_model(folder, dtype=torch.float32, device=torch.device("cpu"), ops=torch_ops())


@pytest.fixture(scope="module", params=tiny_models.MODELS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(request.param, tmp_path_factory.mktemp(request.param))


def assert_close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=TOLERANCE, rtol=0)


def test_prompts_computed_at_once(pair: Pair) -> None:
    found = PagedSteps(pair.model).step(TEXTS)
    for text, expected in pair.expected.items():
        assert_close(found[text], expected)


def test_prompts_computed_in_chunks(pair: Pair) -> None:
    steps = PagedSteps(pair.model)
    token_ids = TEXTS["long"]
    for start in range(0, len(token_ids), 7):
        found = steps.step({"long": token_ids[start : start + 7]})
        assert_close(found["long"], pair.expected["long"][start : start + 7])


def test_answers_computed_token_by_token_beside_prompts(pair: Pair) -> None:
    """Decodes of two sequences in steps that also take chunks of a third."""
    steps = PagedSteps(pair.model)
    steps.step({"short": TEXTS["short"][:3], "blocks": TEXTS["blocks"][:8]})
    for number in range(6):
        short, blocks, chunk = 3 + number, 8 + number, slice(number * 6, number * 6 + 6)
        found = steps.step(
            {
                "short": [TEXTS["short"][short]],
                "blocks": [TEXTS["blocks"][blocks]],
                "long": TEXTS["long"][chunk],
            }
        )
        assert_close(found["short"][0], pair.expected["short"][short])
        assert_close(found["blocks"][0], pair.expected["blocks"][blocks])
        assert_close(found["long"], pair.expected["long"][chunk])
