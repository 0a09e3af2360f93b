"""`muster explain workload`: why a gang waits or runs, when it starts and what it costs.

The agent is asked where its address is known; else the Workload says it in short, which takes no more than to read
Workloads in one namespace. Nothing but JSON and text is looked at, so that a call takes a moment.
"""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import urllib3

from agent.cli import exits
from agent.cli.options import AGENT_VARIABLE
from model.plain_text import age, plain_lines
from providers.clock import SystemClock
from providers.kube.config import connect
from providers.kube.errors import BadConnection, Forbidden, KubeError
from providers.kube.resources import WORKLOADS
from providers.kube.transport import KubeTransport

JSON, TEXT = "application/json", "text/plain"
_ANY: Final = "-"
"""What the agent takes for a namespace where none is named."""
_TIMEOUT_S: Final = 10.0
_ANSWER_MOST: Final = 16 * 2**20
_BUSY: Final = 503
_SOON: Final = frozenset({"1", "2", "3"})
"""Seconds that are waited for when the agent's page says that it has used up its share of time."""
_OLD_S: Final = 60.0
"""A status that is older than this is told with its age."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of which gang."""

    name: str
    namespace: str
    """Empty = whichever has it, or that of the context for who may not read all."""
    otherwise: Mapping[str, str]
    """What if it were so: `priority`, `queue`, `gpus`; empty = as it is."""
    agent: str
    """Address of the agent's page; empty = it is not asked."""
    kubeconfig: Path | None
    context: str | None
    json: bool = False


class NotAnswered(Exception):
    """The agent did not answer, or not what was asked; the message says why."""


def explain_gang(question: Question) -> int:
    """Print the explanation; the exit code."""
    try:
        return _by_agent(question) if question.agent else _by_status(question)
    except (KubeError, BadConnection, NotAnswered, OSError) as error:
        exits.complain(error)
        return exits.ERROR


# -- the agent over HTTP ----------------------------------------------------------------------------------------------


def _by_agent(question: Question) -> int:
    query = urlencode({name: value for name, value in question.otherwise.items() if value})
    path = f"/api/gangs/{quote(question.namespace or _ANY, safe='')}/{quote(question.name, safe='')}"
    kind = JSON if question.json else TEXT
    asked = path + ("?" + query if query else "")
    body = ask_agent(question.agent, asked, question.kubeconfig, question.context, kind)
    if question.json:
        sys.stdout.write(json.dumps(_json(question, body)) + "\n")
    else:
        sys.stdout.write(plain_lines(body.decode("utf-8", "replace").splitlines()) + "\n")
    return exits.OK


def print_asked(agent: str, path: str, place: tuple[Path | None, str | None]) -> int:
    """Print what the agent's page answers in words; the exit code.

    `place` is the kubeconfig that says who asks, and a context of it.
    """
    try:
        body = ask_agent(agent, path, *place, TEXT)
    except (NotAnswered, OSError) as error:
        exits.complain(error)
        return exits.ERROR
    sys.stdout.write(plain_lines(body.decode("utf-8", "replace").splitlines()) + "\n")
    return exits.OK


