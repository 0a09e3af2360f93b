"""The shape of the house: names, circles, sizes, and what becomes of an exception that is caught whole."""

import ast
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

import pytest

from tests.support.reachability import PACKAGES, ROOT, modules, tree_of

# -- names ------------------------------------------------------------------------------------------------------------

FOREIGN: frozenset[str] = frozenset()
"""Wire structs that bear the name a foreign API gives them, and so may meet."""
_CLASS = re.compile(r"\s*class (?P<name>\w+)(?::|\()")


def test_a_class_name_is_unique_in_the_repository() -> None:
    """Of two that meet, the one that means something more special gets the longer name."""
    places = defaultdict(list)
    for folder in (*PACKAGES, "bench", "tests", "tools"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
                if found := _CLASS.match(line):
                    places[found["name"]].append(f"{path.relative_to(ROOT)}:{number}")
    assert {name: where for name, where in places.items() if len(where) > 1 and name not in FOREIGN} == {}


# -- circles ----------------------------------------------------------------------------------------------------------


def imported(module: str) -> frozenset[str]:
    """The modules that `module` names in its imports, in functions and behind TYPE_CHECKING as well."""
    named: set[str] = set()
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom) and node.module:
            whole = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            named |= {name if name in modules() else node.module for name in whole.values()}
        elif isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
    return frozenset(named & modules().keys() - {module})


def circles(graph: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """Sets of nodes that all reach each other, of two or more (Kosaraju: by order of finishing, then backwards)."""
    finished: list[str] = []
    _visit(graph, sorted(graph), finished)
    backwards: dict[str, frozenset[str]] = defaultdict(frozenset)
    for node, targets in graph.items():
        for target in targets:
            backwards[target] |= {node}
    seen: set[str] = set()
    found = []
    for root in reversed(finished):
        if root not in seen:
            component: list[str] = []
            _visit(backwards, [root], component, seen)
            found.append(sorted(component))
    return sorted(component for component in found if len(component) > 1)


def _visit(
    graph: Mapping[str, frozenset[str]], roots: Sequence[str], finished: list[str], seen: set[str] | None = None
) -> None:
    seen = set() if seen is None else seen
    for root in roots:
        waiting = [(root, False)]
        while waiting:
            node, done = waiting.pop()
            if done:
                finished.append(node)
            elif node not in seen:
                seen.add(node)
                waiting += [(node, True), *((target, False) for target in sorted(graph.get(node, ())))]


def test_circles_are_found() -> None:
    graph = {"a": "b", "b": "cd", "c": "a", "d": "e", "e": "", "f": "g", "g": "f"}
    assert circles({node: frozenset(targets) for node, targets in graph.items()}) == [["a", "b", "c"], ["f", "g"]]


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circles({module: imported(module) for module in modules()}) == []


# -- the size of things in fleet/ -------------------------------------------------------------------------------------

MOST_FILES = 290
MOST_LINES_OF_A_FILE = 450
MEDIAN_LINES_OF_A_FILE = range(110, 161)
MEDIAN_LINES_OF_A_FUNCTION = 9
TENTH_LONGEST_FUNCTION = 30
TENTH_MOST_COMPLEX_FUNCTION = 7
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def complexity(function: ast.AST) -> int:
    """McCabe's number, comprehensions and conditional expressions included."""
    branches = (ast.If, ast.For, ast.While, ast.ExceptHandler, ast.IfExp, ast.Assert, ast.comprehension, ast.match_case)
    inside = list(ast.walk(function))
    choices = sum(len(node.values) - 1 for node in inside if isinstance(node, ast.BoolOp))
    return 1 + sum(isinstance(node, branches) for node in inside) + choices


def p90(values: list[int]) -> int:
    return sorted(values)[int(len(values) * 0.9)]


def test_the_files_of_fleet_have_a_readable_size() -> None:
    lines = {path: path.read_text("utf-8").count("\n") for path in (ROOT / "fleet").rglob("*.py")}
    assert len(lines) <= MOST_FILES
    assert {path: count for path, count in lines.items() if count > MOST_LINES_OF_A_FILE} == {}
    assert int(statistics.median(lines.values())) in MEDIAN_LINES_OF_A_FILE


def test_the_functions_of_fleet_have_a_readable_size() -> None:
    trees = (tree_of(module) for module in modules() if module.startswith("fleet"))
    functions = [node for tree in trees for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)]
    lines = [node.end_lineno - node.lineno + 1 for node in functions if node.end_lineno]
    assert statistics.median(lines) <= MEDIAN_LINES_OF_A_FUNCTION
    assert p90(lines) <= TENTH_LONGEST_FUNCTION
    assert p90([complexity(node) for node in functions]) <= TENTH_MOST_COMPLEX_FUNCTION


# -- words of one cloud -----------------------------------------------------------------------------------------------

