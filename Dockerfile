# syntax=docker/dockerfile:1
# Everything that is installed comes from the lock files, by hash; nothing is resolved while building.
# The base image: a release gives it by digest (.github/workflows/release.yaml), and the provenance of the image tells which.
ARG PYTHON_IMAGE=python:3.11-slim

FROM ${PYTHON_IMAGE} AS wheel
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY requirements-dev.lock ./
# Only the build back-end, at the version and with the hashes the lock names.
RUN awk '/^[a-z]/ { keep = /^(hatchling|packaging|pathspec|pluggy|tomlkit|trove-classifiers)==/ } keep' \
        requirements-dev.lock > build.lock \
    && python -m venv /build \
    && /build/bin/python -m pip install --require-hashes --only-binary :all: -r build.lock
COPY pyproject.toml README.md LICENSE ./
COPY agent agent
COPY model model
COPY providers providers
COPY fleet fleet
COPY schemas schemas
COPY deploy/components/admission-policy deploy/components/admission-policy
RUN /build/bin/python -m hatchling build -t wheel -d /dist

FROM ${PYTHON_IMAGE} AS installed
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
COPY requirements.lock /tmp/requirements.lock
RUN python -m venv /opt/muster \
    && /opt/muster/bin/python -m pip install --require-hashes --only-binary :all: -r /tmp/requirements.lock
COPY --from=wheel /dist /dist
RUN /opt/muster/bin/python -m pip install --no-deps --no-index /dist/*.whl \
    && /opt/muster/bin/python -m pip uninstall --yes pip setuptools
# The simulated world is for people's own machines: nothing that runs on a cluster imports it.
RUN cd /opt/muster/lib/python3.11/site-packages \
    && rm -r providers/sim agent/sandbox agent/demo agent/simulation

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="muster" \
      org.opencontainers.image.description="A GitOps agent that runs a GPU fleet from a git repository" \
      org.opencontainers.image.licenses="Apache-2.0"
# The root file system is read-only in the deployment: pip has compiled the byte code, only /tmp and /var/lib/muster
# may be written to.
ENV PATH=/opt/muster/bin:$PATH \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# gpgv checks OpenPGP signatures (source.trust: pgp). Debian signs what apt installs; which version it is, the bill of materials tells.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gpgv \
    && rm -rf /var/lib/apt/lists/*
RUN install -d -o 65532 -g 65532 /var/lib/muster
COPY --from=installed /opt/muster /opt/muster
USER 65532:65532
WORKDIR /tmp
VOLUME ["/var/lib/muster"]
EXPOSE 8080 8081
ENTRYPOINT ["muster"]
CMD ["run", "--config", "/etc/muster/muster.yaml"]
