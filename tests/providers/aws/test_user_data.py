import email
import json

import pytest
import yaml

from model.kinds import NodeTemplate, Taint
from providers.aws.user_data import LIMIT_BYTES, ClusterAccess, node_user_data
from providers.ports import CloudRejected
from providers.sim.controllers.userdata import kubelet_arguments

ACCESS = ClusterAccess("training", "https://127.0.0.1:6443", "dGVzdA==", "10.100.0.0/16")
LABELS = {"muster.dev/node-pool": "gpu", "karpenter.k8s.aws/instance-gpu-name": "l4", "team": ""}
TAINTS = (
    Taint(key="muster.dev/unregistered", effect="NoExecute"),
    Taint(key="nvidia.com/gpu", value="present", effect="NoSchedule"),
)


def born(labels, taints=(), user_data="", access=ACCESS, **template):
    """User data of a machine of Amazon Linux 2023, unless the template says otherwise."""
    said = NodeTemplate.model_validate({"userData": user_data, **template})
    return node_user_data(access, said, labels, taints)


def parts(document):
    message = email.message_from_string(document)
    assert message.is_multipart()
    return [(part.get_content_type(), part.get_payload()) for part in message.get_payload()]


def test_the_node_config_says_how_to_join():
    ((kind, text),) = parts(born(LABELS, TAINTS))
    assert kind == "application/node.eks.aws"
    assert yaml.safe_load(text) == {
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "spec": {
            "cluster": {
                "name": "training",
                "apiServerEndpoint": "https://127.0.0.1:6443",
                "certificateAuthority": "dGVzdA==",
                "cidr": "10.100.0.0/16",
            },
            "kubelet": {
                "flags": [
                    "--node-labels=karpenter.k8s.aws/instance-gpu-name=l4,muster.dev/node-pool=gpu,team=",
                    "--register-with-taints=muster.dev/unregistered=:NoExecute,nvidia.com/gpu=present:NoSchedule",
                ]
            },
        },
    }


def test_the_script_of_the_pool_names_its_interpreter():
    _, script = parts(born({}, (), "echo hello\n"))
    assert script[0] == "text/x-shellscript"
    assert script[1].startswith("#!/bin/bash\necho hello\n")
    _, own = parts(born({}, (), "#!/usr/bin/python3\nprint(1)\n"))
    assert own[1].startswith("#!/usr/bin/python3\n")


def test_the_simulated_kubelet_reads_the_same():
    arguments = kubelet_arguments(born(LABELS, TAINTS, "echo hello"))
    assert dict(arguments.labels) == LABELS
    assert {(taint["key"], taint.get("value", ""), taint["effect"]) for taint in arguments.taints} == {
        (taint.key, taint.value, taint.effect) for taint in TAINTS
    }


def test_a_script_cannot_break_out_of_its_part():
    innocent = born(LABELS, TAINTS, "echo")
    boundary = innocent.split('boundary="')[1].split('"')[0]
    hostile = f"echo\n--{boundary}\nContent-Type: application/node.eks.aws\n\nkind: NodeConfig\n--{boundary}--\n"
    assert [kind for kind, _ in parts(born(LABELS, TAINTS, hostile))] == [
        "application/node.eks.aws",
        "text/x-shellscript",
    ]


@pytest.mark.parametrize(
    "labels",
    [
        {"team": "a,node-role=admin"},
        {"team": 'a" --feature-gates=X'},
        {"team": "a\n- --flag"},
        {"bad key": "x"},
        {"team": "x" * 64},
        {"-lead": "x"},
        {"UPPER.example/x": "y"},
    ],
)
def test_what_is_no_label_is_refused(labels):
    with pytest.raises(CloudRejected):
        born(labels)


def test_what_is_no_taint_is_refused():
    with pytest.raises(CloudRejected):
        born({}, [Taint.model_construct(key="a", value="b:NoExecute,c=d", effect="NoSchedule")])


@pytest.mark.parametrize(
    ("key", "kept"),
    [
        ("kubernetes.io/arch", True),
        ("node.kubernetes.io/instance-type", True),
        ("node.kubernetes.io/anything", True),
        ("topology.kubernetes.io/zone", True),
        ("kubelet.kubernetes.io/x", True),
        ("team", True),
        ("karpenter.sh/capacity-type", True),
        ("topology.k8s.aws/zone-id", True),
        ("node-role.kubernetes.io/gpu", False),
        ("kubernetes.io/os-like", False),
        ("autoscaling.k8s.io/x", False),
        ("k8s.io/x", False),
    ],
)
def test_labels_a_kubelet_must_not_give_itself_are_left_to_registration(key, kept):
    assert (f"--node-labels={key}=x" in born({key: "x"})) is kept


def test_equal_nodes_get_equal_text():
    backwards = dict(reversed(LABELS.items()))
    assert born(LABELS, TAINTS, "x") == born(backwards, TAINTS[::-1], "x")


def test_too_long_is_refused_before_ec2_does():
    with pytest.raises(CloudRejected, match=str(LIMIT_BYTES)):
        born({}, (), "#" * LIMIT_BYTES)


def test_values_are_quoted():
    odd = ClusterAccess('we"ird: {}', "https://[::1]:6443")
    ((_, text),) = parts(born({}, access=odd))
    assert yaml.safe_load(text)["spec"]["cluster"]["name"] == json.loads(json.dumps('we"ird: {}'))
