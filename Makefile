# vpc-cni: `make` prints this list. One set of build flags everywhere: each other set compiles service/ec2 and client-go again.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
export CGO_ENABLED := 0
export GOFLAGS := -buildvcs=false $(filter-out -buildvcs=false,$(GOFLAGS))
# where the harness finds the programs that `make build` made
export E2E_BIN := $(CURDIR)/build/bin
# Debian keeps ip and nft where an ordinary user's PATH does not look
export PATH := $(PATH):/usr/sbin:/sbin

PROGRAMS   := ./cni/cmd/aws-cni ./ipamd/cmd/ipamd ./fakeec2/cmd/fakeec2 ./e2e/cmd/controlplane ./e2e/cmd/sandbox ./e2e/cmd/policygate ./e2e/cmd/pingready
LINT       := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
STEP       := .ci/step
UNIT        = $(shell go list ./... | grep -v /e2e/)
# kube-apiserver and etcd: KUBEBUILDER_ASSETS if set, else built once and cached
ASSETS      = assets="$$(go run ./e2e/cmd/assets)" && export KUBEBUILDER_ASSETS="$$assets"
# the CNI that EKS ships: INCUMBENT_ASSETS if set, else built once and cached
INCUMBENT   = incumbent="$$(go run ./e2e/cmd/assets -incumbent)" && export INCUMBENT_ASSETS="$$incumbent"

.DEFAULT_GOAL := help
.PHONY: help build assets demo test simulate e2e incumbent check lint law docs docs-check promql conformance bench compare clean tools awscli

help: ## print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build all programs into build/bin (the first time compiles service/ec2 and client-go: 2 to 5 minutes)
	@mkdir -p build/bin
	@$(STEP) "build the programs into build/bin" go build -v -ldflags "-s -w" -o build/bin/ $(PROGRAMS)

assets: ## build kube-apiserver and etcd once (3 to 10 minutes; KUBEBUILDER_ASSETS overrides) and print their folder
	@go run ./e2e/cmd/assets

demo: build ## boot the simulated cluster and compare ping-ready latency, annotation off and on (ARGS="-pods 30 -rounds 2")
	@$(ASSETS) && exec build/bin/pingready $(ARGS)

test: tools build ## run all tests
	@$(ASSETS) && $(INCUMBENT) && \
	$(STEP) "compile the rest" go build -v ./... && \
	$(STEP) "unit, kernel and simulation tests" go test -count=1 -p 2 $(UNIT) && \
	$(STEP) --last "end-to-end tests: real API server, simulated VPC, one package at a time" go test -count=1 -p 1 -timeout 20m ./e2e/...

simulate: ## run the first SEEDS simulated hours of a node (`make test` runs 300 and those that once found something), or replay one: SEED=n, some of it: OPS=3,17
	@SIM_SEEDS="$(SEEDS)" SIM_SEED="$(SEED)" SIM_OPS="$(OPS)" SIM_TRACES="$(CURDIR)/build" \
	  go test -v -count=1 -timeout 0 -run '^TestSimulation$$' ./ipamd/reconcile

e2e: build ## run Ginkgo suites (CLUSTER=netns LABELS='annotation && !late-del' FOCUS=...; LABELS=badday SEED=n: a bad day)
	@$(ASSETS) && CLUSTER="$(or $(CLUSTER),netns)" BADDAY_SEED="$(SEED)" BADDAY_PODS="$(or $(PODS),200)" go test -v -count=1 -p 1 -timeout 30m ./e2e/suites/... -ginkgo.v -ginkgo.no-color \
	  $(if $(LABELS),-ginkgo.label-filter='$(LABELS)') $(if $(FOCUS),-ginkgo.focus='$(FOCUS)') 2>&1 | tee build/e2e.log
	@grep -q 'Ran [1-9][0-9]* of' build/e2e.log || { echo "no spec matches LABELS='$(LABELS)' FOCUS='$(FOCUS)'; labels: $$(grep -rhoE 'Label\([^)]*\)' e2e/suites | grep -oE '"[a-z-]+"' | sort -u | tr '\n' ' ')" >&2; exit 1; }

