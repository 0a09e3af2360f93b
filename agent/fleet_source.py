"""The fleet repository as the settings describe it. Secrets and lists are read anew before each poll: they change."""

import os
import random
from pathlib import Path

from agent.config import AuthSettings, Settings, SourceSettings
from providers.clock import Clock
from providers.git.auth import Auth, Bearer, Remote, SshKey, UserPassword
from providers.git.errors import CredentialsMissing
from providers.git.history import HistoryRule
from providers.git.limits import MirrorLimits, ReaderLimits
from providers.git.selector import select
from providers.git.settings import GitSettings
from providers.git.signature import Mode
from providers.git.source import GitSource
from providers.git.trust import TrustMode, Verification

_MIB = 1024 * 1024
_SECRET_MOST = 64 * 1024


def open_source(settings: Settings, clock: Clock) -> GitSource:
    """The source of the settings. Errors: ValueError and SourceError, with a sentence that names key and remedy."""
    source = settings.source
    ref, limits = source.ref, source.limits
    mirror = MirrorLimits(
        deadline_s=limits.transfer_s,
        max_bytes=limits.transfer_mib * _MIB,
        max_object_bytes=limits.object_mib * _MIB,
    )
    git = GitSettings(
        remote=remote_of(source),
        cache_dir=source.cache_dir,
        selector=select(ref.branch, ref.tag, ref.semver, ref.name, ref.commit),
        sub_path=source.path,
        verification=verification_of(source),
        history=HistoryRule(source.history),
        allow_rewind=frozenset(source.allow_rewind),
        interval_s=source.poll_interval_s,
        max_backoff_s=max(900.0, source.poll_interval_s),
        mirror=mirror,
        reader=ReaderLimits(memory_bytes=limits.memory_mib * _MIB, cpu_s=limits.cpu_s, wall_s=2 * limits.transfer_s),
        credentials=lambda: remote_of(source),
    )
    if git.verification is not None:
        git.verification.check()
    return GitSource(git, clock, random.Random())


def verification_of(source: SourceSettings) -> Verification | None:
    """What is verified, None where no signature is asked for."""
    modes = tuple(TrustMode(mode) for mode in source.trust)
    if source.allowed_signers is None and source.pgp_keys is None and modes == (TrustMode.SSH,):
        return None
    return Verification(source.allowed_signers, Mode(source.signature_mode), source.pgp_keys, modes)


def remote_of(source: SourceSettings) -> Remote:
    """The repository and how to get in, as of now. Errors: CredentialsMissing."""
    known_hosts = text_of("source.knownHosts", source.known_hosts) if source.known_hosts else ""
    if source.ca_file is not None and "-----BEGIN CERTIFICATE-----" not in text_of("source.caFile", source.ca_file):
        raise CredentialsMissing(f"source.caFile {source.ca_file} has no certificate in PEM form")
    proxy = _variable("source.proxyEnv", source.proxy_env) if source.proxy_env else source.proxy
    return Remote(source.url, _auth(source.auth), known_hosts, source.ca_file, proxy or None)


def _auth(auth: AuthSettings) -> Auth | None:
    if auth.ssh_key_file:
        passphrase = secret_of("source.auth.sshPassphrase", auth.ssh_passphrase_env, auth.ssh_passphrase_file)
        return SshKey(
            text_of("source.auth.sshKeyFile", auth.ssh_key_file), passphrase=passphrase, user=auth.username or "git"
        )
    if auth.bearer_env or auth.bearer_file:
        return Bearer(secret_of("source.auth.bearer", auth.bearer_env, auth.bearer_file))
    if auth.password_env or auth.password_file:
        password = secret_of("source.auth.password", auth.password_env, auth.password_file)
        return UserPassword(auth.username or "x-access-token", password)
    return None


def secret_of(key: str, variable: str, file: Path | None) -> str:
    """Returns the secret in a file or variable; empty where neither is named. Errors: CredentialsMissing."""
    if file is not None:
        found = text_of(f"{key}File", file).strip()
        if not found:
            raise CredentialsMissing(f"{key}File {file} is empty")
        return found
    return _variable(f"{key}Env", variable) if variable else ""


def _variable(key: str, name: str) -> str:
    if not (found := os.environ.get(name, "")):
        raise CredentialsMissing(
            f"{key} names the environment variable {name}, which is not set: set it for the agent, from a Secret, or "
            "name a file instead"
        )
    return found


def text_of(key: str, path: Path) -> str:
    """Returns what a file of the settings holds. Errors: CredentialsMissing, which names the key."""
    try:
        with path.open(encoding="utf-8") as file:
            found = file.read(_SECRET_MOST + 1)
    except OSError as error:
        raise CredentialsMissing(f"{key} {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CredentialsMissing(f"{key} {path} is not text") from error
    if len(found) > _SECRET_MOST:
        raise CredentialsMissing(f"{key} {path} has more than {_SECRET_MOST} characters")
    return found
