"""As much of CEL as our admission policies are written in, evaluated on plain JSON.

Fields, indexes, literals, `? :`, `&& || !`, comparisons, `in`, `+`, `has`, `size`, `string`, `startsWith`, the macros
`exists`, `filter` and `map`, `jsonpatch.escapeKey`, and messages (`JSONPatch{...}`), which become dicts. Anything else
is a SyntaxError, a missing field a KeyError, as the API server would refuse it.
"""

import json
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

Env = Mapping[str, Any]
Eval = Callable[[Env], Any]

_TOKEN = re.compile(r'\s*(?:(\d+)|("(?:[^"\\]|\\.)*")|([A-Za-z_]\w*)|(&&|\|\||[=!<>]=|[?:.,()\[\]{}!<>+]))')
_COMPARE = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "in": lambda item, found: item in found,
}
_METHODS: Mapping[str, Callable[..., Any]] = {
    "startsWith": lambda text, prefix: text.startswith(prefix),
    "escapeKey": lambda _library, key: key.replace("~", "~0").replace("/", "~1"),
}
_FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {"size": len, "string": str}
_MACROS: Mapping[str, Callable[[list[Any], Callable[[Any], Any]], Any]] = {
    "exists": lambda items, test: any(test(item) for item in items),
    "filter": lambda items, test: [item for item in items if test(item)],
    "map": lambda items, make: [make(item) for item in items],
}


def evaluate(expression: str, **variables: Any) -> Any:
    """The value of an expression."""
    parser = _Parser(expression)
    value = parser.expression()
    if parser.token:
        raise SyntaxError(f"unexpected {parser.token!r} in {expression}")
    return value({"jsonpatch": None, **variables})


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        at = 0
        while at < len(text.rstrip()):
            found = _TOKEN.match(text, at)
            if found is None:
                raise SyntaxError(f"cannot read {text[at : at + 20]!r}")
            self._tokens.append(found.group().strip())
            at = found.end()

    @property
    def token(self) -> str:
        return self._tokens[0] if self._tokens else ""

    def take(self, expected: str = "") -> str:
        if not self._tokens or (expected and self._tokens[0] != expected):
            raise SyntaxError(f"{expected or 'more'} is missing before {' '.join(self._tokens[:5])!r}")
        return self._tokens.pop(0)

    def skips(self, token: str) -> bool:
        if self.token == token:
            self._tokens.pop(0)
            return True
        return False

    def expression(self) -> Eval:
        condition = self._either()
        if not self.skips("?"):
            return condition
        then = self.expression()
        self.take(":")
        otherwise = self.expression()
        return lambda env: then(env) if condition(env) else otherwise(env)

    def _either(self) -> Eval:
        left = self._both()
        while self.skips("||"):
            left = _either(left, self._both())
        return left

    def _both(self) -> Eval:
        left = self._comparison()
        while self.skips("&&"):
            left = _both(left, self._comparison())
        return left

    def _comparison(self) -> Eval:
        left = self._sum()
        while self.token in _COMPARE:
            left = _applied(_COMPARE[self.take()], left, self._sum())
        return left

    def _sum(self) -> Eval:
        left = self._unary()
        while self.skips("+"):
            left = _applied(operator.add, left, self._unary())
        return left

    def _unary(self) -> Eval:
        if self.skips("!"):
            inner = self._unary()
            return lambda env: not inner(env)
        return self._suffixed(self._primary())

    def _suffixed(self, value: Eval) -> Eval:
        while self.token in {".", "["}:
            if self.skips("["):
                index = self.expression()
                self.take("]")
                value = _applied(operator.getitem, value, index)
                continue
            self.take(".")
            name = self.take()
            value = self._call(name, value) if self.skips("(") else _field(value, name)
        return value

    def _call(self, name: str, target: Eval) -> Eval:
        if name in _MACROS:
            variable = self.take()
            self.take(",")
            body = self.expression()
            self.take(")")
            macro = _MACROS[name]
            return lambda env: macro(target(env), lambda item: body({**env, variable: item}))
        (argument,) = self._until(")")
        return _applied(_METHODS[name], target, argument)

    def _primary(self) -> Eval:
        token = self.take()
        if token == "(":
            inner = self.expression()
            self.take(")")
            return inner
        if token == "[":
            items = self._until("]")
            return lambda env: [item(env) for item in items]
        if token == "{":
            return self._pairs(lambda: json.loads(self.take()))
        if token[0] == '"' or token.isdigit() or token in {"true", "false"}:
            constant = json.loads(token)
            return lambda _env: constant
        return self._named(token)

    def _named(self, name: str) -> Eval:
        if self.skips("{"):
            return self._pairs(self.take)
        if not self.skips("("):
            return lambda env: env[name]
        (argument,) = self._until(")")
        if name == "has":
            return _exists(argument)
        function = _FUNCTIONS[name]
        return lambda env: function(argument(env))

    def _pairs(self, key: Callable[[], str]) -> Eval:
        pairs: dict[str, Eval] = {}
        while not self.skips("}"):
            name = key()
            self.take(":")
            pairs[name] = self.expression()
            self.skips(",")
        return lambda env: {name: value(env) for name, value in pairs.items()}

    def _until(self, end: str) -> list[Eval]:
        found: list[Eval] = []
        while not self.skips(end):
            found.append(self.expression())
            self.skips(",")
        return found


def _either(left: Eval, right: Eval) -> Eval:
    return lambda env: left(env) or right(env)


def _both(left: Eval, right: Eval) -> Eval:
    return lambda env: left(env) and right(env)


def _applied(function: Callable[..., Any], left: Eval, right: Eval) -> Eval:
    return lambda env: function(left(env), right(env))


def _field(value: Eval, name: str) -> Eval:
    return lambda env: value(env)[name]


def _exists(argument: Eval) -> Eval:
    """`has`: the field is there. The way to it must be, or the expression fails: so much is the API server's rule."""

    def has(env: Env) -> bool:
        try:
            argument(env)
        except KeyError:
            return False
        return True

    return has
