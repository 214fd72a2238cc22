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
.PHONY: help manifests fmt check lint unit test e2e bench build kubectl run install uninstall docker-build docker-push \
	deploy undeploy build-installer

help: ## Show this list (ALL=1: with what is needed seldom, in hack/make/).
	@awk 'BEGIN {FS = ":.*## "; print "Usage: make TARGET... [VARIABLE=VALUE...]"} /^##@ / {print "\n" substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(if $(ALL),$(MAKEFILE_LIST),Makefile)

##@ Develop

manifests: ## Write the generated part of config/, docs/reference/ and dist/chart/files from the Rust types.
	$(CARGO) build --quiet --workspace --bins
	@"$$(./hack/built)"/my-operator manifests --out config --docs docs --chart dist/chart
	@rm -rf dist/chart/files/crds && mkdir dist/chart/files/crds && cp config/crd/*/*_*.yaml dist/chart/files/crds
	@cp config/components/prometheus/alerts.yaml dist/chart/files
	@for policy in policy operator-policy; do \
		cp config/components/$$policy/policy.yaml dist/chart/files/$$policy.yaml || exit 1; done

fmt: ## Format the code.
	$(CARGO) fmt --all

check: ## Format, lints, words and unit tests: before every commit.
	$(CARGO) fmt --all --check
	$(CLIPPY)
	./hack/words
	@$(MAKE) --no-print-directory unit

lint: ## Check format, lints, kinds without a client, words, pinned dependencies, links of the API docs and licences.
	$(CARGO) fmt --all --check
	$(CLIPPY)
	./hack/check-kinds
	./hack/words
	./hack/pinned
	$(DOC)
	./hack/deny

unit: ## Run the tests that need no cluster and no Go, in a minute (T=part-of-a-name for some).
	./hack/test --lib --bins --example greeting --test offline $(T)

test: ## Run every test that needs no root, with real control planes on loopback (T=part-of-a-name for some).
	$(BUILD)
	$(CARGO) test --workspace --locked --quiet --doc
	./hack/test --lib --bins --example greeting --tests $(T)

e2e: ## Run the tests on a real node with containers of the image (root; cluster/README.md says what it needs).
	./hack/build control-plane node helm -- --bins --test e2e
	$(CARGO) test --workspace --locked --test e2e -- --test-threads=1 --nocapture $(T)

##@ Build

build: ## Build the release binary, target/release/my-operator.
	$(CARGO) build --release --locked --bin my-operator

# As it is released, but for the list of its crates, which needs a program of its own.
kubectl: ## Build the plugins of kubectl, target/kubectl/kubectl-at and links of its other names.
	@built=$$(AUDITABLE=no ./hack/release "" kubectl-at) && folder=$$(./hack/built kubectl) && mkdir -p "$$folder" && \
		install -m 755 "$$built" "$$folder/kubectl-at" && "$$folder/kubectl-at" --write-links "$$folder" && \
		echo "To use them: export PATH=\"$$folder:\$$PATH\""

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

##@ Measure

bench: ## Measure the operator beside others (ARGS=--quick to try; ARGS=webhook, at, mydaemonset or scale for a part).
	$(CARGO) run --release --locked -p my-operator-bench -- $(ARGS)

include $(sort $(wildcard hack/make/*.mk))
