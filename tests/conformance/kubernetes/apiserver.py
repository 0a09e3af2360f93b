"""Sequences of requests to the API server: each step is answered by the embedded one and compared by itself.

A step holds when the status and the `reason` are as recorded, and the message where the product reads it (`READ`).
Counted beside it: answers that are as recorded in the headers, the fields that `causes` name and, of what succeeds, the
whole object; and messages.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from providers.clock import VirtualClock
from providers.sim.apiserver.access import Access
from providers.sim.controllers.budgets import Budgets
from providers.sim.controllers.job import JobController
from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.controllers.runtime import Controller
from providers.sim.store import Store
from tests.conformance.cases import Case, Result
from tests.conformance.kubernetes.http import HandlerClient, HttpAnswer
from tests.conformance.kubernetes.likeness import RecordedNames, difference

Obj = dict[str, Any]
_CACHE = (
    "how far back its watch cache reached decided; a compacted history is forgotten here, which agents must survive"
)
_AT_ONCE = "a definition is served as soon as it is created, and goes as soon as its last object does"
DECLINED: Mapping[str, str] = {
    "list-after-compaction/9": _CACHE,
    "list-after-compaction/10": _CACHE,
    "crd-validation/5": "the cost of rules is not estimated: they are evaluated on small objects",
    "crd-life/2": _AT_ONCE,
    "crd-life/15": _AT_ONCE,
    "crd-life/16": _AT_ONCE,
}
"""Steps that we answer otherwise on purpose, each with the reason."""
READ: Final = re.compile(r"Cannot evict pod|disruption budget|Apply failed|conflict with|object has been modified")
"""Messages that the product reads or shows word for word: budgets that refuse, fields of other managers."""
WIDGETS: Final[Obj] = json.loads((Path(__file__).parents[1] / "data/kubernetes/widgets.json").read_text("utf-8"))
"""The custom kind that the recorded server had."""
_SHORTENED: Final = re.compile(r"\(annotations\.a is (.)\*(\d+)\)")
"""How the recorder wrote down a body that is too long to write down."""
_POD: Final = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c", "image": "img"}]}}
_USERS: Final = {"alice": "alice"}
_AGENT: Final = "recorder/1.0"
_ROUNDS: Final = 50
_STEP_S: Final = 0.25


def played(case: Case) -> Iterator[Result]:
    """Each step of a case; a step that only waits is none."""
    world = _RecordedServer(case["id"])
    try:
        for number, step in enumerate(case["steps"], 1):
            if "method" not in step:
                world.do(step)
                continue
            yield _compared(world, case["id"], number, step)
    finally:
        world.close()


def _compared(world: "_RecordedServer", case_id: str, number: int, step: Obj) -> Result:
    name = f"{case_id}/{number}"
    asked = {"kind": "apiserver", **step}
    try:
        answer = world.send(step)
        world.note(number, answer)
        likeness = _Likeness(step, answer, world.names)
    except Exception as error:  # noqa: BLE001 -- whatever a step does to the server is that step's failure
        return Result(name, passed=False, expected=step["status"], got=None, note=repr(error), case=asked)
    marks = {"whole": not likeness.differs, "said": not likeness.says}
    wrong = likeness.wrong
    expected, got = _short(step["status"], step["got"]), {**_short(answer.status, answer.body), **marks}
    note = wrong or likeness.differs or likeness.says
    return Result(name, passed=not wrong or name in DECLINED, expected=expected, got=got, note=note, case=asked)


class _Likeness:
    """In what an answer is not the recorded one: `wrong` counts, `differs` and `says` are told beside it."""

    def __init__(self, step: Obj, answer: "_Answer", names: RecordedNames) -> None:
        self.says = difference(_message(step["got"]), _message(answer.body), names)
        self.differs = _difference(step, answer, names)
        self.wrong = ""
        if answer.status != step["status"] or _reason(answer.body) != _reason(step["got"]):
            self.wrong = self.differs or f"reason {_reason(answer.body)!r} instead of {_reason(step['got'])!r}"
        elif READ.search(_message(step["got"])):
            self.wrong = self.says


def _short(status: int, body: Any) -> Obj:
    """An answer in a few words, for the line that tells of a failure."""
    message = _message(body)
    return {"status": status, **({"reason": body.get("reason", ""), "message": message} if message else {})}


def _difference(step: Obj, answer: "_Answer", names: RecordedNames) -> str:
    if answer.status != step["status"]:
        return f"status {answer.status} instead of {step['status']}: {_message(answer.body)}"
    for header, value in (step.get("answer_headers") or {}).items():
        if not any(names.same_text(value, held) for held in answer.headers.getall(header, [])):
            return f"{header}: {answer.headers.getall(header, [])!r} instead of {value!r}"
    expected, got = step["got"], answer.body
    if isinstance(expected, dict) and expected.get("ok") is True:
        return ""
    if not (isinstance(expected, dict) and expected.get("status") == "Failure"):
        return difference(expected, _named_only(expected, got), names)
    for read in (lambda status: status.get("reason", ""), _causes):
        if read(expected) != read(got):
            return f"{read(got)!r} instead of {read(expected)!r}"
    return ""


def _named_only(expected: Any, got: Any) -> Any:
    """A list as names, where the recorder kept only those; without the ConfigMaps of controllers not run here."""
    if not (isinstance(expected, dict) and all(isinstance(it, str) for it in expected.get("items", (0,)))):
        return got
    if "metadata" in expected or not isinstance(got, dict) or "items" not in got:
        return got
    expected["items"] = [it for it in expected["items"] if not it.endswith(".crt")]
    return {"kind": got["kind"], "items": [it["metadata"]["name"] for it in got["items"]]}


def _causes(status: Obj) -> list[tuple[str, str]]:
    causes = (status.get("details") or {}).get("causes") or ()
    return [(cause.get("reason", ""), cause.get("field", "")) for cause in causes]


def _message(body: Any) -> str:
    return str(body.get("message", "")) if isinstance(body, dict) and body.get("status") == "Failure" else ""


def _reason(body: Any) -> str:
    return str(body.get("reason", "")) if isinstance(body, dict) and body.get("status") == "Failure" else ""


def table(results: Sequence[Result]) -> list[str]:
    """A line a family: steps passed, failed and declined; beside them whole answers and messages as recorded."""
    columns, more = ("passed", "failed", "declined"), ("whole", "messages")
    counts: dict[str, Counter[str]] = {}
    for result in results:
        counts.setdefault(result.id.partition("-")[0].partition("/")[0], Counter()).update(_marks(result))
    total: Counter[str] = sum(counts.values(), Counter())
    lines = [f"{'family':<16}" + "".join(f"{column:>12}" for column in (*columns, *more))]
    for name, count in [*counts.items(), ("all", total)]:
        shown = [str(count[column]) for column in columns]
        shown += [f"{count[column]}/{count['of ' + column]}" for column in more]
        lines.append(f"{name:<16}" + "".join(f"{cell:>12}" for cell in shown))
    return lines


def _marks(result: Result) -> Counter[str]:
    marks = Counter({"declined" if result.id in DECLINED else "passed" if result.passed else "failed": 1})
    got = result.got or {"whole": False, "said": False}
    marks.update({"of whole": 1, "whole": int(got["whole"])})
    if _message((result.case or {})["got"]):
        marks.update({"of messages": 1, "messages": int(got["said"])})
    return marks


class _Answer:
    """An answer as the recorder wrote it down."""

    def __init__(self, answer: HttpAnswer, *, watch: bool) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self.body = _trimmed(_read(answer, watch=watch and answer.status == 200))


def _read(answer: HttpAnswer, *, watch: bool) -> Any:
    content = answer.headers.get("Content-Type", "")
    if watch:
        return [msgspec.json.decode(line) for line in answer.body.splitlines() if line]
    if content.startswith("application/json"):
        return msgspec.json.decode(answer.body)
    text = answer.body.decode()
    return {"text": text.removesuffix("\n") if text == "ok\n" else text}


def _kind_only(obj: Obj) -> Obj:
    """Of the object of a table's row the recorder kept the kind."""
    return {key: obj[key] for key in ("kind", "apiVersion")}


