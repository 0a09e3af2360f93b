"""Writes descriptions of forges from packages of TypeScript types, cut down to what Muster asks: OpenAPI 3.0.

* `tests/data/gitea-openapi.json` from `gitea-js` (MIT), whose types and calls are generated from Gitea's own
  description (`templates/swagger/v1_json.tmpl`); Forgejo serves the same calls. That description promises no field and
  tells of no null, so every field may be missing or null here; one that it does not name may not be there.
* `tests/data/gitlab-openapi.json` from `@gitbeaker/core` (MIT), whose types people write from GitLab's documentation.
  GitLab's own description (`doc/api/openapi`) tells lists as single things and promises no field. The calls are below.

Run it with the packages:

    npm pack gitea-js@1.23.0 @gitbeaker/core@43.8.0
    python -m tools.typed_description gitea-js-1.23.0.tgz 2025-11-04 gitbeaker-core-43.8.0.tgz 2026-01-15
"""

import json
import re
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

DATA: Final = Path(__file__).parents[1] / "tests/data"
_MEMBER: Final = "package/dist/index.d.ts"
_HERE: Final = "/repos/{owner}/{repo}"
GITEA: Final = {
    "/orgs/{org}/teams/search": ("get",),
    "/teams/{id}/members/{username}": ("get",),
    "/user": ("get",),
    f"{_HERE}/collaborators/{{collaborator}}/permission": ("get",),
    f"{_HERE}/commits/{{sha}}/pull": ("get",),
    f"{_HERE}/contents/{{filepath}}": ("get", "put"),
    f"{_HERE}/git/commits/{{sha}}": ("get",),
    f"{_HERE}/issues/comments/{{id}}": ("get", "patch"),
    f"{_HERE}/issues/comments/{{id}}/reactions": ("get", "post"),
    f"{_HERE}/issues/{{index}}/comments": ("get", "post"),
    f"{_HERE}/pulls": ("get", "post"),
    f"{_HERE}/pulls/{{index}}": ("get", "patch"),
    f"{_HERE}/pulls/{{index}}/reviews": ("get",),
    f"{_HERE}/statuses/{{sha}}": ("get", "post"),
}
_MERGE: Final = "/projects/{id}/merge_requests"
_PAGE: Final = {"page": "number", "per_page": "number"}
GITLAB: Final[dict[str, dict[str, tuple[dict[str, str], str]]]] = {
    # path -> method -> (the query of a get or the body of another, the answer)
    "/user": {"get": ({}, "SimpleUserSchema")},
    "/users": {"get": ({"username": "string", **_PAGE}, "MappedOmit<SimpleUserSchema, 'created_at'>[]")},
    "/groups/{id}": {"get": ({"with_projects": "string"}, "SimpleGroupSchema")},
    "/groups/{id}/members/all/{user_id}": {"get": ({}, "SimpleMemberSchema")},
    "/projects/{id}/members/all/{user_id}": {"get": ({}, "SimpleMemberSchema")},
    _MERGE: {
        "get": (
            {
                "state": "'opened' | 'closed' | 'locked' | 'merged' | 'all'",
                "order_by": "'created_at' | 'title' | 'merged_at' | 'updated_at'",
                "sort": "'asc' | 'desc'",
                "target_branch": "string",
                "source_branch": "string",
                **_PAGE,
            },
            "MergeRequestSchema[]",
        ),
        "post": (
            {
                "source_branch": "string",
                "target_branch": "string",
                "title": "string",
                "description": "string",
                "remove_source_branch": "boolean",
            },
            "ExpandedMergeRequestSchema",
        ),
    },
    f"{_MERGE}/{{iid}}": {
        "get": ({}, "ExpandedMergeRequestSchema"),
        "put": ({"state_event": "'close' | 'reopen'"}, "ExpandedMergeRequestSchema"),
    },
    f"{_MERGE}/{{iid}}/approvals": {"get": ({}, "MergeRequestLevelMergeRequestApprovalSchema")},
    f"{_MERGE}/{{iid}}/reviewers": {"get": (_PAGE, "MergeRequestReviewerSchema[]")},
    f"{_MERGE}/{{iid}}/notes": {
        "get": (
            {"sort": "'asc' | 'desc'", "order_by": "'created_at' | 'updated_at'", **_PAGE},
            "MergeRequestNoteSchema[]",
        ),
        "post": ({"body": "string"}, "MergeRequestNoteSchema"),
    },
    f"{_MERGE}/{{iid}}/notes/{{note_id}}": {"put": ({"body": "string"}, "MergeRequestNoteSchema")},
    f"{_MERGE}/{{iid}}/notes/{{note_id}}/award_emoji": {
        "get": (_PAGE, "AwardEmojiSchema[]"),
        "post": ({"name": "string"}, "AwardEmojiSchema"),
    },
    "/projects/{id}/deployments": {
        "get": (
            {
                "environment": "string",
                "order_by": "'id' | 'iid' | 'created_at' | 'updated_at' | 'ref'",
                "sort": "'asc' | 'desc'",
                **_PAGE,
            },
            "DeploymentSchema[]",
        ),
        "post": (
            {
                "environment": "string",
                "sha": "string",
                "ref": "string",
                "tag": "boolean",
                "status": "'running' | 'success' | 'failed' | 'canceled'",
            },
            "DeploymentSchema",
        ),
    },
    "/projects/{id}/deployments/{deployment_id}": {
        "put": ({"status": "'running' | 'success' | 'failed' | 'canceled'"}, "DeploymentSchema")
    },
    "/projects/{id}/repository/files/{file_path}": {"get": ({"ref": "string"}, "RepositoryFileExpandedSchema")},
    "/projects/{id}/repository/commits": {
        "post": (
            {
                "branch": "string",
                "start_sha": "string",
                "commit_message": "string",
                # As it is on the wire; the package writes names together.
                "actions": "{ action: 'create' | 'update'; file_path: string; content: string; encoding: string }[]",
            },
            "CommitSchema",
        )
    },
    "/projects/{id}/repository/commits/{sha}/merge_requests": {"get": (_PAGE, "MergeRequestSchema[]")},
    "/projects/{id}/statuses/{sha}": {
        "post": (
            {
                "state": "CommitablePipelineStatus",
                "ref": "string",
                "name": "string",
                "target_url": "string",
                "description": "string",
            },
            "CommitStatusSchema",
        )
    },
}
_LACKING: Final = {
    # What GitLab's own code (lib/api/entities) says otherwise: (type, field) -> how the field is declared.
    ("ApprovedByEntity", "approved_at"): "approved_at?: string",
    ("MergeRequestSchema", "source_project_id"): "source_project_id: number | null",  # of a fork that is deleted
    ("SimpleMemberSchema", "email"): "email?: string",  # told to administrators only
    ("SimpleMemberSchema", "expires_at"): "expires_at: string | null",
    ("DeploymentSchema", "user"): "user: MappedOmit<SimpleUserSchema, 'created_at'>",  # a UserBasic, as elsewhere
    ("DeploymentSchema", "deployable"): "deployable: DeployableSchema | null",  # none but of a job
    ("DeploymentSchema", "environment"): "environment: { id: number; name: string; slug: string; "
    "external_url: string | null; created_at: string; updated_at: string }",  # lib/api/entities/environment_basic.rb
    ("CommitStatusSchema", "target_url"): "target_url: string | null",
    ("CommitStatusSchema", "started_at"): "started_at?: string | null",
    ("CommitStatusSchema", "finished_at"): "finished_at?: string | null",
    ("CommitStatusSchema", "description"): "description?: string | null",
}
_SCALARS: Final = {"string": "string", "number": "number", "boolean": "boolean"}
_DECLARED: Final = re.compile(
    r"^(?:export |declare )*(?:interface (?P<name>\w+)(?: extends (?P<bases>.+?))? \{\n(?P<body>.*?)^\}"
    r"|type (?P<alias>\w+) = (?P<of>[^;{]+);)",
    re.MULTILINE | re.DOTALL,
)
_FIELD: Final = re.compile(
    r"""["']?(?P<name>[\w-]+)["']?(?P<optional>\?)?: (?P<type>[^;]*(?:\{.*?\}[^;]*)?)\Z""", re.DOTALL
)
_CALL: Final = re.compile(
    r"@request (?P<method>[A-Z]+):(?P<path>\S+)\n(?:(?!\*/).)*\*/\s+\w+: \((?P<arguments>.*?)\)"
    r" => Promise<HttpResponse<(?P<answer>.*?), \w+>>;",
    re.DOTALL,
)


