"""CEL over plain JSON by cel-python, with a bound on what evaluating may cost: a policy is written by people."""

from collections.abc import Callable, Mapping, Sized
from typing import Any, Final

import lark
from celpy import Environment, InterpretedRunner
from celpy.adapter import json_to_cel
from celpy.celparser import CELParseError
from celpy.celtypes import BoolType
from celpy.evaluation import Activation, CELEvalError, Evaluator

from model.plain_text import bracket_depth

_SIZE_MOST: Final = 10_000
"""Signs or elements of a value that `+` makes."""
_NESTED_MOST: Final = 20
"""Parentheses, brackets and braces in one another."""
_DEEP_MOST: Final = 300
"""Nodes of the grammar in one another, of which evaluating each takes a few frames of Python's."""
_TEXT_MOST: Final = 10 * 1024


class InvalidExpression(ValueError):
    """The text is not CEL; the message is one line."""


class _TooCostly(RuntimeError):
    """Evaluating takes more steps, or makes larger values, than are allowed."""


class _BoundedEvaluator(Evaluator):
    """Counts its steps, and those of the expressions within macros."""

    def __init__(self, ast: lark.Tree[Any], activation: Activation, steps: list[int]) -> None:
        super().__init__(ast, activation)
        self._steps = steps

    def sub_evaluator(self, ast: lark.Tree[Any]) -> Evaluator:
        return _BoundedEvaluator(ast, self.activation, self._steps)

    def visit_children(self, tree: lark.Tree[Any]) -> list[Any]:
        self._steps[0] -= 1
        if self._steps[0] < 0:
            raise _TooCostly("it takes too many steps")
        return super().visit_children(tree)

    def addition(self, tree: lark.Tree[Any]) -> Any:
        found = super().addition(tree)
        if isinstance(found, Sized) and len(found) > _SIZE_MOST:
            raise _TooCostly("it makes too large a value")
        return found


Functions = Mapping[str, Callable[..., Any]]
"""Name -> what computes a function, or a method, whose first argument is what it is called on."""


class Expression:
    """An expression over named values, such as `plan`."""

    def __init__(self, text: str, functions: Functions | None = None) -> None:
        """`functions` are those beside the standard ones. Errors: InvalidExpression."""
        if len(text) > _TEXT_MOST:
            raise InvalidExpression(f"longer than {_TEXT_MOST} signs")
        if bracket_depth(text) > _NESTED_MOST:
            raise InvalidExpression(f"more than {_NESTED_MOST} parentheses in one another")
        environment = Environment(runner_class=InterpretedRunner)
        try:
            self._ast = environment.compile(text)
        except CELParseError as error:
            raise InvalidExpression(" ".join(str(error).split())) from error
        if _depth(self._ast) > _DEEP_MOST:
            raise InvalidExpression("too many operations in one another")
        self._program = environment.program(self._ast, functions=dict(functions or {}))

    def holds(self, plan: Mapping[str, Any], steps: list[int]) -> tuple[bool, str]:
        """Returns whether it is true of a plan, and if that cannot be said why, which is as good as false.

        `steps` has how many steps are left, and is lessened by those taken.
        """
        return self.holds_of({"plan": json_to_cel(_with_floats(plan))}, steps)

    def holds_of(self, values: Mapping[str, Any], steps: list[int]) -> tuple[bool, str]:
        """Returns the same for named values of CEL."""
        evaluator = _BoundedEvaluator(self._ast, self._program.new_activation(), steps)
        try:
            found = evaluator.evaluate(dict(values))
        except CELEvalError as error:
            return False, str(error.args[0]) if error.args else "it cannot be evaluated"
        except (_TooCostly, RecursionError) as error:
            return False, str(error)
        if not isinstance(found, BoolType):
            return False, f"it is a {type(found).__name__.removesuffix('Type').lower()}, not true or false"
        return bool(found), ""


def _depth(tree: lark.Tree[Any]) -> int:
    most, waiting = 0, [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        most = max(most, depth)
        waiting += [(it, depth + 1) for it in node.children if isinstance(it, lark.Tree)]
    return most


def _with_floats(value: Any, *, money: bool = False) -> Any:
    """Returns the JSON with all money as floats: CEL does not compare an integer with one."""
    if isinstance(value, Mapping):
        return {str(key): _with_floats(it, money="usd" in str(key)) for key, it in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_floats(it) for it in value]
    return float(value) if money and type(value) is int else value
