##@ Longer tests, and checks

# The releases of Kubernetes for `make matrix`; its own list without any.
VERSIONS ?=
FOR ?=
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
.PHONY: advisories coverage docs site matrix soak pictures check-darwin outside publishable ci-tools actionlint

ci-tools: ## Install what CI needs on Debian 12 (root; FOR=release for release-dry-run, FOR=site for site).
	./hack/ci-tools $(FOR)

actionlint: ## Check .github/workflows.
	go run $(ACTIONLINT)

advisories: ## Look for known vulnerabilities of dependencies, where the RustSec database can be reached (REQUIRED=1: or fail).
	REQUIRED="$(REQUIRED)" ./hack/advisories

coverage: ## Show which lines the tests of `make unit` reach (T=part-of-a-name; ARGS=--html for pages).
	@cargo llvm-cov --version >/dev/null 2>&1 || { echo "error: cargo-llvm-cov is missing:" \
		"rustup component add llvm-tools && cargo install --locked cargo-llvm-cov@0.9.1" >&2; exit 1; }
	$(CARGO) llvm-cov $(ARGS) --workspace --locked --lib --bins --example greeting --test offline -- $(T)

docs: ## Build the site of docs/, target/site, and check its links (SOURCE=URL of the repository; builds mdBook first where it is missing).
	SOURCE="$(SOURCE)" ./hack/docs

site: docs ## Open each page of the site in Chromium, light and dark, wide and narrow, and check it; compare the playground with the programs (SEED; needs chromium, node 18 and npm; 5 minutes).
	./hack/site/check

matrix: ## Run the tests against other releases of Kubernetes (VERSIONS="v1.33.13 ..."; each is built once, in some minutes).
	$(BUILD)
	T="$(T)" ./hack/matrix $(VERSIONS)

# hostile measures latencies: those of an optimized program.
soak: ## Run the long versions of all tests, and e2e with the image that is shipped (root; an hour; prints seeds and figures; fuzz/README.md says what fuzzing needs).
	./hack/build control-plane node helm promtool -- --bins --tests
	SOAK=1 TEST_LIMIT=7200 ./hack/test --profile soak --lib --test offline $(T) -- --show-output
	SOAK=1 TEST_LIMIT=7200 ./hack/test --bins --test oracle --test control_plane $(T) -- --show-output
	SOAK=1 TEST_LIMIT=7200 ./hack/test --release --test hostile $(T) -- --show-output
	./hack/fuzz 60
	operator=$$(./hack/release) && SOAK=1 OPERATOR="$$operator" \
		$(CARGO) test --workspace --locked --test e2e -- --test-threads=1 --nocapture $(T)

pictures: ## Record the pictures of docs/kubectl again, from a real run of the plugins.
	./hack/build control-plane -- --bins
	@"$$(./hack/built)"/my-operator-pictures

check-darwin: ## Type-check the plugins of kubectl for macOS (rustup target add aarch64-apple-darwin x86_64-apple-darwin).
	./hack/check-darwin

outside: ## Package the crates for crates.io, and build and test examples/outside on the packages.
	./hack/outside

publishable: ## Check the crates for crates.io: the oldest Rust, semantic versions since the last tag (SINCE=COMMIT), a dry run.
	./hack/publishable