class Types:
    """The types of a file, as JSON Schema."""

    def __init__(self, text: str, *, promises: bool) -> None:
        self._promises = promises
        self._found: dict[str, Any] = {}
        self._declared = {each["name"] or each["alias"]: each for each in _DECLARED.finditer(text)}

    def collected(self) -> dict[str, Any]:
        """The schemas that were referred to."""
        return self._found

    def schema(self, words: str) -> dict[str, Any]:
        """What an expression says."""
        words = words.strip()
        several = [each for each in _parted(words, "|") if each not in {"undefined", "any"}]
        if "null" in several:
            return {**self.schema("|".join(each for each in several if each != "null")), "nullable": True}
        if len(several) > 1:
            if all(each.startswith("'") for each in several):
                return {"type": "string", "enum": [each.strip("'") for each in several]}
            return {"anyOf": [self.schema(each) for each in several]}
        if not several or several[0] in {"unknown", "object"} or several[0].startswith(("Record<", "Exclude<")):
            return {}
        return self._one(several[0])

    def _one(self, words: str) -> dict[str, Any]:
        if words.endswith("[]"):
            return {"type": "array", "items": self.schema(words[:-2])}
        if words in _SCALARS:
            return {"type": _SCALARS[words]}
        if words.startswith("'"):
            return {"type": "string", "enum": [words.strip("'")]}
        if words.startswith("{"):
            return self._object("", words[1:-1])
        if omitted := re.fullmatch(r"MappedOmit<(\w+), '(\w+)'>", words):
            whole = self._of(omitted[1])
            kept = {name: value for name, value in whole["properties"].items() if name != omitted[2]}
            return {**whole, "properties": kept, "required": [it for it in whole["required"] if it != omitted[2]]}
        if words not in self._found:
            self._found[words] = {}
            self._found[words] = self._of(words)
        return {"$ref": f"#/components/schemas/{words}"}

    def _of(self, name: str) -> dict[str, Any]:
        declared = self._declared[name]
        if declared["alias"]:
            return self.schema(declared["of"])
        made = self._object(name, declared["body"])
        for base in _parted(declared["bases"] or "", ","):
            if base.startswith("Record<"):
                made.pop("additionalProperties", None)
                continue
            whole = self._of(base)
            made["properties"] = {**whole["properties"], **made["properties"]}
            made["required"] = sorted({*whole.get("required", ()), *made.get("required", ())})
            if "additionalProperties" not in whole:
                made.pop("additionalProperties", None)
        return made

    def _object(self, name: str, body: str) -> dict[str, Any]:
        properties, required = {}, []
        for field, optional, words, notes in _fields(name, body):
            schema = self.schema(words)
            if form := re.search(r"@format ([\w-]+)", notes):
                schema = {**schema, **_formatted(form[1])}
            elif field.endswith("_at") and schema.get("type") == "string":
                schema = {**schema, "format": "date-time"}
            if not self._promises:
                schema = {"nullable": True, **({"allOf": [schema]} if "$ref" in schema else schema)}
            elif not optional:
                required.append(field)
            properties[field] = schema
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def main(gitea: Path, gitea_published: str, gitbeaker: Path, gitbeaker_published: str) -> None:
    """Write the files."""
    text = _read(gitea)
    types = Types(text, promises=False)
    paths: dict[str, Any] = {path: {} for path in GITEA}
    for call in _CALL.finditer(text):
        method = call["method"].lower()
        if method in GITEA.get(call["path"], ()):
            paths[call["path"]][method] = _operation(types, method, *_given(call["arguments"]), call["answer"])
    error = types.schema("APIError")
    _write("gitea", gitea, gitea_published, paths, types, error)
    types = Types(_read(gitbeaker), promises=True)
    paths = {
        path: {
            method: _operation(types, method, *((given, {}) if method == "get" else ({}, given)), answer)
            for method, (given, answer) in methods.items()
        }
        for path, methods in GITLAB.items()
    }
    _write("gitlab", gitbeaker, gitbeaker_published, paths, types, {"type": "object"})


