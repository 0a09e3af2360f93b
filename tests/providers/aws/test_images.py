"""Which image a launch gets: by alias and machine, by parameter, by search."""

from typing import Any

import pytest

from fleet.catalog import ImageKind
from fleet.snapshot import LaunchError
from providers.aws.images import alias_parameter

BOTTLEROCKET = "/aws/service/bottlerocket/aws-k8s-1.34"
EKS = "/aws/service/eks/optimized-ami/1.34"


@pytest.mark.parametrize(
    ("alias", "arch", "accelerator", "parameter"),
    [
        ("al2023@latest", "amd64", "", f"{EKS}/amazon-linux-2023/x86_64/standard/recommended/image_id"),
        ("al2023@latest", "arm64", "", f"{EKS}/amazon-linux-2023/arm64/standard/recommended/image_id"),
        ("al2023@latest", "amd64", "nvidia", f"{EKS}/amazon-linux-2023/x86_64/nvidia/recommended/image_id"),
        ("al2023@latest", "arm64", "nvidia", f"{EKS}/amazon-linux-2023/arm64/nvidia/recommended/image_id"),
        ("al2023@latest", "amd64", "aws", f"{EKS}/amazon-linux-2023/x86_64/neuron/recommended/image_id"),
        ("al2023@latest", "amd64", "amd", f"{EKS}/amazon-linux-2023/x86_64/standard/recommended/image_id"),
        (
            "al2023@v20250505",
            "amd64",
            "nvidia",
            f"{EKS}/amazon-linux-2023/x86_64/nvidia/amazon-eks-node-al2023-x86_64-nvidia-1.34-v20250505/image_id",
        ),
        ("al2@latest", "amd64", "", f"{EKS}/amazon-linux-2/recommended/image_id"),
        ("al2@latest", "amd64", "nvidia", f"{EKS}/amazon-linux-2-gpu/recommended/image_id"),
        ("al2@v20250505", "arm64", "", f"{EKS}/amazon-linux-2-arm64/amazon-eks-arm64-node-1.34-v20250505/image_id"),
        ("bottlerocket@latest", "amd64", "", f"{BOTTLEROCKET}/x86_64/latest/image_id"),
        ("bottlerocket@v1.20.3", "arm64", "", f"{BOTTLEROCKET}/arm64/1.20.3/image_id"),
        ("bottlerocket@v1.20.3", "amd64", "nvidia", f"{BOTTLEROCKET}-nvidia/x86_64/1.20.3/image_id"),
        ("bottlerocket@latest", "amd64", "aws", f"{BOTTLEROCKET}/x86_64/latest/image_id"),
    ],
)  # fmt: skip
def test_the_parameter_behind_an_alias(alias: str, arch: str, accelerator: str, parameter: str) -> None:
    assert alias_parameter(alias, "1.34", arch, accelerator) == parameter


def image(name: str, created: str, architecture: str = "x86_64", image_id: str = "") -> dict[str, str]:
    stamp = f"2025-01-{created}T00:00:00.000Z"
    return {"ImageId": image_id or f"ami-{name}", "Name": name, "Architecture": architecture, "CreationDate": stamp}


def chosen(stubbed: Any, request: Any) -> str:
    """The image in the launch template."""
    templates: list[Any] = []
    stubbed.clients.ec2.meta.events.register(
        "provide-client-params.ec2.CreateLaunchTemplate", lambda params, **_: templates.append(params)
    )
    stubbed.resolve()
    stubbed.ec2.add_response("create_fleet", {"Instances": [{"InstanceIds": ["i-1", "i-2"]}]})
    outcome = stubbed.cloud.launch(request)
    assert not outcome.failures
    return str(templates[0]["LaunchTemplateData"]["ImageId"])


FOUND = [
    image("old", "01"),
    image("new", "03"),
    image("other", "03", "arm64"),
    image("b", "03"),
    image("mac", "09", "m1"),
]


@pytest.mark.parametrize(("arch", "expected"), [("amd64", "ami-b"), ("arm64", "ami-other")])
def test_the_newest_for_the_processor_then_by_name(stubbed, request_for, arch, expected):
    filters = [
        {"Name": "name", "Values": ["x-*"]},
        {"Name": "tag:a", "Values": ["b"]},
        {"Name": "tag-key", "Values": ["c"]},
    ]
    ask = {"Filters": filters, "Owners": ["self", "amazon"], "MaxResults": 1000}
    stubbed.ec2.add_response("describe_images", {"Images": FOUND}, ask)
    term = {"name": "x-*", "tags": {"c": "*", "a": "b"}}
    assert chosen(stubbed, request_for(template={"amis": [term]}, arch=arch)) == expected


