"""Protobuf request bodies, for the kinds that `kubectl create <kind>` and `kubectl auth` send that way.

kubectl's typed clients do not fall back to JSON when they are refused. Answers are always JSON. A message or field
that is not in the table is refused with 415. Source: the `protobuf` tags of kubernetes/api and apimachinery; the
envelope is `runtime.Unknown` behind four magic bytes.
"""

import base64
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from providers.sim.store import StoreBadRequest, StoreUnsupportedMediaType
from providers.sim.store.objects import timestamp

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_MAX_DEPTH = 24

# Message -> "number name type". Types: s text, i number, z number (0 is unset), b flag, f flag (false is unset),
# B bytes, t time, q quantity, is int-or-string, else a message. A leading * repeats, a leading % is a map from text.
_MESSAGES = {
    "Unknown": "1 typeMeta TypeMeta; 2 raw B; 3 contentEncoding s; 4 contentType s",
    "TypeMeta": "1 apiVersion s; 2 kind s",
    "ObjectMeta": "1 name s; 2 generateName s; 3 namespace s; 4 selfLink s; 5 uid s; 6 resourceVersion s; "
        "7 generation z; 8 creationTimestamp t; 9 deletionTimestamp t; 10 deletionGracePeriodSeconds i; "
        "11 labels %s; 12 annotations %s; 13 ownerReferences *OwnerReference; 14 finalizers *s",
    "OwnerReference": "1 kind s; 3 name s; 4 uid s; 5 apiVersion s; 6 controller b; 7 blockOwnerDeletion b",
    "LabelSelector": "1 matchLabels %s; 2 matchExpressions *LabelSelectorRequirement",
    "LabelSelectorRequirement": "1 key s; 2 operator s; 3 values *s",
    "DeleteOptions": "1 gracePeriodSeconds i; 2 preconditions Preconditions; 3 orphanDependents b; "
        "4 propagationPolicy s; 5 dryRun *s",
    "Preconditions": "1 uid s; 2 resourceVersion s",
    "Namespace": "1 metadata ObjectMeta; 2 spec NamespaceSpec; 3 status NamespaceStatus",
    "NamespaceSpec": "1 finalizers *s",
    "NamespaceStatus": "1 phase s",
    "ConfigMap": "1 metadata ObjectMeta; 2 data %s; 3 binaryData %B; 4 immutable b",
    "Secret": "1 metadata ObjectMeta; 2 data %B; 3 type s; 4 stringData %s; 5 immutable b",
    "ServiceAccount": "1 metadata ObjectMeta; 2 secrets *ObjectReference; 3 imagePullSecrets *LocalReference; "
        "4 automountServiceAccountToken b",
    "ObjectReference": "1 kind s; 2 namespace s; 3 name s; 4 uid s; 5 apiVersion s; 6 resourceVersion s; "
        "7 fieldPath s",
    "LocalReference": "1 name s",
    "Binding": "1 metadata ObjectMeta; 2 target ObjectReference",
    "Eviction": "1 metadata ObjectMeta; 2 deleteOptions DeleteOptions",
    "TokenRequest": "1 metadata ObjectMeta; 2 spec TokenRequestSpec; 3 status TokenRequestStatus",
    "TokenRequestSpec": "1 audiences *s; 3 boundObjectRef BoundObjectReference; 4 expirationSeconds i",
    "BoundObjectReference": "1 kind s; 2 apiVersion s; 3 name s; 4 uid s",
    "TokenRequestStatus": "1 token s; 2 expirationTimestamp t",
    "SelfSubjectAccessReview": "1 metadata ObjectMeta; 2 spec AccessReviewSpec; 3 status AccessReviewStatus",
    "AccessReviewSpec": "1 resourceAttributes ResourceAttributes; 2 nonResourceAttributes NonResourceAttributes",
    "AccessReviewStatus": "1 allowed f; 2 reason s; 3 evaluationError s; 4 denied f",
    "ResourceAttributes": "1 namespace s; 2 verb s; 3 group s; 4 version s; 5 resource s; 6 subresource s; 7 name s",
    "NonResourceAttributes": "1 path s; 2 verb s",
    "SelfSubjectReview": "1 metadata ObjectMeta; 2 status SelfSubjectReviewStatus",
    "SelfSubjectReviewStatus": "1 userInfo UserInfo",
    "UserInfo": "1 username s; 2 uid s; 3 groups *s",
    "PriorityClass": "1 metadata ObjectMeta; 2 value z; 3 globalDefault f; 4 description s; 5 preemptionPolicy s",
    "PodDisruptionBudget": "1 metadata ObjectMeta; 2 spec PodDisruptionBudgetSpec; "
        "3 status PodDisruptionBudgetStatus",
    "PodDisruptionBudgetSpec": "1 minAvailable is; 2 selector LabelSelector; 3 maxUnavailable is; "
        "4 unhealthyPodEvictionPolicy s",
    "PodDisruptionBudgetStatus": "1 observedGeneration z; 3 disruptionsAllowed z; 4 currentHealthy z; "
        "5 desiredHealthy z; 6 expectedPods z",
    "Role": "1 metadata ObjectMeta; 2 rules *PolicyRule",
    "ClusterRole": "1 metadata ObjectMeta; 2 rules *PolicyRule",
    "PolicyRule": "1 verbs *s; 2 apiGroups *s; 3 resources *s; 4 resourceNames *s; 5 nonResourceURLs *s",
    "RoleBinding": "1 metadata ObjectMeta; 2 subjects *Subject; 3 roleRef RoleRef",
    "ClusterRoleBinding": "1 metadata ObjectMeta; 2 subjects *Subject; 3 roleRef RoleRef",
    "Subject": "1 kind s; 2 apiGroup s; 3 name s; 4 namespace s",
    "RoleRef": "1 apiGroup s; 2 kind s; 3 name s",
    "Job": "1 metadata ObjectMeta; 2 spec JobSpec; 3 status Nothing",
    "JobSpec": "1 parallelism i; 2 completions i; 3 activeDeadlineSeconds i; 4 selector LabelSelector; "
        "5 manualSelector b; 6 template PodTemplateSpec; 7 backoffLimit i; 8 ttlSecondsAfterFinished i; "
        "9 completionMode s; 10 suspend b",
    "CronJob": "1 metadata ObjectMeta; 2 spec CronJobSpec; 3 status Nothing",
    "CronJobSpec": "1 schedule s; 2 startingDeadlineSeconds i; 3 concurrencyPolicy s; 4 suspend b; "
        "5 jobTemplate JobTemplateSpec; 6 successfulJobsHistoryLimit i; 7 failedJobsHistoryLimit i; 8 timeZone s",
    "JobTemplateSpec": "1 metadata ObjectMeta; 2 spec JobSpec",
    "Deployment": "1 metadata ObjectMeta; 2 spec DeploymentSpec; 3 status Nothing",
    "DeploymentSpec": "1 replicas i; 2 selector LabelSelector; 3 template PodTemplateSpec; "
        "4 strategy DeploymentStrategy; 5 minReadySeconds z; 6 revisionHistoryLimit i; 7 paused f; "
        "9 progressDeadlineSeconds i",
    "DeploymentStrategy": "1 type s; 2 rollingUpdate RollingUpdate",
    "RollingUpdate": "1 maxUnavailable is; 2 maxSurge is",
    "PodTemplateSpec": "1 metadata ObjectMeta; 2 spec PodSpec",
    "PodSpec": "2 containers *Container; 3 restartPolicy s; 4 terminationGracePeriodSeconds i; "
        "5 activeDeadlineSeconds i; 6 dnsPolicy s; 7 nodeSelector %s; 8 serviceAccountName s; 9 serviceAccount s; "
        "10 nodeName s; 11 hostNetwork f; 12 hostPID f; 13 hostIPC f; 14 securityContext Nothing; 16 hostname s; "
        "17 subdomain s; 19 schedulerName s; 20 initContainers *Container; 22 tolerations *Toleration; "
        "24 priorityClassName s; 25 priority i",
    "Container": "1 name s; 2 image s; 3 command *s; 4 args *s; 5 workingDir s; 6 ports *ContainerPort; "
        "7 env *EnvVar; 8 resources ResourceRequirements; 13 terminationMessagePath s; 14 imagePullPolicy s; "
        "16 stdin f; 17 stdinOnce f; 18 tty f; 20 terminationMessagePolicy s",
    "ContainerPort": "1 name s; 2 hostPort z; 3 containerPort z; 4 protocol s; 5 hostIP s",
    "EnvVar": "1 name s; 2 value s",
    "ResourceRequirements": "1 limits %q; 2 requests %q",
    "Toleration": "1 key s; 2 operator s; 3 value s; 4 effect s; 5 tolerationSeconds i",
    "Service": "1 metadata ObjectMeta; 2 spec ServiceSpec; 3 status ServiceStatus",
    "ServiceSpec": "1 ports *ServicePort; 2 selector %s; 3 clusterIP s; 4 type s; 5 externalIPs *s; "
        "7 sessionAffinity s; 8 loadBalancerIP s; 10 externalName s; 11 externalTrafficPolicy s; "
        "12 healthCheckNodePort z; 13 publishNotReadyAddresses f",
    "ServicePort": "1 name s; 2 protocol s; 3 port z; 4 targetPort is; 5 nodePort z",
    "ServiceStatus": "1 loadBalancer Nothing",
    "Nothing": "",
    "Time": "1 seconds i; 2 nanos z",
    "Quantity": "1 string s",
    "IntOrString": "1 type z; 2 intVal z; 3 strVal s",
}  # fmt: skip
_DROP = object()
_Reader = Callable[[Any, int], Any]


