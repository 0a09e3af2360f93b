"""Files in, a Fleet or every problem out."""

from itertools import count

import pytest

from model.fleet import Fleet
from model.loader import Code, InvalidFleet, LoaderLimits, inspect, load
from model.loader.reading import is_fleet_file
from tests.model.loader.writing import declare
from tests.support.calls import each_call

POOL = declare("NodePool", "h100", "{instanceTypes: [p5.48xlarge], placement: {topology: hosts}}")
TOPOLOGY = declare("Topology", "hosts", "{levels: [kubernetes.io/hostname]}")


def test_a_fleet_by_name() -> None:
    fleet = load({"b.yaml": POOL.encode(), "deep/down/a.yml": TOPOLOGY.encode()})
    assert list(fleet.node_pools) == ["h100"]
    assert list(fleet.topologies) == ["hosts"]
    assert fleet.policy.name == "default"
    assert fleet.policy.spec.guard_rails.max_percent_removed == 30


def test_a_pool_implies_a_flavor() -> None:
    implied = load({"a.yaml": f"{POOL}---\n{TOPOLOGY}".encode()}).flavors["h100"]
    assert (implied.spec.node_pools, implied.spec.topology, implied.spec.tolerations) == (("h100",), "hosts", ())


def test_a_declared_flavor_replaces_the_implied_one() -> None:
    flavor = declare("Flavor", "h100", "{nodePools: [h100], tolerations: [{operator: Exists}]}")
    fleet = load({"a.yaml": f"{POOL}---\n{TOPOLOGY}---\n{flavor}".encode()})
    assert len(fleet.flavors["h100"].spec.tolerations) == 1


def test_nothing_is_an_empty_fleet() -> None:
    assert load({}) == Fleet()
    assert (
        load({"README.md": b"# hi", ".github/workflows/ci.yaml": b"on: push", "empty.yaml": b"\n# nothing\n"})
        == Fleet()
    )


@pytest.mark.parametrize(
    ("path", "read"),
    [
        ("a.yaml", True),
        ("a/b.yml", True),
        ("a/b.yaml.md", False),
        ("README.md", False),
        (".github/workflows/x.yaml", False),
        ("a/.hidden/x.yaml", False),
        (".fleet.yaml", False),
        ("a.b/c.yaml", True),
    ],
)
def test_which_files_are_read(path: str, read: bool) -> None:
    assert is_fleet_file(path) is read


def test_all_problems_of_all_files_at_once_by_place() -> None:
    files = {
        "z.yaml": declare("Queue", "q", "{team: nobody, flavors: [x]}").encode(),
        "a.yaml": declare("NodePool", "p", "{replicas: x, wait: 1}").encode(),
        "m.yaml": b"a: [",
        "k.yaml": b"\xff",
    }
    with pytest.raises(InvalidFleet) as raised:
        load(files)
    found = raised.value.problems
    assert [(problem.file, problem.code) for problem in found] == [
        ("a.yaml", Code.INVALID_VALUE),
        ("a.yaml", Code.UNKNOWN_KEY),
        ("k.yaml", Code.ENCODING),
        ("m.yaml", Code.YAML_SYNTAX),
    ]
    assert str(raised.value).splitlines()[0].startswith("a.yaml:4:18: spec.replicas: must be a whole number")


def test_order_of_files_does_not_matter() -> None:
    files = {"a.yaml": POOL.encode(), "b.yaml": POOL.encode(), "c.yaml": TOPOLOGY.encode()}
    turned = dict(reversed(files.items()))
    assert inspect(files) == inspect(turned)
    assert load({"a.yaml": POOL.encode(), "c.yaml": TOPOLOGY.encode()}) == load(
        {"c.yaml": TOPOLOGY.encode(), "a.yaml": POOL.encode()}
    )


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (LoaderLimits(file_bytes=100), "at most 100 are read"),
        (LoaderLimits(total_bytes=100), "the fleet has more than 100 bytes"),
        (LoaderLimits(documents=1), "more than 1 documents"),
        (LoaderLimits(total_values=10), "more than 10 values, aliases expanded"),
        (LoaderLimits(values=5), "more than 5 values"),
        (LoaderLimits(depth=1), "deeper than 1 levels"),
    ],
)
def test_limits(limits: LoaderLimits, message: str) -> None:
    found = inspect({"a.yaml": f"{POOL}---\n{TOPOLOGY}".encode()}, limits)
    assert found.fleet is None
    assert found.problems[0].code is Code.TOO_LARGE
    assert message in found.problems[0].message


def test_a_flood_of_problems_is_cut() -> None:
    many = "---\n".join(declare("Team", f"t{number}", "{parent: x}") for number in range(1500))
    assert len(inspect({"a.yaml": many.encode()}).problems) == 1000


def hostile(kind: str) -> dict[str, bytes]:
    """Small repositories that would cost a careless reader minutes."""
    anchors = "a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
    chain = (declare("Team", f"t{n}", f"{{parent: t{n + 1}}}") for n in range(5000))
    dangling = (declare("Queue", f"queue-{n}", f"{{team: team-{n}, flavors: [x]}}") for n in range(5000))
    texts = {
        "aliases": "---\n".join([anchors + "d: [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n"] * 3000),
        "namespaces": declare("Team", "t", "{namespaces: [" + "a," * 90_000 + "]}"),
        "numbers": declare("NodePool", "p", "{instanceTypes: [" + "1," * 90_000 + "]}"),
        "chain": "---\n".join(chain),
        "dangling": "---\n".join(dangling),
    }
    return {"a.yaml": texts[kind].encode()}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["aliases", "namespaces", "numbers", "chain", "dangling"])
def test_hostile_repositories_are_cheap(kind: str) -> None:
    files, calls = hostile(kind), count()
    with each_call(lambda _frame, _event: next(calls) and None):
        loaded = inspect(files)
    assert next(calls) < 25 * len(files["a.yaml"])
    assert loaded.fleet is None
    assert len(loaded.problems) <= 1000


def test_warnings_do_not_stop_a_fleet() -> None:
    text = declare("MigLayout", "m", "{models: {h100-80gb: [{profiles: {1g.10gb: 7}}]}}")
    loaded = inspect({"a.yaml": text.encode()})
    assert loaded.fleet is not None
    assert [problem.severity for problem in loaded.problems] == ["warning"]
