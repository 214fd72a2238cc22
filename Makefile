# What people and CI call. `make help` lists the targets.
SHELL := /bin/bash
CARGO ?= cargo
# What `make run` passes on to the operator. LOCAL=1: on a local cluster, whatever kubectl's current context is.
ARGS ?=
LOCAL ?=
KUBECTL ?= kubectl
# The image, and what makes it: docker, podman or buildah. No registry has the default name: a short one, such as
# my-operator:latest, would let the nodes pull docker.io/library/my-operator. With IMAGE_TAG_BASE, the tag is the version.
IMAGE_TAG_BASE ?= registry.invalid/my-operator
IMG ?= $(IMAGE_TAG_BASE):$(if $(filter file,$(origin IMAGE_TAG_BASE)),latest,$(VERSION))
CONTAINER_TOOL ?= docker
# More flags for it, such as --build-arg and --secret (docs/operations/install.md, Behind a mirror).
BUILD_FLAGS ?=
# The kinds to install, as --kinds has them, in place of at and mydaemonset; what of config/components is added; and
# whether undeploy and uninstall may delete objects unasked.
KINDS ?=
COMPONENTS ?=
FORCE ?=
CHECK ?=
# The releases of Kubernetes for `make matrix`; its own list without any.
VERSIONS ?=
# The Helm of the tests: 3, 4 or a path.
HELM ?= 4
export KUBECTL FORCE CHECK CARGO LOCAL HELM KINDS
# What the image says of itself.
VERSION ?= $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
SOURCE ?= unknown

# One selection of packages for every cargo command of the working day: another one (-p, or one crate alone) would
# resolve other features, and so compile tokio, kube and the operator again.
# With Go beside it, which builds what the tests call.
BUILD := ./hack/build control-plane helm promtool -- --bins --tests
# --tests and --all-targets leave out e2e, which a plain `cargo test` is not to run (test = false).
CLIPPY = $(CARGO) clippy --workspace --all-targets --locked -- -D warnings && \
	$(CARGO) clippy --workspace --bins --test e2e --locked -- -D warnings
# Links to private items are for those who read the code.
DOC = RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" \
	$(CARGO) doc --workspace --no-deps --document-private-items --locked --quiet
# Part of the name of the tests to run.
T ?=

comma := ,
empty :=
space := $(empty) $(empty)

.DEFAULT_GOAL := help
.PHONY: help manifests fmt check lint advisories unit coverage test e2e soak bench build kubectl check-darwin pictures \
	reproducible sbom run install uninstall docker-build docker-push deploy undeploy build-installer chart matrix

help: ## Show this list.
	@awk 'BEGIN {FS = ":.*## "; print "Usage: make TARGET... [VARIABLE=VALUE...]"} /^##@ / {print "\n" substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Develop

manifests: ## Write the generated part of config/, and docs/reference/, from the Rust types.
	$(CARGO) build --quiet --workspace --bins
	@"$$(./hack/built)"/my-operator manifests --out config --docs docs

fmt: ## Format the code.
	$(CARGO) fmt --all

check: ## Format, lints, words and unit tests: before every commit.
	$(CARGO) fmt --all --check
	$(CLIPPY)
	./hack/words
	@$(MAKE) --no-print-directory unit

lint: ## Check format, lints, words, pinned dependencies, links of the API docs and licences.
	$(CARGO) fmt --all --check
	$(CLIPPY)
	./hack/words
	./hack/pinned
	$(DOC)
	./hack/deny

advisories: ## Look for known vulnerabilities of dependencies, where the RustSec database can be reached (REQUIRED=1: or fail).
	REQUIRED="$(REQUIRED)" ./hack/advisories

unit: ## Run the tests that need no cluster and no Go, in a minute (T=part-of-a-name for some).
	./hack/test --lib --bins --example greeting --test offline $(T)

coverage: ## Show which lines the tests of `make unit` reach (T=part-of-a-name; ARGS=--html for pages).
	@cargo llvm-cov --version >/dev/null 2>&1 || { echo "error: cargo-llvm-cov is missing:" \
		"rustup component add llvm-tools && cargo install --locked cargo-llvm-cov@0.9.1" >&2; exit 1; }
	$(CARGO) llvm-cov $(ARGS) --workspace --locked --lib --bins --example greeting --test offline -- $(T)