def decoded_object(body: bytes) -> dict[str, Any]:
    """The object in a protobuf body. BadRequest when malformed, UnsupportedMediaType when it is not in the table."""
    if not body.startswith(_MAGIC):
        raise StoreBadRequest("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    envelope = _message("Unknown", body[len(_MAGIC) :], 0)
    said = envelope.get("typeMeta") or {}
    kind = said.get("kind", "")
    if kind not in _MESSAGES:
        raise StoreUnsupportedMediaType(f"protobuf is not understood for {kind or 'this kind'}: send application/json")
    raw = base64.b64decode(envelope.get("raw", ""))
    return {"apiVersion": said.get("apiVersion", ""), "kind": kind, **_message(kind, raw, 0)}


@cache
def _fields(message: str) -> dict[int, tuple[str, str]]:
    rows = (row.split() for row in _MESSAGES[message].split(";") if row.strip())
    return {int(number): (name, kind) for number, name, kind in rows}


def _message(name: str, data: bytes, depth: int) -> dict[str, Any]:
    if depth > _MAX_DEPTH:
        raise StoreBadRequest("the protobuf message is nested too deeply")
    fields, result = _fields(name), dict[str, Any]()
    for number, value in _wire(data):
        if name == "Nothing":
            continue
        if number not in fields:
            raise StoreUnsupportedMediaType(
                f"protobuf field {number} of {name} is not understood: send application/json"
            )
        field, kind = fields[number]
        if kind.startswith("*"):
            result.setdefault(field, []).append(_value(kind[1:], value, depth))
        elif kind.startswith("%"):
            pair = dict(_wire(_bytes(value)))
            text = _bytes(pair.get(1, b"")).decode()
            result.setdefault(field, {})[text] = _value(kind[1:], pair.get(2, b""), depth)
        elif (read := _value(kind, value, depth)) is not _DROP and read not in ("", {}):
            result[field] = read
    return result


def _value(kind: str, value: Any, depth: int) -> Any:
    reader = _READERS.get(kind)
    return reader(value, depth) if reader else _message(kind, _bytes(value), depth + 1)


def _number(value: Any, _: int = 0) -> int:
    if not isinstance(value, int):
        raise StoreBadRequest("a protobuf number was expected")
    return value - (1 << 64) if value >= 1 << 63 else value


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise StoreBadRequest("protobuf bytes were expected")
    return value


def _text(value: Any, _: int) -> str:
    try:
        return _bytes(value).decode()
    except UnicodeDecodeError as error:
        raise StoreBadRequest(f"protobuf text is not UTF-8: {error}") from error


def _time(value: Any, depth: int) -> Any:
    seconds = _message("Time", _bytes(value), depth + 1).get("seconds")
    return timestamp(seconds) if seconds is not None else _DROP


def _int_or_string(value: Any, depth: int) -> Any:
    said = _message("IntOrString", _bytes(value), depth + 1)
    return said.get("strVal", "") if said.get("type") else said.get("intVal", 0)


_READERS: dict[str, _Reader] = {
    "s": _text,
    "i": _number,
    "z": lambda value, _: _number(value) or _DROP,
    "b": lambda value, _: bool(_number(value)),
    "f": lambda value, _: bool(_number(value)) or _DROP,
    "B": lambda value, _: base64.b64encode(_bytes(value)).decode(),
    "t": _time,
    "q": lambda value, depth: _message("Quantity", _bytes(value), depth + 1).get("string", "0"),
    "is": _int_or_string,
}


def _wire(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message as (number, integer or bytes)."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, form = tag >> 3, tag & 7
        if form == 0:
            value, position = _varint(data, position)
            yield number, value
            continue
        if form != 2:
            raise StoreBadRequest(f"protobuf wire type {form} is not used by Kubernetes")
        size, position = _varint(data, position)
        if position + size > len(data):
            raise StoreBadRequest("the protobuf message is cut short")
        yield number, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while position < len(data) and shift < 70:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7
    raise StoreBadRequest("the protobuf message is cut short")
