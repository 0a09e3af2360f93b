"""What a machine is born with, from the template of its pool: in every form of user data, and on the fake EC2."""

import base64
import json
import tomllib
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.snapshot import CapacityPool
from model.kinds import NodeTemplate, Taint
from model.kinds.aws import Ebs
from providers.aws.clients import connect
from providers.aws.ec2 import Ec2Cloud
from providers.aws.joining.mime import parts_of
from providers.aws.joining.toml import to_toml
from providers.aws.launch_template import TemplateParams, template_data
from providers.aws.user_data import node_user_data
from providers.ports import CloudRejected
from providers.sim.controllers.userdata import kubelet_arguments
from providers.sim.ec2 import FakeAws, RegionMarket
from tests.providers.aws.conftest import ACCESS, CLUSTER, VERSION

LABELS = {"team": "a", "muster.dev/node-pool": "gpu", "kubernetes.io/arch": "amd64"}
TAINTS = (Taint(key="gpu", value="x", effect="NoSchedule"), Taint(key="gpu", effect="NoExecute"))
KUBELET = {
    "clusterDNS": ["10.100.0.10"],
    "maxPods": 58,
    "podsPerCore": 4,
    "systemReserved": {"cpu": "200m", "memory": "500Mi"},
    "kubeReserved": {"memory": "1Gi"},
    "evictionHard": {"memory.available": "5%", "nodefs.available": "10Gi"},
    "evictionSoft": {"memory.available": "10%"},
    "evictionSoftGracePeriod": {"memory.available": "1m30s"},
    "evictionMaxPodGracePeriod": 60,
    "imageGCHighThresholdPercent": 85,
    "imageGCLowThresholdPercent": 80,
    "cpuCFSQuota": False,
}
FAMILIES = {
    "AL2023": {"amis": [{"alias": "al2023@latest"}]},
    "AL2": {"amis": [{"alias": "al2@latest"}]},
    "Bottlerocket": {"amis": [{"alias": "bottlerocket@latest"}]},
}


def template(family: str = "AL2023", **said: Any) -> NodeTemplate:
    return NodeTemplate.model_validate({**FAMILIES[family], **said})


def told(family: str = "AL2023", **said: Any) -> str:
    return node_user_data(ACCESS, template(family, **said), LABELS, TAINTS)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("said", [{}, {"kubelet": KUBELET}, {"instanceStorePolicy": "RAID0"}])
def test_the_kubelet_hears_the_same_in_every_family(family: str, said: dict[str, Any]) -> None:
    heard = kubelet_arguments(told(family, **said))
    assert heard.labels == LABELS
    assert sorted((one["key"], one.get("value", ""), one["effect"]) for one in heard.taints) == [
        ("gpu", "", "NoExecute"),
        ("gpu", "x", "NoSchedule"),
    ]
    assert heard.max_pods == (58 if "kubelet" in said else None)


def test_nodeadm() -> None:
    [part] = parts_of(told(kubelet=KUBELET, instanceStorePolicy="RAID0"))
    spec = yaml.safe_load(part.content)["spec"]
    assert spec["kubelet"]["config"] == KUBELET
    assert spec["instance"] == {"localStorage": {"strategy": "RAID0"}}


OWN = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {kubelet: {config: {maxPods: 7}}}\n"
MIME = f"""MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="b"

--b
Content-Type: application/node.eks.aws

{OWN}
--b
Content-Type: text/cloud-config; charset="us-ascii"

runcmd: [echo]
--b--
"""


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("", []),
        ("spec: {}", ["application/node.eks.aws"]),
        ("#!/bin/bash\nkey: value", ["text/x-shellscript"]),
        ("#!/bin/bash\nset -e\necho 'a: b'", ["text/x-shellscript"]),
        (OWN, ["application/node.eks.aws"]),
        (MIME, ["application/node.eks.aws", "text/cloud-config"]),
        ("\n" + MIME.replace("\n", "\r\n"), ["application/node.eks.aws", "text/cloud-config"]),
    ],
)
def test_the_pools_own_parts_come_last_and_win(text: str, kinds: list[str]) -> None:
    document = told(userData=text, kubelet={"maxPods": 5})
    first, *others = parts_of(document)
    assert first.kind == "application/node.eks.aws"
    assert [part.kind.partition(";")[0] for part in others] == kinds
    assert kubelet_arguments(document).max_pods == (7 if OWN.splitlines()[2] in text else 5)