CLOUD_WORDS = frozenset({"ami", "eni", "ena", "efa", "ebs", "ec2", "aws", "nodeadm", "bottlerocket", "asg", "sqs"})
"""What only EC2 calls so: its adapter and the manifests that are made for it know these words."""
AT_HOME = ("model.kinds.aws", "model.upstream")
"""Where the manifests of EC2 are read."""
CLOUD_NAMES = {
    "fleet/nodeclaims/drift_facts.py": ({"AMIDrift"}, "a reason of Karpenter's that users and dashboards know"),
    "model/kinds/node_pool.py": ({"efa"}, "a field as manifests write it; in code it is `fabric`"),
    "model/kinds/node_template.py": ({"model.kinds.aws", "Ec2Machine"}, "where a cloud's fields join the template"),
    "model/labels.py": (
        {
            "aws.amazon.com/neuron",
            "aws.amazon.com/neuroncore",
            "aws.amazon.com/neurondevice",
            "instance-ebs-bandwidth",
            "karpenter.k8s.aws/",
            "karpenter.k8s.aws/ec2nodeclass",
            "topology.ebs.csi.aws.com/zone",
            "topology.k8s.aws/network-node-layer-1",
            "topology.k8s.aws/network-node-layer-2",
            "topology.k8s.aws/network-node-layer-3",
            "topology.k8s.aws/zone-id",
            "vpc.amazonaws.com/pod-eni",
            "vpc.amazonaws.com/efa",
        },
        "labels and resources as nodes carry them; in code they have neutral names",
    ),
    "model/loader/declarations.py": ({"EC2NodeClass"}, "a kind of Karpenter's, read as it is"),
    "model/loader/envelope.py": ({"karpenter.k8s.aws"}, "an API group of Karpenter's in a hint"),
    "model/loader/joining.py": ({"EC2NodeClass"}, "a kind of Karpenter's, read as it is"),
}
"""Where a name is EC2's for all that -> the names, and why."""
_WORD = re.compile(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*")
_LIKE_A_NAME = re.compile(r"[\w./:-]+")


def words_of(name: str) -> frozenset[str]:
    """The words of a name in snake_case, CamelCase or kebab-case, in lower case and without the s of a plural."""
    found = {word.lower() for word in _WORD.findall(name)}
    return frozenset(found | {word.removesuffix("s") for word in found})


def names_in(tree: ast.AST) -> Iterator[str]:
    """What code calls things: definitions, arguments, attributes, variables, imports, and texts that are one word."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _LIKE_A_NAME.fullmatch(node.value):
            yield node.value
        named = (getattr(node, field, None) for field in ("name", "asname", "id", "arg", "attr", "module", "rest"))
        yield from (name for name in named if isinstance(name, str))
        if isinstance(node, ast.Global | ast.Nonlocal):
            yield from node.names


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def ami_of(x): ...", ["ami_of"]),
        ("class EC2NodeClass: ...", ["EC2NodeClass"]),
        ("class Ec2Machine: ...", ["Ec2Machine"]),
        ("def f(*, efa=0): ...", ["efa"]),
        ("f(efa_count=1)", ["efa_count"]),
        ("it.branch_enis", ["branch_enis"]),
        ("import model.kinds.aws as cloud", ["model.kinds.aws"]),
        ("from model.kinds.aws import EBS_MIB", ["model.kinds.aws", "EBS_MIB"]),
        ("said = {'efa': 1}", ["efa"]),
        ("said['placement.efa']", ["placement.efa"]),
        ("'AMIDrift'", ["AMIDrift"]),
        ("'EC2 takes it'", []),
        ("enabled = amiable = streaming_laws", []),
    ],
)
def test_words_of_a_cloud_are_found_in_names(code: str, found: list[str]) -> None:
    assert sorted(name for name in names_in(ast.parse(code)) if words_of(name) & CLOUD_WORDS) == sorted(found)


def test_decisions_and_declarations_know_no_names_of_one_cloud() -> None:
    """Another cloud is another package of `providers/`: see docs/design/0012-another-cloud.md."""
    found: dict[str, set[str]] = defaultdict(set)
    for module, path in modules().items():
        if module.split(".")[0] in {"fleet", "model"} and not module.startswith(AT_HOME):
            names = {name for name in (module, *names_in(tree_of(module))) if words_of(name) & CLOUD_WORDS}
            found[str(path.relative_to(ROOT))] |= names
    assert {path: names for path, names in found.items() if names} == {
        at: names for at, (names, _) in CLOUD_NAMES.items()
    }


# -- exceptions that are caught whole ---------------------------------------------------------------------------------

RAISED_AGAIN = "raised again"
FENCE = "condition DecisionFailed, a Warning event, muster_decider_failures_total, the stack in the log once"
CAUGHT = {
    "agent/metrics.py:LatestPicture._worked_out": "muster_scrape_failures_total; the part is not in the scrape",
    "agent/simulation/play.py:play": "a violation of the law `nothing fails` in the history's row",
    "agent/async_sink.py:AsyncSink.send.run": "muster_news_dropped_total and a line in the log",
    "agent/brain.py:Brain._decided": FENCE,
    "agent/brain.py:Brain._settle_launch": FENCE,
    "agent/brain.py:Brain._tell": FENCE,
    "agent/explanations.py:ExplanationKeeper._fenced": "muster_explanation_failures_total, and the explanation says so",
    "agent/ledger.py:LedgerKeeper._run": "condition LedgerFailed of the FleetSync, the stack in the log",
    "agent/planning.py:PlanJob.__call__": "FleetSync is Stalled with the reason PlanningFailed",
    "agent/review/reviewer.py:Reviewer._fenced": "muster_pull_request_reviews_total{outcome=<error>}, a pause, the log",
    "agent/review/world.py:_run": "the comment says that planning failed, with the error; the stack in the log",
    "agent/sources.py:SourceThread._run": "muster_source_failures_total{kind=crash} and the stack in the log",
    "agent/workers.py:Workers._run": "muster_actions_total{result=failed}, a back-off, the stack in the log",
    "fleet/disruption/context.py:found_at": RAISED_AGAIN,
    "fleet/fence.py:each": FENCE,
    "fleet/fence.py:together": FENCE,
    "fleet/nodeclaims/capacity_buffers.py:_room": FENCE,
    "fleet/nodeclaims/capacity_buffers.py:_rooms": FENCE,
    "fleet/scheduling/cycle.py:AdmissionPass._charge_or_withhold": "as that which has set its gang aside",
    "providers/git/repository.py:BareMirror.__init__": RAISED_AGAIN,
    "providers/git/repository.py:BareMirror.reclone": RAISED_AGAIN,
    "providers/kube/reading.py:Reader.objects": "muster_source_failures_total{kind=undecodable}, a line in the log",
    "providers/kube/reading.py:Reader._add": "muster_source_failures_total{kind=undecodable}, a line in the log",
    "providers/kube/reflector.py:Reflector._attempt": "muster_source_failures_total{kind=watch}, a line in the log",
    "providers/kube/reflector.py:Reflector._report": "the stack in the log",
    "providers/store/sqlite.py:SqliteLedger.__init__": RAISED_AGAIN,
    "providers/store/sqlite.py:SqliteLedger._transaction": RAISED_AGAIN,
    "providers/sim/apiserver/handler.py:Handler._respond": "the simulated API server answers 500, the stack in the log",
    "providers/sim/controllers/runtime.py:Reconciler.step": RAISED_AGAIN,
    "providers/sim/loopback.py:LoopbackServer._run": "raised again by the thread that waits for the start",
    "providers/sim/kernel.py:Kernel._round": "told to `on_error`, raised again where there is none",
}
"""Where an exception of any class is caught -> what a user sees of it."""
_BROAD = frozenset({"Exception", "BaseException"})


def caught_whole(node: ast.AST, inside: tuple[str, ...] = ()) -> Iterator[str]:
    """Dotted names of the functions below `node` that catch or suppress any exception there is."""
    for child in ast.iter_child_nodes(node):
        within = (*inside, child.name) if isinstance(child, (*_FUNCTIONS, ast.ClassDef)) else inside
        if _BROAD & {ast.unparse(name).rpartition(".")[2] for name in _caught(child)}:
            yield ".".join(within)
        yield from caught_whole(child, within)


def _caught(node: ast.AST) -> Sequence[ast.expr]:
    """The classes that an `except` or a `suppress` names."""
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
        return node.args
    if not isinstance(node, ast.ExceptHandler):
        return ()
    if node.type is None:
        return (ast.Name("BaseException"),)
    return node.type.elts if isinstance(node.type, ast.Tuple) else (node.type,)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("try: pass\n    except: pass", ["f"]),
        ("try: pass\n    except (KeyError, Exception): pass", ["f"]),
        ("with contextlib.suppress(BaseException): pass", ["f"]),
        ("try: pass\n    except KeyError: pass", []),
    ],
)
def test_broad_catches_are_found(body: str, found: list[str]) -> None:
    assert list(caught_whole(ast.parse(f"def f():\n    {body}"))) == found


def test_what_is_caught_whole_becomes_a_state_that_a_user_can_see() -> None:
    paths: Iterator[Path] = chain.from_iterable(sorted((ROOT / package).rglob("*.py")) for package in PACKAGES)
    found = {f"{path.relative_to(ROOT)}:{name}" for path in paths for name in caught_whole(ast.parse(path.read_text()))}
    assert found == CAUGHT.keys()
