"""`CapacityBuffer` of Kubernetes' autoscalers and the core `PodTemplate` that it names: room that is bought ahead.

`v1alpha1` and `v1beta1` write a buffer alike. Of a template counts what decides where its pods may stand; what a
container runs is left aside, and whatever else would decide about places is refused by name.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, Field, Strict, model_validator

from model.kinds.base import Amounts, Annotations, Labels, Spec, Toleration
from model.kinds.errors import misplaced
from model.quantity import Resources
from model.upstream.base import NamespacedMeta, Subdomain, UpstreamKind

MOST_REPLICAS: Final = 10_000
"""A buffer of more is a slip of the keyboard."""
_CURRENT: Final = "autoscaling.x-k8s.io/v1beta1"
_NOT_READ = "remove it: write podTemplateRef and replicas, as no object of the cluster is read for a buffer"

BufferVersion = Annotated[
    Literal["autoscaling.x-k8s.io/v1alpha1", "autoscaling.x-k8s.io/v1beta1"], AfterValidator(lambda _: _CURRENT)
]


class PodTemplateReference(Spec):
    """A PodTemplate of the buffer's namespace, in this repository."""

    name: Subdomain
    """Its name."""


class CapacityBufferSpec(Spec):
    """For how many pods of which kind there is room ahead."""

    unsupported: ClassVar[Mapping[str, str]] = MappingProxyType({"scalableRef": _NOT_READ, "percentage": _NOT_READ})

    provisioning_strategy: Literal["buffer.x-k8s.io/active-capacity"] = "buffer.x-k8s.io/active-capacity"
    """Machines run and wait; there is no other strategy here."""
    pod_template_ref: PodTemplateReference
    """What one pod of the buffer asks for."""
    replicas: Annotated[int, Strict(), Field(ge=0, le=MOST_REPLICAS)] | None = None
    """For so many pods there is room; unset = for as many as `limits` allow."""
    limits: Amounts | None = None
    """The most that all pods of the buffer ask for together."""

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.replicas is None and not self.limits:
            raise misplaced((), "give replicas or limits: nothing says how large the buffer is")
        return self


