"""An independent judge of where pods stand: the simulated scheduler, each pod against all the others."""

from collections.abc import Collection, Iterator, Mapping

from fleet.snapshot import Node
from tests.conformance.karpenter.manifests import NAMESPACE, Obj
from tests.conformance.kubernetes.scheduler import RecordedWorld


def misplaced(
    nodes: Mapping[str, Node], places: Mapping[str, str], asked: Mapping[str, Obj], *, newest: Collection[str]
) -> list[str]:
    """The pods of `newest` that kube-scheduler would not put where they are, were they to come last."""
    manifests = [node_manifest(node) for node in nodes.values()]
    found, known = [], set[str]()
    for name, node in sorted(places.items()):
        if name not in newest:
            continue
        key = f"{node} {sorted(asked[name]['metadata']['labels'].items())} {asked[name]['spec']}"
        if key in known:
            continue
        known.add(key)
        world = RecordedWorld()
        others = [_bound(asked[other], place) for other, place in places.items() if other != name]
        world.fill({"namespaces": {NAMESPACE: {}}, "nodes": manifests, "pods": others})
        answer = world.schedule(world.create("Pod", asked[name]))
        if node not in answer["feasible"]:
            found.append(f"{name} on {node}: {'; '.join(answer['why'].get(node, ['no such node']))}")
    return found


def _bound(manifest: Obj, node: str) -> Obj:
    return {"metadata": manifest["metadata"], "spec": {**manifest["spec"], "nodeName": node}, "status": {}}


def node_manifest(node: Node) -> Obj:
    """A node as its manifest."""
    room = dict(_quantities(node.allocatable))
    taints = [{"key": it.key, "value": it.value, "effect": it.effect} for it in node.taints]
    own = {key: value for key, value in node.labels.items() if key != "metadata.name"}
    ready = [{"type": "Ready", "status": "True" if node.ready else "False"}]
    status = {"allocatable": room, "capacity": room, "conditions": ready}
    return {"metadata": {"name": node.name, "labels": own}, "spec": {"taints": taints}, "status": status}


def _quantities(amounts: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    for name, amount in amounts.items():
        yield name, f"{amount}m" if name == "cpu" else str(amount)
