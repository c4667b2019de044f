"""An `OutputConstraint`, compiled for a model.

`llamay_models.constraints` compiles schemas, expressions, grammars and tools for a model's tokens, for the server as
for Python and the command. The server adds the compiler, and refusals that name the reason to the client. Compiled
grammars are cached with the model's vocabulary, so that requests share them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llamay_server.engine.constraint import JSON_KINDS, OutputConstraint, UnsupportedConstraintError

if TYPE_CHECKING:
    import llamay_models
    from llamay_models.constraints import Compiled


def compile_output(model: llamay_models.Model, wanted: OutputConstraint) -> Compiled:
    """Return the grammar of `wanted` over the model's vocabulary (blocking).

    Raises `UnsupportedConstraintError` where the output cannot be constrained exactly, and for a model without a
    tokenizer.
    """
    if model.tokenizer is None:
        raise UnsupportedConstraintError("this model has no tokenizer, so the output cannot be constrained")
    try:
        import llamay_grammar
    except ImportError:
        raise UnsupportedConstraintError(
            "llamay-grammar is not installed, so the output cannot be constrained"
        ) from None
    from llamay_models.constraints import compile_constraint

    try:
        return compile_constraint(model, llamay_grammar, **_arguments(wanted))
    except (ValueError, RecursionError) as e:  # CompileError is a ValueError
        raise UnsupportedConstraintError(str(e)) from e


def _arguments(wanted: OutputConstraint) -> dict[str, Any]:
    """Return the arguments of `compile_constraint` that stand for a constraint."""
    match wanted.kind:
        case "json_schema":
            # The compiler refuses null as a schema, where None would stand for an absent one.
            arguments = {"schema": "null" if wanted.value is None else wanted.value}
        case "json_object":
            arguments = {"schema": {"type": "object"}}
        case "tools":
            arguments = dict(wanted.value)
        case kind:
            arguments = {kind: wanted.value}
    if wanted.kind in JSON_KINDS:
        arguments["free_form"] = wanted.free_form
    if wanted.reasoning is not None:
        arguments["reasoning"] = wanted.reasoning
    return arguments
