"""CEL as the API server evaluates it in admission policies and in the rules of custom kinds, by cel-python.

Of cel-python are the grammar, the types, arithmetic and conversions. An expression becomes functions over JSON as it
is: its interpreter first makes a copy of each object, evaluates what nobody asks for, and has another `has`. What an
expression may not name is found when it is compiled. Source: cel-spec `doc/langdef.md`, apiserver `pkg/cel`.
"""

import operator
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, Final

from providers.sim.store.celfunctions import COSTS, FUNCTIONS, METHODS, NAMESPACED, UNSUPPORTED
from providers.sim.store.celgrammar import (
    InvalidCel,
    Tree,
    chained,
    dotted,
    identifier,
    innermost,
    literal_value,
    parsed,
    smallest,
    where,
)
from providers.sim.store.celloops import LOOPS
from providers.sim.store.celvalues import (
    BoolKey,
    CelBudget,
    CelError,
    CelType,
    CostExceeded,
    arithmetic,
    at_index,
    comparison,
    holds,
    key_of,
    keys_of,
    negative,
    perhaps,
    same,
    selected_field,
    size_of,
    type_name,
)

Env = dict[str, Any]
"""Name -> value; under `""` the CelBudget of the evaluation."""
Eval = Callable[[Env], Any]
_STEPS_MOST: Final = 100_000
"""A tenth of what the API server allows, which computes faster."""
TOO_COSTLY: Final = "operation cancelled: actual cost limit exceeded"
"""What is said of an expression whose budget is spent."""
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


class CelExpression:
    """An expression, compiled: `CelExpression("object.spec.replicas > 3", frozenset({"object"}))`."""

    def __init__(self, text: str, variables: frozenset[str], *, messages: bool = False) -> None:
        """`variables` are the names that it may use; `messages` whether it may make them. Errors: InvalidCel."""
        compiler = _Compiler(variables, messages=messages)
        self._value = compiler.of(parsed(text))
        self.text, self.names = text, frozenset(compiler.names)
        self.variables = frozenset(compiler.composed)

    def value(self, known: Mapping[str, Any]) -> Any:
        """Its value, as JSON where it is something of JSON. Errors: CelError.

        `known` may have a CelBudget under `""`, which all that are given it share.
        """
        shared: CelBudget | None = known.get("")
        allowed = _STEPS_MOST if shared is None else max(0, min(_STEPS_MOST, shared.left))
        budget = CelBudget(allowed)
        try:
            found = self._value({**known, "": budget})
            if isinstance(found, list | dict):
                budget.spend(size_of(found, budget.left))
        except (CostExceeded, RecursionError) as error:
            raise CelError(TOO_COSTLY) from error
        finally:
            if shared is not None:
                shared.left -= allowed - max(budget.left, 0)
        return found


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


