"""The admission policies of a store: compiled once, asked at each write, and free where there are none."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from providers.sim.store.mutating import MutatingPolicy, mutated
from providers.sim.store.mutating import policy_faults as mutating_faults
from providers.sim.store.naming import Fault
from providers.sim.store.objects import Obj
from providers.sim.store.policymatch import POLICY_GROUP, AskedWrite
from providers.sim.store.policyrules import binding_faults, defaulted_binding, defaulted_policy
from providers.sim.store.registry import Resource
from providers.sim.store.validating import ValidatingPolicy, validate, validating_binding_faults
from providers.sim.store.validating import policy_faults as validating_faults

_MUTATING: Final = (f"mutatingadmissionpolicies.{POLICY_GROUP}", f"mutatingadmissionpolicybindings.{POLICY_GROUP}")
_VALIDATING: Final = (
    f"validatingadmissionpolicies.{POLICY_GROUP}",
    f"validatingadmissionpolicybindings.{POLICY_GROUP}",
)
POLICY_DEFAULTS: Final[Mapping[str, Callable[[Obj], Obj]]] = {
    _MUTATING[0]: defaulted_policy,
    _MUTATING[1]: defaulted_binding,
    _VALIDATING[0]: defaulted_policy,
    _VALIDATING[1]: defaulted_binding,
}
"""Resource -> what gives an object of it the defaults of the API."""
POLICY_RULES: Final[Mapping[str, Callable[[Obj, Obj | None], Iterator[Fault]]]] = {
    _MUTATING[0]: mutating_faults,
    _MUTATING[1]: binding_faults,
    _VALIDATING[0]: validating_faults,
    _VALIDATING[1]: validating_binding_faults,
}
"""Resource -> what finds fault with an object of it."""
_warnings: ContextVar[list[str] | None] = ContextVar("warnings of admission", default=None)


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """What policies warn of in the writes within, in their order."""
    told: list[str] = []
    token = _warnings.set(told)
    try:
        yield told
    finally:
        _warnings.reset(token)


def _warn(text: str) -> None:
    told = _warnings.get()
    if told is not None:
        told.append(text)


class AdmissionPolicies:
    """The policies that are bound: `listed` gives the objects of a resource by its key, `namespace` one by its name."""

    def __init__(self, listed: Callable[[str], list[Obj]], namespace: Callable[[str], Obj | None]) -> None:
        self._listed, self._namespace = listed, namespace
        self._stale = False
        self._mutating: list[MutatingPolicy] = []
        self._validating: list[ValidatingPolicy] = []

    def changed(self, _event: Any = None) -> None:
        """A policy or a binding was written."""
        self._stale = True

    def mutated(
        self,
        resource: Resource,
        obj: Obj,
        old: Obj | None,
        settled: Callable[[Obj], Obj] = lambda obj: obj,
        *,
        dry_run: bool,
    ) -> Obj:
        """The object as the policies leave it; `settled` is what is filled in before each pass. Errors: PolicyDenied.

        It is the same object where no policy means it, and else one that is not yet known to be sound.
        """
        if self._stale:
            self._compile()
        if not self._mutating or resource.key in POLICY_RULES:
            return obj
        return mutated(self._mutating, AskedWrite(resource, obj, old, "", dry_run, self._namespace), obj, settled)

    def validate(
        self, resource: Resource, obj: Obj | None, old: Obj | None, subresource: str = "", *, dry_run: bool
    ) -> None:
        """Have the policies look at a write. Errors: what the policy says that denies it."""
        if self._stale:
            self._compile()
        if self._validating and resource.key not in POLICY_RULES:
            validate(self._validating, AskedWrite(resource, obj, old, subresource, dry_run, self._namespace), _warn)

    def _compile(self) -> None:
        self._mutating = [MutatingPolicy.of(*it) for it in self._bound(*_MUTATING)]
        self._validating = [ValidatingPolicy.of(*it) for it in self._bound(*_VALIDATING)]
        self._stale = False

    def _bound(self, policies: str, bindings: str) -> list[tuple[Obj, Obj]]:
        """Policies with their bindings, in the order of their names."""
        held = {it["metadata"]["name"]: it for it in self._listed(policies)}
        found = [(held[name], it) for it in self._listed(bindings) if (name := it["spec"]["policyName"]) in held]
        return sorted(found, key=lambda it: (it[0]["metadata"]["name"], it[1]["metadata"]["name"]))
