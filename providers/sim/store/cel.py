"""CEL as the API server evaluates it in admission policies and in the rules of custom kinds, by cel-python.

Of cel-python are the grammar, the types, arithmetic and conversions. An expression becomes functions over JSON as it
is: its interpreter first makes a copy of each object, evaluates what nobody asks for, and has another `has`. What an
expression may not name is found when it is compiled. Source: cel-spec `doc/langdef.md`, apiserver `pkg/cel`.
"""

import operator
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

import celpy
import lark
from celpy.celtypes import UintType
from celpy.evaluation import celbytes, celstr

from providers.sim.store.celfunctions import FUNCTIONS, METHODS, NAMESPACED, UNSUPPORTED
from providers.sim.store.celloops import LOOPS
from providers.sim.store.celvalues import (
    CelError,
    CelType,
    OptionalValue,
    arithmetic,
    comparison,
    holds,
    item,
    negative,
    same,
    type_name,
)

Tree = lark.Tree[Any]
Env = dict[str, Any]
"""Name -> value; under `""` how many steps the loops may still take."""
Eval = Callable[[Env], Any]
_STEPS_MOST: Final = 100_000
_NESTED_MOST: Final = 40
_TEXT_MOST: Final = 10 * 1024
_TYPES: Final = frozenset({"bool", "bytes", "double", "int", "list", "map", "null_type", "string", "uint"})
_REQUEST: Final = frozenset(
    {"kind", "resource", "subResource", "requestKind", "requestResource", "requestSubResource"}
    | {"name", "namespace", "operation", "dryRun"}
)
_OPERATORS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "relation_eq": same,
    "relation_ne": lambda a, b: not same(a, b),
    "relation_lt": comparison(operator.lt),
    "relation_le": comparison(operator.le),
    "relation_gt": comparison(operator.gt),
    "relation_ge": comparison(operator.ge),
    "relation_in": holds,
    "addition_add": arithmetic(operator.add),
    "addition_sub": arithmetic(operator.sub),
    "multiplication_mul": arithmetic(operator.mul),
    "multiplication_div": arithmetic(operator.truediv),
    "multiplication_mod": arithmetic(operator.mod),
}
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


class CelExpression:
    """An expression, compiled: `CelExpression("object.spec.replicas > 3", frozenset({"object"}))`."""

    def __init__(self, text: str, variables: frozenset[str], *, messages: bool = False) -> None:
        """`variables` are the names that it may use; `messages` whether it may make them. Errors: InvalidCel."""
        if len(text) > _TEXT_MOST or _depth(text) > _NESTED_MOST:
            raise InvalidCel(f"longer than {_TEXT_MOST} bytes, or more than {_NESTED_MOST} brackets in one another")
        compiler = _Compiler(variables, messages=messages)
        try:
            self._value = compiler.of(_grammar().parse(text))
        except lark.exceptions.UnexpectedInput as error:
            told = error.get_context(text).strip().splitlines()[0]
            raise InvalidCel(f"<input>:{error.line}:{error.column}: Syntax error: in {told}") from error
        except lark.exceptions.LarkError as error:
            raise InvalidCel(f"<input>:1:1: Syntax error: {error}") from error
        self.text, self.names = text, frozenset(compiler.names)
        self.variables = frozenset(compiler.composed)

    def value(self, known: Mapping[str, Any]) -> Any:
        """Its value, as JSON where it is something of JSON. Errors: CelError."""
        try:
            return self._value({**known, "": [_STEPS_MOST]})
        except RecursionError as error:
            raise CelError("operation cancelled: actual cost limit exceeded") from error


@lru_cache(maxsize=2048)
def compiled(text: str, variables: frozenset[str], *, messages: bool = False) -> CelExpression:
    """The expression over those variables, compiled once. Errors: InvalidCel."""
    return CelExpression(text, variables, messages=messages)


def constant_type(expression: CelExpression) -> str:
    """The type of an expression without variables, in the words of CEL; empty where it has some, or no value."""
    if expression.names:
        return ""
    try:
        return type_name(expression.value({}))
    except CelError:
        return ""


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