def _json(question: Question, body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise NotAnswered(f"{question.agent} answers no JSON: {error}") from error


def ask_agent(
    agent: str, path: str, kubeconfig: Path | None = None, context: str | None = None, kind: str = JSON
) -> bytes:
    """Returns what the agent's page at that address answers to who the kubeconfig says. Errors: `NotAnswered`.

    Where it is too busy to answer, it is asked once more when it says, if that is soon.
    """
    headers = {**_token(agent, kubeconfig, context), "Accept": kind}
    pool, url = urllib3.PoolManager(retries=False, timeout=_TIMEOUT_S), agent.rstrip("/") + path
    ask = partial(pool.request, "GET", url, headers=headers, redirect=False, preload_content=False)
    try:
        response = ask()
        if response.status == _BUSY and (after_s := response.headers.get("Retry-After", "")) in _SOON:
            time.sleep(int(after_s))
            response = ask()
        body = response.read(_ANSWER_MOST)
    except urllib3.exceptions.HTTPError as error:
        raise NotAnswered(f"{agent} does not answer: {error}") from error
    if response.status != 200:
        raise NotAnswered(f"{agent}: {_why(body) or f'status {response.status}'}")
    if not response.headers.get("Content-Type", "").startswith(kind):
        raise NotAnswered(f"{agent} answers what this version does not read: is it the agent's page?")
    return body


def _why(body: bytes) -> str:
    with suppress(ValueError, AttributeError):
        return str(json.loads(body).get("error", ""))
    return ""


def _token(agent: str, kubeconfig: Path | None, context: str | None) -> Mapping[str, str]:
    """Returns who asks, as the kubeconfig has it. A token crosses no network in the clear."""
    parts = urlsplit(agent)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise NotAnswered(f"{agent} is no address such as https://muster.example or http://127.0.0.1:8080")
    if parts.scheme == "http" and not _here(parts.hostname):
        raise NotAnswered("a token would cross the network in the clear: use https, or kubectl port-forward")
    try:
        found = connect("", kubeconfig, context).auth_headers()
    except BadConnection:
        return {}  # an agent that lets everybody look
    return {name: value for name, value in found.items() if name.lower() == "authorization"}


def _here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


# -- the Workload's status --------------------------------------------------------------------------------------------

Json = Mapping[str, Any]


def _by_status(question: Question) -> int:
    transport = KubeTransport(connect("", question.kubeconfig, question.context))
    if any(question.otherwise.values()):
        raise NotAnswered(f"a what-if is the agent's to answer: give --agent URL, or set {AGENT_VARIABLE}")
    known = sorted(_workloads(transport, question), key=_full_name)
    found = [it for it in known if question.name in {it["spec"]["job"]["name"], it["metadata"]["name"]}]
    if not found:
        names = ", ".join([_full_name(it) for it in known][:10]) or "none"
        words = f"no workload {question.name!r}; there are: {names}. A job without the label muster.dev/queue has none"
        otherwise = f"the agent knows it (--agent URL, or {AGENT_VARIABLE}); of pods in no queue: muster explain pod"
        exits.complain(f"{words}: {otherwise} {question.name}")
        return exits.ERROR
    now_s = SystemClock().now()
    for it in found:
        if question.json:
            status = it.get("status") or {}
            told = {name: status.get(name, "") for name in ("state", "reason", "message")}
            told = {"name": _full_name(it), **told, "explanation": status.get("explanation")}
            sys.stdout.write(json.dumps(told) + "\n")
        else:
            sys.stdout.write(plain_lines(list(short_lines(it, now_s))) + "\n")
    return exits.OK


def _full_name(workload: Json) -> str:
    return f"{workload['metadata']['namespace']}/{workload['spec']['job']['name']}"


def _workloads(transport: KubeTransport, question: Question) -> list[Json]:
    """Returns the Workloads of the namespace; of all of them where none is given and all may be read."""
    namespace = question.namespace
    try:
        raws = _listed(transport, namespace)
    except Forbidden:
        if namespace:
            raise
        raws = _listed(transport, _of_context(question))
    return [msgspec.json.decode(raw) for raw in raws]


def _listed(transport: KubeTransport, namespace: str) -> list[Any]:
    return [raw for page in transport.list_pages(WORKLOADS, namespace) for raw in page.items or ()]


def _of_context(question: Question) -> str:
    """Returns the namespace that kubectl would ask in."""
    from kubernetes.config import ConfigException, list_kube_config_contexts

    try:
        contexts, active = list_kube_config_contexts(str(question.kubeconfig) if question.kubeconfig else None)
    except (ConfigException, OSError):
        return "default"
    chosen = next((it for it in contexts if it["name"] == question.context), active)
    return str((chosen or {}).get("context", {}).get("namespace") or "default")


def short_lines(workload: Json, now_s: float) -> Iterator[str]:
    """Yields what a Workload says of itself."""
    spec, status = workload["spec"], workload.get("status") or {}
    state = status.get("state", "Pending")
    since, came = status.get("since"), spec.get("createdAt") or workload["metadata"].get("creationTimestamp")
    queue = spec.get("queue", "")
    yield f"{_full_name(workload)}  ({spec['job']['kind']}, queue {queue or '-'}, priority {spec.get('priority', 0)})"
    yield f"  state:    {state} for {_ago(since or came, now_s)}, {_ago(came, now_s)} since submission"
    yield f"  reason:   {status.get('reason', '')}: {status.get('message', '')}"
    if machines := sorted({pin.get("node") or pin.get("claim", "") for pin in status.get("pins") or ()}):
        yield f"  machines: {', '.join(machines)}"
    short = status.get("explanation")
    if short is None:
        if state == "Pending":
            yield "  the agent has not told more yet; it does so in idle time"
        return
    yield from _explained(short, queue, state)
    if (old_s := now_s - _epoch_s(short.get("at"), now_s)) >= _OLD_S:
        yield f"  told:     {age(old_s)} ago, in idle time; the agent's page has it as of now"


def _explained(short: Json, queue: str, state: str) -> Iterator[str]:
    for note in short.get("notes") or ():
        subject, _, words = note.partition(": ")
        yield f"  {subject + ':':9} {words}"
    if position := short.get("position"):
        yield f"  position: {position['place']} of {position['of']} in queue {queue}"
    if waits_for := short.get("waitsFor"):
        yield f"  waits for: {waits_for}: {short.get('why', '')}"
    yield from (f"    held by {holder}" for holder in short.get("heldBy") or ())
    if start := short.get("start"):
        yield f"  starts:   {_start(start)}"
    for number, words in enumerate(short.get("wouldHelp") or ()):
        yield f"  {'would help:' if not number else '        or:'} {words}"
    if (cost := short.get("cost")) is not None:
        yield f"  costs:    {', '.join(_costs(cost, state)) or 'nothing'}"


_HOLDING: Final = ("QuotaReserved", "Admitted", "Evicting")


def _costs(cost: Json, state: str) -> Sequence[str]:
    would = "{:.2f} USD an hour" if state in _HOLDING else "nothing now, {:.2f} USD an hour on machines it could have"
    names = {
        "usdPerHour": would if state != "Finished" else "nothing any more",
        "soFar": "{:.2f} USD so far",
        "atRunTime": "{:.2f} USD for its declared run time",
        "lostIfEvicted": "its eviction would lose {:.2f} USD",
    }
    return [words.format(float(cost[name])) for name, words in names.items() if cost.get(name)]


def _start(start: Json) -> str:
    if not start.get("p50"):
        return f"unknown because {start.get('unknownBecause', 'nothing is forecast')}"
    late = f", by {start['p90']} in nine of ten" if start.get("p90") else ""
    return f"about {start['p50']}{late} ({start.get('basis', '')})"


def _epoch_s(instant: str | None, default: float) -> float:
    with suppress(ValueError):  # whoever may write a status may write anything
        return datetime.fromisoformat(instant).timestamp() if instant else default
    return default


def _ago(instant: str | None, now_s: float) -> str:
    return age(max(0.0, now_s - _epoch_s(instant, now_s)))
