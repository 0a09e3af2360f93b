"""Which machine image: of all that a pool's terms find, the newest for the machine's processor."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleet.catalog import ImageKind
from model.kinds.aws import FAMILY_OF_ALIAS, AmiTerm
from model.kinds.releases import release_order
from providers.aws.ami_families import AMI_FAMILIES, EC2_ARCHITECTURES, ImageRelease, version_of_release
from providers.aws.buckets import RateLimitGroup
from providers.aws.retry import Caller, pages
from providers.clock import Clock
from providers.ports import CloudRejected

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

_FRESH_S = 3600.0
_FOUND_FRESH_S = 300.0
_OWNERS = ("self", "amazon")


@dataclass(frozen=True, slots=True)
class Image:
    """An image as EC2 describes it."""

    id: str
    name: str
    architecture: str
    """EC2's word: `x86_64`, `arm64`."""
    created: str
    """RFC 3339, which sorts by time."""


class Images:
    """Finds the image that the terms of a pool mean for a kind of machine.

    A parameter's value is believed for an hour, a search for five minutes, or until EC2 does not know the image.
    """

    def __init__(
        self, caller: Caller, ec2: "EC2Client", ssm: Any, clock: Clock, kubernetes_version: Callable[[], str]
    ) -> None:
        self._caller = caller
        self._ec2 = ec2
        self._ssm = ssm
        self._clock = clock
        self._kubernetes_version = kubernetes_version
        self._values: dict[str, tuple[float, str]] = {}
        self._found: dict[str, tuple[float, tuple[Image, ...]]] = {}

    def resolve(self, terms: Sequence[AmiTerm], kind: ImageKind) -> str:
        """The id of the image that machines of a kind get; raises `CloudRejected` where no term finds one for them."""
        if len(terms) == 1 and not (terms[0].tags or terms[0].name):
            return self._named(terms[0], kind)
        wanted = EC2_ARCHITECTURES.get(kind.arch, kind.arch)
        images = [image for term in terms for image in self._of_term(term, kind)]
        suits = [image for image in images if image.architecture == wanted]
        if not suits:
            raise CloudRejected(f"none of {len(images)} images found is for {wanted}: {_text(terms)}")
        newest = max(image.created for image in suits)
        return min((image.name, image.id) for image in suits if image.created == newest)[1]

    def newest_release(self, family: str, kinds: Iterable[ImageKind]) -> str:
        """The version that an alias of a family (`al2023`) would name for the newest images of all these kinds.

        A family publishes the images of a release one after the other: what all kinds have counts. Empty where none is
        published; raises `CloudError`.
        """
        traits, kubernetes = AMI_FAMILIES[FAMILY_OF_ALIAS[family]], self._kubernetes_version()
        if traits.newest is None or not kubernetes:
            return ""
        releases = {
            self._text(traits.newest(ImageRelease("latest", kubernetes, kind.arch, kind.accelerator))) for kind in kinds
        }
        versions = [version_of_release(release) for release in releases]
        return min(versions, key=release_order) if versions and all(versions) else ""

    def forget(self, terms: Sequence[AmiTerm], kind: ImageKind) -> None:
        """The image turned out not to exist: look everything up again next time."""
        for term in terms:
            self._values.pop(self._parameter_of(term, kind), None)
        self._found.clear()

    def _named(self, term: AmiTerm, kind: ImageKind) -> str:
        """The image of a term that names one."""
        if term.id:
            return term.id
        name = self._parameter_of(term, kind)
        if not name:
            raise CloudRejected(f"images of {term.alias} are made for a version of Kubernetes, which is not known")
        return self._parameter(name)

    def _parameter_of(self, term: AmiTerm, kind: ImageKind) -> str:
        version = self._kubernetes_version() if term.alias else ""
        return alias_parameter(term.alias, version, kind.arch, kind.accelerator) if version else term.ssm_parameter

    def _of_term(self, term: AmiTerm, kind: ImageKind) -> tuple[Image, ...]:
        if term.tags or term.name:
            owners = (term.owner,) if term.owner else _OWNERS
            return self._search(list(_filters(term)), owners)
        image_id = self._named(term, kind)
        return self._search([{"Name": "image-id", "Values": [image_id]}], ())

    def _search(self, filters: list[dict[str, Any]], owners: Iterable[str]) -> tuple[Image, ...]:
        key, now_s = repr((filters, owners)), self._clock.monotonic()
        read_s, images = self._found.get(key, (0.0, ()))
        if not images or now_s - read_s > _FOUND_FRESH_S:
            arguments: dict[str, Any] = {"Filters": filters, "MaxResults": 1000}
            if owners:
                arguments["Owners"] = list(owners)
            found = pages(self._caller, RateLimitGroup.DESCRIBE, self._ec2.describe_images, **arguments)
            images = tuple(_image(each) for page in found for each in page["Images"])
            self._found[key] = (now_s, images)
        return images

    def _parameter(self, name: str) -> str:
        value = self._text(name)
        if not value.startswith("ami-"):
            del self._values[name]
            raise CloudRejected(f"the SSM parameter {name} holds {value[:40]!r}, which is not an image id")
        return value

    def _text(self, name: str) -> str:
        now_s = self._clock.monotonic()
        read_s, value = self._values.get(name, (0.0, ""))
        if not value or now_s - read_s > _FRESH_S:
            answer = self._caller.idempotent(RateLimitGroup.SSM, lambda: self._ssm.get_parameter(Name=name))
            value = str(answer["Parameter"]["Value"])
            self._values[name] = (now_s, value)
        return value


def alias_parameter(alias: str, kubernetes: str, arch: str, accelerator: str) -> str:
    """The public SSM parameter behind an alias such as `al2023@latest`, for one sort of machine; empty = there is none.

    KeyError for an alias of no known family.
    """
    name, _, version = alias.partition("@")
    parameter = AMI_FAMILIES[FAMILY_OF_ALIAS[name]].parameter
    return parameter(ImageRelease(version, kubernetes, arch, accelerator)) if parameter else ""


def _filters(term: AmiTerm) -> Iterator[dict[str, Any]]:
    if term.name:
        yield {"Name": "name", "Values": [term.name]}
    yield from tag_filters(term.tags)


def tag_filters(tags: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Returns EC2 filters for tags; the value `*` asks for the key alone."""
    for key, value in sorted(tags.items()):
        yield {"Name": "tag-key", "Values": [key]} if value == "*" else {"Name": f"tag:{key}", "Values": [value]}


def _image(found: Mapping[str, Any]) -> Image:
    return Image(found["ImageId"], found.get("Name", ""), found.get("Architecture", ""), found.get("CreationDate", ""))


def _text(terms: Iterable[AmiTerm]) -> str:
    return ", ".join(str(term.model_dump(exclude_defaults=True)) for term in terms)
