# The image of the operator: one static binary on nothing. `make docker-build IMG=...` makes it.
# It needs neither certificates nor users nor time zones from a distribution: the API server's CA comes
# with the ServiceAccount, and glibc brings what it needs to resolve names.
# That of rust-toolchain.toml, which stays outside: it would have the linters downloaded too.
ARG RUST_VERSION=1.95.0

FROM docker.io/library/rust:${RUST_VERSION}-slim-bookworm AS build
WORKDIR /src
COPY . .
# The flag is for the last step, the linking, alone: build scripts and macros are libraries of this machine.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo rustc --release --locked --package my-operator --bin my-operator -- -C target-feature=+crt-static \
    && cp target/release/my-operator /my-operator

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
