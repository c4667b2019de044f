"""The meeting of a model and a grammar compiler: its tokens, its chat template and its format of calls.

The compiler is handed in, as constraints are, and never imported: `llamay_grammar` is one, and a package above both
passes the module (the server, the command) or names it once for the process (`use_compiler`, which `import
llamay` does). The meaning of a schema, a pattern, a grammar or tools for a model is defined here only.
"""

from llamay_models.constraints.compilation import Marks, compile_constraint
from llamay_models.constraints.interface import Compiled, Compiler, compiler, use_compiler
from llamay_models.constraints.tokens import vocabulary
from llamay_models.constraints.tools import closed_schema

__all__ = [
    "Compiled",
    "Compiler",
    "Marks",
    "closed_schema",
    "compile_constraint",
    "compiler",
    "use_compiler",
    "vocabulary",
]
