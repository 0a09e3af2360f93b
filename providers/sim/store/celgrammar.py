"""The grammar of CEL: text to a tree, and what may be told of a tree by itself.

It is cel-python's, mended where it lacks something.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import celpy
import lark
from celpy.celtypes import UintType
from celpy.evaluation import celbytes, celstr

Tree = lark.Tree[Any]
_NESTED_MOST: Final = 40
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
    if len(text) > _TEXT_MOST or _depth(text) > _NESTED_MOST:
        raise InvalidCel(f"longer than {_TEXT_MOST} bytes, or more than {_NESTED_MOST} brackets in one another")
    try:
        return _grammar().parse(text)
    except lark.exceptions.UnexpectedInput as error:
        told = error.get_context(text).strip().splitlines()[0]
        raise InvalidCel(f"<input>:{error.line}:{error.column}: Syntax error: in {told}") from error
    except lark.exceptions.LarkError as error:
        raise InvalidCel(f"<input>:1:1: Syntax error: {error}") from error


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


def _depth(text: str) -> int:
    depth = most = 0
    for sign in text:
        depth += (sign in "([{") - (sign in ")]}")
        most = max(most, depth)
    return most


PASSING: Final = frozenset(
    {"expr", "conditionalor", "conditionaland", "relation", "addition", "multiplication", "unary", "member"}
    | {"primary", "paren_expr"}
)
"""Nodes that only pass on what they hold, where they hold one thing."""
_LITERALS: Final[Mapping[str, Callable[[lark.Token], Any]]] = {
    "INT_LIT": lambda it: _int64(int(it, 16 if it[:2] == "0x" else 10)),
    "UINT_LIT": lambda it: UintType(int(it[:-1], 16 if it[:2] == "0x" else 10)),
    "FLOAT_LIT": float,
    "STRING_LIT": lambda it: str(celstr(it)),
    "MLSTRING_LIT": lambda it: str(celstr(it)),
    "BYTES_LIT": celbytes,
    "BOOL_LIT": lambda it: it == "true",
    "NULL_LIT": lambda _: None,
}


def _int64(value: int) -> int:
    if value > 2**63:  # the smallest number is written with a sign before it
        raise ValueError(value)
    return value


def literal_value(token: lark.Token) -> Any:
    """What a literal stands for. Errors: ValueError."""
    return _LITERALS[token.type](token)


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
