"""Patches: one document changes another of the same apiVersion, kind and name, and every value keeps its own place.

Strategic as in Kubernetes: mappings are merged, a list whose items have a name by the field of that name, every other
list and every value is replaced whole. `key: null` and `$patch: delete` remove, `$patch: replace` merges nothing.
What would remove or change something that is not there is refused: a patch that does nothing is a slip.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from json import dumps
from typing import NamedTuple

from model.hints import did_you_mean
from model.kinds import Declaration
from model.loader.envelope import kind_named
from model.loader.known_keys import models_at
from model.loader.parse import LoaderLimits
from model.loader.tree import Document, Path, YamlNode, text_path
from model.problem import Code, Problem

_DIRECTIVE = "$patch"
_INSTEAD = "what is written is merged, `key: null` and `$patch: delete` remove, `$patch: replace` replaces"


class Identity(NamedTuple):
    """What a patch and what it changes have in common, as it is written."""

    api_version: str
    kind: str
    namespace: str
    name: str


class Patched(NamedTuple):
    """The documents after all patches, and those that patches have removed."""

    documents: Sequence[Document]
    removed: Sequence[Document]
    problems: Sequence[Problem]


def identity_of(document: Document) -> Identity | None:
    """Returns what a document is about; None where it does not say so."""
    data = document.root.data
    metadata = data.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    said = (data.get("apiVersion"), data.get("kind"), metadata.get("namespace", ""), metadata.get("name"))
    words = [it for it in said if isinstance(it, str)]
    return Identity(*words) if len(words) == len(said) else None


def apply_patches(
    documents: Sequence[Document], patches: Sequence[Document], limits: LoaderLimits, *, complete: bool
) -> Patched:
    """Returns the documents with the patches applied in their order.

    `complete`: all documents could be read, so that what a patch does not find is nowhere. The values of everything
    that patches touch, added up patch by patch, stay within `limits.total_values`.
    """
    now: dict[Identity, Document] = {}
    order: list[Document | Identity] = []
    for said in documents:
        identity, document = identity_of(said), _with_part(said, said)
        if identity is None or identity in now:
            order.append(document)  # the one that it repeats is told of where the two meet
        else:
            order.append(identity)
            now[identity] = document
    removed: list[Document] = []
    problems: list[Problem] = []
    spent = 0
    for patch in patches:
        identity = identity_of(patch)
        target = now.get(identity) if identity is not None else None
        if identity is None or target is None:
            problems += _without_target(patch, identity, now) if complete or identity is None else ()
            continue
        merge = _Merge(kind_named(identity.api_version, identity.kind), patch)
        result = merge.document(target)
        problems += merge.problems
        if merge.problems:
            continue  # what follows from half a patch helps nobody
        if result is None:
            removed.append(_with_part(now.pop(identity), patch))
            continue
        spent += result.root.weight
        if spent > limits.total_values:
            message = f"the patches touch more than {limits.total_values} values, each counted for every patch"
            problems.append(patch.problem((), message, Code.TOO_LARGE))
            break
        now[identity] = result
    left = [it if isinstance(it, Document) else now[it] for it in order if isinstance(it, Document) or it in now]
    return Patched(left, removed, problems)


def _without_target(
    patch: Document, identity: Identity | None, known: Mapping[Identity, Document]
) -> Iterator[Problem]:
    if identity is None:
        hint = "a patch begins with the apiVersion, kind and metadata.name of what it changes"
        yield patch.problem((), "this patch does not say what it changes", Code.MISSING_KEY, hint=hint)
        return
    alike = [it for it in known if it.name == identity.name and it.kind == identity.kind]
    if alike:
        path: Path = ("apiVersion",) if alike[0].api_version != identity.api_version else ("metadata", "namespace")
        hint = (
            f"one is declared with {text_path(path)}: {alike[0].api_version if len(path) == 1 else alike[0].namespace}"
        )
    else:
        path = ("metadata", "name")
        hint = did_you_mean(identity.name, (it.name for it in known if it.kind == identity.kind))
        hint = hint or "declare it in a base, or in a file of the cluster's folder that is no patch"
    words = f"no base declares the {identity.kind} {identity.name!r} that this patch changes"
    yield patch.problem(path, words, Code.DANGLING_REFERENCE, hint=hint)


class _Merge:
    """Merges one patch into one document; `problems` are all in the patch."""

    def __init__(self, kind: type[Declaration] | None, patch: Document) -> None:
        self.problems: list[Problem] = []
        self._kind = kind
        self._patch = patch
        _mark(patch)

    def document(self, target: Document) -> Document | None:
        """Returns the document with the patch; None where the patch removes it."""
        root = self._patch.root
        if _removes(root):
            if extra := root.data.keys() - {_DIRECTIVE, "apiVersion", "kind", "metadata"}:
                self._refuse(root, (min(extra),), "a patch that removes says nothing else")
            return None
        return _with_part(replace(target, root=self._mapping(target.root, root, ())), self._patch)

    def _refuse(self, node: YamlNode, path: Path, message: str, hint: str = "") -> None:
        words = (message, Code.INVALID_VALUE)
        self.problems.append(
            self._patch.source.problem(node.line, node.column, *words, path=text_path(path), hint=hint)
        )

    def _value(self, base: YamlNode | None, patch: YamlNode, path: Path) -> YamlNode:
        if isinstance(patch.children, dict):
            return self._mapping(base, patch, path)
        if isinstance(patch.children, list):
            return self._list(base, patch, path)
        return patch

    def _mapping(self, base: YamlNode | None, patch: YamlNode, path: Path) -> YamlNode:
        if not isinstance(patch.children, dict):
            raise TypeError("only mappings are merged key by key")
        at = patch if base is None or _replaces(patch) or not isinstance(base.children, dict) else base
        kept = dict(at.children) if at is not patch and isinstance(at.children, dict) else {}
        for key, (key_node, value) in patch.children.items():
            below = (*path, key)
            old = kept.get(key)
            if key.startswith("$"):
                self._check_directive(key, value, path)
            elif not _removes(value):
                kept[key] = (old[0] if old else key_node, self._value(old[1] if old else None, value, below))
            elif old is None:
                self._refuse(key_node, below, "there is nothing to remove here")
            else:
                del kept[key]
        node = YamlNode({key: value.data for key, (_, value) in kept.items()}, at.line, at.column)
        node.children, node.source = kept, at.source
        return _weighed(node, [value for _, value in kept.values()])

    def _check_directive(self, key: str, value: YamlNode, path: Path) -> None:
        if key != _DIRECTIVE or value.data != "replace":
            hint = _INSTEAD if value.data != "delete" else "nothing with this name is there, or the list has no names"
            self._refuse(value, (*path, key), f"{key}: {value.data!r} has no meaning here", hint)

    def _list(self, base: YamlNode | None, patch: YamlNode, path: Path) -> YamlNode:
        if not isinstance(patch.children, list):
            raise TypeError("only lists are merged item by item")
        items = patch.children
        named = self._is_named(path)
        anew = [it for it in items if named and _replaces(it) and len(it.data) == 1]
        merged = base if named and not anew and base is not None and isinstance(base.children, list) else None
        kept = list(merged.children) if merged is not None and isinstance(merged.children, list) else []
        if named:
            kept = self._by_name(kept, [it for it in items if it not in anew], path)
        else:
            kept = [self._value(None, item, (*path, index)) for index, item in enumerate(items)]
        at = patch if merged is None else merged
        node = YamlNode([item.data for item in kept], at.line, at.column)
        node.children, node.source = kept, at.source
        return _weighed(node, kept)

    def _is_named(self, path: Path) -> bool:
        """Whether the items of the list at `path` have to have a name."""
        found = models_at(self._kind, (*path, 0)) if self._kind is not None else ()
        fields = [cls.model_fields.get("name") for cls in found]
        return bool(fields) and all(field is not None and field.is_required() for field in fields)

    def _by_name(self, base: Sequence[YamlNode], items: Sequence[YamlNode], path: Path) -> list[YamlNode]:
        kept: dict[str | int, YamlNode] = {}
        for index, item in enumerate(base):
            name = _name_of(item)
            kept[index if name is None or name in kept else name] = item
        seen: set[str] = set()
        for index, item in enumerate(items):
            below, name = (*path, index), _name_of(item)
            if name is None or name in seen:
                self._refuse(item, below, "items of this list are merged by their name: each needs one of its own")
            elif not _removes(item):
                kept[name] = self._value(kept.get(name), item, below)
            elif kept.pop(name, None) is None:
                self._refuse(item, below, f"there is no {name!r} to remove")
            seen |= {name} if name is not None else set()
        return list(kept.values())


def _name_of(item: YamlNode) -> str | None:
    name = item.data.get("name") if isinstance(item.data, dict) else None
    return name if isinstance(name, str) else None


def _removes(node: YamlNode) -> bool:
    return node.data is None or (isinstance(node.data, dict) and node.data.get(_DIRECTIVE) == "delete")


def _replaces(node: YamlNode) -> bool:
    return isinstance(node.data, dict) and node.data.get(_DIRECTIVE) == "replace"


def _weighed(node: YamlNode, below: Sequence[YamlNode]) -> YamlNode:
    node.weight = 1 + sum(it.weight for it in below)
    node.height = 1 + max((it.height for it in below), default=-1)
    return node


def _mark(patch: Document) -> None:
    """Notes in every node of a patch which file it stands in; shared ones (aliases) once."""
    seen: set[int] = set()
    waiting = [patch.root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        node.source = patch.source
        if isinstance(node.children, dict):
            waiting += [it for pair in node.children.values() for it in pair]
        elif node.children is not None:
            waiting += node.children


def _with_part(document: Document, part: Document) -> Document:
    """The document, of which `part` is a part: itself, or a patch."""
    file = part.source.file
    said = document.parts.get(file, "") + dumps(part.root.data, sort_keys=True)
    return replace(document, parts={**document.parts, file: sha256(said.encode()).hexdigest()})
