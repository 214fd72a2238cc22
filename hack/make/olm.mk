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