def test_mime_without_parts_is_refused() -> None:
    with pytest.raises(CloudRejected, match="no parts"):
        told(userData="MIME-Version: 1.0\nContent-Type: multipart/mixed\n\nhello")


def test_bootstrap() -> None:
    *own, last = parts_of(told("AL2", userData="echo before", kubelet=KUBELET, instanceStorePolicy="RAID0"))
    assert [part.content for part in own] == ["#!/bin/bash\necho before"]
    script = last.content
    assert script.startswith(
        "#!/bin/bash -xe\n/etc/eks/bootstrap.sh default --apiserver-endpoint https://127.0.0.1:6443 "
    )
    for words in (
        "--b64-cluster-ca dGVzdA==",
        "--dns-cluster-ip 10.100.0.10",
        "--use-max-pods false",
        "--local-disks raid0",
        "--system-reserved=cpu=200m,memory=500Mi",
        "--eviction-hard=memory.available<5%,nodefs.available<10Gi",
        "--eviction-soft-grace-period=memory.available=1m30s",
        "--image-gc-high-threshold=85",
        "--cpu-cfs-quota=false",
        "--max-pods=58",
    ):
        assert words in script
    assert "--ip-family ipv6" in told("AL2", kubelet={"clusterDNS": ["fd00::a"]})


SETTINGS = """
[settings.host-containers.admin]
enabled = true
[settings.autoscaling]
should-wait = true
[settings.kubernetes]
max-pods = 5
cluster-name = "other"
[settings.kubernetes.node-labels]
"own/label" = "x"
team = "b"
[settings.kubernetes.node-taints]
own = ["v:NoSchedule"]
[settings.bootstrap-commands.mine]
commands = [["apiclient", "set"]]
mode = "once"
essential = false
"""


def test_bottlerocket() -> None:
    said = tomllib.loads(told("Bottlerocket", userData=SETTINGS, kubelet=KUBELET, instanceStorePolicy="RAID0"))[
        "settings"
    ]
    kubernetes = said["kubernetes"]
    assert said["host-containers"] == {"admin": {"enabled": True}}
    assert said["autoscaling"] == {"should-wait": False}
    assert list(said["bootstrap-commands"]) == ["mine", "000-mount-instance-storage"]
    assert (kubernetes["cluster-name"], kubernetes["api-server"]) == (CLUSTER, ACCESS.endpoint)
    assert kubernetes["cluster-certificate"] == ACCESS.certificate_authority
    assert kubernetes["node-labels"] == {"own/label": "x", **LABELS}
    assert kubernetes["node-taints"] == {"gpu": [":NoExecute", "x:NoSchedule"]}
    assert (kubernetes["max-pods"], kubernetes["cluster-dns-ip"]) == (58, "10.100.0.10")
    assert kubernetes["eviction-soft-grace-period"] == {"memory.available": "1m30s"}
    assert kubernetes["image-gc-high-threshold-percent"] == "85"
    assert kubernetes["cpu-cfs-quota-enforced"] is False
    assert tomllib.loads(told("Bottlerocket", userData=SETTINGS))["settings"]["kubernetes"]["max-pods"] == 5


@pytest.mark.parametrize("text", ["a = ", "settings = 1", "[settings]\nkubernetes = 'x'"])
def test_settings_that_are_none(text: str) -> None:
    said = template("Bottlerocket").model_copy(update={"user_data": text})
    with pytest.raises(CloudRejected, match="Bottlerocket"):
        node_user_data(ACCESS, said, LABELS, TAINTS)


def test_an_image_of_ones_own_is_told_what_the_pool_says() -> None:
    said = NodeTemplate.model_validate({"amiFamily": "Custom", "amis": [{"id": "ami-1"}], "userData": "\x7f{}:"})
    assert node_user_data(ACCESS, said, LABELS, TAINTS) == "\x7f{}:"


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = st.one_of(TEXT, st.integers(-(2**63), 2**63 - 1), st.booleans(), st.floats(allow_nan=False))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=8,
)


