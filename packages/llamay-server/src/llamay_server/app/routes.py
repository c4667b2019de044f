"""All routes: a new one is added to the `HANDLERS` of its module, and a new module of routes to this list."""

from __future__ import annotations

from typing import Any

from llamay_server.anthropic import routes as anthropic
from llamay_server.app import openapi
from llamay_server.contexts_api import generate as contexts_generate
from llamay_server.contexts_api import routes as contexts
from llamay_server.contexts_api import snapshots as contexts_snapshots
from llamay_server.llamacpp import adapters as llamacpp_adapters
from llamay_server.llamacpp import completion as llamacpp_completion
from llamay_server.llamacpp import embeddings as llamacpp_embeddings
from llamay_server.llamacpp import server as llamacpp_server
from llamay_server.llamacpp import tokens as llamacpp_tokens
from llamay_server.ollama import create as ollama_create
from llamay_server.ollama import embeddings as ollama_embeddings
from llamay_server.ollama import models as ollama_models
from llamay_server.ollama import routes as ollama
from llamay_server.ollama import systemone as ollama_systemone
from llamay_server.openai import decisions as openai_decisions
from llamay_server.openai import embeddings as openai_embeddings
from llamay_server.openai import models as openai_models
from llamay_server.openai.chat import routes as openai_chat
from llamay_server.openai.completions import routes as openai_completions
from llamay_server.openai.responses import routes as openai_responses
from llamay_server.retrieval import embed, rerank, score
from llamay_server.web import routes as web

HANDLERS: tuple[Any, ...] = (
    *openai_models.HANDLERS,
    *openai_chat.HANDLERS,
    *openai_completions.HANDLERS,
    *openai_responses.HANDLERS,
    *openai_decisions.HANDLERS,
    *openai_embeddings.HANDLERS,
    *anthropic.HANDLERS,
    *ollama.HANDLERS,
    *ollama_models.HANDLERS,
    *ollama_create.HANDLERS,
    *ollama_embeddings.HANDLERS,
    *ollama_systemone.HANDLERS,
    *llamacpp_server.HANDLERS,
    *llamacpp_tokens.HANDLERS,
    *llamacpp_completion.HANDLERS,
    *llamacpp_adapters.HANDLERS,
    *llamacpp_embeddings.HANDLERS,
    *embed.HANDLERS,
    *rerank.HANDLERS,
    *score.HANDLERS,
    *contexts.HANDLERS,
    *contexts_generate.HANDLERS,
    *contexts_snapshots.HANDLERS,
    *web.HANDLERS,
    *openapi.HANDLERS,
)
