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
