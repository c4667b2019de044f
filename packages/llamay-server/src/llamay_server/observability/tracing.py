"""OpenTelemetry traces: a span for each request, sent to a collector that the operator names. Needs the extra `otel`.

Spans have route, status and times, and for generations the model and token counts, under the names of the semantic
conventions for generative AI (https://opentelemetry.io/docs/specs/semconv/gen-ai/). They never have text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llamay_server.config import ConfigError

_span: Callable[[], Any] | None = None


def traced(application: Any, endpoint: str) -> tuple[Any, Callable[[], None]]:
    """Return the application with tracing around it, and a function that sends the last spans at the end.

    `endpoint` is where an OTLP/HTTP collector takes traces, such as http://127.0.0.1:4318/v1/traces. Raises
    `ConfigError` where the extra is not installed.
    """
    global _span
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as e:
        raise ConfigError(
            f"otel_endpoint is set, but {e.name} is not installed; run: pip install 'llamay-server[otel]'"
        ) from None
    provider = TracerProvider(resource=Resource.create({"service.name": "llamay"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, timeout=10)))
    _span = trace.get_current_span
    wrapped = OpenTelemetryMiddleware(
        application,
        tracer_provider=provider,
        exclude_spans=["receive", "send"],
        excluded_urls="/health,/metrics",
    )
    return wrapped, provider.shutdown


def note(**attributes: Any) -> None:
    """Add attributes to the span of the request that is served; nothing happens where requests are not traced."""
    if _span is not None:
        _span().set_attributes(
            {f"gen_ai.{key.replace('__', '.')}": value for key, value in attributes.items()}
        )
