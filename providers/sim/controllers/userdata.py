"""What a machine's user data says about its kubelet, in the forms of all families of images.

Sources: awslabs/amazon-eks-ami `nodeadm` (NodeConfig `node.eks.aws/v1alpha1`, plain or inside MIME multi-part; later
parts win, flags add up) and `bootstrap.sh`, Bottlerocket's `settings.kubernetes`; kubelet `--node-labels`,
`--register-with-taints`, and the labels it refuses (`pkg/kubelet/apis/well_known_labels.go`).
"""

import base64
import binascii
import email
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

_GROUP = "node.eks.aws/"
_BOOTSTRAP = "/etc/eks/bootstrap.sh"
_SETTINGS = "[settings"
_ALLOWED = frozenset(
    {
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "kubernetes.io/arch",
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)
_ALLOWED_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_RESERVED_DOMAINS = ("kubernetes.io", "k8s.io")
_KEPT = {"kube-reserved": "kubeReserved", "system-reserved": "systemReserved", "eviction-hard": "evictionHard"}
"""Flag, and setting of Bottlerocket -> field of the kubelet's configuration."""
_EFFECTS = frozenset({"NoSchedule", "PreferNoSchedule", "NoExecute"})


class InvalidUserData(ValueError):
    """A machine with this user data boots, but its kubelet never joins the cluster."""


@dataclass(frozen=True, slots=True)
class KubeletArguments:
    """What the kubelet registers its node with, and its pod limit if one is set."""

    labels: dict[str, str] = field(default_factory=dict)
    taints: list[dict[str, str]] = field(default_factory=list)
    max_pods: int | None = None
    kept: dict[str, dict[str, str]] = field(default_factory=dict)
    """What pods do not get, by the name of the flag (`_KEPT`): resource or signal -> amount."""


def kubelet_arguments(user_data: str) -> KubeletArguments:
    """Read user data; empty text gives a kubelet without arguments. Raises InvalidUserData."""
    text = _decoded(user_data)
    if any(line.startswith(_SETTINGS) for line in text.splitlines()):
        return _of_settings(text)
    arguments = KubeletArguments()
    max_pods: int | None = None
    for document in _node_configs(text):
        kubelet = (document.get("spec") or {}).get("kubelet") or {}
        config = kubelet.get("config") or {}
        max_pods = config.get("maxPods", max_pods)
        arguments.taints.extend(_configured_taint(taint) for taint in config.get("registerWithTaints") or ())
        arguments.kept.update({flag: _texts_of(config[name]) for flag, name in _KEPT.items() if config.get(name)})
        for flag in kubelet.get("flags") or ():
            _read_flag(str(flag), arguments)
    for flag in _bootstrap_flags(text):
        _read_flag(flag, arguments)
        max_pods = int(flag.partition("=")[2]) if flag.startswith("--max-pods=") else max_pods
    return replace(arguments, max_pods=max_pods)


def _of_settings(text: str) -> KubeletArguments:
    """Bottlerocket."""
    try:
        kubernetes = tomllib.loads(text).get("settings", {}).get("kubernetes", {})
    except tomllib.TOMLDecodeError as error:
        raise InvalidUserData(f"Bottlerocket cannot read its settings: {error}") from error
    labels = dict(_label(f"{key}={value}") for key, value in kubernetes.get("node-labels", {}).items())
    said = kubernetes.get("node-taints", {})
    taints = [_taint(f"{key}={value}") for key, values in said.items() for value in values]
    kept = {name: _texts_of(kubernetes[name]) for name in _KEPT if kubernetes.get(name)}
    return KubeletArguments(labels, taints, kubernetes.get("max-pods"), kept)


def _texts_of(amounts: Mapping[str, object]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def _bootstrap_flags(text: str) -> Iterator[str]:
    """Flags that `bootstrap.sh` of Amazon Linux 2 hands to the kubelet."""
    for part in _texts(text):
        for line in part.splitlines():
            words = shlex.split(line) if line.startswith(_BOOTSTRAP) else []
            if "--kubelet-extra-args" in words:
                yield from words[words.index("--kubelet-extra-args") + 1].split()


def _node_configs(user_data: str) -> Iterator[dict[str, Any]]:
    for text in _parts(user_data):
        try:
            documents = list(yaml.load_all(text, yaml.CSafeLoader))
        except yaml.YAMLError as error:
            raise InvalidUserData(f"nodeadm cannot read its configuration: {error}") from error
        for document in documents:
            if isinstance(document, dict) and str(document.get("apiVersion", "")).startswith(_GROUP):
                yield document


def _decoded(user_data: str) -> str:
    """User data as the machine sees it; the EC2 API carries it in base64."""
    text = user_data.strip()
    if not text or ":" in text:
        return user_data
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return user_data


def _parts(text: str) -> Iterator[str]:
    """The YAML parts: nodeadm's media type, or plain text that is a NodeConfig; scripts are none of our business."""
    if not text.lstrip().lower().startswith(("mime-version:", "content-type:")):
        if _GROUP in text:
            yield text
        return
    for part in email.message_from_string(text.lstrip()).walk():
        payload = part.get_payload(decode=True)
        if isinstance(payload, bytes) and part.get_content_type() == "application/node.eks.aws":
            yield payload.decode(errors="replace")


def _texts(text: str) -> Iterator[str]:
    """Every part, or the text itself."""
    if not text.lstrip().lower().startswith(("mime-version:", "content-type:")):
        yield text
        return
    for part in email.message_from_string(text.lstrip()).walk():
        payload = part.get_payload(decode=True)
        if isinstance(payload, bytes):
            yield payload.decode(errors="replace")


def _read_flag(flag: str, arguments: KubeletArguments) -> None:
    name, _, value = flag.partition("=")
    if name == "--node-labels":
        arguments.labels.update(_label(pair) for pair in _split(value))
    elif name == "--register-with-taints":
        arguments.taints.extend(_taint(text) for text in _split(value))
    elif (kept := name.removeprefix("--")) in _KEPT:
        sign = "<" if kept == "eviction-hard" else "="
        arguments.kept[kept] = {key: amount for key, _, amount in (it.partition(sign) for it in _split(value))}


def _split(value: str) -> list[str]:
    return [part for part in value.strip("\"'").split(",") if part]


def _label(pair: str) -> tuple[str, str]:
    key, equals, value = pair.partition("=")
    domain = key.partition("/")[0] if "/" in key else ""
    if not equals:
        raise InvalidUserData(f"--node-labels: {pair!r} is not key=value")
    if _within(domain, _RESERVED_DOMAINS) and key not in _ALLOWED and not _within(domain, _ALLOWED_DOMAINS):
        raise InvalidUserData(f"--node-labels: the kubelet may not set {key}")
    return key, value


def _within(domain: str, parents: tuple[str, ...]) -> bool:
    return any(domain == parent or domain.endswith(f".{parent}") for parent in parents)


def _taint(text: str) -> dict[str, str]:
    """`key=value:Effect`, `key:Effect` or `key=:Effect`."""
    pair, colon, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    if not colon or not key or effect not in _EFFECTS:
        raise InvalidUserData(f"--register-with-taints: {text!r} is not key=value:Effect")
    return {"key": key, "value": value, "effect": effect} if value else {"key": key, "effect": effect}


def _configured_taint(taint: Any) -> dict[str, str]:
    if not isinstance(taint, dict) or not taint.get("key") or taint.get("effect") not in _EFFECTS:
        raise InvalidUserData(f"registerWithTaints: {taint!r} is not a taint")
    return {name: str(taint[name]) for name in ("key", "value", "effect") if taint.get(name)}
