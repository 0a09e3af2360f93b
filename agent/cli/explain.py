"""`muster explain workload`: why a gang waits or runs, when it starts and what it costs.

The agent is asked where its address is known; else the Workload says it in short, which takes no more than to read
Workloads in one namespace.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import urllib3

from agent.cli import exits
from agent.explanation import Otherwise, explanation_lines, imagined_lines, note_lines
from agent.gang_answer import GangAnswer, JobInNoQueue
from fleet.snapshot import Gang, GangState
from model.plain_text import age, plain_lines
from model.quantity import format_amount
from providers.clock import SystemClock
from providers.kube.config import connect
from providers.kube.errors import BadConnection, Forbidden, KubeError
from providers.kube.objects import decode_workload
from providers.kube.objects.explanations import ShortExplanation, decode_explanation
from providers.kube.objects.paths import WORKLOADS
from providers.kube.transport import KubeTransport

AGENT_VARIABLE: Final = "MUSTER_AGENT"
"""Address of the agent's page, where --agent does not give it."""
_TIMEOUT_S: Final = 10.0
_ANSWER_MOST: Final = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of which gang."""

    name: str
    namespace: str
    """Empty = whichever has it, or that of the context for who may not read all."""
    otherwise: Otherwise
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
    namespace = question.namespace or _of_context(question)
    body = _asked(question, namespace)
    if question.json:
        sys.stdout.write(json.dumps(_json(question, body)) + "\n")
        return exits.OK
    try:
        answer = msgspec.json.decode(body, type=GangAnswer)
    except msgspec.MsgspecError as error:
        raise NotAnswered(f"{question.agent} answers what this version does not read: {error}") from error
    sys.stdout.write(plain_lines(list(answer_lines(answer, question.otherwise))) + "\n")
    return exits.OK


def _json(question: Question, body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise NotAnswered(f"{question.agent} answers no JSON: {error}") from error


def answer_lines(answer: GangAnswer, asked: Otherwise) -> Iterator[str]:
    """Yields an answer of the agent, line by line."""
    if answer.gang is not None:
        yield from explanation_lines(answer.gang)
    if answer.otherwise is not None:
        yield from imagined_lines(asked, answer.otherwise)
    if answer.in_no_queue is not None:
        yield from in_no_queue_lines(answer.in_no_queue)


def in_no_queue_lines(job: JobInNoQueue) -> Iterator[str]:
    """Yields what is to be said of a job that is left to itself."""
    yield f"{job.name}  ({job.kind}, no queue)"
    yield f"  it asks for {_amounts(job.asks) or 'nothing'} and counts in no quota: it is left to kube-scheduler"
    if job.nodes:
        where = ", ".join(f"{node} ({count})" for node, count in sorted(job.nodes.items()))
        pays = f"team {job.team}" if job.team else "nobody"
        yield f"  holds:    {_amounts(job.holds) or 'nothing'}, on {where}, which {pays} pays for"
    yield "  remedy: create it with the label muster.dev/queue; defaultQueue of its team sees to all such jobs"


def _amounts(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{format_amount(name, amount)} {name}" for name, amount in sorted(amounts.items()))


def _asked(question: Question, namespace: str) -> bytes:
    """Returns the agent's answer. Errors: `NotAnswered`."""
    asked = question.otherwise
    words = {"priority": asked.priority, "queue": asked.queue, "gpus": "" if asked.gpus is None else str(asked.gpus)}
    query = urlencode({name: value for name, value in words.items() if value})
    path = f"/api/gangs/{quote(namespace, safe='')}/{quote(question.name, safe='')}"
    return ask_agent(question.agent, path + ("?" + query if query else ""), question.kubeconfig, question.context)


def ask_agent(agent: str, path: str, kubeconfig: Path | None = None, context: str | None = None) -> bytes:
    """Returns what the agent's page at that address answers to who the kubeconfig says. Errors: `NotAnswered`."""
    headers = _token(agent, kubeconfig, context)
    pool = urllib3.PoolManager(retries=False, timeout=_TIMEOUT_S)
    try:
        url = agent.rstrip("/") + path
        response = pool.request("GET", url, headers=headers, redirect=False, preload_content=False)
        body = response.read(_ANSWER_MOST)
    except urllib3.exceptions.HTTPError as error:
        raise NotAnswered(f"{agent} does not answer: {error}") from error
    if response.status != 200:
        raise NotAnswered(f"{agent}: {_why(body) or f'status {response.status}'}")
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


