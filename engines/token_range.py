"""Which token ids are a model's: one that is not is refused by its number and its place."""

from collections.abc import Iterable

from appliance.errors import RequestError
from appliance.generation import GenerationRequest


def check_token_ids(token_ids: Iterable[int], vocabulary_size: int, param: str) -> None:
    """Raise RequestError `request.token_out_of_range` (400) where one is outside."""
    for token_id in token_ids:
        if not 0 <= token_id < vocabulary_size:
            raise RequestError(
                "request.token_out_of_range",
                f"{param}: token {token_id} is outside the vocabulary of this model, which has"
                f" {vocabulary_size} tokens",
                status=400,
                param=param,
            )


def check_parameters(request: GenerationRequest, vocabulary_size: int) -> None:
    """The same for the ids in a request's parameters."""
    for token_id, _ in request.sampling.logit_bias:
        check_token_ids([token_id], vocabulary_size, f'logit_bias["{token_id}"]')
    for at, token_id in enumerate(request.stopping.stop_token_ids):
        check_token_ids([token_id], vocabulary_size, f"stop_token_ids[{at}]")