class _Compiler:
    """Makes a function of each node of the grammar, and notes which variables are used."""

    def __init__(self, variables: frozenset[str], *, messages: bool) -> None:
        self._variables, self._messages = variables, messages
        self._bound: tuple[str, ...] = ()
        self.names: set[str] = set()
        self.composed: set[str] = set()

    def of(self, tree: Tree) -> Eval:
        """What computes a node."""
        while len(tree.children) == 1 and tree.data in _PASSING:
            tree = tree.children[0]
        return _NODES[tree.data](self, tree)

    def _all(self, trees: list[Tree]) -> list[Eval]:
        return [self.of(it) for it in trees]

    # -- operators ----------------------------------------------------------------------------------------------

    def expr(self, tree: Tree) -> Eval:
        """`? :`."""
        condition, then, otherwise = self._all(tree.children)

        def chosen(env: Env) -> Any:
            decided = condition(env)
            if not isinstance(decided, bool):
                raise CelError("no such overload")
            return then(env) if decided else otherwise(env)

        return chosen

    def conditionalor(self, tree: Tree) -> Eval:
        """`||`."""
        return _logical(*self._all(tree.children), decisive=True)

    def conditionaland(self, tree: Tree) -> Eval:
        """`&&`."""
        return _logical(*self._all(tree.children), decisive=False)

    def relation(self, tree: Tree) -> Eval:
        """An operator with a left and a right side."""
        sign, right = tree.children
        return _applied(_OPERATORS[sign.data], [self.of(sign.children[0]), self.of(right)])

    def unary(self, tree: Tree) -> Eval:
        """`!` and `-`."""
        sign, operand = tree.children
        return _applied(_inverse if sign.data == "unary_not" else negative, [self.of(operand)])

    # -- members ------------------------------------------------------------------------------------------------

    def member_dot(self, tree: Tree) -> Eval:
        """`a.b`."""
        self._note_field(tree)
        holder, field = self.of(tree.children[0]), str(tree.children[1])
        return lambda env: _selected(holder(env), field)

    def member_may_dot(self, tree: Tree) -> Eval:
        """`a.?b`."""
        self._note_field(tree)
        holder, field = self.of(tree.children[0]), str(tree.children[1])
        return lambda env: _perhaps(holder(env), field)

    def member_index(self, tree: Tree) -> Eval:
        """`a[b]`."""
        return _applied(_at, self._all(tree.children))

    def member_may_index(self, tree: Tree) -> Eval:
        """`a[?b]`."""
        return _applied(_perhaps, self._all(tree.children))

    def member_object(self, tree: Tree) -> Eval:
        """`JSONPatch{op: "add"}`."""
        name = _dotted(tree.children[0])
        if not self._messages or (name != "JSONPatch" and name.partition(".")[0] != "Object"):
            raise InvalidCel(_where(tree, f"undeclared reference to '{name}' (in container '')"))
        parts = tree.children[1].children if len(tree.children) > 1 else []
        fields = [str(it) for it in parts[::2]]
        values = self._all(parts[1::2])
        return lambda env: {field: value(env) for field, value in zip(fields, values, strict=True)}

    def member_dot_arg(self, tree: Tree) -> Eval:
        """`a.f(b)`: a macro, a function of a library, or a method."""
        target, token, *rest = tree.children
        arguments, name = rest[0].children if rest else [], str(token)
        library = _identifier(target)
        if library in NAMESPACED and library not in (*self._variables, *self._bound):
            return _applied(self._known(NAMESPACED[library], name, tree), self._all(arguments))
        if library in UNSUPPORTED and library not in self._bound:
            raise InvalidCel(_where(tree, f"'{library}' is not supported here"))
        held = self.of(target)
        if name in LOOPS and len(arguments) in LOOPS[name].arguments:
            return self._loop(name, held, arguments)
        return _applied(self._known(METHODS, name, tree), [held, *self._all(arguments)])

    def _loop(self, name: str, items: Eval, arguments: list[Tree]) -> Eval:
        variable, outer = _identifier(arguments[0]), self._bound
        if not variable:
            raise InvalidCel(_where(arguments[0], "argument must be a simple name"))
        self._bound = (*outer, variable)
        bodies = self._all(arguments[1:])
        self._bound = outer
        looped = LOOPS[name].computed

        def value(env: Env) -> Any:
            found = items(env)
            if not isinstance(found, list | dict):
                raise CelError("no such overload")
            inner, steps = {**env}, env[""]

            def asked(body: Eval, it: Any) -> Any:
                steps[0] -= 1
                if steps[0] < 0:
                    raise CelError("operation cancelled: actual cost limit exceeded")
                inner[variable] = it
                return body(inner)

            return looped(found, [partial(asked, body) for body in bodies])

        return value

    # -- what stands alone --------------------------------------------------------------------------------------

    def ident_arg(self, tree: Tree) -> Eval:
        """`f(a)`, and `has(a.b)`."""
        token, *rest = tree.children
        arguments = rest[0].children if rest else []
        if str(token) == "has":
            return self._has(tree, arguments)
        return _applied(self._known(FUNCTIONS, str(token), tree), self._all(arguments))

    def _has(self, tree: Tree, arguments: list[Tree]) -> Eval:
        field = _innermost(arguments[0]) if len(arguments) == 1 else tree
        if field.data not in ("member_dot", "member_may_dot"):
            raise InvalidCel(_where(tree, "invalid argument to has() macro"))
        self._note_field(field)
        holder, name = self.of(field.children[0]), str(field.children[1])
        return lambda env: bool(_perhaps(holder(env), name).held)

    def ident(self, tree: Tree) -> Eval:
        """A variable, or the name of a type."""
        name = str(tree.children[0])
        if name in self._bound:
            return lambda env: env[name]
        if name in self._variables:
            self.names.add(name)
            return lambda env: env[name]
        if name in _TYPES:
            kind = CelType(name)
            return lambda _env: kind
        raise InvalidCel(_where(tree, _unknown(name)))

    def literal(self, tree: Tree) -> Eval:
        """A number, a text, bytes, a truth or null."""
        token: Any = tree.children[0]
        try:
            constant = _LITERALS[token.type](token)
        except ValueError as error:
            raise InvalidCel(_where(tree, f"Syntax error: invalid literal {token}")) from error
        return lambda _env: constant

    def list_lit(self, tree: Tree) -> Eval:
        """`[a, b]`."""
        items = self._all(tree.children[0].children if tree.children else [])
        return lambda env: [it(env) for it in items]

    def map_lit(self, tree: Tree) -> Eval:
        """`{a: b}`."""
        parts = self._all(tree.children[0].children if tree.children else [])
        pairs = list(zip(parts[::2], parts[1::2], strict=True))

        def made(env: Env) -> Any:
            found: dict[Any, Any] = {}
            for key, value in pairs:
                named = key(env)
                if not isinstance(named, str | int):
                    raise CelError("unsupported key type")
                if named in found:
                    raise CelError(f"Failed with repeated key: {named}")
                found[named] = value(env)
            return found

        return made

    def dot_ident(self, tree: Tree) -> Eval:
        """`.a`, which is refused."""
        raise InvalidCel(_where(tree, "a name with a leading dot is not supported here"))

    def _known(self, table: Mapping[str, Callable[..., Any]], name: str, tree: Tree) -> Callable[..., Any]:
        if name not in table:
            raise InvalidCel(_where(tree, _unknown(name)))
        return table[name]

    def _note_field(self, tree: Tree) -> None:
        """Note a variable of a policy; refuse what is not known of a request, as who makes it."""
        field, holder = str(tree.children[1]), _identifier(tree.children[0])
        if holder == "variables" and holder not in self._bound:
            self.composed.add(field)
        if holder == "request" and holder not in self._bound and field not in _REQUEST:
            told = "is not supported here" if field in ("userInfo", "options") else "is an undefined field"
            raise InvalidCel(_where(tree, f"'request.{field}' {told}"))