@settings(max_examples=120, deadline=None)
@given(st.dictionaries(TEXT, VALUES, max_size=4))
def test_toml_reads_back_as_it_was(table: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml(table)) == table


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(FAMILIES)), st.dictionaries(st.sampled_from("abc"), st.sampled_from(["", "x", "y-z"])))
def test_equal_machines_get_equal_text(family: str, labels: dict[str, str]) -> None:
    backwards = dict(reversed(labels.items()))
    one, other = (
        node_user_data(ACCESS, template(family), each, TAINTS[::step]) for each, step in ((labels, 1), (backwards, -1))
    )
    assert one == other
    assert kubelet_arguments(one).labels == labels


def data(**said: Any) -> dict[str, Any]:
    family = said.pop("family", "AL2023")
    return template_data(TemplateParams("ami-1", ("sg-1",), "x", template(family, **said)))


def test_disks() -> None:
    everything = {
        "volumeSize": "1.5Ti",
        "volumeType": "io2",
        "iops": 4000,
        "encrypted": True,
        "kmsKeyID": "alias/k",
        "snapshotID": "snap-1",
        "volumeInitializationRate": 200,
        "deleteOnTermination": False,
    }
    disks = [{"deviceName": "/dev/a", "ebs": everything}, {"deviceName": "/dev/b", "ebs": {"snapshotID": "snap-2"}}]
    assert data(blockDeviceMappings=disks)["BlockDeviceMappings"] == [
        {
            "DeviceName": "/dev/a",
            "Ebs": {
                "VolumeSize": 1536,
                "VolumeType": "io2",
                "Iops": 4000,
                "Encrypted": True,
                "KmsKeyId": "alias/k",
                "SnapshotId": "snap-1",
                "VolumeInitializationRate": 200,
                "DeleteOnTermination": False,
            },
        },
        {"DeviceName": "/dev/b", "Ebs": {"SnapshotId": "snap-2"}},
    ]


def test_disks_nobody_asked_for() -> None:
    sizes = {
        family: [one["Ebs"]["VolumeSize"] for one in data(family=family)["BlockDeviceMappings"]] for family in FAMILIES
    }
    assert sizes == {"AL2023": [20], "AL2": [20], "Bottlerocket": [4, 20]}
    custom = NodeTemplate.model_validate({"amiFamily": "Custom", "amis": [{"id": "ami-1"}]})
    assert "BlockDeviceMappings" not in template_data(TemplateParams("ami-1", (), "", custom))


@pytest.mark.parametrize(
    ("text", "gib"), [("20Gi", 20), ("20G", 19), ("1Ti", 1024), ("1", None), ("65Ti", None), ("x", None)]
)
def test_sizes(text: str, gib: int | None) -> None:
    if gib is None and text != "1":
        with pytest.raises(ValueError, match="volume"):
            Ebs.model_validate({"volumeSize": text})
    else:
        assert Ebs.model_validate({"volumeSize": text}).volume_size == (gib or 1)


@pytest.mark.parametrize(("said", "expected"), [(None, None), (True, True), (False, False)])
def test_public_addresses(said: bool | None, expected: bool | None) -> None:
    found = data() if said is None else data(associatePublicIPAddress=said)
    if said is None:
        assert (found["SecurityGroupIds"], "NetworkInterfaces" in found) == (["sg-1"], False)
    else:
        [interface] = found["NetworkInterfaces"]
        assert (interface["AssociatePublicIpAddress"], interface["Groups"]) == (expected, ["sg-1"])


def test_metadata_and_monitoring() -> None:
    found = data(metadataOptions={"httpPutResponseHopLimit": 2, "httpTokens": "optional"}, detailedMonitoring=True)
    assert (found["MetadataOptions"]["HttpPutResponseHopLimit"], found["MetadataOptions"]["HttpTokens"]) == (
        2,
        "optional",
    )
    assert found["Monitoring"] == {"Enabled": True}
    assert "Monitoring" not in data()


@pytest.fixture
def aws(clock):
    with FakeAws(RegionMarket(), clock, cluster=CLUSTER) as fake:
        yield fake


