"""Writes descriptions of forges from packages of TypeScript types, cut down to what Muster asks: OpenAPI 3.0.

* `tests/data/gitea-openapi.json` from `gitea-js` (MIT), whose types and calls are generated from Gitea's own
  description (`templates/swagger/v1_json.tmpl`); Forgejo serves the same calls. That description promises no field of
  an answer and tells of no null, so each may be missing or null here; one that it does not name may not be there.
* `tests/data/gitlab-openapi.json` from two sources. GitLab's own description (`doc/api/openapi/openapi_v3.yaml`), of
  which `tests/data/gitlab-official.json` has the facts of our calls, tells parameters, bodies, statuses and names of
  fields. It promises no field, tells of no null, and some lists as single things: these three are told by
  `@gitbeaker/core` (MIT), whose types people write from GitLab's documentation. Where they differ, see the tables.

In `gitlab-official.json` a parameter or field with `!` has to be there, `[X]` is a list, and `time` a date and time.

Run it with the packages:

    npm pack gitea-js@1.23.0 @gitbeaker/core@43.8.0
    python -m tools.typed_description gitea-js-1.23.0.tgz 2025-11-04 gitbeaker-core-43.8.0.tgz 2026-01-15
"""

import json
import re
import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

DATA: Final = Path(__file__).parents[1] / "tests/data"
OFFICIAL: Final = DATA / "gitlab-official.json"
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
GITEA_OFFICIAL: Final = {
    "repository": "go-gitea/gitea",
    "path": "templates/swagger/v1-swagger.generated.json",
    "commit": "009dbc068962cf6a61f156513888fe980663dab2",
    "read": "2026-11-28",
}
_STATUSES: Final = {
    # What Gitea's own description has and the package leaves out: with what a call is answered, if not with 200.
    ("put", f"{_HERE}/contents/{{filepath}}"): ("200", "201"),
    ("patch", f"{_HERE}/pulls/{{index}}"): ("201",),
    ("post", f"{_HERE}/issues/comments/{{id}}/reactions"): ("200", "201"),
    ("post", f"{_HERE}/issues/{{index}}/comments"): ("201",),
    ("post", f"{_HERE}/pulls"): ("201",),
    ("post", f"{_HERE}/statuses/{{sha}}"): ("201",),
}
_VALUES: Final = {
    # The same: which values there are.
    "StateType": ("open", "closed"),
    "ReviewStateType": ("APPROVED", "PENDING", "COMMENT", "REQUEST_CHANGES", "REQUEST_REVIEW"),
    "CommitStatusState": ("pending", "success", "error", "failure", "warning", "skipped"),
}
_MERGE: Final = "/projects/{id}/merge_requests"
_AWARDS: Final = f"{_MERGE}/{{iid}}/notes/{{note_id}}/award_emoji"
_APPROVALS: Final = f"GET {_MERGE}/{{iid}}/approvals"
_COMMIT: Final = "POST /projects/{id}/repository/commits"
_SET_STATUS: Final = "POST /projects/{id}/statuses/{sha}"
GITLAB: Final = {
    # call -> the answer in the words of the package
    "GET /user": "SimpleUserSchema",
    "GET /users": "MappedOmit<SimpleUserSchema, 'created_at'>[]",
    "GET /groups/{id}": "SimpleGroupSchema",
    "GET /groups/{id}/members/all/{user_id}": "SimpleMemberSchema",
    "GET /projects/{id}/members/all/{user_id}": "SimpleMemberSchema",
    f"GET {_MERGE}": "MergeRequestSchema[]",
    f"POST {_MERGE}": "ExpandedMergeRequestSchema",
    f"GET {_MERGE}/{{iid}}": "ExpandedMergeRequestSchema",
    f"PUT {_MERGE}/{{iid}}": "ExpandedMergeRequestSchema",
    _APPROVALS: "MergeRequestLevelMergeRequestApprovalSchema",
    f"GET {_MERGE}/{{iid}}/reviewers": "MergeRequestReviewerSchema[]",
    f"GET {_MERGE}/{{iid}}/notes": "MergeRequestNoteSchema[]",
    f"POST {_MERGE}/{{iid}}/notes": "MergeRequestNoteSchema",
    f"PUT {_MERGE}/{{iid}}/notes/{{note_id}}": "MergeRequestNoteSchema",
    f"GET {_AWARDS}": "AwardEmojiSchema[]",
    f"POST {_AWARDS}": "AwardEmojiSchema",
    "GET /projects/{id}/deployments": "DeploymentSchema[]",
    "POST /projects/{id}/deployments": "DeploymentSchema",
    "PUT /projects/{id}/deployments/{deployment_id}": "DeploymentSchema",
    "GET /projects/{id}/repository/files/{file_path}": "RepositoryFileExpandedSchema",
    _COMMIT: "CommitSchema",
    "GET /projects/{id}/repository/commits/{sha}/merge_requests": "MergeRequestSchema[]",
    _SET_STATUS: "CommitStatusSchema",
}
_UNDESCRIBED: Final = {
    # GitLab describes an upload of a file of parameters alone; the parameters are those of docs.gitlab.com/api/commits.
    _COMMIT: "{ branch: string; start_sha?: string; commit_message: string; "
    "actions: { action: 'create' | 'update'; file_path: string; content: string; encoding: string }[] }"
}
_CREATED: Final = {_COMMIT, _SET_STATUS}
"""What GitLab describes as answered with 200, and answers with 201 as its own tests ask (`spec/requests/api`)."""
_ALSO: Final = {_APPROVALS: "ApprovalState"}
"""What the Enterprise Edition answers instead: GitLab describes that entity, but not this use of it."""
_PEOPLE: Final = dict.fromkeys(("UserBasic", "MergeRequestAuthor"), "MappedOmit<SimpleUserSchema, 'created_at'>")
"""Entities that are the same thing to the package wherever they are; it does not name each of them."""
_MISTYPED: Final = {
    ("Member", "access_level"): "integer"
}  # `string` is what its generator writes where no type is said
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
            if not optional:
                required.append(field)
            elif not self._promises:
                schema = {"nullable": True, **({"allOf": [schema]} if "$ref" in schema else schema)}
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
            statuses = _STATUSES.get((method, call["path"]), ("200",))
            paths[call["path"]][method] = _operation(types, statuses, *_given(call["arguments"]), call["answer"])
    error = types.schema("APIError")
    values = {name: {"type": "string", "enum": [*several]} for name, several in _VALUES.items()}
    schemas = {**types.collected(), **values, "basic-error": error}
    _write(
        "gitea",
        {**_source(gitea, gitea_published), "official": GITEA_OFFICIAL},
        {"paths": paths, "components": {"schemas": schemas}},
    )
    types = Types(_read(gitbeaker), promises=True)
    facts = json.loads(OFFICIAL.read_text("utf-8"))
    both = OfficialAnswers(facts["entities"], types)
    paths = {}
    for name, answer in GITLAB.items():
        method, path = name.split(" ")
        paths.setdefault(path, {})[method.lower()] = _official_operation(both, name, facts["calls"][name], answer)
    schemas = {**both.collected(), **types.collected(), "basic-error": {"type": "object"}}
    document = {"paths": paths, "components": {"schemas": _reached(paths, schemas)}}
    _write("gitlab", {**_source(gitbeaker, gitbeaker_published), "official": facts["x-source"]}, document)


