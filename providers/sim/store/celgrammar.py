"""The grammar of CEL: text to a tree, and what may be told of a tree by itself.

It is cel-python's, mended where it lacks something.
"""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import celpy
import lark
from celpy.celtypes import UintType
from celpy.evaluation import celbytes, celstr

from model.plain_text import bracket_depth

Tree = lark.Tree[Any]
_BRACKETS_MOST: Final = 40
_NESTED_MOST: Final = 100
"""Operations in one another, of which each costs Python a few frames; cel-go's parser allows 250 of its rules."""
_TEXT_MOST: Final = 10 * 1024
# What cel-python's grammar lacks: signs are operators (`1-1`), and optional fields and elements.
_MENDED: Final = (
    (r"/-?/ /0x/ HEXDIGIT+ | /-?/ DIGIT+", r"/0x/ HEXDIGIT+ | DIGIT+"),
    (
        r'/-?/ DIGIT+ "." DIGIT* EXPONENT? | /-?/ DIGIT* "." DIGIT+ EXPONENT? | /-?/ DIGIT+ EXPONENT',
        r'DIGIT+ "." DIGIT+ EXPONENT? | "." DIGIT+ EXPONENT? | DIGIT+ EXPONENT',
    ),
    ("member         : member_dot |", "member         : member_may_dot | member_may_index | member_dot |"),
    ("member_dot     :", 'member_may_dot : member ".?" IDENT\nmember_dot     :'),
    ("member_index   :", 'member_may_index : member "[?" expr "]"\nmember_index   :'),
)


class InvalidCel(ValueError):
    """The text is no expression that is understood here; the message is one line."""


def parsed(text: str) -> Tree:
    """The tree of an expression. Errors: InvalidCel."""
    if len(text) > _TEXT_MOST or bracket_depth(text) > _BRACKETS_MOST:
        most = f"more than {_BRACKETS_MOST} parentheses, braces or brackets in one another"
        raise InvalidCel(f"longer than {_TEXT_MOST} bytes, or {most}")
    try:
        found = _grammar().parse(text)
    except lark.exceptions.UnexpectedInput as error:
        told = error.get_context(text).strip().splitlines()[0]
        raise InvalidCel(f"<input>:{error.line}:{error.column}: Syntax error: in {told}") from error
    except lark.exceptions.LarkError as error:
        raise InvalidCel(f"<input>:1:1: Syntax error: {error}") from error
    if _depth(found) > _NESTED_MOST:
        raise InvalidCel(f"<input>:-1:0: expression recursion limit exceeded: {_NESTED_MOST}")
    return found


@lru_cache(maxsize=1)
def _grammar() -> lark.Lark:
    text = (Path(celpy.__file__).parent / "cel.lark").read_text("utf-8")
    for old, new in _MENDED:
        if old not in text:
            raise RuntimeError(f"the grammar of cel-python has changed: it has no {old!r}")
        text = text.replace(old, new)
    callbacks = {"IDENT": celpy.celparser.CELParser.ambiguous_literals}
    return lark.Lark(
        text, parser="lalr", start="expr", lexer_callbacks=callbacks, maybe_placeholders=False, priority="invert",
        propagate_positions=True,
    )  # fmt: skip


PASSING: Final = frozenset(
    {"expr", "conditionalor", "conditionaland", "relation", "addition", "multiplication", "unary", "member"}
    | {"primary", "paren_expr"}
)
"""Nodes that only pass on what they hold, where they hold one thing."""
_LITERALS: Final[Mapping[str, Callable[[lark.Token], Any]]] = {
    "INT_LIT": lambda it: _int64(int(it, 16 if it[:2] == "0x" else 10)),
    "UINT_LIT": lambda it: UintType(int(it[:-1], 16 if it[:2] == "0x" else 10)),
    "FLOAT_LIT": lambda it: _finite(float(it)),
    "STRING_LIT": lambda it: str(celstr(it)),
    "MLSTRING_LIT": lambda it: str(celstr(it)),
    "BYTES_LIT": celbytes,
    "BOOL_LIT": lambda it: it == "true",
    "NULL_LIT": lambda _: None,
}


def _int64(value: int) -> int:
    if value >= 2**63:
        raise ValueError(value)
    return value


_CHAINS: Final = frozenset({"conditionalor", "conditionaland"})
_BETWEEN: Final = frozenset(
    {"relation_lt", "relation_le", "relation_gt", "relation_ge", "relation_eq", "relation_ne", "relation_in"}
    | {"addition_add", "addition_sub", "multiplication_mul", "multiplication_div", "multiplication_mod"}
    | {"unary_not", "unary_neg", "exprlist", "mapinits", "fieldinits"}
)
"""Nodes that belong to the one above."""


def _depth(tree: Tree) -> int:
    """How many operations are in one another, where a chain of `||` or of `&&` is one."""
    most, waiting = 0, [(tree, "", 0)]
    while waiting:
        node, above, depth = waiting.pop()
        passing = len(node.children) == 1 and node.data in PASSING
        chained = node.data in _CHAINS and node.data == above
        depth += not (passing or chained or node.data in _BETWEEN)
        most = max(most, depth)
        waiting += [(it, node.data, depth) for it in node.children if isinstance(it, lark.Tree)]
    return most


def chained(tree: Tree) -> list[Tree]:
    """The sides of a chain of `||` or of `&&`, from left to right."""
    sides: list[Tree] = []
    inner = tree
    while inner.data == tree.data and len(inner.children) == 2:
        inner, right = inner.children
        sides.insert(0, right)
    return [inner, *sides]


def _finite(value: float) -> float:
    if math.isinf(value):
        raise ValueError(value)
    return value


def literal_value(token: lark.Token) -> Any:
    """What a literal stands for. Errors: ValueError."""
    return _LITERALS[token.type](token)


def smallest(tree: Tree) -> bool:
    """Whether a node is the number of which only the negative has 64 bits."""
    token = tree.children[0] if tree.data == "literal" else None
    return (
        isinstance(token, lark.Token)
        and token.type == "INT_LIT"
        and int(token, 0 if token[:2] == "0x" else 10) == 2**63
    )


def innermost(tree: Tree) -> Tree:
    """The node below those that only pass on what they hold."""
    while len(tree.children) == 1 and tree.data in PASSING:
        tree = tree.children[0]
    return tree


def identifier(tree: Tree) -> str:
    """The name where a node is nothing but one."""
    inner = innermost(tree)
    return str(inner.children[0]) if inner.data == "ident" else ""


def dotted(tree: Tree) -> str:
    """The names of a node that is nothing but names and dots, such as `Object.spec`."""
    inner = innermost(tree)
    return f"{dotted(inner.children[0])}.{inner.children[1]}" if inner.data == "member_dot" else identifier(inner)


def where(tree: Tree, told: str) -> str:
    """A fault with its line and column."""
    meta = tree.meta
    return f"<input>:{getattr(meta, 'line', 1)}:{getattr(meta, 'column', 1)}: {told}"