test: ## Run every test that needs no root, with real control planes on loopback (T=part-of-a-name for some).
	$(BUILD)
	$(CARGO) test --workspace --locked --quiet --doc
	./hack/test --lib --bins --example greeting --tests $(T)

e2e: ## Run the tests on a real node with containers of the image (root; cluster/README.md says what it needs).
	./hack/build control-plane node helm -- --bins --test e2e
	$(CARGO) test --workspace --locked --test e2e -- --test-threads=1 --nocapture $(T)

matrix: ## Run the tests against other releases of Kubernetes (VERSIONS="v1.33.13 ..."; each is built once, in some minutes).
	$(BUILD)
	T="$(T)" ./hack/matrix $(VERSIONS)

# '[!h]*' is every test executable but hostile, which measures latencies: those of an optimized program.
soak: ## Run the long versions of all tests, and e2e with the image that is shipped (root; an hour; prints seeds and figures; fuzz/README.md says what fuzzing needs).
	./hack/build control-plane node helm promtool -- --bins --tests
	SOAK=1 TEST_LIMIT=7200 ./hack/test --profile soak --lib --test offline $(T) -- --show-output
	SOAK=1 TEST_LIMIT=7200 ./hack/test --bins --test oracle --test control_plane $(T) -- --show-output
	SOAK=1 TEST_LIMIT=7200 ./hack/test --release --test hostile $(T) -- --show-output
	./hack/fuzz 60
	operator=$$(./hack/release) && SOAK=1 OPERATOR="$$operator" \
		$(CARGO) test --workspace --locked --test e2e -- --test-threads=1 --nocapture $(T)

##@ Build

build: ## Build the release binary, target/release/my-operator.
	$(CARGO) build --release --locked --bin my-operator

# As it is released, but for the list of its crates, which needs a program of its own.
kubectl: ## Build the plugins of kubectl, target/kubectl/kubectl-at and links of its other names.
	@built=$$(AUDITABLE=no ./hack/release "" kubectl-at) && folder=$$(./hack/built kubectl) && mkdir -p "$$folder" && \
		install -m 755 "$$built" "$$folder/kubectl-at" && "$$folder/kubectl-at" --write-links "$$folder" && \
		echo "To use them: export PATH=\"$$folder:\$$PATH\""

pictures: ## Record the pictures of docs/kubectl again, from a real run of the plugins.
	./hack/build control-plane -- --bins
	@"$$(./hack/built)"/my-operator-pictures

check-darwin: ## Type-check the plugins of kubectl for macOS (rustup target add aarch64-apple-darwin x86_64-apple-darwin).
	./hack/check-darwin

reproducible: ## Make all files of a release here and in another folder, and compare the bytes (RELEASE_PLATFORMS=linux/amd64).
	RELEASE_PLATFORMS="$(RELEASE_PLATFORMS)" ./hack/reproducible

sbom: ## Write target/my-operator.cdx.json: what the image's binary is made of, as CycloneDX.
	@program=$$(./hack/release) && ./hack/sbom "$$program" "$$(dirname "$$(./hack/built)")/my-operator.cdx.json"

##@ Run and deploy

run: ## Run the operator: on the cluster of kubectl's current context, else on a local one with samples (LOCAL=1: always; KINDS; NODE=real: a node that runs containers, root).
	@NODE="$(NODE)" ./hack/run $(ARGS)

docker-build: ## Build the image IMG (CONTAINER_TOOL=docker, podman or buildah; BUILD_FLAGS; SOURCE=URL for its label).
	$(CONTAINER_TOOL) build --build-arg VERSION="$(VERSION)" --build-arg SOURCE="$(SOURCE)" $(BUILD_FLAGS) --tag "$(IMG)" .

docker-push: ## Push the image IMG.
	$(CONTAINER_TOOL) push "$(IMG)"

install: ## Install the CRDs into the cluster of `make run` (KINDS="memcached ...": of these kinds alone).
	@./hack/install $(ARGS)

