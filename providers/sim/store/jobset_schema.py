"""The structural schema of JobSet, as its CustomResourceDefinition gives it.

Source: jobset.sigs.k8s.io `api/jobset/v1alpha2/jobset_types.go`, `batch/v1` JobSpec. What the JobSet webhook fills in
before the definition is asked (`successPolicy.operator`, the name of a failure rule) is not required here. Pod
templates are open: the schema says how their lists merge, and keeps every field it does not name.
"""

from functools import cache
from typing import Any

from providers.sim.store.listkeys import named_shape

Schema = dict[str, Any]
_TEXT: Schema = {"type": "string"}
_FLAG: Schema = {"type": "boolean"}
_INT32: Schema = {"type": "integer", "format": "int32"}
_INT64: Schema = {"type": "integer", "format": "int64"}
_NAMES: Schema = {"type": "array", "items": _TEXT, "x-kubernetes-list-type": "atomic"}
_TEXTS: Schema = {"type": "object", "additionalProperties": _TEXT}
_OPEN: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_POD_LISTS = (
    "initContainers",
    "ephemeralContainers",
    "volumes",
    "imagePullSecrets",
    "schedulingGates",
    "resourceClaims",
    "hostAliases",
    "topologySpreadConstraints",
)
_CONTAINER_LISTS = ("env", "volumeMounts", "volumeDevices")


def _said(text: str, schema: Schema, **more: Any) -> Schema:
    return {**schema, **more, "description": text}


def _choice(*values: str, **more: Any) -> Schema:
    return {**_TEXT, "enum": list(values), **more}


def _object(*required: str, **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties} | ({"required": list(required)} if required else {})


def _keyed(field: str, items: Schema) -> Schema:
    """A list that merges as the field of that name does in the built-in kinds; its keys must be there."""
    keys = named_shape("Pod", field).keys or ()
    required = [*items.get("required", ()), *(key for key in keys if key != "protocol")]
    return {
        "type": "array",
        "items": {**items, "required": list(dict.fromkeys(required))},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": list(keys),
    }


@cache
def jobset_schema() -> Schema:
    """The OpenAPI v3 schema of `jobset.x-k8s.io/v1alpha2` JobSet; nobody changes it."""
    return {
        **_object(spec=_spec(), status=_status()),
        "description": "A group of Jobs that start, fail, restart and are suspended as one.",
    }


def _spec() -> Schema:
    return _object(
        replicatedJobs=_said(
            "The groups of equal Jobs that form the set.", _keyed("replicatedJobs", _replicated_job())
        ),
        suspend=_said("Suspends every child Job while it is true.", _FLAG),
        successPolicy=_said(
            "Which Jobs must succeed for the set to be Completed; without it all of them.",
            _object(operator=_choice("All", "Any"), targetReplicatedJobs=_NAMES),
        ),
        failurePolicy=_said("What a failed Job does to the set; without it the set fails.", _failure_policy()),
        startupPolicy=_object("startupPolicyOrder", startupPolicyOrder=_choice("AnyOrder", "InOrder")),
        network=_object(enableDNSHostnames=_FLAG, subdomain=_TEXT, publishNotReadyAddresses=_FLAG),
        coordinator=_object("replicatedJob", replicatedJob=_TEXT, jobIndex=_INT64, podIndex=_INT64),
        managedBy=_said("Whose set it is; the JobSet controller leaves those of others alone.", _TEXT),
        ttlSecondsAfterFinished=_said("How long a finished set is kept.", _INT32, minimum=0),
        volumeClaimPolicies={"type": "array", "maxItems": 50, "items": _OPEN, "x-kubernetes-list-type": "atomic"},
    )


def _replicated_job() -> Schema:
    return _object(
        "template",
        name=_said("Its Jobs are named <jobset>-<name>-<index>.", _TEXT),
        groupName={**_TEXT, "default": "default"},
        replicas=_said("How many Jobs are made from the template.", _INT32, default=1),
        template=_said("What each of its Jobs is.", _object(metadata=_embedded_metadata(), spec=_job_spec())),
        dependsOn={
            **_keyed("replicatedJobs", _object("status", name=_TEXT, status=_choice("Ready", "Complete"))),
            "maxItems": 5,
        },
    )