class _Compiler:
    """Makes a function of each node of the grammar, and notes which variables are used."""

    def __init__(self, variables: frozenset[str], *, messages: bool) -> None:
        self._variables, self._messages = variables, messages
        self._bound: tuple[str, ...] = ()
        self.names: set[str] = set()
        self.composed: set[str] = set()

    def of(self, tree: Tree) -> Eval:
        """What computes a node."""
        inner = innermost(tree)
        return _NODES[inner.data](self, inner)

    def _all(self, trees: list[Tree]) -> list[Eval]:
        return [self.of(it) for it in trees]

    # -- operators ----------------------------------------------------------------------------------------------

    def expr(self, tree: Tree) -> Eval:
        """`? :`."""
        condition, then, otherwise = self._all(tree.children)

        def chosen(env: Env) -> Any:
            env[""].spend(1)
            decided = condition(env)
            if not isinstance(decided, bool):
                raise CelError("no such overload")
            return then(env) if decided else otherwise(env)

        return chosen

    def conditionalor(self, tree: Tree) -> Eval:
        """`||`."""
        return _logical(self._all(chained(tree)), decisive=True)

    def conditionaland(self, tree: Tree) -> Eval:
        """`&&`."""
        return _logical(self._all(chained(tree)), decisive=False)

    def relation(self, tree: Tree) -> Eval:
        """An operator with a left and a right side."""
        sign, right = tree.children
        return _applied(_OPERATORS[sign.data], [self.of(sign.children[0]), self.of(right)])

    def unary(self, tree: Tree) -> Eval:
        """`!` and `-`."""
        sign, operand = tree.children
        if sign.data == "unary_neg" and smallest(innermost(operand)):
            return lambda _env: -(2**63)
        return _applied(_inverse if sign.data == "unary_not" else negative, [self.of(operand)])

    # -- members ------------------------------------------------------------------------------------------------

    def member_dot(self, tree: Tree) -> Eval:
        """`a.b`."""
        self._note_field(tree)
        holder, field = self.of(tree.children[0]), str(tree.children[1])

        def selected(env: Env) -> Any:
            env[""].spend(1)
            return selected_field(holder(env), field)

        return selected

    def member_may_dot(self, tree: Tree) -> Eval:
        """`a.?b`."""
        self._note_field(tree)
        holder, field = self.of(tree.children[0]), str(tree.children[1])
        return lambda env: perhaps(holder(env), field)

    def member_index(self, tree: Tree) -> Eval:
        """`a[b]`."""
        return _applied(at_index, self._all(tree.children), cost=lambda *_: 1)

    def member_may_index(self, tree: Tree) -> Eval:
        """`a[?b]`."""
        return _applied(perhaps, self._all(tree.children), cost=lambda *_: 1)

    def member_object(self, tree: Tree) -> Eval:
        """`JSONPatch{op: "add"}`."""
        name = dotted(tree.children[0])
        if not self._messages or (name != "JSONPatch" and name.partition(".")[0] != "Object"):
            raise InvalidCel(where(tree, f"undeclared reference to '{name}' (in container '')"))
        parts = tree.children[1].children if len(tree.children) > 1 else []
        fields = [str(it) for it in parts[::2]]
        values = self._all(parts[1::2])
        return lambda env: {field: value(env) for field, value in zip(fields, values, strict=True)}

    def member_dot_arg(self, tree: Tree) -> Eval:
        """`a.f(b)`: a macro, a function of a library, or a method."""
        target, token, *rest = tree.children
        arguments, name = rest[0].children if rest else [], str(token)
        library = identifier(target)
        if library in NAMESPACED and library not in (*self._variables, *self._bound):
            return _applied(self._known(NAMESPACED[library], name, tree), self._all(arguments))
        if library in UNSUPPORTED and library not in self._bound:
            raise InvalidCel(where(tree, f"'{library}' is not supported here"))
        held = self.of(target)
        if name in LOOPS and len(arguments) in LOOPS[name].arguments:
            return self._loop(name, held, arguments)
        return _applied(self._known(METHODS, name, tree), [held, *self._all(arguments)])

    def _loop(self, name: str, items: Eval, arguments: list[Tree]) -> Eval:
        variable, outer = identifier(arguments[0]), self._bound
        if not variable:
            raise InvalidCel(where(arguments[0], "argument must be a simple name"))
        self._bound = (*outer, variable)
        bodies = self._all(arguments[1:])
        self._bound = outer
        looped = LOOPS[name].computed

        def value(env: Env) -> Any:
            """What the loop makes of a list's items, or a map's keys; each one costs. CelError for anything else."""
            found = items(env)
            if not isinstance(found, list | dict):
                raise CelError("no such overload")
            inner, spend = {**env}, env[""].spend

            def asked(body: Eval, it: Any) -> Any:
                spend(1)
                inner[variable] = it
                return body(inner)

            items_ = keys_of(found) if isinstance(found, dict) else found
            return looped(items_, [partial(asked, body) for body in bodies])

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
        field = innermost(arguments[0]) if len(arguments) == 1 else tree
        if field.data not in ("member_dot", "member_may_dot"):
            raise InvalidCel(where(tree, "invalid argument to has() macro"))
        self._note_field(field)
        holder, name = self.of(field.children[0]), str(field.children[1])
        return lambda env: bool(perhaps(holder(env), name).held)

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
        raise InvalidCel(where(tree, _unknown(name)))

    def literal(self, tree: Tree) -> Eval:
        """A number, a text, bytes, a truth or null."""
        token: Any = tree.children[0]
        try:
            constant = literal_value(token)
        except ValueError as error:
            raise InvalidCel(where(tree, f"Syntax error: invalid literal {token}")) from error
        return lambda _env: constant

    def list_lit(self, tree: Tree) -> Eval:
        """`[a, b]`."""
        items = self._all(tree.children[0].children if tree.children else [])

        def made(env: Env) -> list[Any]:
            env[""].spend(len(items))
            return [it(env) for it in items]

        return made

    def map_lit(self, tree: Tree) -> Eval:
        """`{a: b}`."""
        parts = self._all(tree.children[0].children if tree.children else [])
        pairs = list(zip(parts[::2], parts[1::2], strict=True))

        def made(env: Env) -> Any:
            """The map; every pair costs. CelError for a key of another type, and for one that is there twice."""
            env[""].spend(len(pairs))
            found: dict[Any, Any] = {}
            for key, value in pairs:
                named = key_of(key(env))
                if not isinstance(named, str | int | BoolKey):
                    raise CelError("unsupported key type")
                if named in found:
                    raise CelError(f"Failed with repeated key: {named}")
                found[named] = value(env)
            return found

        return made

    def dot_ident(self, tree: Tree) -> Eval:
        """`.a`, which is refused."""
        raise InvalidCel(where(tree, "a name with a leading dot is not supported here"))

    def _known(self, table: Mapping[str, Callable[..., Any]], name: str, tree: Tree) -> Callable[..., Any]:
        if name not in table:
            raise InvalidCel(where(tree, _unknown(name)))
        return table[name]

    def _note_field(self, tree: Tree) -> None:
        """Note a variable of a policy; refuse what is not known of a request, as who makes it."""
        field, holder = str(tree.children[1]), identifier(tree.children[0])
        if holder == "variables" and holder not in self._bound:
            self.composed.add(field)
        if holder == "request" and holder not in self._bound and field not in _REQUEST:
            told = "is not supported here" if field in ("userInfo", "options") else "is an undefined field"
            raise InvalidCel(where(tree, f"'request.{field}' {told}"))


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


