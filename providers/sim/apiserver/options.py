"""The options of a request, in its query: what they may be, and how the server refuses them.

Source: apimachinery `pkg/apis/meta/v1/validation/validation.go`, `pkg/apis/meta/internalversion/validation`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from providers.sim.apiserver.routes import flag
from providers.sim.store import StoreBadRequest, StoreInvalid
from providers.sim.store.errors import cause

_MANAGER_MAX: Final = 128
_KINDS: Final = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}
_EXACT: Final = ("Exact", "NotOlderThan")

Fault = dict[str, str]


def invalid_options(kind: str, faults: Sequence[Fault]) -> StoreInvalid:
    """The refusal of options of that kind."""
    told = ", ".join(f"{it['field']}: {it['message']}" for it in faults)
    text = f"[{told}]" if len(faults) > 1 else told
    details = {"group": "meta.k8s.io", "kind": kind, "causes": list(faults)}
    return StoreInvalid(f'{kind}.meta.k8s.io "" is invalid: {text}', details)


def check_write_options(verb: str, query: Mapping[str, str], *, applying: bool) -> None:
    """Invalid where a create, update or patch has options that there are not, or that do not go together."""
    faults = [*_force_faults(query, applying=applying and verb == "patch"), *_manager_faults(query, applying=applying)]
    faults += dry_run_faults([query["dryRun"]] if query.get("dryRun") else [])
    mode = query.get("fieldValidation") or "Warn"
    if mode not in ("Ignore", "Warn", "Strict"):
        listed = '"Ignore", "Strict", "Warn"'
        text = f'Unsupported value: "{mode}": supported values: {listed}'
        faults.append(cause("fieldValidation", text, "FieldValueNotSupported"))
    if faults:
        raise invalid_options(_KINDS.get(verb, "CreateOptions"), faults)


def _force_faults(query: Mapping[str, str], *, applying: bool) -> list[Fault]:
    if flag(dict(query), "force") and not applying:
        return [cause("force", "Forbidden: may not be specified for non-apply patch", "FieldValueForbidden")]
    return []


def _manager_faults(query: Mapping[str, str], *, applying: bool) -> list[Fault]:
    manager = query.get("fieldManager", "")
    if applying and not manager:
        return [cause("fieldManager", "Required value: is required for apply patch", "FieldValueRequired")]
    faults = []
    if len(manager.encode()) > _MANAGER_MAX:
        text = f"Too long: may not be more than {_MANAGER_MAX} bytes"
        faults.append(cause("fieldManager", text, "FieldValueTooLong"))
    for i, letter in enumerate(manager if not manager.isprintable() else ""):
        if not letter.isprintable():
            text = f"Invalid value: {json.dumps(manager)}: invalid character U+{ord(letter):04X} (at position {i})"
            faults.append(cause("fieldManager", text))
    return faults


def dry_run_faults(values: Sequence[Any]) -> list[Fault]:
    """What is wrong with `dryRun`."""
    if any(value != "All" for value in values):
        text = f'Unsupported value: {json.dumps(list(values))}: supported values: "All"'
        return [cause("dryRun", text, "FieldValueNotSupported")]
    return []


def check_list_options(query: Mapping[str, str], *, watch: bool) -> None:
    """Invalid or BadRequest where a list or watch has options that do not go together."""
    for name in ("limit", "timeoutSeconds"):
        text = query.get(name) or "0"
        if not text.removeprefix("-").isdecimal():
            raise StoreBadRequest(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    faults = list(_match_faults(query, watch=watch))
    if faults:
        raise invalid_options("ListOptions", faults)


def _match_faults(query: Mapping[str, str], *, watch: bool) -> list[Fault]:
    match, initial = query.get("resourceVersionMatch", ""), "sendInitialEvents" in query
    found: list[str] = []
    if match and watch and not initial:
        found.append("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
    elif match and not watch and not query.get("resourceVersion"):
        found.append("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if match and not watch and query.get("continue"):
        found.append("resourceVersionMatch is forbidden when continue is provided")
    if initial and watch and match != "NotOlderThan":
        found.append("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
    faults = [cause("resourceVersionMatch", f"Forbidden: {text}", "FieldValueForbidden") for text in found]
    known = ("NotOlderThan",) if watch else _EXACT
    if match and match not in known:
        listed = ", ".join(f'"{it}"' for it in (known if watch else (*known, "")))
        text = f'Unsupported value: "{match}": supported values: {listed}'
        faults.append(cause("resourceVersionMatch", text, "FieldValueNotSupported"))
    if match == "Exact" and query.get("resourceVersion") == "0" and not watch:
        text = 'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        faults.append(cause("resourceVersionMatch", text, "FieldValueForbidden"))
    if initial and not watch:
        text = "Forbidden: sendInitialEvents is forbidden for list"
        faults.append(cause("sendInitialEvents", text, "FieldValueForbidden"))
    return faults