def _failure_policy() -> Schema:
    actions = (
        "FailJobSet",
        *(f"Restart{what}{how}" for what in ("JobSet", "Job") for how in ("", "AndIgnoreMaxRestarts")),
    )
    rule = _object(
        "action",
        name=_TEXT,
        action=_choice(*actions),
        onJobFailureReasons={**_NAMES, "uniqueItems": True},
        onJobFailureMessagePatterns={**_NAMES, "uniqueItems": True},
        targetReplicatedJobs=_NAMES,
    )
    return _object(
        maxRestarts=_said("How often the set may restart before it fails.", _INT32),
        restartStrategy=_choice("Recreate", "BlockingRecreate", "InPlaceRestart", default="Recreate"),
        rules=_said("The first rule that matches a failed Job decides.", {"type": "array", "items": rule}),
    )


def _embedded_metadata() -> Schema:
    return _object(labels=_TEXTS, annotations=_TEXTS, finalizers=_NAMES, name=_TEXT, namespace=_TEXT)


def _job_spec() -> Schema:
    return _object(
        "template",
        parallelism=_said("How many pods run at a time.", _INT32),
        completions=_said("How many pods must succeed.", _INT32),
        completionMode=_TEXT,
        backoffLimit=_said("How many failed pods the Job survives.", _INT32),
        backoffLimitPerIndex=_INT32,
        maxFailedIndexes=_INT32,
        activeDeadlineSeconds=_INT64,
        ttlSecondsAfterFinished=_INT32,
        suspend=_FLAG,
        managedBy=_TEXT,
        manualSelector=_FLAG,
        selector={**_OPEN, "x-kubernetes-map-type": "atomic"},
        podFailurePolicy=_OPEN,
        podReplacementPolicy=_TEXT,
        successPolicy=_OPEN,
        template=_said("The pods of the Job.", _pod_template()),
    )


def _pod_template() -> Schema:
    port = {**_OPEN, "properties": {"containerPort": _INT32, "protocol": {**_TEXT, "default": "TCP"}}}
    named = {"name": _TEXT, "image": _TEXT, "command": _NAMES, "args": _NAMES, "resources": _OPEN}
    lists = {field: _keyed(field, _OPEN) for field in _CONTAINER_LISTS}
    container = {**_OPEN, "properties": {**named, **lists, "ports": _keyed("ports", port)}}
    spec = {
        "containers": _keyed("containers", container),
        **{field: _keyed(field, container if field.endswith("Containers") else _OPEN) for field in _POD_LISTS},
        "nodeSelector": {**_TEXTS, "x-kubernetes-map-type": "atomic"},
    }
    metadata = {**_embedded_metadata(), "x-kubernetes-preserve-unknown-fields": True}
    return {**_OPEN, "properties": {"metadata": metadata, "spec": {**_OPEN, "properties": spec}}}


def _status() -> Schema:
    condition = _object(
        type=_TEXT,
        status=_choice("True", "False", "Unknown"),
        reason=_TEXT,
        message=_TEXT,
        lastTransitionTime={**_TEXT, "format": "date-time"},
        observedGeneration=_INT64,
    )
    names = ("ready", "succeeded", "failed", "active", "suspended")
    restarts: Schema = {"type": "array", "items": _INT32, "maxItems": 1024, "x-kubernetes-list-type": "atomic"}
    counted = _object(
        name=_TEXT,
        **dict.fromkeys(names, _INT32),
        jobRestarts=restarts,
        jobRestartsCountTowardsMax=restarts,
    )
    return _object(
        conditions=_said("Completed, Failed, Suspended, StartupPolicy...", _keyed("conditions", condition)),
        restarts=_said("How often all Jobs were made anew.", _INT32),
        restartsCountTowardsMax=_said("How many of the restarts count towards maxRestarts.", _INT32),
        terminalState=_said("Completed or Failed; empty before the end.", _TEXT),
        replicatedJobsStatus=_said("How the Jobs of each group stand.", _keyed("replicatedJobsStatus", counted)),
        previousInPlaceRestartAttempt={**_INT32, "minimum": 0},
        currentInPlaceRestartAttempt={**_INT32, "minimum": 0},
    )