def _unknown(name: str) -> str:
    return (
        f"'{name}' is not supported here"
        if name in UNSUPPORTED
        else f"undeclared reference to '{name}' (in container '')"
    )


def _applied(function: Callable[..., Any], operands: list[Eval], cost: Callable[..., int] | None = None) -> Eval:
    cost = cost or COSTS.get(function, _read)

    def value(env: Env) -> Any:
        """What the function makes of the operands; what Python raises in it is a CelError, in CEL's words."""
        given = [it(env) for it in operands]
        budget = env[""]
        try:
            budget.spend(cost(budget.left, *given))
            return function(*given)
        except (TypeError, AttributeError):
            raise CelError("no such overload") from None
        except ZeroDivisionError:
            raise CelError("division by zero") from None
        except (ValueError, OverflowError, KeyError) as error:
            raise CelError(str(error)) from None

    return value


_BY_VALUE: Final = frozenset({int, float, bool, type(None)})


def _read(most: int, *given: Any) -> int:
    """What it costs to read arguments."""
    return sum(1 if type(it) in _BY_VALUE else size_of(it, most) for it in given)


def _logical(sides: list[Eval], *, decisive: bool) -> Eval:
    """One side may decide, whatever is wrong with the other."""

    def value(env: Env) -> bool:
        """True or false; CelError where no side decides and one is in error, or is no boolean."""
        trouble: CelError | None = None
        for side in sides:
            env[""].spend(1)
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
