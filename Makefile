# The commands of every day; each is a script under hack/ or a cargo call. RECIF_CLUSTER names the local cluster (dev); kind, k3d
# and minikube are clusters of these programs, and existing is yours, by KUBECONFIG.
.PHONY: help dev up test lint unit e2e faults e2e-local test-e2e test-faults test-frameworks test-nodes test-providers test-upgrade test-versions fuzz ui deny manifests generate images docker-build samples dist down clean cargo-found
.DEFAULT_GOAL := help
# Go and Rust, which sudo's PATH lacks.
export PATH := $(shell . hack/path; echo "$$PATH")
RUSTUP_HOME := $(shell . hack/path; echo "$$RUSTUP_HOME")
ifneq ($(RUSTUP_HOME),)
export RUSTUP_HOME
endif

help: ## say what there is
	@grep -hE '^[a-z0-9 -]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([^:]*):[^#]*## (.*)/\1|\2/' | awk -F'|' '{printf "  make %-22s %s\n", $$1, $$2}'

dev: cargo-found ui ## a sample fleet on this machine within a second, with the web UI: no cluster, no Docker, no root (FILES="agent.yaml tools/": yours)
	cargo build --locked --bins
	@exec "$${CARGO_TARGET_DIR:-target}/debug/recif" dev $${FILES:-config/fleet}

up: ## a running cluster with the operator, the web UI and a sample fleet (RECIF_CLUSTER=kind: in a cluster of kind)
	@hack/up

test: cargo-found ## lint, unit, faults and e2e, on recif dev and on a cluster, as CI does
	@hack/test

lint: cargo-found ui ## formatting, clippy, the documentation of the code, scripts and workflows
	@hack/lint
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc -q --workspace --no-deps --document-private-items --locked
	@if command -v cargo-deny >/dev/null; then $(MAKE) --no-print-directory deny; else echo "lint: cargo-deny is not installed: dependencies were not judged"; fi

unit: cargo-found ui ## unit, property and drift tests
	@hack/ui test
	PATH=$$(hack/ui packages):$$PATH && export PATH && RECIF_PEERS=$$(hack/peers) && RECIF_HELM=$$(hack/tools helm) && RECIF_KUSTOMIZE=$$(hack/tools kustomize) && \
		RECIF_PROMETHEUS=$$(hack/prometheus) && \
		export RECIF_PEERS RECIF_HELM RECIF_KUSTOMIZE RECIF_PROMETHEUS && cargo test --workspace --locked

e2e: ## end-to-end tests, the web UI in a browser among them, on a cluster of their own; of the longest, and of those that recif dev passes too, a third, which the commit decides
	@hack/e2e --third-of "$$(git rev-parse HEAD 2>/dev/null || echo none)"

e2e-local: cargo-found ## end-to-end tests on recif dev, without cluster and root: about 3 minutes
	@hack/e2e local

test-e2e: ## all end-to-end tests: about 45 minutes
	@hack/e2e

faults: cargo-found ## a third of the fault suite, which the commit decides, with 4 seeds
	@hack/faults --seeds 4 --third-of "$$(git rev-parse HEAD 2>/dev/null || echo none)"

test-upgrade: cargo-found ## this operator takes over from that of an older commit, and gives back
	@hack/upgrade

# Each runs after a failure of those before it too, to report further failures.
test-versions: ## kubectl on recif dev, and all end-to-end tests on the oldest and on the newest supported Kubernetes (RECIF_PROFILE=dist: the programs as published)
	@failed=0; for version in oldest newest; do for part in "local kubectl" ""; do \
		RECIF_KUBERNETES=$$version hack/e2e $$part || failed=1; done; done; exit $$failed

test-nodes: ## a cluster of two nodes, of which one is drained, killed and cut off: about 6 minutes
	@hack/e2e nodes

test-providers: cargo-found ## the clients of model providers beside the vendors' own, which `make unit` tests too
	RECIF_PEERS=$$(hack/peers) && export RECIF_PEERS && \
		cargo test -p runner --lib --locked -- models::tests::vendors signatures_are_those_of_botocore

test-frameworks: ## the samples of all frameworks: they run, answer, stream, know their caller and lose no stream in a rollout
	@hack/e2e frameworks

test-faults: cargo-found ## the whole fault suite with 40 seeds: about 35 minutes
	@hack/faults

fuzz: cargo-found ## every fuzz target for a minute (FUZZ_SECONDS=60)
	@hack/fuzz

ui: ## build the web UI, which is part of the program
	@hack/ui

# It judges without the network, so the crates of other systems are fetched too.
deny: cargo-found ## licenses, sources and doubled versions of what is depended on (needs cargo-deny)
	@command -v cargo-deny >/dev/null || { echo "make deny: run 'cargo install --locked cargo-deny@0.20.2' first" >&2; exit 1; }
	cargo fetch -q --locked
	cargo deny --offline check licenses bans sources

manifests generate: cargo-found ## write config/crd, the rights on our kinds, the charts' copies, the diagrams, pages of docs/ and the web UI's types anew from the types
	cargo run -q --locked --bin recif -- crds --write config/crd
	RECIF_WRITE=1 cargo test -q --locked --test diagrams
	RECIF_WRITE=1 cargo test -q --locked --test docs the_page_of
	RECIF_WRITE=1 cargo test -q --locked --test monitoring the_page
	RECIF_WRITE=1 cargo test -q --locked --test rbac the_rules_on_our_kinds
	RECIF_WRITE=1 cargo test -q --locked --test chart the_generated_files
	RECIF_WRITE=1 cargo test -q --locked -p control_plane --lib the_copy_that_the_web_ui_is_made_from
	@hack/ui types

images docker-build: ## build the images and load them into the running cluster
	@hack/images

samples: ## build the samples of frameworks, apply them to the running cluster, and wait until they are ready
	@hack/samples --apply

dist: cargo-found ## what a release consists of, in dist/: archives, images, charts, SBOMs (hack/dist --arch amd64: without arm64)
	@hack/dist

down: ## stop the local cluster; its data stays (one that make up created with kind is deleted)
	@hack/cluster stop

clean: ## remove the local cluster and its data
	@hack/cluster clean

cargo-found:
	@command -v cargo >/dev/null || { echo "make: this needs cargo: install Rust, or put it on PATH (sudo has its own PATH)" >&2; exit 1; }
