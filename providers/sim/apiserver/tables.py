"""Tables and partial metadata: the forms of an answer other than the object itself.

Source: meta/v1 `Table`, `PartialObjectMetadata`; apiserver `pkg/endpoints/handlers/response.go`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from providers.sim.apiserver.columns import cells_of, columns_of
from providers.sim.store import Page, Resource, Revision

Form = Literal["object", "table", "metadata"]
_encode = msgspec.json.Encoder().encode
_META_V1 = "meta.k8s.io/v1"


class NotAcceptable(Exception):
    """None of the media types a client accepts is spoken here (protobuf only)."""


def accepted_form(accept: str) -> Form:
    """What the `Accept` header asks for; the first choice that is spoken here wins. NotAcceptable when none is."""
    if not accept:
        return "object"
    for choice in accept.split(","):
        media, *parameters = (part.strip() for part in choice.split(";"))
        said = dict(part.partition("=")[::2] for part in parameters)
        if media not in ("application/json", "*/*", "application/*", "application/yaml"):
            continue
        match said.get("as"):
            case None:
                return "object"
            case "Table" if said.get("v", "v1") == "v1":
                return "table"
            case "PartialObjectMetadata" | "PartialObjectMetadataList":
                return "metadata"
    raise NotAcceptable(accept)


@dataclass(frozen=True, slots=True)
class Renderer:
    """Encodes objects, lists and watch lines of one resource in one form."""

    resource: Resource
    form: Form
    now_s: float
    include: str = "Metadata"

    def one(self, revision: Revision) -> bytes:
        """A single object."""
        if self.form == "object":
            return revision.json
        if self.form == "metadata":
            return _encode(_partial(revision.obj))
        return self._table([revision], {"resourceVersion": str(revision.resource_version)}, columns=True)

    def line(self, revision: Revision, *, first: bool) -> bytes:
        """The object of a watch event; a table repeats its columns only on the first."""
        if self.form == "table":
            return self._table([revision], {"resourceVersion": str(revision.resource_version)}, columns=first)
        return self.one(revision)

    def head(self, page: Page) -> bytes:
        """The beginning of a list, up to its items."""
        meta: dict[str, Any] = {"resourceVersion": str(page.resource_version)}
        if page.token:
            meta["continue"] = page.token
        if page.remaining is not None:
            meta["remainingItemCount"] = page.remaining
        if self.form == "table":
            return self._table([], meta, columns=True).removesuffix(b"]}")
        kind, version = f"{self.resource.kind}List", self.resource.api_version
        if self.form == "metadata":
            kind, version = "PartialObjectMetadataList", _META_V1
        return _encode({"kind": kind, "apiVersion": version, "metadata": meta}).removesuffix(b"}") + b',"items":['

    def items(self, rows: Sequence[Revision]) -> bytes:
        """Some of the items of a list, with commas between them."""
        if self.form == "object":
            return b",".join([revision.json for revision in rows])
        if self.form == "metadata":
            return b",".join([_encode(_partial(revision.obj)) for revision in rows])
        return b",".join([_encode(self._row(revision)) for revision in rows])

    def _table(self, rows: list[Revision], meta: dict[str, Any], *, columns: bool) -> bytes:
        shown = [_column(column) for column in columns_of(self.resource)] if columns else []
        return _encode(
            {
                "kind": "Table",
                "apiVersion": _META_V1,
                "metadata": meta,
                "columnDefinitions": shown,
                "rows": [self._row(revision) for revision in rows],
            }
        )

    def _row(self, revision: Revision) -> dict[str, Any]:
        row: dict[str, Any] = {"cells": cells_of(self.resource, revision.obj, self.now_s)}
        if self.include == "Object":
            row["object"] = revision.obj
        elif self.include != "None":
            row["object"] = _partial(revision.obj)
        return row


def _column(column: Any) -> dict[str, Any]:
    shown = {"name": column.name, "type": column.type, "format": "", "priority": column.priority}
    return {**shown, "format": "name" if column.name == "Name" else "", "description": column.description}


def _partial(obj: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "PartialObjectMetadata", "apiVersion": _META_V1, "metadata": obj["metadata"]}
