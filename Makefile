# The commands of every day; each is a script under hack/ or a cargo call. RECIF_CLUSTER names the local cluster (dev).
.PHONY: help up test lint unit e2e manifests generate images docker-build down clean
.DEFAULT_GOAL := help

help: ## say what there is
	@grep -hE '^[a-z0-9 -]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([^:]*):[^#]*## (.*)/\1|\2/' | awk -F'|' '{printf "  make %-22s %s\n", $$1, $$2}'

up: ## a running cluster with the operator and sample agents (RECIF_CLUSTER=existing: into yours, by KUBECONFIG)
	@hack/up

test: lint unit e2e ## everything that CI runs

lint: ## formatting and clippy
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

unit: ## unit, property and drift tests
	cargo test --workspace --locked

e2e: ## end-to-end tests on a cluster of their own
	@hack/e2e

manifests generate: ## write config/crd and the diagrams anew from the types
	cargo run -q --locked --bin recif -- crds --write config/crd
	RECIF_WRITE=1 cargo test -q --locked --test diagrams

images docker-build: ## build the images and load them into the running cluster
	@hack/images

down: ## stop the local cluster; its data stays
	@hack/cluster stop

clean: ## remove the local cluster and its data
	@hack/cluster clean
