"""Translation of templates into Python: Jinja's compiler, made to mark the template's own text and to count steps."""

# ruff: noqa: N802 - the names by which Jinja finds what visits a node

from __future__ import annotations

from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension
from jinja2.parser import Parser


class TracingCodeGenerator(CodeGenerator):
    """Writes code in which every literal is marked as the template's, and every join keeps the marks.

    Nothing is evaluated while compiling: constant expressions could be as large as those at run time.
    """

    def _make_finalize(self) -> CodeGenerator._FinalizeInfo:
        return CodeGenerator._FinalizeInfo(None, None)

    def _output_const_repr(self, group: Any) -> str:
        return f"environment.literal({''.join(group)!r})"

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: Any) -> None:
        self.write("environment.text(")

    def visit_Const(self, node: nodes.Const, frame: Frame) -> None:
        """Mark a string as the template's; a constant of another type is Jinja's."""
        if isinstance(node.value, str):
            self.write(f"environment.literal({node.value!r})")
        else:
            super().visit_Const(node, frame)

    def visit_TemplateData(self, node: nodes.TemplateData, frame: Frame) -> None:
        """Mark the text between tags as the template's."""
        self.write(f"environment.literal({node.data!r})")

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        """Join values with `environment.concat_values`, which keeps the marks."""
        self.write("environment.concat_values((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        """Make a list that the template owns."""
        self.write("environment.own(")
        super().visit_List(node, frame)
        self.write(")")

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        """Pass a dict through `environment.container`."""
        self.write("environment.container(")
        super().visit_Dict(node, frame)
        self.write(")")

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        """Pass a tuple that is read through `environment.container`; a target of assignments is Jinja's."""
        if node.ctx != "load":
            super().visit_Tuple(node, frame)
            return
        self.write("environment.container(")
        super().visit_Tuple(node, frame)
        self.write(")")


def count_steps(template: nodes.Template) -> None:
    """Make every turn of a loop and every call of a macro count as a step.

    `environment.step` is a property, so reading it is enough, and no template can reach it.
    """
    for node in template.find_all((nodes.For, nodes.Macro, nodes.CallBlock)):
        body: list[nodes.Node] = node.body  # type: ignore[attr-defined]
        body.insert(
            0, nodes.ExprStmt(nodes.EnvironmentAttribute("step", lineno=node.lineno), lineno=node.lineno)
        )


class Generation(Extension):
    """`{% generation %}…{% endgeneration %}`, with which training marks the text of the assistant: just its body."""

    tags = {"generation"}  # noqa: RUF012 - the name that Jinja looks for

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return the nodes between the tags."""
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))
