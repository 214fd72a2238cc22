# The image of the operator: one static binary on nothing. `make docker-build IMG=...` makes it.
# It needs neither certificates nor users nor time zones from a distribution: the API server's CA comes
# with the ServiceAccount, and glibc brings what it needs to resolve names.

# The version of rust-toolchain.toml, which stays outside: it would have the linters downloaded too. The digest is that of
# the tag's index of platforms; a newer tag needs another one:
#   docker buildx imagetools inspect docker.io/library/rust:VERSION-slim-bookworm
# A mirror has the same digest, and the secret says where it has the crates (docs/operations/install.md).
ARG BASE_REGISTRY=docker.io
FROM --platform=$BUILDPLATFORM ${BASE_REGISTRY}/library/rust:1.95.0-slim-bookworm@sha256:d7482085ff5b415f84dba5647ae71606650bdef00db7aeb69f4b3d170c3e4082 AS build
RUN --mount=type=secret,id=cargo,target=/usr/local/cargo/config.toml \
    cargo install --locked cargo-auditable@0.7.7
# For another architecture than the builder's, the binary is cross-compiled rather than built under emulation.
ARG BUILDPLATFORM
ARG TARGETPLATFORM
RUN add() { rustup target add "$1-unknown-linux-gnu" && apt-get update && \
        apt-get install -y --no-install-recommends "gcc-$2-linux-gnu" "libc6-dev-$3-cross"; }; \
    case "$TARGETPLATFORM" in \
        "$BUILDPLATFORM") ;; \
        linux/amd64) add x86_64 x86-64 amd64 ;; \
        linux/arm64) add aarch64 aarch64 arm64 ;; \
    esac
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    --mount=type=secret,id=cargo,target=/usr/local/cargo/config.toml \
    built=$(hack/release "$TARGETPLATFORM") && cp "$built" /my-operator

# Keep this stage simple: `make e2e` makes its image by reading it.
FROM scratch
ARG VERSION=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="my-operator" \
      org.opencontainers.image.description="Admission webhooks and reconcilers of At and MyDaemonSet in one process" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.version="${VERSION}"
COPY LICENSE /LICENSE
COPY --from=build /my-operator /my-operator
USER 65532:65532
ENTRYPOINT ["/my-operator"]