_NODES: Final[Mapping[str, Callable[[_Compiler, Tree], Eval]]] = {
    "addition": _Compiler.relation,
    "conditionaland": _Compiler.conditionaland,
    "conditionalor": _Compiler.conditionalor,
    "dot_ident": _Compiler.dot_ident,
    "dot_ident_arg": _Compiler.dot_ident,
    "expr": _Compiler.expr,
    "ident": _Compiler.ident,
    "ident_arg": _Compiler.ident_arg,
    "list_lit": _Compiler.list_lit,
    "literal": _Compiler.literal,
    "map_lit": _Compiler.map_lit,
    "member_dot": _Compiler.member_dot,
    "member_dot_arg": _Compiler.member_dot_arg,
    "member_index": _Compiler.member_index,
    "member_may_dot": _Compiler.member_may_dot,
    "member_may_index": _Compiler.member_may_index,
    "member_object": _Compiler.member_object,
    "multiplication": _Compiler.relation,
    "relation": _Compiler.relation,
    "unary": _Compiler.unary,
}
"""Node of the grammar -> what compiles it."""
_PASSING: Final = frozenset(
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


def _innermost(tree: Tree) -> Tree:
    while len(tree.children) == 1 and tree.data in _PASSING:
        tree = tree.children[0]
    return tree


def _identifier(tree: Tree) -> str:
    """The name where a node is nothing but one."""
    inner = _innermost(tree)
    return str(inner.children[0]) if inner.data == "ident" else ""


def _dotted(tree: Tree) -> str:
    inner = _innermost(tree)
    return f"{_dotted(inner.children[0])}.{inner.children[1]}" if inner.data == "member_dot" else _identifier(inner)


def _where(tree: Tree, told: str) -> str:
    meta = tree.meta
    return f"<input>:{getattr(meta, 'line', 1)}:{getattr(meta, 'column', 1)}: {told}"


def _unknown(name: str) -> str:
    return (
        f"'{name}' is not supported here"
        if name in UNSUPPORTED
        else f"undeclared reference to '{name}' (in container '')"
    )


def _applied(function: Callable[..., Any], operands: list[Eval]) -> Eval:
    def value(env: Env) -> Any:
        given = [it(env) for it in operands]
        try:
            return function(*given)
        except (TypeError, AttributeError):
            raise CelError("no such overload") from None
        except ZeroDivisionError:
            raise CelError("division by zero") from None
        except (ValueError, OverflowError, KeyError) as error:
            raise CelError(str(error)) from None

    return value


def _logical(left: Eval, right: Eval, *, decisive: bool) -> Eval:
    """One side may decide, whatever is wrong with the other."""

    def value(env: Env) -> bool:
        trouble: CelError | None = None
        for side in (left, right):
            try:
                found = side(env)
            except CelError as error:
                trouble = trouble or error
                continue
            if not isinstance(found, bool):
                trouble = trouble or CelError("no such overload")
            elif found is decisive:
                return found
        if trouble is not None:
            raise trouble
        return not decisive

    return value


def _inverse(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return not value


def _selected(held: Any, field: str) -> Any:
    if isinstance(held, dict):
        if field in held:
            return held[field]
        if (escaped := _unescaped(field)) in held:
            return held[escaped]
        raise CelError(f"no such key: {field}")
    if isinstance(held, OptionalValue):
        return _perhaps(held, field)
    raise CelError("no such overload")


def _at(held: Any, at: Any) -> Any:
    return _perhaps(held, at) if isinstance(held, OptionalValue) else item(held, at)


def _perhaps(held: Any, at: Any) -> OptionalValue:
    """A field or an element, if there. Errors: CelError, TypeError."""
    if isinstance(held, OptionalValue):
        return _perhaps(held.held[0], at) if held.held else held
    if isinstance(held, dict):
        at = at if at in held or not isinstance(at, str) else _unescaped(at)
        return OptionalValue((held[at],)) if at in held else OptionalValue()
    if isinstance(held, list) and isinstance(at, int):
        return OptionalValue((held[at],)) if 0 <= at < len(held) else OptionalValue()
    raise CelError("no such overload")


def _unescaped(field: str) -> str:
    """A field that CEL could not name otherwise (`x__dash__y`). Source: apiserver `pkg/cel/escaping.go`."""
    if "__" not in field:
        return field
    if field.startswith("__") and field.endswith("__") and field[2:-2].isalpha():
        return field[2:-2]
    for escape, sign in (("__dot__", "."), ("__dash__", "-"), ("__slash__", "/"), ("__underscores__", "__")):
        field = field.replace(escape, sign)
    return field