def _by_status(question: Question) -> int:
    transport = KubeTransport(connect("", question.kubeconfig, question.context))
    if question.otherwise:
        raise NotAnswered(f"a what-if is the agent's to answer: give --agent URL, or set {AGENT_VARIABLE}")
    known = _workloads(transport, question)
    found = [(gang, short) for gang, short in known if question.name in {gang.job.name, gang.workload}]
    if not found:
        names = ", ".join(sorted(gang.name for gang, _ in known)[:10]) or "none"
        words = f"no workload {question.name!r}; there are: {names}. A job without the label muster.dev/queue has none"
        otherwise = f"the agent knows it (--agent URL, or {AGENT_VARIABLE}); of pods in no queue: muster explain pod"
        exits.complain(f"{words}: {otherwise} {question.name}")
        return exits.ERROR
    now_s = SystemClock().now()
    for gang, short in found:
        if question.json:
            told = {"name": gang.name, "state": gang.state, "reason": gang.reason, "message": gang.message}
            sys.stdout.write(json.dumps({**told, "explanation": msgspec.to_builtins(short)}) + "\n")
        else:
            sys.stdout.write(plain_lines(list(short_lines(gang, short, now_s))) + "\n")
    return exits.OK


def _workloads(transport: KubeTransport, question: Question) -> list[tuple[Gang, ShortExplanation | None]]:
    """Returns the Workloads of the namespace; of all of them where none is given and all may be read."""
    namespace = question.namespace
    try:
        raws = _listed(transport, namespace)
    except Forbidden:
        if namespace:
            raise
        raws = _listed(transport, _of_context(question))
    return [(decode_workload(raw), decode_explanation(raw)) for raw in raws]


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


def short_lines(gang: Gang, short: ShortExplanation | None, now_s: float) -> Iterator[str]:
    """Yields what a Workload says of itself."""
    yield f"{gang.name}  ({gang.job.kind}, queue {gang.queue}, priority {gang.priority})"
    yield f"  state:    {gang.state} for {age(now_s - gang.since_s)}, {age(now_s - gang.created_at_s)} since submission"
    yield f"  reason:   {gang.reason}: {gang.message}"
    if gang.pins:
        yield f"  machines: {', '.join(sorted({pin.node or pin.claim for pin in gang.pins}))}"
    if short is None:
        if gang.state is GangState.PENDING:
            yield "  the agent has not told more yet; it does so in idle time"
        return
    yield from note_lines(short.notes)
    if short.position is not None:
        yield f"  position: {short.position.place} of {short.position.of} in queue {gang.queue}"
    if short.waits_for:
        yield f"  waits for: {short.waits_for}: {short.why}"
    yield from (f"    held by {holder}" for holder in short.held_by)
    if short.start is not None:
        yield f"  starts:   {_start(short)}"
    for number, words in enumerate(short.would_help):
        yield f"  {'would help:' if not number else '        or:'} {words}"
    if short.cost is not None:
        told = msgspec.to_builtins(short.cost)
        yield "  costs:    " + (
            ", ".join(f"{_COSTS[name]} {told[name]} USD" for name in _COSTS if told[name]) or "nothing"
        )


_COSTS: Final = {
    "usdPerHour": "an hour",
    "soFar": "so far",
    "atRunTime": "for its declared run time",
    "lostIfEvicted": "its eviction would lose",
}


def _start(short: ShortExplanation) -> str:
    start = short.start
    if start is None or not start.p50:
        return f"unknown because {start.unknown_because if start is not None else 'nothing is forecast'}"
    late = f", by {start.p90} in nine of ten" if start.p90 else ""
    return f"about {start.p50}{late} ({start.basis})"


def agent_address(given: str) -> str:
    """Returns the address of the agent that an option or the environment gives; empty for neither."""
    return given or os.environ.get(AGENT_VARIABLE, "")