def _read(package: Path) -> str:
    with tarfile.open(package) as archive:
        member = archive.extractfile(_MEMBER)
        if member is None:
            raise SystemExit(f"{package} holds no {_MEMBER}")
        return member.read().decode()


def _write(
    name: str, package: Path, published: str, paths: dict[str, Any], types: Types, error: dict[str, Any]
) -> None:
    for path, methods in paths.items():
        if not methods:
            raise SystemExit(f"{package} does not know {path}")
    schemas = {**types.collected(), "basic-error": error}
    source = {"package": package.name.removesuffix(".tgz"), "published": published, "license": "MIT"}
    document = {"openapi": "3.0.3", "x-source": source, "paths": paths, "components": {"schemas": schemas}}
    target = DATA / f"{name}-openapi.json"
    target.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _operation(types: Types, method: str, query: dict[str, str], body: Any, answer: str) -> dict[str, Any]:
    parameters = [{"name": name, "in": "query", "schema": types.schema(words)} for name, words in query.items()]
    content = {"application/json": {"schema": types.schema(answer)}}
    statuses = ("200", "201") if method in {"post", "patch"} else ("200",)
    made = {"parameters": parameters, "responses": {status: {"content": content} for status in statuses}}
    if body:
        inner = "".join(f"{name}?: {words};\n" for name, words in body.items()) if isinstance(body, dict) else ""
        schema = types.schema(f"{{{inner}}}" if inner else body)
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return made