uninstall: ## Remove the CRDs, or those of KINDS; asks before their objects go (FORCE=1 says yes).
	@./hack/undeploy --crds

deploy: ## Install everything, with the image IMG (KINDS, COMPONENTS="cert-manager ..."), wait until it serves, and check it (CHECK=no: do not).
	@./hack/deploy "$(IMG)" $(COMPONENTS)

undeploy: ## Remove everything, with the CRDs of KINDS; asks before their objects go (FORCE=1 says yes).
	@./hack/undeploy $(COMPONENTS)

build-installer: ## Write dist/install.yaml: everything (of KINDS) in one file, with the image IMG.
	@rendered=$$(./hack/render "$(IMG)") && mkdir -p dist && \
		printf '%s\n' '# Generated by `make build-installer`. Do not edit.' "$$rendered" >dist/install.yaml

chart: ## Write dist/chart: the Helm chart, with the image IMG.
	$(CARGO) build --quiet --workspace --bins
	@"$$(./hack/built)"/my-operator-packaging chart --image "$(IMG)"

##@ Measure

bench: ## Measure the operator beside others (ARGS=--quick to try; ARGS=webhook, at or mydaemonset for a part).
	$(CARGO) run --release --locked -p my-operator-bench -- $(ARGS)

##@ What kubebuilder and operator-sdk scaffold

# For those who type them (docs/coming-from-tutorials.md).
.PHONY: all vet lint-fix test-e2e envtest setup-envtest generate controller-gen kustomize operator-sdk

all: build

vet: ## Look for suspicious code (clippy); part of lint.
	$(CLIPPY)

lint-fix: ## Let clippy and rustfmt correct what they can.
	$(CARGO) clippy --workspace --all-targets --locked --fix --allow-dirty --allow-staged -- -D warnings
	$(CARGO) fmt --all

test-e2e: e2e

setup-envtest: envtest

envtest: ## Build the control plane of the tests, as `make test` does by itself.
	./hack/build control-plane

generate:
	@echo "Nothing to do: the compiler derives what controller-gen generates. \`make manifests\` writes CRDs and RBAC."

controller-gen:
	@echo "Not needed: \`make manifests\` writes CRDs, RBAC and webhook configurations from the Rust types."

kustomize:
	@echo "Not needed: kubectl has it built in (\`kubectl kustomize config/default\`)."

operator-sdk:
	@echo "Not needed: \`make bundle\` writes the bundle, and \`make bundle-validate\` checks it."

##@ Operator Lifecycle Manager

# The bundle (docs/operations/olm.md). The variables are those of operator-sdk.
BUNDLE_IMG ?= $(IMAGE_TAG_BASE)-bundle:v$(VERSION)
CATALOG_IMG ?= $(IMAGE_TAG_BASE)-catalog:v$(VERSION)
CHANNELS ?= candidate
DEFAULT_CHANNEL ?=
# The default comes first.
BUNDLE_CHANNELS = $(subst $(space),$(comma),$(strip $(DEFAULT_CHANNEL) \
	$(filter-out $(DEFAULT_CHANNEL),$(subst $(comma),$(space),$(CHANNELS)))))
# Where the catalog is written.
OLM_FOLDER = $(shell dirname "$$(./hack/built)")/olm
.PHONY: bundle bundle-validate bundle-build bundle-push opm catalog catalog-build catalog-push olm-test

bundle: ## Write the OLM bundle from config/, with the image IMG (KINDS, CHANNELS, DEFAULT_CHANNEL, SOURCE=URL).
	$(CARGO) build --quiet --workspace --bins
	@"$$(./hack/built)"/my-operator-packaging bundle --image "$(IMG)" --channels "$(BUNDLE_CHANNELS)" \
		$(if $(filter-out unknown,$(SOURCE)),--source "$(SOURCE)") \
		--kinds "$(KINDS)" $(COMPONENTS)

bundle-validate: ## Run the validators of operator-framework/api on bundle/ (Go).
	@./hack/olm validate bundle

