##@ Releases

# See docs/releasing.md. A step finds what the steps before it left in target/release-files.
RELEASE_PLATFORMS ?= linux/amd64 linux/arm64
RELEASE_IMAGE ?= registry.invalid/my-operator
ARTIFACTS = VERSION="$(VERSION)" SOURCE="$(SOURCE)" RELEASE_PLATFORMS="$(RELEASE_PLATFORMS)" \
	RELEASE_IMAGE="$(RELEASE_IMAGE)" ./hack/artifacts
RELEASE_STEPS := release-binaries release-archives release-image release-manifests release-checksums
.PHONY: $(RELEASE_STEPS) release-artifacts release-sign release-publish release-upload release-dry-run docker-buildx \
	reproducible sbom

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

reproducible: ## Make all files of a release here and in another folder, and compare the bytes (RELEASE_PLATFORMS=linux/amd64).
	RELEASE_PLATFORMS="$(RELEASE_PLATFORMS)" ./hack/reproducible

sbom: ## Write target/my-operator.cdx.json: what the image's binary is made of, as CycloneDX.
	@program=$$(./hack/release) && ./hack/sbom "$$program" "$$(dirname "$$(./hack/built)")/my-operator.cdx.json"