class OfficialAnswers:
    """What GitLab's own description and a package tell of an answer: names of the former, the rest of both.

    A field is described as the package does where it knows it, which tells lists and nulls; what GitLab does not name
    may not be there.
    """

    def __init__(self, entities: dict[str, dict[str, Any]], types: Types) -> None:
        self._entities = entities
        self._types = types
        self._found: dict[str, Any] = {}

    def collected(self) -> dict[str, Any]:
        """The entities that were referred to."""
        return self._found

    def types(self) -> Types:
        """The package's."""
        return self._types

    def joined(self, official: Any, told: dict[str, Any]) -> dict[str, Any]:
        """What GitLab says of a field or an answer, joined with what the package does."""
        told = self._followed(told)
        nullable = {"nullable": True} if told.get("nullable") else {}
        if isinstance(official, str) and official.startswith("["):
            return {"type": "array", "items": self.joined(official[1:-1], told.get("items", {})), **nullable}
        if official not in self._entities:
            return _typed(official, told)
        if told.get("type") == "array":  # GitLab tells a list as a single thing
            return {"type": "array", "items": self.joined(official, told["items"]), **nullable}
        return {**self._entity(official, told), **nullable}

    def _entity(self, name: str, told: dict[str, Any]) -> dict[str, Any]:
        told = self._types.schema(_PEOPLE[name]) if name in _PEOPLE else told
        known = told.get("properties", {})
        fields = {
            field: self.joined(_MISTYPED.get((name, field), words), known.get(field, {"nullable": True}))
            for field, words in self._entities[name].items()
        }
        required = sorted({*told.get("required", ())} & {*fields})
        made = {"type": "object", "properties": fields, "required": required, "additionalProperties": False}
        if self._found.setdefault(name, made) != made:
            raise SystemExit(f"the package tells of {name} in two ways")
        return {"allOf": [{"$ref": f"#/components/schemas/{name}"}]}

    def _followed(self, schema: dict[str, Any]) -> dict[str, Any]:
        if "$ref" not in schema:
            return schema
        found: dict[str, Any] = self._types.collected()[schema["$ref"].rpartition("/")[2]]
        return {**found, "nullable": True} if schema.get("nullable") else found