def test_terms_together(stubbed, request_for):
    by_id = {"Filters": [{"Name": "image-id", "Values": ["ami-1"]}], "MaxResults": 1000}
    mine = {"Filters": [{"Name": "name", "Values": ["x"]}], "Owners": ["123456789012"], "MaxResults": 1000}
    stubbed.ec2.add_response("describe_images", {"Images": [image("one", "01", image_id="ami-1")]}, by_id)
    stubbed.ec2.add_response("describe_images", {"Images": [image("two", "02", "arm64")]}, mine)
    terms = [{"id": "ami-1"}, {"name": "x", "owner": "123456789012"}]
    assert chosen(stubbed, request_for(template={"amis": terms, "amiFamily": "AL2023"})) == "ami-1"


def test_a_search_is_believed_for_five_minutes(stubbed, request_for, clock):
    request = request_for(template={"amis": [{"name": "x"}]})
    wanted = request.template.amis, request.image_kind
    stubbed.ec2.add_response("describe_images", {"Images": FOUND})
    images = stubbed.cloud._launcher._resolver._images
    assert images.resolve(*wanted) == images.resolve(*wanted) == "ami-b"
    clock.advance(301.0)
    stubbed.ec2.add_response("describe_images", {"Images": FOUND[:1]})
    assert images.resolve(*wanted) == "ami-old"
    images.forget(*wanted)
    stubbed.ec2.add_response("describe_images", {"Images": FOUND[1:2]})
    assert images.resolve(*wanted) == "ami-new"


def test_an_alias_follows_the_machine(stubbed, request_for):
    name = alias_parameter("al2023@latest", "1.34", "amd64", "nvidia")
    stubbed.ssm.add_response("get_parameter", {"Parameter": {"Value": "ami-gpu"}}, {"Name": name})
    request = request_for(template={"amis": [{"alias": "al2023@latest"}]}, accelerator="nvidia")
    assert chosen(stubbed, request) == "ami-gpu"


def test_none_for_the_processor(stubbed, request_for):
    stubbed.ec2.add_response("describe_images", {"Images": FOUND[:1]})
    got = stubbed.cloud.launch(request_for(template={"amis": [{"name": "x"}]}, arch="arm64"))
    assert [failure.error for failure in got.failures] == [LaunchError.MISCONFIGURED]
    assert "none of 1 images found is for arm64" in got.failures[0].message


def test_an_alias_without_a_version_of_kubernetes(stubbed, request_for, monkeypatch):
    images = stubbed.cloud._launcher._resolver._images
    monkeypatch.setattr(images, "_kubernetes_version", lambda: "")
    got = stubbed.cloud.launch(request_for(template={"amis": [{"alias": "al2023@latest"}]}))
    assert "which is not known" in got.failures[0].message


RELEASES = {
    ("al2023@v20250505", (("amd64", "nvidia"),)): (
        {f"{EKS}/amazon-linux-2023/x86_64/nvidia/recommended/release_version": "1.34.1-20251112"},
        "v20251112",
    ),
    ("al2@v20250505", (("arm64", ""),)): (
        {f"{EKS}/amazon-linux-2-arm64/recommended/release_version": "1.34.1-20250920"},
        "v20250920",
    ),
    ("bottlerocket@v1.20.3", (("amd64", "nvidia"),)): (
        {f"{BOTTLEROCKET}-nvidia/x86_64/latest/image_version": "1.49.0-713f44ce"},
        "v1.49.0",
    ),
    ("al2023@v20250505", (("amd64", "nvidia"), ("arm64", ""))): (  # the images of a release come one after the other
        {
            f"{EKS}/amazon-linux-2023/x86_64/nvidia/recommended/release_version": "1.34.1-20251112",
            f"{EKS}/amazon-linux-2023/arm64/standard/recommended/release_version": "1.34.1-20251029",
        },
        "v20251029",
    ),
    ("bottlerocket@v1.20.3", (("amd64", ""), ("arm64", ""))): (  # 1.9 is older than 1.10
        {
            f"{BOTTLEROCKET}/x86_64/latest/image_version": "1.10.0-a",
            f"{BOTTLEROCKET}/arm64/latest/image_version": "1.9.2-b",
        },
        "v1.9.2",
    ),
    ("al2023@v20250505", (("amd64", ""),)): (
        {f"{EKS}/amazon-linux-2023/x86_64/standard/recommended/release_version": "${jndi:x}"},
        "",
    ),
}


@pytest.mark.parametrize(("asked", "answer"), RELEASES.items(), ids=lambda it: str(it)[:40])
def test_the_newest_release_that_all_kinds_have(stubbed, asked, answer):
    (alias, kinds), (parameters, expected) = asked, answer
    for name, value in parameters.items():
        stubbed.ssm.add_response("get_parameter", {"Parameter": {"Value": value}}, {"Name": name})
    images = stubbed.cloud._launcher._resolver._images
    assert images.newest_release(alias.partition("@")[0], [ImageKind(*it) for it in kinds]) == expected
