"""The agent's own settings (`muster.yaml`). What the fleet looks like is never here: that is what git is for."""

from pathlib import Path
from typing import Annotated

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from agent.clouds import DEFAULT, NAMES


class InvalidConfiguration(Exception):
    """The configuration file cannot be used; the message names file, key and remedy."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class RefSettings(_Section):
    """Which revision to follow; the most specific one that is given wins (branch < tag < semver < name < commit)."""

    branch: str = ""
    tag: str = ""
    semver: str = ""
    name: str = ""
    commit: str = ""


class AuthSettings(_Section):
    """How to reach the repository. Secrets come from files or the environment, never from this file."""

    username: str = ""
    password_env: str = ""
    bearer_env: str = ""
    ssh_key_file: Path | None = None
    ssh_passphrase_env: str = ""


class SourceSettings(_Section):
    """The fleet repository."""

    url: str
    ref: RefSettings = RefSettings(branch="main")
    path: str = ""
    """Folder inside the repository; empty = all of it."""
    poll_interval_s: Annotated[float, Field(ge=0.2)] = 60.0
    auth: AuthSettings = AuthSettings()
    allowed_signers: Path | None = None
    """An OpenSSH `allowed_signers` file outside the repository; with it, signatures are verified."""
    signature_mode: Annotated[str, Field(pattern="^(HEAD|Tag|TagAndHEAD)$")] = "HEAD"
    """What must be signed: the commit, the tag that names it, or both."""
    known_hosts: Path | None = None
    cache_dir: Path = Path("/var/lib/muster/git")


class KubeSettings(_Section):
    """The cluster; nothing given = the pod's own service account."""

    kubeconfig: Path | None = None
    context: str | None = None
    url: str = ""


def _known_cloud(name: str) -> str:
    if name not in NAMES:
        raise ValueError(f"there is no cloud {name!r}: {', '.join(NAMES)}")
    return name


class CloudSettings(_Section):
    """How a cloud is reached and how often it is asked. Credentials come from its usual chain."""

    endpoint_url: str = ""
    interruption_queue_url: str = ""
    instance_health: Annotated[str, Field(pattern="^(Act|Report|Off)$")] = "Act"
    """Machines that fail the cloud's own checks: replace them, only count them, or do not ask."""
    cluster_endpoint: str = ""
    """API server address that new nodes join by; empty where the machine image brings its own."""
    certificate_authority: str = ""
    """base64 of the cluster's certificate authority (PEM), for new nodes."""
    service_cidr: str = ""
    poll_interval_s: Annotated[float, Field(ge=0.2)] = 30.0
    """How often instances are listed by tag."""
    refresh_interval_s: Annotated[float, Field(ge=60)] = 3600.0
    """How often types, zones and prices are read again."""


class HttpSettings(_Section):
    """Health, readiness, metrics and the webhook."""

    host: str = "0.0.0.0"  # noqa: S104 - probes and webhooks come from outside the pod
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    webhook_secret_env: str = ""


class MigSettings(_Section):
    """Where mig-manager reads its configurations."""

    namespace: str = "gpu-operator"
    config_map: str = "muster-mig-config"


class Settings(_Section):
    """Everything the process needs to know beside the fleet."""

    cluster: Annotated[str, Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9-]{0,62}$")]
    region: str
    namespace: str = "muster-system"
    """Where the lease, the books and the agent's events live."""
    source: SourceSettings
    kube: KubeSettings = KubeSettings()
    cloud: Annotated[str, AfterValidator(_known_cloud)] = DEFAULT
    """Where machines are bought; the section of that name is its own."""
    aws: CloudSettings = CloudSettings()
    http: HttpSettings = HttpSettings()
    mig: MigSettings = MigSettings()
    leader_election: bool = True
    install_crds: bool = False
    """Apply Muster's CRDs at start (the sandbox does; on a cluster they come with the deployment)."""
    journal: Path | None = None
    """A file that gets one JSON line for every decision acted on."""
    log_format: Annotated[str, Field(pattern="^(json|console)$")] = "json"

    @property
    def of_cloud(self) -> CloudSettings:
        """The section of the cloud that machines are bought from."""
        return {"aws": self.aws}[self.cloud]


def load_settings(path: Path) -> Settings:
    """Read and check a configuration file; raises `InvalidConfiguration`."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidConfiguration(f"{path}: {error.strerror}; give the file with --config") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidConfiguration(f"{path}: not YAML: {error}") from error
    try:
        return Settings.model_validate(content)
    except ValidationError as error:
        lines = [f"{path}: {'.'.join(map(str, e['loc'])) or 'document'}: {e['msg']}" for e in error.errors()]
        raise InvalidConfiguration("\n".join(lines)) from error
