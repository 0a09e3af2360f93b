"""Mutating admission policies: what they may say, and what they make of objects that are written.

Source: KEP-3962, apiserver `pkg/admission/plugin/policy/mutating`, `pkg/apis/admissionregistration/validation`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from providers.sim.store.cel import CelExpression, compiled
from providers.sim.store.celvalues import CelError, as_json
from providers.sim.store.endpoints import shape_of
from providers.sim.store.errors import ApiError, StoreInternalError, StorePolicyDenied
from providers.sim.store.fields import merged
from providers.sim.store.jsonpatch import StorePatchTestFailed, json_patch
from providers.sim.store.naming import Fault
from providers.sim.store.objects import Obj
from providers.sim.store.podspec import required, unsupported
from providers.sim.store.policymatch import AskedWrite
from providers.sim.store.policyrules import NAMES, BoundPolicy, PolicyFails, expression_faults, rules_faults, value_of
from providers.sim.store.published import SchemaFault, definition_of, validator, without_nothing

_REINVOCATIONS: Final = ("IfNeeded", "Never")
_PATCHES: Final = ("ApplyConfiguration", "JSONPatch")
_FIELDS: Final = {"JSONPatch": "jsonPatch", "ApplyConfiguration": "applyConfiguration"}


def policy_faults(policy: Obj, _: Obj | None) -> Iterator[Fault]:
    """What is wrong with a mutating policy."""
    spec = policy.get("spec") or {}
    yield from rules_faults(spec, parts=False, operations=("CREATE", "UPDATE", "*"))
    if spec.get("reinvocationPolicy", "Never") not in _REINVOCATIONS:
        yield unsupported("spec.reinvocationPolicy", spec["reinvocationPolicy"], _REINVOCATIONS)
    mutations = spec.get("mutations") or ()
    if not mutations:
        yield required("spec.mutations", "mutations must contain at least one item")
    variables = {it.get("name") for it in spec.get("variables") or ()}
    for i, mutation in enumerate(mutations):
        yield from _mutation_faults(mutation, f"spec.mutations[{i}]", variables)


def _mutation_faults(mutation: Obj, path: str, variables: set[str]) -> Iterator[Fault]:
    kind = mutation.get("patchType")
    if kind not in _PATCHES:
        yield unsupported(f"{path}.patchType", kind or "", _PATCHES)
        return
    field = _FIELDS[kind]
    if mutation.get(field) is None:
        yield required(f"{path}.{field}")
        return
    wanted, told = ("list", "list(JSONPatch)") if kind == "JSONPatch" else ("map", "Object")
    text, here = mutation[field].get("expression"), f"{path}.{field}.expression"
    yield from expression_faults(text, (wanted,), told, here, variables, messages=True)


@dataclass(frozen=True, slots=True)
class MutatingPolicy:
    """A bound policy, and its patches in their order."""

    bound: BoundPolicy
    patches: tuple[tuple[str, CelExpression], ...]
    again: bool
    """Whether it is asked once more where something has changed since."""

    @classmethod
    def of(cls, policy: Obj, binding: Obj) -> "MutatingPolicy":
        """Compile a policy."""
        spec = policy["spec"]
        texts = ((it["patchType"], it[_FIELDS[it["patchType"]]]["expression"]) for it in spec["mutations"])
        patches = tuple((kind, compiled(text, NAMES, messages=True)) for kind, text in texts)
        return cls(BoundPolicy.of(policy, binding), patches, spec.get("reinvocationPolicy") == "IfNeeded")


def mutated(
    policies: Sequence[MutatingPolicy], asked: AskedWrite, obj: Obj, settled: Callable[[Obj], Obj] = lambda obj: obj
) -> Obj:
    """The object as the policies leave it that mean this write; `settled` fills in defaults before each pass.

    Where a first pass changes it, those are asked once more that were asked, may be asked again and mean it still.
    Errors: PolicyDenied, where one fails that may not; InternalError, where a patch leaves no object of the kind.
    """
    meant = [it for it in policies if it.bound.matches(asked)]
    if not meant:
        return obj
    troubles: list[str] = []
    given = settled(obj)
    found, invoked = _passed(meant, asked, given, troubles)
    if found != given:
        found = settled(found)
        again = replace(asked, obj=found)
        found, _ = _passed([it for it in invoked if it.again and it.bound.matches(again)], asked, found, troubles)
    if troubles:
        told = {"name": asked.metadata.get("name", ""), "group": asked.resource.group, "kind": asked.resource.plural}
        causes = [{"message": it} for it in dict.fromkeys(troubles)]
        raise StorePolicyDenied(troubles[0], {**told, "causes": causes})
    return found


def _passed(
    policies: Sequence[MutatingPolicy], asked: AskedWrite, obj: Obj, troubles: list[str]
) -> tuple[Obj, list[MutatingPolicy]]:
    """What the policies make of an object, and those whose conditions held; a mutation that fails stops no other."""
    invoked = []
    for policy in policies:
        failed = troubles if policy.bound.fails else []
        words = f"policy '{policy.bound.name}' with binding '{policy.bound.binding}' denied request"
        try:
            if not policy.bound.applies(policy.bound.known(asked, obj)):
                continue
        except PolicyFails as error:
            failed.append(f"{words}: {error}")
            continue
        invoked.append(policy)
        for kind, expression in policy.patches:
            try:
                obj = _patched(kind, value_of(expression, policy.bound.known(asked, obj)), asked, obj)
            except PolicyFails as error:
                failed.append(f"{words}: {error}")
    return obj, invoked


def _patched(kind: str, value: Any, asked: AskedWrite, obj: Obj) -> Obj:
    try:
        if kind == "JSONPatch":
            found = json_patch(obj, as_json(value))
        elif isinstance(value, dict):
            found = merged(obj, as_json(value), shape_of(asked.resource))
        else:
            raise PolicyFails("unexpected evaluation result: no object")
    except StorePatchTestFailed:
        return obj
    except CelError as error:
        raise PolicyFails(str(error)) from error
    except ApiError as error:
        raise PolicyFails(f"JSON Patch: {error.message}") from error
    if not isinstance(found, dict) or not isinstance(found.get("metadata"), dict):
        raise PolicyFails("JSON Patch: it does not leave an object")
    name = "" if asked.resource.custom else definition_of(asked.resource.api_version, asked.resource.kind)
    if not name:
        return dict(found)
    found = without_nothing(found, name)
    fault = next(validator(name).iter_errors(found), None)
    if fault is not None:
        told = _unreadable(fault)
        raise StoreInternalError(f"Internal error occurred: {told}") if kind == "JSONPatch" else PolicyFails(told)
    return dict(found)


def _unreadable(fault: SchemaFault) -> str:
    path = ".".join(map(str, fault.instance_path))
    if type(fault.kind).__name__ == "AdditionalProperties":
        return f'strict decoding error: unknown field "{f"{path}.{fault.kind.unexpected[0]}".lstrip(".")}"'
    return f"the value of {path} does not fit its type"
