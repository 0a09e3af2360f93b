"""CEL over devices, as DeviceClasses and claims select them, by cel-python.

`device.driver`, `device.attributes['domain'].name` and `device.capacity['domain'].name`, with versions and quantities
as values of their own types. Source: `staging/src/k8s.io/dynamic-resource-allocation/cel/compile.go`. Of its extensions
`cel.bind` and optional fields (`.?`) are not understood, and refused when they are written.
"""

import importlib
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from model.plain_text import bracket_depth
from model.quantity import InvalidQuantity, parse_quantity
from providers.sim.store.objects import Obj

EXPRESSION_BYTES: Final = 10 * 1024
_STEPS_MOST: Final = 20_000
_NESTED_MOST: Final = 40
_SEMVER: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?"
)
_UNKNOWN: Final = re.compile(r"\bcel\s*\.\s*bind\b|\.\?|\[\?|\boptional\s*\.")


class InvalidDeviceSelector(ValueError):
    """The text is no expression over a device; the message is one line."""


class SelectorFails(RuntimeError):
    """The expression cannot be evaluated for a device, as where it has no such attribute."""


class SemanticVersion:
    """A version (semver.org) as a value of CEL."""

    def __init__(self, text: str) -> None:
        found = _SEMVER.fullmatch(text)
        if found is None:
            raise ValueError(f"No Major.Minor.Patch elements found in {text!r}")
        self.numbers = tuple(int(found[n]) for n in (1, 2, 3))
        parts = found[4].split(".") if found[4] else None
        # A release goes after all its candidates; of these numbers go before words.
        self.order = (self.numbers, parts is None, [(not p.isdecimal(), p.zfill(20)) for p in parts or ()])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SemanticVersion) and self.order == other.order

    def __hash__(self) -> int:
        return hash((self.numbers, self.order[1]))


class QuantityValue:
    """A quantity as a value of CEL."""

    def __init__(self, text: str | float) -> None:
        try:
            self.order = parse_quantity(text)
        except InvalidQuantity as error:
            raise ValueError(f"{text!r} is no quantity") from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QuantityValue) and self.order == other.order

    def __hash__(self) -> int:
        return hash(self.order)


def _compared(a: Any, b: Any) -> int:
    if type(a) is not type(b):
        raise TypeError("no such overload")
    return int(a.order > b.order) - int(a.order < b.order)


def _whole(value: QuantityValue) -> int:
    if value.order.denominator != 1:
        raise ValueError("cannot convert value to integer")
    return value.order.numerator


def _sum(a: QuantityValue, b: Any, sign: int) -> QuantityValue:
    more = b.order if isinstance(b, QuantityValue) else Fraction(int(b))
    found = QuantityValue(0)
    found.order = a.order + sign * more
    return found


KUBERNETES_VALUES: Final[Mapping[str, Callable[..., Any]]] = {
    "compareTo": _compared,
    "isGreaterThan": lambda a, b: _compared(a, b) > 0,
    "isLessThan": lambda a, b: _compared(a, b) < 0,
    "sign": lambda a: int(a.order > 0) - int(a.order < 0),
    "isInteger": lambda a: a.order.denominator == 1,
    "asInteger": _whole,
    "asApproximateFloat": lambda a: float(a.order),
    "add": lambda a, b: _sum(a, b, 1),
    "sub": lambda a, b: _sum(a, b, -1),
    "major": lambda a: a.numbers[0],
    "minor": lambda a: a.numbers[1],
    "patch": lambda a: a.numbers[2],
    "semver": lambda text: SemanticVersion(str(text)),
    "isSemver": lambda text: _SEMVER.fullmatch(str(text)) is not None,
    "quantity": lambda text: QuantityValue(str(text)),
    "isQuantity": lambda text: _is_quantity(str(text)),
    "lowerAscii": lambda text: str(text).lower(),
    "upperAscii": lambda text: str(text).upper(),
}
"""Functions of Kubernetes' own libraries, and of CEL's strings, in plain values."""


def _is_quantity(text: str) -> bool:
    try:
        QuantityValue(text)
    except ValueError:
        return False
    return True


