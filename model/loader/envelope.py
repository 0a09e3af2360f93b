"""`apiVersion` and `kind`: which model a document is held against, or why there is none."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, get_args

from model.hints import did_you_mean, listing
from model.kinds import API_VERSION, KINDS, Declaration
from model.loader.foreign import CORE, Foreign, foreign
from model.loader.tree import Document, Path
from model.problem import Code, Problem
from model.upstream.base import (
    AUTOSCALING_GROUP,
    KARPENTER_GROUP,
    KARPENTER_PROVIDER_GROUP,
    KUEUE_GROUP,
    VOLCANO_GROUP,
)

_READ_GROUPS = (KUEUE_GROUP, VOLCANO_GROUP, KARPENTER_GROUP, KARPENTER_PROVIDER_GROUP, AUTOSCALING_GROUP)
_FOREIGN_GROUPS = ("kueue.x-k8s.io", "karpenter.sh", "karpenter.k8s.aws", "volcano.sh", "scheduling.x-k8s.io")
"""Endings of groups: `config.kueue.x-k8s.io`, `topology.volcano.sh`."""


def _literals(kind: type[Declaration], field: str) -> tuple[str, ...]:
    return get_args(kind.model_fields[field].annotation)


def _by_version(kinds: Sequence[type[Declaration]]) -> Mapping[tuple[str, str], type[Declaration]]:
    return {
        (version, name): kind
        for kind in kinds
        for version in _literals(kind, "api_version")
        for name in _literals(kind, "kind")
    }


_OURS_BY_VERSION = _by_version(KINDS)
_OURS = sorted(name for _, name in _OURS_BY_VERSION)


@cache
def kinds_by_version() -> Mapping[tuple[str, str], type[Declaration]]:
    """(apiVersion, kind) as they are written -> the model, those of other systems among them."""
    from model.upstream.manifests import UPSTREAM_KINDS

    return {**_OURS_BY_VERSION, **_by_version(UPSTREAM_KINDS)}


def kind_named(api_version: str, kind: str) -> type[Declaration] | None:
    """The model of an apiVersion and kind; None where there is none."""
    ours = _OURS_BY_VERSION.get((api_version, kind))
    return ours or (None if api_version == API_VERSION else kinds_by_version().get((api_version, kind)))


def is_mig_parted(document: Document) -> bool:
    """Whether a document is a configuration file of mig-parted: those have a version instead of a kind."""
    data = document.root.data
    return "mig-configs" in data and not data.keys() & {"apiVersion", "kind"}


def kind_of(document: Document) -> type[Declaration] | list[Problem]:
    """The model of a document, or what is wrong with its `apiVersion` and `kind`."""
    data = document.root.data
    api_version, kind = data.get("apiVersion"), data.get("kind")
    if isinstance(api_version, str) and isinstance(kind, str) and (model := kind_named(api_version, kind)):
        return model
    if (known := foreign(data)) is not None and not (known is CORE and kind in _OURS):
        return [_foreign(document, known)]
    group = str(api_version).split("/", maxsplit=1)[0]
    if group in _READ_GROUPS:
        return [_upstream(document, group)]
    if group.endswith(_FOREIGN_GROUPS):
        return [_not_read_yet(document)]
    return list(_ours(document, api_version, kind))


def _foreign(document: Document, known: Foreign) -> Problem:
    """A document that is for somebody else, at its kind."""
    data = document.root.data
    path: Path = ("kind",) if "kind" in data else ("apiVersion",) if "apiVersion" in data else ()
    named = " ".join(str(data[key]) for key in ("apiVersion", "kind") if isinstance(data.get(key), str))
    words = f"{named} is {known.what}, not a declaration of a fleet" if named else f"this looks like {known.what}"
    return document.problem(path, f"{words}: {known.why}", Code.FOREIGN_KIND, hint=known.do)


def _not_read_yet(document: Document) -> Problem:
    data = document.root.data
    what = f"{data.get('apiVersion')} {data.get('kind')}"
    hint = f"{API_VERSION} has {listing(_OURS)}"
    return document.problem(("apiVersion",), f"{what} is not read yet", Code.NOT_READ_YET, hint=hint)


def _upstream(document: Document, group: str) -> Problem:
    """A kind or version of a group of which we read others."""
    from model.upstream.manifests import UNSUPPORTED_KINDS

    api_version, kind = str(document.root.data["apiVersion"]), str(document.root.data.get("kind"))
    if advice := UNSUPPORTED_KINDS.get((group, kind)):
        return document.problem(("kind",), f"{group} {kind} is not supported", Code.UNSUPPORTED, hint=advice)
    known = [(version, name) for version, name in kinds_by_version() if version.startswith(f"{group}/")]
    names = sorted({name for _, name in known})
    if "kind" not in document.root.data:
        return document.problem((), "the key 'kind' is required", Code.MISSING_KEY, hint=f"one of {listing(names)}")
    versions = sorted(version for version, name in known if name == kind)
    if versions:
        message = f"{kind} is not read in the version {api_version!r}"
        return document.problem(("apiVersion",), message, Code.UNKNOWN_KIND, hint=f"write {versions[-1]}")
    hint = did_you_mean(kind, names) or f"of {group} these are read: {listing(names)}"
    return document.problem(("kind",), f"unknown kind {kind!r} of {group}", Code.UNKNOWN_KIND, hint=hint)


def _ours(document: Document, api_version: Any, kind: Any) -> Iterator[Problem]:
    if api_version is None and kind is None:
        message = "this is no declaration: it has neither apiVersion nor kind"
        hint = "keep other files outside the fleet's folder"
        yield document.problem((), message, Code.NOT_A_DECLARATION, hint=hint)
        return
    if api_version is None:
        yield document.problem((), "the key 'apiVersion' is required", Code.MISSING_KEY, hint=f"write {API_VERSION}")
    elif api_version != API_VERSION:
        hint = f"write {API_VERSION}"
        yield document.problem(("apiVersion",), f"unknown apiVersion {api_version!r}", Code.UNKNOWN_KIND, hint=hint)
    if kind is None:
        yield document.problem((), "the key 'kind' is required", Code.MISSING_KEY, hint=f"one of {listing(_OURS)}")
    elif kind not in _OURS and (api_version is None or api_version == API_VERSION):
        hint = did_you_mean(str(kind), _OURS) or f"known are {listing(_OURS)}"
        yield document.problem(("kind",), f"unknown kind {kind!r}", Code.UNKNOWN_KIND, hint=hint)
