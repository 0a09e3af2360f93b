"""`muster stop` and `muster start`: a workload by its Workload on the cluster, a queue by its declaration in git.

A queue is declared in git, and what git declares holds (docs/design/0021): its file is edited here, and the commit is
whose it is to stop a queue.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.cli import exits
from model.plain_text import plain, plain_block


@dataclass(frozen=True, slots=True)
class WorkPlace:
    """Where a workload is looked for; an empty namespace is any."""

    kubeconfig: Path | None
    context: str | None
    namespace: str


def activate(name: str, place: WorkPlace, *, active: bool) -> int:
    """Have a workload leave and wait unconsidered, or take it back into its queue; the exit code."""
    import msgspec

    from providers.kube.config import connect
    from providers.kube.errors import KubeError
    from providers.kube.resources import WORKLOADS
    from providers.kube.transport import KubeTransport

    namespace, _, name = name.rpartition("/")
    namespace = namespace or place.namespace
    try:
        transport = KubeTransport(connect("", place.kubeconfig, place.context))
        pages = transport.list_pages(WORKLOADS, namespace)
        found = [it for page in pages for raw in page.items or () if _is(it := msgspec.json.decode(raw), name)]
        if len(found) != 1:
            exits.complain(_which(name, found))
            return exits.ERROR
        [workload] = found
        where = workload["metadata"]
        patch = [{"op": "add", "path": "/spec/active", "value": active}]
        transport.patch_json(WORKLOADS, where["name"], patch, where["namespace"])
    except KubeError as error:
        exits.complain(error)
        return exits.ERROR
    job = f"{where['namespace']}/{workload['spec']['job']['name']}"
    if active:
        told = f"{job} waits in queue {workload['spec']['queue']} again"
    else:
        told = f"{job} leaves, and waits unconsidered until: muster start workload {job}"
    sys.stdout.write(plain(told) + "\n")
    return exits.OK


def _is(workload: Mapping[str, Any], name: str) -> bool:
    return name in {workload["metadata"]["name"], workload["spec"]["job"]["name"]}


def _which(name: str, found: Sequence[Mapping[str, Any]]) -> str:
    if not found:
        return f"no workload {name!r}; `muster get workloads` has them"
    names = sorted(f"{it['metadata']['namespace']}/{it['metadata']['name']}" for it in found)
    return f"which workload {name!r} is meant? {', '.join(names)}"


def set_stop_policy(name: str, fleet: Path, policy: str) -> int:
    """Write the policy into the queue's declaration, and say what to push; the exit code.

    Nothing is written where the fleet would not be valid, or would differ in anything else.
    """
    from model.loader import InvalidFleet
    from model.report import text as problem_text

    try:
        return _set_stop_policy(name, fleet, policy)
    except InvalidFleet as invalid:
        sys.stderr.write(problem_text(invalid.problems, colour=False) + "\n")
        return exits.INVALID
    except OSError as error:
        exits.complain(error)
        return exits.ERROR


def _set_stop_policy(name: str, fleet: Path, policy: str) -> int:
    from agent.cli.validate import read_folder
    from model.loader import load

    files = read_folder(fleet)
    declared = load(files)
    if name not in declared.queues:
        from model.hints import did_you_mean

        exits.complain(f"the fleet declares no queue {name!r}; {did_you_mean(name, declared.queues)}".rstrip("; "))
        return exits.ERROR
    before = declared.queues[name].spec.stop_policy
    if before == policy:
        sys.stdout.write(plain(f"queue {name}: stopPolicy is {policy} already") + "\n")
        return exits.OK
    wanted = declared.queues[name].spec.model_copy(update={"stop_policy": policy})
    for path, content in files.items():
        edited = _edited(content.decode(), name, policy)
        if edited is None:
            continue
        after = load({**files, path: edited.encode()})
        rest = {it: queue for it, queue in after.queues.items() if it != name}
        if after.queues[name].spec == wanted and rest == {k: v for k, v in declared.queues.items() if k != name}:
            place = _place(fleet, path)
            place.write_text(edited, encoding="utf-8")
            sys.stdout.write(plain_block(_steps(name, before, policy, place)))
            return exits.OK
    exits.complain(
        f"the declaration of queue {name!r} is written in a way that is not edited here: set stopPolicy in it"
    )
    return exits.ERROR


def _place(fleet: Path, path: str) -> Path:
    """The file behind a path of `read_folder`, which begins with the folder as it was given."""
    if fleet.is_file():
        return fleet
    direct, below = Path(path), fleet / path
    return direct if direct.is_file() else below


def _steps(name: str, before: str, policy: str, place: Path) -> str:
    verb = "Start" if policy == "None" else "Stop"
    return (
        f"{place}: stopPolicy of queue {name}: {before} -> {policy}\n"
        "It is in force once it is pushed:\n"
        f'  git -C {place.parent} commit -m "{verb} queue {name}" {place.name}\n'
        f"  git -C {place.parent} push\n"
    )


_QUEUE: Final = re.compile(r"^kind:\s*Queue\s*(?:#.*)?$", re.MULTILINE)
_SPEC: Final = re.compile(r"^spec:[ \t]*(?:#.*)?\n(?P<indent>[ \t]+)", re.MULTILINE)
_FLOW: Final = re.compile(r"^spec:[ \t]*\{", re.MULTILINE)
_POLICY: Final = re.compile(r"^(?P<key>[ \t]+stopPolicy:[ \t]*|spec:.*\bstopPolicy:[ \t]*)[^\s#,}]+", re.MULTILINE)


def _edited(text: str, name: str, policy: str) -> str | None:
    """The text with the policy in the document of that queue; None where it has none."""
    documents = re.split(r"(?m)(?=^---)", text)
    end = rf"{re.escape(name)}(?![\w.-])"
    named = re.compile(rf"^metadata:\s*(?:\{{\s*|\n\s+)name:\s*{end}", re.MULTILINE)
    for number, document in enumerate(documents):
        if _QUEUE.search(document) and named.search(document):
            documents[number] = _with_policy(document, _yaml(policy))
            return "".join(documents)
    return None


def _with_policy(document: str, policy: str) -> str:
    if _POLICY.search(document):
        return _POLICY.sub(lambda it: it["key"] + policy, document, count=1)
    if flow := _FLOW.search(document):
        return f"{document[: flow.end()]}stopPolicy: {policy}, {document[flow.end() :]}"
    if spec := _SPEC.search(document):
        begin = spec.start("indent")
        return f"{document[:begin]}{spec['indent']}stopPolicy: {policy}\n{document[begin:]}"
    return document


def _yaml(policy: str) -> str:
    return f'"{policy}"' if policy == "None" else policy
