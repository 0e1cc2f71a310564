"""POST /v1/messages"""

from litestar import post
from litestar.types import ASGIApp

from gateway.box import Box
from gateway.generate import answer
from gateway.wire import anthropic


@post("/v1/messages")
async def create_message(box: Box) -> ASGIApp:
    """The next turn of a conversation, in Anthropic's words."""
    return answer(box, anthropic)