def _given(arguments: str) -> tuple[dict[str, str], str]:
    """The query and the body of a call of gitea-js."""
    query = re.search(r"query\?: \{(.*)\}, params", arguments, re.DOTALL)
    named = {name: words for name, _, words, _ in _fields("", query[1])} if query else {}
    body = re.search(r"(?:body|content): (\w+), params", arguments)
    return named, body[1] if body else ""


def _fields(owner: str, body: str) -> Iterator[tuple[str, bool, str, str]]:
    """(name, whether it is optional, type, comment) of each field."""
    extra = [words for (name, _), words in _LACKING.items() if name == owner]
    replaced = {name for name, _ in ((field, it) for (it, field) in _LACKING if it == owner)}
    for part in [*_parted(body, ";"), *extra]:
        notes = "".join(re.findall(r"/\*.*?\*/", part, re.DOTALL))
        match = _FIELD.fullmatch(re.sub(r"/\*.*?\*/", "", part, flags=re.DOTALL).strip())
        if match is not None and (part in extra or match["name"] not in replaced):
            yield match["name"], bool(match["optional"]), match["type"], notes


def _parted(words: str, mark: str) -> list[str]:
    """Parts a text where no bracket is open."""
    parts, depth, begun, in_note = [], 0, 0, False
    for place, sign in enumerate(words):
        in_note = (in_note or words.startswith("/*", place)) and not words.startswith("*/", place - 2)
        if in_note:
            continue
        depth += (sign in "<{([") - (sign in ">})]" and words[place - 1 : place + 1] != "=>")
        if sign == mark and depth == 0:
            parts.append(words[begun:place].strip())
            begun = place + 1
    return [part for part in (*parts, words[begun:].strip()) if part]


def _formatted(form: str) -> dict[str, str]:
    if form in {"int64", "uint64"}:
        return {"type": "integer"}
    return {"format": form} if form == "date-time" else {}


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4])
