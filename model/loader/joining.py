"""NodePools of Karpenter, each with the EC2NodeClass that it names -> NodePools of ours, checked like all others."""

from collections.abc import Iterator

from model.hints import did_you_mean, listing
from model.loader.declarations import Declarations, Declared
from model.problem import Code, Problem

_CLASS_NAME = ("spec", "template", "spec", "nodeClassRef", "name")


def join_pools(declarations: Declarations) -> Iterator[Problem]:
    """Fills `node_pools`; yields references to classes that are nowhere, and names used twice."""
    if not declarations.karpenter_pools:
        return
    from model.upstream.karpenter import PLACES, joined

    for name, pool in sorted(declarations.karpenter_pools.items()):
        wanted = pool.value.spec.template.spec.node_class_ref.name
        node_class = declarations.node_classes.get(wanted)
        if node_class is not None:
            yield from declarations.keep(Declared(joined(pool.value, node_class.value), pool.document, PLACES))
            continue
        declarations.broken.add(("NodePool", name))
        if declarations.complete and ("EC2NodeClass", wanted) not in declarations.broken:
            known = declarations.node_classes
            hint = did_you_mean(wanted, known) or f"declared: {listing(known)}"
            message = f"there is no EC2NodeClass {wanted!r}"
            yield pool.problem(_CLASS_NAME, message, Code.DANGLING_REFERENCE, hint=hint)


def unused_classes(declarations: Declarations) -> Iterator[Problem]:
    """Warnings about classes that no pool names."""
    if not declarations.complete or declarations.broken:
        return
    used = {pool.value.spec.template.spec.node_class_ref.name for pool in declarations.karpenter_pools.values()}
    for name, node_class in declarations.node_classes.items():
        if name not in used:
            message = "no NodePool of Karpenter uses this class"
            yield node_class.problem(("metadata", "name"), message, Code.UNUSED, severity="warning")