class DeviceExpression:
    """One expression over `device`, compiled."""

    def __init__(self, text: str) -> None:
        """Errors: InvalidDeviceSelector."""
        if bracket_depth(text) > _NESTED_MOST:
            raise InvalidDeviceSelector(f"more than {_NESTED_MOST} parentheses in one another")
        if found := _UNKNOWN.search(text):
            raise InvalidDeviceSelector(f"{found.group()!r} is not supported here")
        celpy, parser = importlib.import_module("celpy"), importlib.import_module("celpy.celparser")
        environment = celpy.Environment(runner_class=celpy.InterpretedRunner)
        try:
            self._ast = environment.compile(text)
        except parser.CELParseError as error:
            raise InvalidDeviceSelector(" ".join(str(error).split())) from error
        functions = {name: _in_cel(function) for name, function in KUBERNETES_VALUES.items()}
        self._program = environment.program(self._ast, functions=functions)
        try:
            self.matches("", {})
        except SelectorFails as error:
            if str(error).startswith("undeclared reference"):
                raise InvalidDeviceSelector(str(error)) from error

    def matches(self, driver: str, device: Obj) -> bool:
        """Whether a device of a slice is selected. Errors: SelectorFails."""
        evaluation = importlib.import_module("celpy.evaluation")
        given = {"device": device_value(driver, device)}
        try:
            found = _evaluator()(self._ast, self._program.new_activation(), [_STEPS_MOST]).evaluate(given)
        except evaluation.CELEvalError as error:
            raise SelectorFails(_said(error)) from error
        except (RecursionError, TimeoutError) as error:
            raise SelectorFails(f"actual cost limit exceeded: {error}") from error
        if not isinstance(found, importlib.import_module("celpy.celtypes").BoolType):
            kind = type(found).__name__.removesuffix("Type").lower()
            raise SelectorFails(f"expected a boolean value, got {kind}")
        return bool(found)


def _said(error: Exception) -> str:
    """The words of the Go library for what it would say, too."""
    text = str(error.args[0]).partition(" (in activation")[0] if error.args else "it cannot be evaluated"
    missing = re.match(r"no such (?:member in mapping|key): '?([^']*)'?", text)
    return f"no such key: {missing[1]}" if missing else text


@lru_cache(maxsize=1024)
def device_expression(text: str) -> DeviceExpression:
    """The compiled expression. Errors: InvalidDeviceSelector."""
    return DeviceExpression(text)


def _in_cel(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*arguments: Any) -> Any:
        evaluation = importlib.import_module("celpy.evaluation")
        try:
            return _value(function(*arguments))
        except (TypeError, ValueError, AttributeError) as error:
            return evaluation.CELEvalError(str(error), type(error), error.args)

    return called


def _value(plain: Any) -> Any:
    types = importlib.import_module("celpy.celtypes")
    if isinstance(plain, bool):
        return types.BoolType(plain)
    for kind, made in ((int, types.IntType), (float, types.DoubleType), (str, types.StringType)):
        if isinstance(plain, kind):
            return made(plain)
    return plain


def device_value(driver: str, device: Obj) -> Any:
    """The variable `device`: an attribute without a domain has the driver's; an unknown domain has no attributes."""
    types = importlib.import_module("celpy.celtypes")
    attributes = {name: _attribute(held) for name, held in (device.get("attributes") or {}).items()}
    capacity = {name: QuantityValue(held["value"]) for name, held in (device.get("capacity") or {}).items()}
    return types.MapType(
        {
            types.StringType("driver"): types.StringType(driver),
            types.StringType("attributes"): _by_domain(driver, attributes),
            types.StringType("capacity"): _by_domain(driver, capacity),
            types.StringType("allowMultipleAllocations"): types.BoolType(bool(device.get("allowMultipleAllocations"))),
        }
    )


def _attribute(held: Obj) -> Any:
    if "version" in held:
        return SemanticVersion(held["version"])
    return _value(next(iter(held.values())))


def _by_domain(driver: str, values: Mapping[str, Any]) -> Any:
    types = importlib.import_module("celpy.celtypes")
    found: Any = _domains()()
    for name, value in sorted(values.items()):
        domain, _, short = name.rpartition("/")
        below = dict.setdefault(found, types.StringType(domain or driver), types.MapType())
        below[types.StringType(short)] = value
    return found


@lru_cache(maxsize=1)
def _domains() -> Any:
    types = importlib.import_module("celpy.celtypes")

    class Domains(types.MapType):  # type: ignore[misc, name-defined]
        """Domain -> name -> value; a domain that a device has nothing of is empty, not an error."""

        def __missing__(self, _key: Any) -> Any:
            return types.MapType()

        def __getitem__(self, key: Any) -> Any:
            return dict.get(self, key) if key in self.keys() else types.MapType()

    return Domains


@lru_cache(maxsize=1)
def _evaluator() -> Any:
    evaluation = importlib.import_module("celpy.evaluation")

    class Counted(evaluation.Evaluator):  # type: ignore[misc, name-defined]
        """Counts its steps, and those of the expressions within macros."""

        def __init__(self, ast: Any, activation: Any, steps: list[int]) -> None:
            super().__init__(ast, activation)
            self._steps = steps

        def sub_evaluator(self, ast: Any) -> Any:
            return Counted(ast, self.activation, self._steps)

        def visit_children(self, tree: Any) -> Any:
            self._steps[0] -= 1
            if self._steps[0] < 0:
                raise TimeoutError("it takes too many steps")
            return super().visit_children(tree)

    return Counted