def _typed(official: Any, told: dict[str, Any]) -> dict[str, Any]:
    """A type that is no entity: `time`, `any`, the values that there are, or one of JSON Schema."""
    if told.get("type", "number") != "number" or "anyOf" in told:
        return told
    if isinstance(official, list):
        return {**told, "type": "string", "enum": official}
    formed = {"time": {"type": "string", "format": "date-time"}, "any": {}}
    return {**told, **formed.get(official, {"type": official})}


def _official_operation(both: OfficialAnswers, call: str, fact: dict[str, Any], answer: str) -> dict[str, Any]:
    made: dict[str, Any] = {
        "parameters": [
            {"name": name.rstrip("!"), "in": "query", "required": name.endswith("!"), "schema": _typed(words, {})}
            for name, words in fact.get("query", {}).items()
        ],
        "responses": {},
    }
    told = both.types().schema(answer)
    for status, entity in fact["answer"].items():
        several = [both.joined(it, told) for it in (entity, _ALSO.get(call)) if it] or [told]
        schema = several[0] if len(several) == 1 else {"anyOf": several}
        content = {"content": {"application/json": {"schema": schema}}} if status < "300" else {}
        made["responses"]["201" if call in _CREATED and status == "200" else status] = content
    if body := fact.get("body"):
        schema = both.types().schema(_UNDESCRIBED[call]) if call in _UNDESCRIBED else _official_body(body)
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return made


def _official_body(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name.rstrip("!"): _typed(words, {}) for name, words in fields.items()},
        "required": sorted(name[:-1] for name in fields if name.endswith("!")),
        "additionalProperties": False,
    }


def _reached(paths: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """The schemas that an operation needs."""
    found: dict[str, Any] = {"basic-error": schemas["basic-error"]}
    todo = [json.dumps(paths)]
    while todo:
        for name in re.findall(r"#/components/schemas/([\w-]+)", todo.pop()):
            if name not in found:
                found[name] = schemas[name]
                todo.append(json.dumps(schemas[name]))
    return found


def _read(package: Path) -> str:
    with tarfile.open(package) as archive:
        member = archive.extractfile(_MEMBER)
        if member is None:
            raise SystemExit(f"{package} holds no {_MEMBER}")
        return member.read().decode()


def _source(package: Path, published: str) -> dict[str, Any]:
    return {"package": package.name.removesuffix(".tgz"), "published": published, "license": "MIT"}


def _write(name: str, source: dict[str, Any], document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        if not methods:
            raise SystemExit(f"{source['package']} does not know {path}")
    document = {"openapi": "3.0.3", "x-source": source, **document}
    target = DATA / f"{name}-openapi.json"
    target.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _operation(types: Types, statuses: Sequence[str], query: dict[str, str], body: str, answer: str) -> dict[str, Any]:
    parameters = [{"name": name, "in": "query", "schema": types.schema(words)} for name, words in query.items()]
    content = {"application/json": {"schema": types.schema(answer)}}
    made = {"parameters": parameters, "responses": {status: {"content": content} for status in statuses}}
    if body:
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": types.schema(body)}}}
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