incumbent: tools build ## run the CNI that EKS ships, unmodified, on the fake (3 minutes; the first time builds it, 3 to 5; logs in build/incumbent)
	@$(ASSETS) && $(INCUMBENT) && INCUMBENT_LOGS="$(CURDIR)/build/incumbent" \
	  $(STEP) --last "the incumbent on simulated nodes" go test -count=1 -v -timeout 20m ./e2e/eksnode

awscli: tools ## play the AWS CLI's commands against the fake EC2 (e2e/awscli/testdata; Debian's awscli; about 2 minutes)
	@mkdir -p build/bin && go build -ldflags "-s -w" -o build/bin/ ./fakeec2/cmd/fakeec2
	@$(STEP) --last "AWS CLI" go test -v -count=1 -timeout 30m ./e2e/awscli

check: lint law docs-check promql test ## what CI runs: lint, import law, docs not stale, alert rules, tests

lint:
	@$(STEP) "golangci-lint (the first time builds it)" go run $(LINT) run ./...
	@$(STEP) "actionlint" go run $(ACTIONLINT) .github/workflows/*.yml

law:
	@$(STEP) "import law" go test -count=1 ./e2e/importlaw

docs: ## rewrite the generated tables of the README, of fakeec2's and of ipamd/docs
	@go test -count=1 ./ipamd/docs ./fakeec2/cmd/fakeec2 -run TestReadme -update
	@$(ASSETS) && go test -count=1 ./ipamd/annotate -run TestAnswersPage -update

docs-check:
	@$(STEP) "generated tables of the README and of fakeec2's" go test -count=1 ./ipamd/docs ./fakeec2/cmd/fakeec2 ./e2e/figures -run TestReadme

promql:
	@$(STEP) "alert rules and dashboard, by Prometheus' own parser" go -C ipamd/deploy/promql test -count=1 ./...

conformance: ## the fake EC2 against the real SDK: every pair of action and error code (part of `make test`); prints the table
	@mkdir -p build && rm -f build/conformance.txt
	@CONFORMANCE_TABLE="$(CURDIR)/build/conformance.txt" $(STEP) "conformance" go test -count=1 ./fakeec2/conformance ./fakeec2/ec2api; code=$$?; \
	  [ ! -f build/conformance.txt ] || cat build/conformance.txt; exit $$code

bench: tools build ## measure every figure the README promises, 10 minutes (ONLY=group,...: some of them; samples in build/bench)
	@$(ASSETS) && $(STEP) --last "benchmarks, one group after the other" go run ./e2e/cmd/figures $(if $(ONLY),-only '$(ONLY)')

compare: tools build ## this project beside the incumbent on the same fake, 17 minutes (ONLY=group,...: some of them; samples in build/bench)
	@$(ASSETS) && $(INCUMBENT) && $(STEP) --last "comparison, one group after the other" go run ./e2e/cmd/figures -for compare $(if $(ONLY),-only '$(ONLY)')

clean: ## remove build/ (the cached kube-apiserver, etcd and incumbent stay)
	@rm -rf build

# The programs need none of these; tests compare with what ip and nft say, the incumbent execs iptables, and the AWS CLI, version 2 of
# which Debian has, asks the fake EC2.
tools:
	@missing=; for pair in ip=iproute2 nft=nftables iptables=iptables; do command -v "$${pair%%=*}" >/dev/null || missing="$$missing $${pair#*=}"; done; \
	[ -x /usr/bin/aws ] || aws --version 2>&1 | grep -q '^aws-cli/2' || missing="$$missing awscli"; \
	if [ -n "$$missing" ]; then echo "missing Debian packages, as root: apt-get install -y$$missing" >&2; exit 1; fi
