# What people and CI call. `make help` lists the targets.
SHELL := /bin/bash
CARGO ?= cargo
# The cluster that `make run` uses is the one of KUBECONFIG; without it, a local one is started.
ARGS ?=
KUBECTL ?= kubectl
# The image, and what makes it: docker, podman or buildah.
IMG ?= my-operator:latest
CONTAINER_TOOL ?= docker
# What the image says of itself.
VERSION ?= $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
SOURCE ?= unknown

.DEFAULT_GOAL := help
.PHONY: help manifests fmt lint test bench build run install uninstall docker-build docker-push

help: ## Show this list.
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

manifests: ## Write the generated part of config/, and docs/reference/, from the Rust types.
	$(CARGO) run --quiet -- manifests --out config --docs docs

fmt: ## Format the code.
	$(CARGO) fmt --all

lint: ## Check format, lints and licences.
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	./hack/deny

test: ## Run every test that needs no root, with a real control plane on loopback.
	$(CARGO) build --workspace --locked
	$(CARGO) run --quiet --locked -p my-operator-cluster -- build
	$(CARGO) test --workspace --locked

build: ## Build the release binary, target/release/my-operator.
	$(CARGO) build --release --locked --bin my-operator

run: ## Run the operator: on the cluster of KUBECONFIG, else on a local one with samples.
	@./hack/run $(ARGS)

docker-build: ## Build the image IMG (CONTAINER_TOOL=docker, podman or buildah; SOURCE=URL is told in it).
	$(CONTAINER_TOOL) build --build-arg VERSION="$(VERSION)" --build-arg SOURCE="$(SOURCE)" --tag "$(IMG)" .

docker-push: ## Push the image IMG.
	$(CONTAINER_TOOL) push "$(IMG)"

install: ## Install the CRDs into the cluster of KUBECONFIG.
	$(KUBECTL) apply -k config/crd

uninstall: ## Remove the CRDs, and every object of theirs, from the cluster of KUBECONFIG.
	$(KUBECTL) delete --ignore-not-found -k config/crd

bench: ## Measure the operator beside others (ARGS=--quick to try; ARGS=webhook, at or mydaemonset for a part).
	$(CARGO) run --release --locked -p my-operator-bench -- $(ARGS)