bundle-build: ## Build the image BUNDLE_IMG of the bundle.
	$(CONTAINER_TOOL) build --file bundle.Dockerfile --tag "$(BUNDLE_IMG)" .

bundle-push: ## Push the image BUNDLE_IMG.
	$(CONTAINER_TOOL) push "$(BUNDLE_IMG)"

opm: ## Build opm, which makes catalogs, with Go: once, in some minutes.
	@./hack/olm opm version

catalog: ## Write the catalog of the bundle in BUNDLE_IMG, and validate it (opm).
	@./hack/catalog "$(BUNDLE_IMG)" "$(OLM_FOLDER)/catalog"

catalog-build: catalog ## Build the image CATALOG_IMG of the catalog.
	$(CONTAINER_TOOL) build --file "$(OLM_FOLDER)/catalog.Dockerfile" --tag "$(CATALOG_IMG)" "$(OLM_FOLDER)"

catalog-push: ## Push the image CATALOG_IMG.
	$(CONTAINER_TOOL) push "$(CATALOG_IMG)"

olm-test: ## Install the bundle with OLM's own controllers, on a control plane of its own (root or user namespaces; Go).
	$(BUILD)
	@./hack/olm-test

##@ CI

FOR ?=
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
.PHONY: ci-tools actionlint

ci-tools: ## Install what CI needs on Debian 12 (root; FOR=release for release-dry-run).
	./hack/ci-tools $(FOR)

actionlint: ## Check .github/workflows.
	go run $(ACTIONLINT)

##@ Releases

# See docs/releasing.md. A step finds what the steps before it left in target/release-files.
RELEASE_PLATFORMS ?= linux/amd64 linux/arm64
RELEASE_IMAGE ?= registry.invalid/my-operator
ARTIFACTS = VERSION="$(VERSION)" SOURCE="$(SOURCE)" RELEASE_PLATFORMS="$(RELEASE_PLATFORMS)" \
	RELEASE_IMAGE="$(RELEASE_IMAGE)" ./hack/artifacts
RELEASE_STEPS := release-binaries release-archives release-image release-manifests release-checksums
.PHONY: $(RELEASE_STEPS) release-artifacts release-sign release-publish release-upload release-dry-run docker-buildx

release-binaries: ## Build the binaries of a release (RELEASE_PLATFORMS="linux/amd64 linux/arm64").
	@$(ARTIFACTS) binaries

release-archives: ## Pack the binaries, those of the plugins with man pages, and write and validate their SBOMs.
	@$(ARTIFACTS) archives

release-image: ## Write the image for all architectures, without an engine (RELEASE_IMAGE=registry/name; SOURCE=URL).
	@$(ARTIFACTS) image

release-manifests: ## Write install.yaml with the image by digest, manifests for krew, and the release notes.
	@$(ARTIFACTS) manifests

release-checksums: ## Write checksums.txt of all artifacts.
	@$(ARTIFACTS) checksums

# The steps share files, so never at the same time.
.NOTPARALLEL:

release-artifacts: ## Run the steps above one after the other.
	@for step in $(RELEASE_STEPS); do $(MAKE) --no-print-directory $$step || exit 1; done

release-sign: ## Sign checksums.txt with the key COSIGN_KEY (a file, or env://NAME).
	@$(ARTIFACTS) sign

release-publish: ## Push the image to RELEASE_IMAGE and sign it.
	@$(ARTIFACTS) publish

release-upload: ## Create the release VERSION on GitHub with the artifacts (gh).
	@$(ARTIFACTS) upload

release-dry-run: release-artifacts ## Do and verify all of a release with a throw-away key, into a registry on loopback.
	@$(ARTIFACTS) dry-run

PLATFORMS ?= $(subst $(space),$(comma),$(RELEASE_PLATFORMS))
docker-buildx: ## Build and push the image IMG for PLATFORMS=linux/amd64,linux/arm64 by docker buildx.
	$(CONTAINER_TOOL) buildx build --platform "$(PLATFORMS)" --push \
		--build-arg VERSION="$(VERSION)" --build-arg SOURCE="$(SOURCE)" $(BUILD_FLAGS) --tag "$(IMG)" .
