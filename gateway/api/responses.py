"""POST /v1/responses"""

from litestar import post
from litestar.types import ASGIApp

from gateway.box import Box
from gateway.generate import answer
from gateway.wire import openai_responses


@post("/v1/responses")
async def create_response(box: Box) -> ASGIApp:
    """The next turn of a conversation that the request brings along."""
    return answer(box, openai_responses)
