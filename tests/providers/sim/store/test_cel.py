"""CEL as Kubernetes evaluates it: expressions and their values, and what is refused when it is written."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.sim.store.cel import CelExpression, compiled, constant_type
from providers.sim.store.celgrammar import InvalidCel
from providers.sim.store.celvalues import CelBudget, CelError, CelType, as_json, same

NAMES = frozenset({"self", "oldSelf", "object", "request", "variables"})
KNOWN: dict[str, Any] = {
    "self": {"a": 1, "b": {"c": [1, 2, 3]}, "x-y": 4, "namespace": "n", "none": None, "half": 0.5},
    "oldSelf": {"a": 1},
    "object": {"metadata": {"labels": {"app": "x"}}, "spec": {}},
}


def value(text: str) -> Any:
    return CelExpression(text, NAMES, messages=True).value(KNOWN)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # numbers: 64 bits, no arithmetic of different types, but comparisons
        ("1-1", 0),
        ("1 - -1", 2),
        ("-9223372036854775808", -(2**63)),
        ("0x1F + 1", 32),
        ("7 / 2 * 2 + 7 % 4", 9),
        ("-7 / 2", -3),
        ("1.5 + 2.25", 3.75),
        ("1 < 1.5 && self.half < 1", True),
        ("1 == 1.0 && 2 in [1.0, 2.0]", True),
        ("3u + 2u == 5u", True),
        ("true == 1", False),
        ("self.none == null", True),
        # fields: `has` looks at the last one
        ("has(self.q)", False),
        ("has(self.b.c) && has(self.none)", True),
        ("self.a == oldSelf.a", True),
        ("self.x__dash__y + self.a", 5),
        ("self.__namespace__", "n"),
        ('object.metadata.labels["app"]', "x"),
        # one side of && and || may decide, whatever is wrong with the other
        ("self.q == 1 || true", True),
        ("true || self.q == 1", True),
        ("self.q == 1 && false", False),
        ("self.a == 1 ? 'y' : self.q", "y"),
        # optionals
        ('self.?q.?z.orValue("d")', "d"),
        ("self.b.?c[?1].orValue(0)", 2),
        ("self.b.c[?7].hasValue() || optional.of(1).value() == 2", False),
        ("optional.none().or(self.?a).value()", 1),
        # macros
        ("self.b.c.map(x, x > 1, x * 2)", [4, 6]),
        ("self.b.c.filter(x, x != 2)", [1, 3]),
        ("self.b.c.exists(x, x.y == 2 || x == 3)", True),
        ("self.b.c.all(x, x % 2 == 1)", False),
        ("self.b.c.exists_one(x, x > 2)", True),
        ('self.b.exists(key, key == "c")', True),
        ("self.b.c.all(x, [x].exists(y, y == x))", True),
        ("[[1, 2], [3]].map(x, x.map(y, y + size(x)))", [[3, 4], [4]]),
        # texts, lists, sets, regular expressions
        ('"a,b,c".split(",", 2)', ["a", "b,c"]),
        ('["a", "b"].join("-") + "HELLO".substring(1, 3).lowerAscii()', "a-bel"),
        ('"abcb".indexOf("b") + "abcb".lastIndexOf("b") + [5, 6].indexOf(6)', 5),
        ('" x ".trim().replace("x", "yy").charAt(1)', "y"),
        ('"k8s-12".matches("^[a-z0-9]+-[0-9]+$") && "a1b22".findAll("[0-9]+") == ["1", "22"]', True),
        ('"a".startsWith("a") && "ab".endsWith("b") && "abc".contains("b")', True),
        ("[3, 1, 2].max() + [3, 1, 2].min() + [3, 1].sum() + size(self.b)", 9),
        ("[1, 2].isSorted() && sets.contains([1, 2], [2]) && !sets.intersects([1], [2])", True),
        # conversions and types
        ('string(1.5) + string(true) + string(2) + string(b"x")', "1.5true2x"),
        ('int("12") + int(1.9)', 13),
        ("type(self.a) == int && type('x') == string && type(null) == null_type", True),
        ("dyn(self.a)", 1),
        # Kubernetes' own
        ('quantity("1Gi").isGreaterThan(quantity("1Mi"))', True),
        ('semver("1.2.3").isLessThan(semver("1.10.0")) && !isSemver("x")', True),
        ('jsonpatch.escapeKey("muster.dev/a~b")', "muster.dev~1a~0b"),
        ('timestamp("2026-01-01T00:00:00Z") < timestamp("2026-01-02T00:00:00Z")', True),
        ('timestamp("2026-03-04T05:06:07Z").getFullYear() + timestamp("2026-03-04T05:06:07Z").getHours()', 2031),
        ('duration("1h") + duration("5s") > duration("60m")', True),
        # conversions and arithmetic as in Go: 64 bits, no underscores or spaces, IEEE doubles
        ("int('+5') + int(1.9) + int(-1.9)", 5),
        ("-9223372036854775808 + 9223372036854775807", -1),
        ("uint('18446744073709551615') > 1u && uint(3.7) == 3u", True),
        ("0.0 / 0.0 == 0.0 / 0.0 || 0.0 / 0.0 < 1.0 || 0.0 / 0.0 > 1.0", False),
        ("[0.0 / 0.0].all(x, x != x)", True),
        ("1.0 / 0.0 == double('inf') && -1.0 / 0.0 == double('-Infinity')", True),
        ("string(double('NaN')) + string(1.0 / 0.0) + string(-1.0 / 0.0)", "NaN+Inf-Inf"),
        ("string(1.0) + ',' + string(1e6) + ',' + string(123456.5) + ',' + string(0.00001)", "1,1e+06,123456.5,1e-05"),
        ("string(-0.0) + string(1.5e300)", "-01.5e+300"),
        ("-7 / 2 + -7 % 4", -6),
        ("size('漢a') + size(b'漢') + '漢ab'.indexOf('b')", 7),
        ("'漢ab'.substring(1, 2) + '漢ab'.charAt(0)", "a漢"),
        ("string(duration('90.5s') - duration('1s')) + string(timestamp(0))", "89.5s1970-01-01T00:00:00Z"),
        ("type(duration('2s') - duration('1s')) == type(duration('1s'))", True),
        ("timestamp('2026-01-01T00:00:01Z') - timestamp('2026-01-01T00:00:00Z') == duration('1s')", True),
        ("int(timestamp('1970-01-01T00:01:00Z'))", 60),
        # keys of maps: true is not 1, numbers of all types are the same
        ("true in {1: 2} || 1 in {true: 2} || {1: 2} == {true: 2}", False),
        ("{true: 'a', 1: 'b'}[true] + {true: 'a', 1: 'b'}[1] + {1: 'c'}[1.0] + {1: 'd'}[1u]", "abcd"),
        ("{true: 1}.exists(k, k) && {false: 1}.all(k, !k)", True),
        ("{false: 1}[?false].hasValue() && !{0: 1}[?false].hasValue()", True),
        ("[5, 6][1u] + [5, 6][0.0]", 11),
        ("sets.contains([1, 2.0], [2, 1u]) && !sets.contains([1], [true]) && !sets.equivalent([1, 2], [1])", True),
        ("sets.equivalent([[1], {'a': 1}], [{'a': 1.0}, [1.0]]) && sets.intersects([1, 2], [2, 3])", True),
        ("[duration('1s'), duration('2s')].sum() == duration('3s') && [1.5, 2.0].sum() == 3.5", True),
        # literals and messages
        (r'"a\"b\n" + r"\d" + ' + "'c'", 'a"b\n\\dc'),
        ('{"a": 1, "b": [2]}.b[0]', 2),
        ('JSONPatch{op: "add", path: "/a", value: {"b": 1}}', {"op": "add", "path": "/a", "value": {"b": 1}}),
        ("Object{spec: Object.spec{suspend: true}}", {"spec": {"suspend": True}}),
    ],
)
def test_values(text: str, expected: Any) -> None:
    found = value(text)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("self.q", "no such key: q"),
        ('object.metadata.labels["absent"]', "no such key: absent"),
        ("has(self.q.z)", "no such key: q"),
        ("self.b.c[7]", "index out of bounds: 7"),
        ("9223372036854775807 + 1", "integer overflow"),
        ("-9223372036854775808 / -1", "integer overflow"),
        ("-9223372036854775808 % -1", "integer overflow"),
        ("--9223372036854775808", "integer overflow"),
        ("[9223372036854775807, 1].sum()", "integer overflow"),
        ("18446744073709551615u + 1u", "unsigned integer overflow"),
        ("1u - 2u", "unsigned integer overflow"),
        ("uint(-1)", "unsigned integer overflow"),
        ("1 - 2u", "no such overload"),
        ("int(1e20)", "integer overflow"),
        ("int(-9223372036854775808.0)", "integer overflow"),
        ("int(0.0 / 0.0)", "integer overflow"),
        ("int(9223372036854775808u)", "integer overflow"),
        ("int('9223372036854775808')", "integer overflow"),
        ("int('1_000')", "invalid literal"),
        ("int(' 1')", "invalid literal"),
        ("int('١')", "invalid literal"),
        ("uint('+1')", "invalid literal"),
        ("double('1_0')", "invalid literal"),
        ("double(' 1')", "invalid literal"),
        ("double('1e400')", "out of range"),
        ("duration('9223372036s') + duration('1s')", "overflow"),
        ("5.0 % 2.0", "no such overload"),
        ("1 % 0", "modulus by zero"),
        ("{1: 'a'}[true]", "no such key"),
        ("{1: 1, 1u: 2}", "repeated key"),
        ("{'a': 1, 'a': 2}", "repeated key"),
        ("{1.5: 1}", "unsupported key type"),
        ("[5][0.5]", "no such overload"),
        ("1 / 0", "division by zero"),
        ("1.5 + 2", "no such overload"),
        ("1 + 'x'", "no such overload"),
        ("'a' < 1", "no such overload"),
        ("!self.a", "no such overload"),
        ("self.a.startsWith('x')", "no such overload"),
        ("self.a.b", "no such overload"),
        ("self.q == 1 || self.a == 2", "no such key: q"),
        ("self.b.c.all(x, x.y == 1)", "no such overload"),
        ("self.a ? 1 : 2", "no such overload"),
        ("int('x')", "invalid literal"),
        ("optional.none().value()", "dereference"),
        ("quantity('x')", "is no quantity"),
        ("'x'.matches('(')", "error parsing regexp"),
        ("[1, 2, 3].map(a, " * 4 + "1" + ")" * 4 + f" == [] || {' || '.join(['self.q'] * 3)}", "no such key: q"),
    ],
)
def test_what_has_no_value(text: str, words: str) -> None:
    with pytest.raises(CelError, match=words):
        value(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("object.(", "1:8: Syntax error"),
        ("", "Syntax error"),
        ("self.a ==", "Syntax error"),
        ("9223372036854775808", "invalid literal"),
        ("1 - 9223372036854775808", "invalid literal"),
        ("18446744073709551616u", "invalid literal"),
        ("1e400", "invalid literal"),
        ("foo(1)", r"1:1: undeclared reference to 'foo'"),
        ("self.foo(1)", "undeclared reference to 'foo'"),
        ("params.x", "'params' is not supported here"),
        ("authorizer.group('').check('x').allowed()", "'authorizer' is not supported here"),
        ("cel.bind(x, 1, x)", "'cel' is not supported here"),
        ("url('https://a')", "'url' is not supported here"),
        ("'%s'.format([1])", "'format' is not supported here"),
        ("self.b.all(k, v, v == 1)", "'all'|undeclared reference to 'all'"),
        ("request.userInfo.username", "'request.userInfo' is not supported here"),
        ("request.nope", "'request.nope' is an undefined field"),
        ("has(self)", r"invalid argument to has\(\) macro"),
        ("[1].map(x.y, 1)", "must be a simple name"),
        ("[1].map(x, x) == x", "undeclared reference to 'x'"),
        ("Other{a: 1}", "undeclared reference to 'Other'"),
        (".self", "leading dot"),
        ("(" * 41 + "1" + ")" * 41, "brackets in one another"),
        ("'" + "x" * 10_240 + "'", "longer than"),
    ],
)
def test_what_is_not_known_is_refused_when_it_is_written(text: str, words: str) -> None:
    with pytest.raises(InvalidCel, match=words):
        CelExpression(text, NAMES, messages=True)


DEEP = {
    "not": "!" * 101 + "true",
    "negative": "-" * 101 + "self.a",
    "dot": "self" + ".a" * 101,
    "index": "self" + "[0]" * 101,
    "call": "'x'" + ".trim()" * 101,
    "sum": "+".join(["1"] * 102),
    "product": "*".join(["1"] * 102),
    "choice": "true ? 1 : " * 101 + "1",
}


@pytest.mark.parametrize("times", [1, 15])
@pytest.mark.parametrize("deep", DEEP.values(), ids=DEEP)
def test_what_is_too_deep_is_refused_when_it_is_written(deep: str, times: int) -> None:
    sign = max(("!", "-", ".a", "[0]", ".trim()", "+1", "*1", "true ? 1 : "), key=deep.count)
    with pytest.raises(InvalidCel, match="expression recursion limit exceeded: 100"):
        CelExpression(deep.replace(sign * 50, sign * 50 * times, 1), NAMES)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("!" * 99 + "true", False),
        ("+".join(["1"] * 100), 100),
        (" || ".join(["self.a == 2"] * 500), False),
        (" && ".join(["self.a == 1"] * 500) + " || self.q == 1", True),
        ("true ? 1 : " * 99 + "2", 1),
        ("[1].map(a, " * 39 + "-" * 50 + "1" + ")" * 39 + " == []", False),
    ],
)
def test_what_is_just_not_too_deep_has_its_value_far_down_the_stack(text: str, expected: Any) -> None:
    """A chain of `||` or `&&` is one operation, however long."""

    def asked(further: int) -> Any:
        return asked(further - 1) if further else value(text)

    assert asked(300) == expected


def test_loops_take_so_many_steps_at_most() -> None:
    wide = "[" + ", ".join(map(str, range(200))) + "]"
    nested = f"{wide}.all(a, {wide}.all(b, {wide}.all(c, true)))"
    with pytest.raises(CelError, match="cost limit"):
        value(nested)


LONG = "'" + "x" * 1000 + "'"
MANY = "[" + ", ".join(map(str, range(400))) + "]"
GROWN = "'a'" + ".replace('a', 'aaaaaaaaaaaaaaaaaaaa')" * 9


@pytest.mark.parametrize(
    "text",
    [
        GROWN,
        f"({GROWN}).size() > 0 || true",
        f"[1].exists(x, ({GROWN}) == '') || true",
        f"{MANY}.map(x, {LONG}).join({LONG} + {LONG}).size() > 0",
        f"sets.equivalent({MANY} + {MANY}, {MANY} + {MANY})",
        f"{MANY}.all(x, {MANY}.all(y, x in [y, x]))",
        f"{MANY}.all(x, {MANY}.size() == 400)",
        f"{MANY}.all(x, {' || '.join(['x < 0'] * 400)} || true)",
        f"{MANY}.map(x, {MANY})",
        f"{MANY}.all(x, {LONG}.matches('(x+x+)+y') || true)",
    ],
)
def test_what_costs_too_much_ends_and_nothing_makes_up_for_it(text: str) -> None:
    """Not even a side of `||` that is true."""
    with pytest.raises(CelError, match=r"^operation cancelled: actual cost limit exceeded$"):
        value(text)


def test_a_value_that_holds_itself_many_times_is_no_value() -> None:
    """It is small in memory and would be large as JSON."""
    held: Any = "x"
    for _ in range(40):
        held = CelExpression("[self, self]", NAMES).value({"self": held}) if _ < 10 else [held, held]
    for text in ("self", "self == oldSelf", "[self].indexOf(self)", "sets.contains(self, self)"):
        with pytest.raises(CelError, match="cost limit"):
            CelExpression(text, NAMES).value({"self": held, "oldSelf": [held]})
    assert CelExpression("size(self) + size(self[0])", NAMES).value({"self": held}) == 4


def test_expressions_may_share_what_they_may_cost() -> None:
    shared = CelBudget(180)
    wide = CelExpression("[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(x, x > 0)", NAMES)
    for _ in range(4):
        wide.value({"": shared})
    with pytest.raises(CelError, match="cost limit"):
        wide.value({"": shared})
    assert shared.left == 0


def test_values_are_written_into_objects_as_json() -> None:
    text = (
        "{'t': timestamp('2026-01-01T00:00:00Z'), 'd': duration('90s'), 'b': b'x', 'u': 3u, 'm': {true: 1, 2: [null]}}"
    )
    expected = {"t": "2026-01-01T00:00:00Z", "d": "90s", "b": "eA==", "u": 3, "m": {"true": 1, "2": [None]}}
    assert as_json(value(text)) == expected
    for odd in ("optional.of(1)", "int", "0.0 / 0.0", "[1.0 / 0.0]", "quantity('1')"):
        with pytest.raises(CelError):
            as_json(value(odd))


def test_messages_are_made_by_mutations_alone() -> None:
    with pytest.raises(InvalidCel, match=r"undeclared reference to 'Object\.spec'"):
        compiled("Object.spec{a: 1}", NAMES)


@pytest.mark.parametrize(
    ("text", "kind"),
    [("1 + 1", "int"), ("'x'", "string"), ("[1]", "list"), ("1.5", "double"), ("self.a", ""), ("1/0", "")],
)
def test_types_of_constants(text: str, kind: str) -> None:
    assert constant_type(compiled(text, NAMES)) == kind


def test_a_type_is_no_text() -> None:
    assert value("int") == CelType("int")
    assert value("type(1) == 'int'") is False


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=2), below, max_size=3),
    max_leaves=8,
)


@given(_JSON, _JSON)
def test_equality_is_that_of_json(left: Any, right: Any) -> None:
    import json

    assert same(left, right) is (json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True))
    assert CelExpression("self == object", NAMES).value({"self": left, "object": right}) is same(left, right)