class CapacityBuffer(UpstreamKind):
    """Room for pods that are still to come, so that they start at once."""

    api_version: BufferVersion
    kind: Literal["CapacityBuffer"] = "CapacityBuffer"
    metadata: NamespacedMeta
    spec: CapacityBufferSpec

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def template(self) -> str:
        """The PodTemplate that it names, as `namespace/name`."""
        return f"{self.metadata.namespace}/{self.spec.pod_template_ref.name}"

    def replicas(self, requests: Resources) -> int:
        """For how many pods there is to be room, where each has these requests (reference: `spec.limits`)."""
        asked = MOST_REPLICAS if self.spec.replicas is None else self.spec.replicas
        limits = (self.spec.limits or {}).items()
        return min([asked, *(most // requests[name] for name, most in limits if requests.get(name))])


# -- what its pods ask for ---------------------------------------------------------------------------------------------


class _TemplatePart(Spec):
    """A part of a pod template: what decides nothing about places is left aside."""

    ignored_as: ClassVar[str] = "it decides nothing about places"

    @model_validator(mode="before")
    @classmethod
    def _what_decides(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        return {key: value for key, value in data.items() if key not in cls.ignored}


_PORT = "remove it: a port of the machine is not kept free for a buffer"


class TemplatePort(_TemplatePart):
    """A port of a container."""

    ignored: ClassVar[frozenset[str]] = frozenset({"name", "containerPort", "protocol"})
    unsupported: ClassVar[Mapping[str, str]] = MappingProxyType({"hostPort": _PORT, "hostIP": _PORT})


class TemplateResources(Spec):
    """What a container asks for."""

    unsupported: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"claims": "remove it: devices of resource claims are not kept free for a buffer"}
    )

    requests: Amounts = Field(default_factory=dict)
    """What is kept free for it; a resource that stands in `limits` alone is asked for as well."""
    limits: Amounts = Field(default_factory=dict)
    """What it may use at most."""


class TemplateContainer(_TemplatePart):
    """A container of the pods."""

    ignored: ClassVar[frozenset[str]] = frozenset(
        {
            *("name", "image", "imagePullPolicy", "command", "args", "workingDir", "env", "envFrom", "volumeMounts"),
            *("livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "securityContext", "stdin", "stdinOnce"),
            *("tty", "terminationMessagePath", "terminationMessagePolicy"),
        }
    )

    resources: TemplateResources = TemplateResources.unsaid()
    """What it asks for."""
    ports: tuple[TemplatePort, ...] = ()
    """Those of its own; none of the machine."""


_BY_LABELS = "remove it: say by nodeSelector and tolerations which machines the room is on"
_BESIDE = "remove it: room is kept for what containers ask of a machine"
_STANDING = "remove it: room for a buffer is bought after everybody else's"


class TemplatePodSpec(_TemplatePart):
    """Which machines the pods may be on, and what they ask of one."""

    ignored: ClassVar[frozenset[str]] = frozenset(
        {
            *("restartPolicy", "terminationGracePeriodSeconds", "activeDeadlineSeconds", "dnsPolicy", "dnsConfig"),
            *("serviceAccountName", "serviceAccount", "automountServiceAccountToken", "securityContext"),
            *("imagePullSecrets", "hostname", "subdomain", "hostAliases", "setHostnameAsFQDN", "enableServiceLinks"),
            *("shareProcessNamespace", "readinessGates", "hostPID", "hostIPC", "hostUsers"),
        }
    )
    unsupported: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            **dict.fromkeys(("affinity", "topologySpreadConstraints", "nodeName", "os"), _BY_LABELS),
            **dict.fromkeys(("initContainers", "volumes", "overhead", "runtimeClassName", "resources"), _BESIDE),
            **dict.fromkeys(("resourceClaims", "hostNetwork"), _BESIDE),
            **dict.fromkeys(("priorityClassName", "priority", "preemptionPolicy"), _STANDING),
            **dict.fromkeys(("schedulerName", "schedulingGates"), "remove it: it is no pod that is scheduled"),
        }
    )

    containers: Annotated[tuple[TemplateContainer, ...], Field(min_length=1, max_length=100)]
    """What they ask for together is what a pod asks for."""
    node_selector: Labels = Field(default_factory=dict)
    """Labels that the machine must have."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=100)] = ()
    """Taints of machines that do not keep the pods away."""


class TemplateMeta(_TemplatePart):
    """Labels of the pods."""

    ignored: ClassVar[frozenset[str]] = frozenset({"creationTimestamp", "name", "generateName"})

    labels: Labels = Field(default_factory=dict)
    """Labels that anti-affinity of other pods may look at."""
    annotations: Annotations = Field(default_factory=dict)
    """Free for your own use."""


class PodTemplateBody(Spec):
    """The pods that are made of a template."""

    metadata: TemplateMeta = TemplateMeta.unsaid()
    """Labels of the pods."""
    spec: TemplatePodSpec
    """What they ask for."""


class CorePodTemplate(UpstreamKind):
    """A kind of pod that a CapacityBuffer keeps room for (`core/v1`)."""

    api_version: Literal["v1"]
    kind: Literal["PodTemplate"] = "PodTemplate"
    metadata: NamespacedMeta
    template: PodTemplateBody
    """The pods that are made of it."""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def requests(self) -> Resources:
        """What one pod asks for, in canonical amounts."""
        total: dict[str, int] = {}
        for container in self.template.spec.containers:
            asked = {**container.resources.limits, **container.resources.requests}
            total |= {name: total.get(name, 0) + amount for name, amount in asked.items()}
        return {name: amount for name, amount in total.items() if amount}