@pytest.fixture
def cloud(aws, clock, session):
    clients = connect("us-east-1", endpoint_url=aws.url, session=session)
    return Ec2Cloud(clients, ACCESS, clock, VERSION, sleep=clock.advance, rng=lambda: 0.5)


def client(service, aws, session):
    return session.client(service, "us-east-1", endpoint_url=aws.url)


def of_template(ec2):
    """The data of the one launch template there is."""
    [found] = ec2.describe_launch_templates()["LaunchTemplates"]
    [version] = ec2.describe_launch_template_versions(LaunchTemplateId=found["LaunchTemplateId"])[
        "LaunchTemplateVersions"
    ]
    return version["LaunchTemplateData"]


POOL = CapacityPool("on-demand", "g6.xlarge", "us-east-1a")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_machine_of_every_family_on_the_fake(aws, cloud, session, request_for, family):
    said = {**FAMILIES[family], "kubelet": {"maxPods": 20}, "role": "nodes", "detailedMonitoring": True}
    session.client("iam", "us-east-1", endpoint_url=aws.url).create_role(
        RoleName="nodes", AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": []})
    )
    got = cloud.launch(request_for(template=said, pool=POOL, accelerator="nvidia", count=1))
    assert got.failures == ()
    [machine] = aws.instances()
    heard = kubelet_arguments(machine.user_data)
    assert (heard.labels["team"], heard.max_pods) == ("a", 20)
    ec2 = client("ec2", aws, session)
    born = of_template(ec2)
    assert born["Monitoring"] == {"Enabled": True}
    [image] = ec2.describe_images(ImageIds=[born["ImageId"]])["Images"]
    assert image["Name"].startswith(f"amazon-eks-node-{family.lower()}-x86_64-")
    assert image["Name"].endswith(("nvidia", "gpu"))
    profile = client("iam", aws, session).get_instance_profile(InstanceProfileName=born["IamInstanceProfile"]["Name"])
    assert [role["RoleName"] for role in profile["InstanceProfile"]["Roles"]] == ["nodes"]
    assert base64.b64decode(born["UserData"]).decode() == machine.user_data


def test_subnets_and_groups_by_every_term(aws, cloud, session, request_for):
    ec2 = client("ec2", aws, session)
    subnets = ec2.describe_subnets(Filters=[{"Name": "availability-zone", "Values": ["us-east-1a"]}])["Subnets"]
    ours = next(each for each in subnets if each["CidrBlock"].startswith("10.0."))
    group = ec2.create_security_group(GroupName="extra", Description="x", VpcId=ours["VpcId"])["GroupId"]
    said = {
        "amis": [{"alias": "al2023@latest"}],
        "subnets": [{"id": ours["SubnetId"]}, {"tags": {"muster.dev/cluster": "*"}}],
        "securityGroups": [{"name": "extra"}, {"id": group}, {"tags": {"muster.dev/cluster": CLUSTER}}],
    }
    assert cloud.launch(request_for(template=said, pool=POOL, count=1)).failures == ()
    assert sorted(of_template(ec2)["SecurityGroupIds"]) == sorted({group, aws.site.security_group.id})
    nowhere = said | {"subnets": [{"id": "subnet-none"}]}
    refused = cloud.launch(request_for(template=nowhere, pool=POOL, count=1, token="t2"))
    assert "no subnet in us-east-1a" in refused.failures[0].message


def test_a_profile_is_made_once(aws, cloud, session, request_for):
    iam = client("iam", aws, session)
    iam.create_role(RoleName="nodes", AssumeRolePolicyDocument="{}")
    for token in ("a", "b"):
        said = {"role": "arn:aws:iam::123456789012:role/path/nodes"}
        assert cloud.launch(request_for(template=said | FAMILIES["AL2023"], pool=POOL, count=1, token=token)).instances
    [profile] = iam.list_instance_profiles()["InstanceProfiles"]
    assert profile["InstanceProfileName"].startswith("muster_default_")
    assert [role["RoleName"] for role in profile["Roles"]] == ["nodes"]


def test_a_role_that_is_not_there(cloud, request_for):
    got = cloud.launch(request_for(template={"role": "nobody"} | FAMILIES["AL2023"], pool=POOL, count=1))
    assert (got.instances, got.failures[0].code) == ((), "NoSuchEntity")
