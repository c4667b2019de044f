"""A chat request in no dialect: all chat dialects are read into it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llamay_models import Request
    from llamay_server.chat.conversation import Conversation
    from llamay_server.pipeline.delivery import Delivery


@dataclass(slots=True)
class ChatRequest:
    """A chat request: the conversation that becomes the prompt, the generation, and the delivery of the answer.

    The prompt of `generation` is set when the conversation has been rendered.
    """

    conversation: Conversation
    generation: Request
    delivery: Delivery

    @property
    def logprobs(self) -> int | None:
        """The number of alternatives in each token's score; None where the request asks for no scores."""
        sampling = self.generation.sampling
        return None if sampling is None else sampling.logprobs
