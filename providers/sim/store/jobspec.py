"""What a Job may say: a table of rules over its spec.

Source: `pkg/apis/batch/validation/validation.go` (ValidateJobSpec, ValidateGeneratedSelector).
"""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from providers.sim.store.affinity import selector_faults
from providers.sim.store.errors import cause
from providers.sim.store.naming import Fault, label_faults
from providers.sim.store.objects import Obj
from providers.sim.store.podspec import pod_spec_faults, required, unsupported
from providers.sim.store.validation import not_negative

_COUNTS: Final = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
_MODES: Final = ("Indexed", "NonIndexed")
_REPLACEMENTS: Final = ("Failed", "TerminatingOrFailed")
_MOST_INDEXED: Final = 100_000
_INDEXED_ONLY: Final = ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy")
_NEEDS_INDEXES: Final = "requires indexed completion mode"


def job_spec_faults(spec: Obj) -> Iterator[Fault]:
    """What is wrong with a defaulted job, by field path."""
    for rule in _RULES:
        yield from rule(spec)


def immutable(path: str, value: Any) -> Fault:
    """A field that may not change."""
    return cause(path, f"Invalid value: {_dumped(value)}: field is immutable")


def _dumped(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def generated_faults(spec: Obj, meta: Obj) -> Iterator[Fault]:
    """What of a generated selector, and of the labels that go with it, somebody has touched."""
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    where = "spec.template.metadata.labels"
    wanted = {"controller-uid": meta["uid"], "batch.kubernetes.io/controller-uid": meta["uid"]}
    wanted |= {"job-name": meta["name"], "batch.kubernetes.io/job-name": meta["name"]}
    for name, value in wanted.items():
        if name not in labels:
            yield required(f"{where}[{name}]", f"must be '{value}'")
        elif labels[name] != value:
            yield cause(f"{where}[{name}]", f"Invalid value: \"{labels[name]}\": must be '{value}'")
    generated = {"matchLabels": {"batch.kubernetes.io/controller-uid": meta["uid"]}}
    if spec.get("selector") != generated:
        yield cause("spec.selector", f"Invalid value: {_dumped(spec.get('selector'))}: `selector` not auto-generated")


def _template(spec: Obj) -> Iterator[Fault]:
    template = spec.get("template") or {}
    meta = template.get("metadata") or {}
    yield from label_faults(meta.get("labels") or {}, "spec.template.labels")
    yield from pod_spec_faults(template.get("spec") or {}, "spec.template.spec")
    restart = (template.get("spec") or {}).get("restartPolicy") or "Always"
    if restart not in ("Never", "OnFailure"):
        yield required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')


def _selector(spec: Obj) -> Iterator[Fault]:
    selector = spec.get("selector")
    if not selector:
        yield required("spec.selector")
        return
    yield from selector_faults(selector, "spec.selector")
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        text = "`selector` does not match template `labels`"
        yield cause("spec.template.metadata.labels", f"Invalid value: {_dumped(labels)}: {text}")


def _counts(spec: Obj) -> Iterator[Fault]:
    yield from not_negative(spec, _COUNTS)


def _mode(spec: Obj) -> Iterator[Fault]:
    mode = spec.get("completionMode")
    if mode not in _MODES:
        yield unsupported("spec.completionMode", mode, _MODES)
    if mode == "Indexed":
        if spec.get("completions") is None:
            yield required("spec.completions", "when completion mode is Indexed")
        parallelism = spec.get("parallelism") or 0
        if parallelism > _MOST_INDEXED:
            text = f"must be less than or equal to {_MOST_INDEXED} when completion mode is Indexed"
            yield cause("spec.parallelism", f"Invalid value: {parallelism}: {text}")
        return
    for field in _INDEXED_ONLY:
        if spec.get(field) is not None:
            yield cause(f"spec.{field}", f"Invalid value: {_dumped(spec[field])}: {_NEEDS_INDEXES}")


def _failure_policy(spec: Obj) -> Iterator[Fault]:
    replacement = spec.get("podReplacementPolicy")
    known = ("Failed",) if spec.get("podFailurePolicy") is not None else _REPLACEMENTS
    if replacement not in known:
        yield unsupported("spec.podReplacementPolicy", replacement, known)
    if spec.get("podFailurePolicy") is None:
        return
    restart = ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy")
    if restart == "OnFailure":
        text = 'only "Never" is supported when podFailurePolicy is specified'
        yield cause("spec.template.spec.restartPolicy", f'Invalid value: "{restart}": {text}')


def _managed_by(spec: Obj) -> Iterator[Fault]:
    manager = spec.get("managedBy")
    if manager is not None and ("/" not in manager or not all(manager.partition("/")[::2])):
        text = 'must be a domain-prefixed path (such as "acme.io/foo")'
        yield cause("spec.managedBy", f'Invalid value: "{manager}": {text}')


_RULES: Final[tuple[Callable[[Obj], Iterator[Fault]], ...]] = (
    _counts,
    _mode,
    _selector,
    _template,
    _failure_policy,
    _managed_by,
)
