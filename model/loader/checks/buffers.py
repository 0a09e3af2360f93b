"""CapacityBuffers: the template that each names, limits that bound nothing, and buffers that get no machine."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from model.hints import did_you_mean, listing
from model.loader.declarations import Declarations, Declared
from model.problem import Code, Problem
from model.quantity import format_amount

if TYPE_CHECKING:
    from model.upstream.capacity_buffer import CapacityBuffer, CorePodTemplate


def buffers_without_effect(declarations: Declarations) -> Iterator[Problem]:
    """Errors for templates that are nowhere and limits of nothing; warnings for what makes no machine come."""
    if not declarations.complete:
        return
    for buffer in declarations.capacity_buffers.values():
        template = declarations.pod_templates.get(buffer.value.template)
        if template is None:
            yield from _nowhere(declarations, buffer)
        else:
            yield from _of_limits(buffer, template.value)
            yield from _unserved(declarations, buffer)
    yield from _unused(declarations)


def _nowhere(declarations: Declarations, buffer: "Declared[CapacityBuffer]") -> Iterator[Problem]:
    wanted = buffer.value.spec.pod_template_ref.name
    if ("CorePodTemplate", wanted) in declarations.broken:
        return
    namespace, known = buffer.value.metadata.namespace, declarations.pod_templates
    here = [it.value.name for it in known.values() if it.value.metadata.namespace == namespace]
    hint = did_you_mean(wanted, here) or f"declared in {namespace}: {listing(here)}"
    message = f"there is no PodTemplate {wanted!r} in the namespace {namespace!r}"
    yield buffer.problem(("spec", "podTemplateRef", "name"), message, Code.DANGLING_REFERENCE, hint=hint)


def _of_limits(buffer: "Declared[CapacityBuffer]", template: "CorePodTemplate") -> Iterator[Problem]:
    requests, spec = template.requests, buffer.value.spec
    for name, most in (spec.limits or {}).items():
        asked, path = requests.get(name, 0), ("spec", "limits", name)
        if not asked:
            message = f"pods of {template.name!r} ask for no {name}, so that this limits nothing"
            yield buffer.problem(path, message, Code.INVALID_VALUE, hint="remove it", key=True)
        elif most < asked:
            message = f"a single pod of {template.name!r} asks for {format_amount(name, asked)}: there is room for none"
            yield buffer.problem(path, message, Code.UNUSED, severity="warning")


def _unserved(declarations: Declarations, buffer: "Declared[CapacityBuffer]") -> Iterator[Problem]:
    pools = declarations.node_pools.values()
    if not declarations.broken and not any("Pods" in pool.value.spec.serves for pool in pools):
        message = "no NodePool serves pods: no machine is bought for this buffer"
        hint = "write serves: [Gangs, Pods] in a NodePool"
        yield buffer.problem(("metadata", "name"), message, Code.UNUSED, hint=hint, severity="warning")


def _unused(declarations: Declarations) -> Iterator[Problem]:
    if declarations.broken:
        return
    used = {buffer.value.template for buffer in declarations.capacity_buffers.values()}
    for key, template in declarations.pod_templates.items():
        if key not in used:
            message = "no CapacityBuffer names this template"
            yield template.problem(("metadata", "name"), message, Code.UNUSED, severity="warning")