def _trimmed(value: Any) -> Any:
    if isinstance(value, dict) and value.get("kind") == "Table":
        rows = [{**row, "object": _kind_only(row["object"])} if row.get("object") else row for row in value["rows"]]
        return {**value, "rows": rows}
    if isinstance(value, dict) and value.get("kind") == "Status" and value.get("apiVersion") == "v1":
        value = {key: it for key, it in value.items() if key not in ("kind", "apiVersion", "metadata")}
    return value


class _RecordedServer:
    """An API server with what the recorded one had: two nodes, a namespace, a definition, controllers."""

    def __init__(self, case_id: str) -> None:
        self.clock = VirtualClock()
        self.store = Store(self.clock, collect_garbage="when asked")
        self.names = RecordedNames(ns=f"o18092-{case_id}-ns"[:63], id=f"o18092-{case_id}")
        self._client = HandlerClient(self.store, self.clock, Access(self.store, _USERS))
        cluster = MirroredCluster(self.store)
        self._controllers: list[Controller] = [JobController(cluster), Budgets(cluster)]
        self._still = False
        self._fill()

    def close(self) -> None:
        self._client.close()

    def _fill(self) -> None:
        self._create("Namespace", {"metadata": {"name": self.names.fill("{ns}")}})
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        for name in ("n1", "nowhere"):
            self._create("Node", {"metadata": {"name": name}, "status": ready})
        self._create("CustomResourceDefinition", WIDGETS)
        self.store.compact()  # the recorded server was older than any case

    def _create(self, kind: str, obj: Obj) -> None:
        self.store.create(self.store.resource(kind), obj)

    def do(self, step: Obj) -> None:
        """What is no request."""
        if "wait" in step:
            for _ in range(int(step["wait"] / _STEP_S)):
                self.clock.advance(_STEP_S)
                self._settle()
        if step.get("compact"):
            self.store.compact()
        if "controllers" in step:
            self._still = step["controllers"] == "stand still"
            self._settle()

    def send(self, step: Obj) -> _Answer:
        """The answer to the request of a step; the controllers have had their time before it."""
        headers = {"User-Agent": _AGENT, **(step.get("headers") or {})}
        user = headers.pop("As", "")
        headers |= {"Authorization": f"Bearer {user}"} if user else {}
        body = step.get("body")
        raw = b"" if "body" not in step else self._encoded(body)
        if raw and "Content-Type" not in headers:
            headers["Content-Type"] = "application/json"
        path = self.names.fill(step["path"])
        watch = "watch=1" in path or "/watch/" in path
        answer = self._client.request(step["method"], path, raw, headers)
        self.clock.advance(0.01)
        return _Answer(answer, watch=watch)

    def _encoded(self, body: Any) -> bytes:
        shortened = _SHORTENED.fullmatch(body) if isinstance(body, str) else None
        if shortened:
            long = {"a": shortened[1] * int(shortened[2])}
            body = {**_POD, "metadata": {"name": "p", "annotations": long}}
        text = body if isinstance(body, str) else msgspec.json.encode(body).decode()
        return self.names.fill(text).encode()

    def note(self, number: int, answer: _Answer) -> None:
        """What the placeholders of this answer stand for."""
        meta = answer.body.get("metadata") if isinstance(answer.body, dict) else None
        for name, field in (("uid", "uid"), ("cont", "continue")):
            if isinstance(meta, dict) and meta.get(field):
                self.names.learn(f"{{{name}{number}}}", str(meta[field]))

    def _settle(self) -> None:
        for _ in range(_ROUNDS):
            before = self.store.resource_version
            self.store.collect_garbage()
            for controller in () if self._still else self._controllers:
                controller.step(self.clock.now())
            if self.store.resource_version == before:
                return
