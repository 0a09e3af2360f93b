"""As much of CEL as admission policies and the rules of custom kinds are mostly written in, evaluated on plain JSON.

Fields, indexes, literals, `? :`, `&& || !`, comparisons, `in`, `+ -`, `has`, `size`, `string`, `int`, `startsWith`,
`endsWith`, `contains`, `matches`, the macros `all`, `exists`, `filter` and `map`, `jsonpatch.escapeKey`, and messages
(`JSONPatch{...}`), which become dicts. Anything else is a SyntaxError, a missing field a KeyError.
"""

import json
import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

Env = Mapping[str, Any]
Eval = Callable[[Env], Any]

_TOKEN = re.compile(
    r"""\s*(?:(\d+)|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|([A-Za-z_]\w*)|(&&|\|\||[=!<>]=|[?:.,()\[\]{}!<>+-]))"""
)
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
    "endsWith": lambda text, suffix: text.endswith(suffix),
    "contains": lambda text, part: part in text,
    "matches": lambda text, pattern: re.search(pattern, text) is not None,
    "escapeKey": lambda _library, key: key.replace("~", "~0").replace("/", "~1"),
}
_FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {"size": len, "string": str, "int": int}
_MACROS: Mapping[str, Callable[[list[Any], Callable[[Any], Any]], Any]] = {
    "all": lambda items, test: all(test(item) for item in items),
    "exists": lambda items, test: any(test(item) for item in items),
    "filter": lambda items, test: [item for item in items if test(item)],
    "map": lambda items, make: [make(item) for item in items],
}


def evaluate(expression: str, **variables: Any) -> Any:
    """The value of an expression."""
    return compiled(expression)({"jsonpatch": None, "Object": None, **variables})


@lru_cache(maxsize=1024)
def compiled(expression: str) -> Eval:
    """What computes the expression. SyntaxError where it cannot be read."""
    parser = _Parser(expression)
    value = parser.expression()
    if parser.token:
        raise SyntaxError(f"unexpected {parser.token!r} in {expression}")
    return value


def constant_type(expression: str) -> str:
    """The type of an expression without variables, in the words of CEL; empty where it has some."""
    try:
        value = compiled(expression)({"jsonpatch": None, "Object": None})
    except (KeyError, TypeError, AttributeError, IndexError, ValueError):
        return ""
    names = {bool: "bool", int: "int", str: "string", dict: "map", list: "list"}
    return names.get(type(value), "")


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
        """The next token, which stays; empty at the end."""
        return self._tokens[0] if self._tokens else ""

    def take(self, expected: str = "") -> str:
        """The next token, taken off; SyntaxError at the end, or where another one is expected."""
        if not self._tokens or (expected and self._tokens[0] != expected):
            raise SyntaxError(f"{expected or 'more'} is missing before {' '.join(self._tokens[:5])!r}")
        return self._tokens.pop(0)

    def skips(self, token: str) -> bool:
        """Whether the next token is that one, which is then taken off."""
        if self.token == token:
            self._tokens.pop(0)
            return True
        return False

    def expression(self) -> Eval:
        """A whole expression; the conditional operator binds least."""
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
        while self.token in {"+", "-"}:
            sign = operator.add if self.take() == "+" else operator.sub
            left = _applied(sign, left, self._unary())
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
            if not name.isidentifier():
                raise SyntaxError(f"mismatched input '{name}'")
            if self.skips("{"):
                value = self._pairs(self.take)
            else:
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
        arguments = self._until(")")
        if name == "size" and not arguments:
            return lambda env: len(target(env))
        if name not in _METHODS or len(arguments) != 1:
            raise SyntaxError(f"undeclared reference to '{name}'")
        return _applied(_METHODS[name], target, arguments[0])

    def _primary(self) -> Eval:
        word = self.take()
        if word == "(":
            inner = self.expression()
            self.take(")")
            return inner
        if word == "[":
            items = self._until("]")
            return lambda env: [item(env) for item in items]
        if word == "{":
            return self._pairs(lambda: json.loads(self.take()))
        if word[0] == "'":
            word = json.dumps(word[1:-1].replace("\\'", "'"))
        if word[0] == '"' or word.isdigit() or word in {"true", "false", "null"}:
            constant = json.loads(word)
            return lambda _env: constant
        return self._named(word)

    def _named(self, name: str) -> Eval:
        if self.skips("{"):
            return self._pairs(self.take)
        if not self.skips("("):
            return lambda env: env[name]
        arguments = self._until(")")
        if len(arguments) != 1 or (name != "has" and name not in _FUNCTIONS):
            raise SyntaxError(f"undeclared reference to '{name}'")
        argument = arguments[0]
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
