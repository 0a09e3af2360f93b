"""What each built-in kind may say, beyond the types of its fields: a table from resource to its rules.

A rule gets the object as it would be stored and, on a change, the one that is. Source: `pkg/apis/*/validation`.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from providers.sim.store.affinity import selector_faults
from providers.sim.store.amounts import node_faults
from providers.sim.store.deviceclaims import CLAIMS, claim_faults, class_faults, template_faults
from providers.sim.store.deviceslices import TAINT_RULES, slice_faults, taint_rule_faults
from providers.sim.store.errors import cause
from providers.sim.store.naming import Fault, invalid_value, qualified_name
from providers.sim.store.objects import Obj
from providers.sim.store.podspec import required, taint_faults, unsupported
from providers.sim.store.policies import POLICY_RULES
from providers.sim.store.registry import Resource
from providers.sim.store.resourcequota import quota_faults

Rule = Callable[[Obj, Obj | None], Iterator[Fault]]
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NOTE_LETTERS: Final = 1024
_FIXED: Final = "field is immutable"


def kind_faults(resource: Resource, new: Obj, old: Obj | None) -> list[Fault]:
    """Everything that is wrong with an object of a built-in kind."""
    rule = _RULES.get(resource.key)
    return list(rule(new, old)) if rule else []


def not_negative(spec: Obj, fields: tuple[str, ...], path: str = "spec") -> Iterator[Fault]:
    """Numbers that may not be below zero."""
    for field in fields:
        value = spec.get(field)
        if isinstance(value, int) and value < 0:
            yield cause(f"{path}.{field}", f"Invalid value: {value}: must be greater than or equal to 0")


def _event(new: Obj, old: Obj | None) -> Iterator[Fault]:
    namespace = (new.get("involvedObject") or {}).get("namespace") or ""
    expected = new["metadata"].get("namespace", "")
    if old is None and namespace != expected and not (namespace == "" and expected == "default"):
        text = f'Invalid value: "{namespace}": does not match event.namespace'
        yield cause("involvedObject.namespace", text)


def _new_event(new: Obj, old: Obj | None) -> Iterator[Fault]:
    """events.k8s.io, whose rules are stricter; its messages name the fields of the old kind."""
    if old is not None:
        return
    if not new.get("eventTime"):
        yield required("eventTime")
        return
    controller = new.get("reportingController") or ""
    if not controller:
        yield required("reportingController")
    else:
        yield from invalid_value("reportingController", controller, qualified_name(controller))
    for field in ("reportingInstance", "action", "reason"):
        if not new.get(field):
            yield required(field)
    if len(new.get("note") or "") > _NOTE_LETTERS:
        yield cause("message", f'Invalid value: "": can have at most {_NOTE_LETTERS} characters')
    if new.get("type") not in ("Normal", "Warning"):
        yield cause("type", f'Invalid value: "": has invalid value: {new.get("type") or ""}')


def _node(new: Obj, old: Obj | None) -> Iterator[Fault]:
    spec, seen = new.get("spec") or {}, set()
    for i, taint in enumerate(spec.get("taints") or ()):
        here = f"metadata.taints[{i}]"
        yield from taint_faults(taint, here, _EFFECTS)
        mark = (taint.get("key"), taint.get("effect"))
        if mark in seen:
            shown = {"Key": taint.get("key", ""), "Value": taint.get("value", ""), "Effect": taint.get("effect", "")}
            text = json.dumps({**shown, "TimeAdded": taint.get("timeAdded")}, separators=(",", ":"))
            yield cause(here, f"Duplicate value: {text}: taints must be unique by key and effect pair", _TWICE)
        seen.add(mark)
    status = new.get("status") or {}
    if old is None or status != old.get("status"):
        yield from node_faults(status)
    for field, name in (("providerID", "providerID"), ("podCIDRs", "podCIDR")):
        before = ((old or {}).get("spec") or {}).get(field)
        if before and before != spec.get(field):
            text = f'Forbidden: node updates may not change {name} except from "" to valid'
            yield cause(f"spec.{field}", text, "FieldValueForbidden")


_TWICE: Final = "FieldValueDuplicate"


def _budget(new: Obj, _: Obj | None) -> Iterator[Fault]:
    spec = new.get("spec") or {}
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if least is not None and most is not None:
        shown = {"MinAvailable": least, "Selector": spec.get("selector"), "MaxUnavailable": most}
        policy = {"UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy")}
        text = json.dumps({**shown, **policy}, separators=(",", ":"))
        yield cause("spec", f"Invalid value: {text}: minAvailable and maxUnavailable cannot be both set")
    for field, value in (("minAvailable", least), ("maxUnavailable", most)):
        yield from amount_or_share(value, f"spec.{field}")
    policy_said = spec.get("unhealthyPodEvictionPolicy", "IfHealthyBudget")
    if policy_said not in ("AlwaysAllow", "IfHealthyBudget"):
        yield unsupported("spec.unhealthyPodEvictionPolicy", policy_said, ("AlwaysAllow", "IfHealthyBudget"))
    yield from selector_faults(spec.get("selector"), "spec.selector")


def amount_or_share(value: Any, path: str) -> Iterator[Fault]:
    """A number of pods, or a share of them in percent."""
    if isinstance(value, int) and value < 0:
        yield cause(path, f"Invalid value: {value}: must be greater than or equal to 0")
    if isinstance(value, str):
        number = value.removesuffix("%")
        if not (value.endswith("%") and number.isdecimal()):
            text = "a valid percent string must be a numeric string followed by an ending '%'"
            form = "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
            yield cause(path, f'Invalid value: "{value}": {text} {form}')
        elif int(number) > 100:
            yield cause(path, f'Invalid value: "{value}": must not be greater than 100%')


_CONFIG_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
_NOT_A_KEY: Final = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_SECRET_BYTES: Final = 1024 * 1024


def _data(new: Obj, old: Obj | None) -> Iterator[Fault]:
    """ConfigMaps and Secrets: their keys, their size, and that what is immutable stays so."""
    size = 0
    for field in ("data", "binaryData"):
        for key, value in (new.get(field) or {}).items():
            size += len(value.encode()) if isinstance(value, str) else 0
            if not _CONFIG_KEY.fullmatch(key) or len(key) > 253:
                yield cause(f"{field}[{key}]", f'Invalid value: "{key}": {_NOT_A_KEY}')
    if size > _SECRET_BYTES:
        field = "data" if new.get("kind") == "Secret" else ""
        yield cause(field, f"Too long: may not be more than {_SECRET_BYTES} bytes", "FieldValueTooLong")
    if old is None:
        return
    if new.get("kind") == "Secret" and old.get("type") and new.get("type") != old["type"]:
        yield cause("type", f'Invalid value: "{new.get("type") or ""}": {_FIXED}')
    if old.get("immutable"):
        for field in ("immutable", "data", "binaryData"):
            if new.get(field) != old.get(field):
                text = "Forbidden: field is immutable when `immutable` is set"
                yield cause(field, text, "FieldValueForbidden")


def _lease(new: Obj, _: Obj | None) -> Iterator[Fault]:
    spec = new.get("spec") or {}
    seconds = spec.get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        yield cause("spec.leaseDurationSeconds", f"Invalid value: {seconds}: must be greater than 0")
    yield from not_negative(spec, ("leaseTransitions",))


def _scaled(new: Obj, old: Obj | None) -> Iterator[Fault]:
    spec = new.get("spec") or {}
    yield from not_negative(spec, ("minReadySeconds", "replicas", "revisionHistoryLimit", "progressDeadlineSeconds"))
    held = (old or {}).get("spec") or {}
    if held.get("selector") is not None and held["selector"] != spec.get("selector"):
        shown = json.dumps(spec.get("selector"), separators=(",", ":"))
        yield cause("spec.selector", f"Invalid value: {shown}: {_FIXED}")


def _cron_job(new: Obj, _: Obj | None) -> Iterator[Fault]:
    spec = new.get("spec") or {}
    if not spec.get("schedule"):
        yield required("spec.schedule")
    limits = ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
    yield from not_negative(spec, limits)
    if spec.get("concurrencyPolicy", "Allow") not in ("Allow", "Forbid", "Replace"):
        yield unsupported("spec.concurrencyPolicy", spec["concurrencyPolicy"], ("Allow", "Forbid", "Replace"))


def _priority_class(new: Obj, old: Obj | None) -> Iterator[Fault]:
    value, name = new.get("value", 0), new["metadata"]["name"]
    if value > 1_000_000_000 and not name.startswith("system-"):
        text = "Forbidden: maximum allowed value of a user defined priority is 1000000000"
        yield cause("value", text, "FieldValueForbidden")
    if old is not None and old.get("value", 0) != value:
        yield cause("value", "Forbidden: may not be changed in an update.", "FieldValueForbidden")
    policy = new.get("preemptionPolicy", "Never")
    if policy not in ("PreemptLowerPriority", "Never"):
        yield unsupported("preemptionPolicy", policy, ("PreemptLowerPriority", "Never"))


_RULES: Final[dict[str, Rule]] = {
    "configmaps": _data,
    "secrets": _data,
    "resourcequotas": quota_faults,
    **POLICY_RULES,
    "events": _event,
    "events.events.k8s.io": _new_event,
    "nodes": _node,
    "poddisruptionbudgets.policy": _budget,
    "leases.coordination.k8s.io": _lease,
    "deployments.apps": _scaled,
    "replicasets.apps": _scaled,
    "statefulsets.apps": _scaled,
    "daemonsets.apps": _scaled,
    "cronjobs.batch": _cron_job,
    "priorityclasses.scheduling.k8s.io": _priority_class,
    "deviceclasses.resource.k8s.io": class_faults,
    CLAIMS: claim_faults,
    "resourceclaimtemplates.resource.k8s.io": template_faults,
    "resourceslices.resource.k8s.io": slice_faults,
    TAINT_RULES: taint_rule_faults,
}
