"""Releasing gated pods onto the nodes planned for them, each slot exactly once."""

from collections import Counter
from collections.abc import Iterator

from fleet.actions import Action, ReleasePod, pod_subject
from fleet.snapshot import Gang, Snapshot
from model import labels


def releases(snapshot: Snapshot, gang: Gang) -> Iterator[Action]:
    """A release for every gated pod of the gang that has a free slot left in the pins."""
    pods = [pod for pod in snapshot.gang_pods.get(f"{gang.namespace}/{gang.workload}", ()) if pod.active]
    if not any(pod.gated for pod in pods):
        return
    free = Counter({(pin.pod_set, pin.node): pin.count for pin in gang.pins})
    node_of_host = {_hostname(snapshot, pin.node): pin.node for pin in gang.pins}
    for pod in pods:
        if not pod.gated:
            free[pod.pod_set, pod.node or node_of_host.get(pod.pinned_host, "")] -= 1
    waiting = sorted((pod for pod in pods if pod.gated), key=lambda pod: (pod.namespace, pod.name, pod.uid))
    slots: dict[str, list[str]] = {}
    for (pod_set, node), left in sorted(free.items(), reverse=True):
        slots.setdefault(pod_set, []).extend([node] * left)
    for pod in waiting:
        nodes = slots.get(pod.pod_set)
        if not nodes or pod.deleting:
            continue
        node = nodes.pop()
        if pod_subject(pod.uid) not in snapshot.busy:
            yield ReleasePod(pod, node, _hostname(snapshot, node))


def _hostname(snapshot: Snapshot, node: str) -> str:
    observed = snapshot.nodes.get(node)
    return observed.labels.get(labels.HOSTNAME, node) if observed else node
