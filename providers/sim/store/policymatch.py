"""Which writes an admission policy looks at: rules by resource and operation, selectors of object and namespace.

Source: apiserver `pkg/admission/plugin/policy/matching/matching.go`, `webhook/predicates`. Each resource is served in
one version, so that `matchPolicy` makes no difference.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from providers.sim.store.errors import cause
from providers.sim.store.naming import Fault
from providers.sim.store.objects import Obj
from providers.sim.store.podspec import required, unsupported
from providers.sim.store.registry import Resource
from providers.sim.store.selectors import matches_label_selector

_OPERATIONS: Final = ("CREATE", "UPDATE", "DELETE", "CONNECT", "*")
_SCOPES: Final = ("Cluster", "Namespaced", "*")
_LOOKED_AT: Final = frozenset({"", "status", "resize", "ephemeralcontainers", "eviction"})
_EVICTION: Final = {"group": "policy", "version": "v1", "kind": "Eviction"}
_SELECTING: Final = ("In", "NotIn", "Exists", "DoesNotExist")
POLICY_GROUP: Final = "admissionregistration.k8s.io"


@dataclass(frozen=True)
class AskedWrite:
    """A write that is asked for, as policies know it; `obj` is None in a deletion, `old` in a creation."""

    resource: Resource
    obj: Obj | None
    old: Obj | None
    subresource: str = ""
    dry_run: bool = False
    namespace_of: Callable[[str], Obj | None] = lambda _: None

    @property
    def operation(self) -> str:
        """`CREATE`, `UPDATE` or `DELETE`."""
        return "DELETE" if self.obj is None else "CREATE" if self.old is None else "UPDATE"

    @property
    def metadata(self) -> Obj:
        """The metadata of the object that it is about."""
        held: Obj = (self.obj or self.old or {}).get("metadata") or {}
        return held

    @cached_property
    def namespace(self) -> Obj | None:
        """The Namespace that the object is in; None for what is in none."""
        return self.namespace_of(self.metadata.get("namespace", "")) if self.resource.namespaced else None

    @cached_property
    def request(self) -> Obj:
        """What an expression knows as `request`."""
        held = self.resource
        kind = {"group": held.group, "version": held.version, "kind": held.kind}
        kind = _EVICTION if self.subresource == "eviction" else kind
        place = {"group": held.group, "version": held.version, "resource": held.plural}
        asked = {"name": self.metadata.get("name", ""), "namespace": self.metadata.get("namespace", "")}
        part = {"subResource": self.subresource, "requestSubResource": self.subresource}
        return {
            "operation": self.operation,
            "kind": kind,
            "requestKind": kind,
            "resource": place,
            "requestResource": place,
            "dryRun": self.dry_run,
            **(part if self.subresource else {}),
            **asked,
        }


def matches(match: Obj, asked: AskedWrite) -> bool:
    """Whether the `matchConstraints` of a policy, or the `matchResources` of a binding, mean this write."""
    if any(_rule_matches(rule, asked) for rule in match.get("excludeResourceRules") or ()):
        return False
    rules = match.get("resourceRules") or ()
    if rules and not any(_rule_matches(rule, asked) for rule in rules):
        return False
    selector = match.get("objectSelector")
    if selector and not any(_selects(selector, it) for it in (asked.obj, asked.old) if it is not None):
        return False
    return _namespace_matches(match.get("namespaceSelector"), asked)


def _namespace_matches(selector: Obj | None, asked: AskedWrite) -> bool:
    if not selector:
        return True
    if asked.resource.key == "namespaces":
        return _selects(selector, asked.obj or asked.old or {})
    if not asked.resource.namespaced:
        return True
    return asked.namespace is not None and _selects(selector, asked.namespace)


def _selects(selector: Obj, obj: Obj) -> bool:
    return matches_label_selector(selector, (obj.get("metadata") or {}).get("labels") or {})


def _rule_matches(rule: Obj, asked: AskedWrite) -> bool:
    resource = asked.resource
    said = (("apiGroups", resource.group), ("apiVersions", resource.version), ("operations", asked.operation))
    if not all("*" in (rule.get(field) or ()) or word in (rule.get(field) or ()) for field, word in said):
        return False
    if rule.get("scope", "*") not in ("*", "Namespaced" if resource.namespaced else "Cluster"):
        return False
    names = rule.get("resourceNames")
    if names and asked.metadata.get("name", "") not in names:
        return False
    return any(_resource_matches(word, resource.plural, asked.subresource) for word in rule.get("resources") or ())


def _resource_matches(word: str, plural: str, subresource: str) -> bool:
    resource, _, part = word.partition("/")
    return resource in ("*", plural) and part in ("*", subresource)


def match_faults(match: Obj, path: str, *, parts: bool, operations: Sequence[str] = _OPERATIONS) -> Iterator[Fault]:
    """What is wrong with match constraints; `parts` is whether subresources may be meant."""
    for name in ("namespaceSelector", "objectSelector"):
        for i, it in enumerate((match.get(name) or {}).get("matchExpressions") or ()):
            if it.get("operator") not in _SELECTING:
                here = f"{path}.{name}.matchExpressions[{i}].operator"
                yield cause(here, f'Invalid value: "{it.get("operator")}": not a valid selector operator')
    if match.get("matchPolicy", "Equivalent") not in ("Exact", "Equivalent"):
        yield unsupported(f"{path}.matchPolicy", match["matchPolicy"], ("Equivalent", "Exact"))
    for name in ("resourceRules", "excludeResourceRules"):
        for i, rule in enumerate(match.get(name) or ()):
            yield from _rule_faults(rule, f"{path}.{name}[{i}]", parts=parts, operations=operations)


def _rule_faults(rule: Obj, path: str, *, parts: bool, operations: Sequence[str]) -> Iterator[Fault]:
    for field in ("apiGroups", "apiVersions", "operations", "resources"):
        if not rule.get(field):
            yield required(f"{path}.{field}")
    for i, word in enumerate(rule.get("operations") or ()):
        here = f"{path}.operations[{i}]"
        if word not in _OPERATIONS:
            yield unsupported(here, word, _OPERATIONS)
        elif word not in operations or word == "CONNECT":
            yield _not_here(here, f"{word} is not looked at here")
    if rule.get("scope", "*") not in _SCOPES:
        yield unsupported(f"{path}.scope", rule["scope"], _SCOPES)
    for i, word in enumerate(rule.get("resources") or ()):
        part = word.partition("/")[2]
        if (part and not parts) or part not in _LOOKED_AT:
            yield _not_here(f"{path}.resources[{i}]", f"the subresource {part} is not looked at here")


def _not_here(path: str, told: str) -> Fault:
    return cause(path, f"Forbidden: {told}", "FieldValueForbidden")


def refused(fields: Obj, names: Sequence[str], path: str) -> Iterator[Fault]:
    """A fault for each field that is set and has no effect here."""
    for name in names:
        value: Any = fields.get(name)
        if value is not None:
            yield _not_here(f"{path}.{name}", f"{name} is not supported here")
