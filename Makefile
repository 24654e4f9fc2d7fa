# Everything is set up inside the checkout: .venv (Python, TensorFlow, the
# exporter), .tf (the library for Go) and .cache (the demo's data).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The flavour of TensorFlow's library: cpu, gpu or tpu. Without one, the flavour
# that is set up already, or cpu.
TF ?=
# The release of TensorFlow, 2.18 to 2.21. Without one, the release that is set up already, or 2.18.
RELEASE ?=
export RELEASE
# Where install puts the programs and the library, and a folder that stands in for / there.
PREFIX ?= /usr/local
DESTDIR ?=
# How long fuzz runs each target.
FUZZTIME ?= 10s
# Options of the targets bench, check-gpu, check-*-passes, check-*-compile and check-tf; --help lists them.
BENCH ?=
CHECK ?=
PASSES ?=
COMPILE ?=
RELEASES ?=
# The revision that check-api compares with; without one, the last release.
API ?=
# Disturbances of test-elsewhere, such as "avx2 one-lane"; without one, all.
ELSEWHERE ?=
# The processor that dist and wheel are for: this machine's, or aarch64 on x86-64 Linux.
ARCH ?=
# A copy of the Go vulnerability database that check-vuln reads; without one, the database itself.
VULNDB ?=
# The private key that release signs with: a PEM file of Ed25519.
KEY ?=

# Git fails if the checkout belongs to another user, so builds do not ask it for the version. The
# tag leaves out 150 packages that the client of gs:// needs for gRPC, which it does not use.
GO := source .tf/env && export GOFLAGS="$${GOFLAGS:-} -buildvcs=false -tags=disable_grpc_modules" && go
PY := .venv/bin/python
GIT := git -c safe.directory='*'
COMMIT = $(shell $(GIT) describe --always --tags --dirty --match 'v*' 2>/dev/null)
FOR = $(if $(ARCH),--machine $(ARCH))

# Hide TensorFlow's notes in tests.
export TF_CPP_MIN_LOG_LEVEL ?= 2

.PHONY: help setup fetch build arm64 install uninstall dist wheel release site demo test testing lint gotest race pytest \
  test-elsewhere fuzz bench check-gpu check-tf check-arm check-module check-api check-vuln check-gpu-passes check-gpu-compile \
  check-tpu-passes check-tpu-compile clean distclean

help: ## List the targets
	@echo "Everything is set up inside the checkout, by itself, when it is first needed."
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Set up Python, TensorFlow and its library (TF=cpu|gpu|tpu RELEASE=2.18)
	@tools/setup.sh $(TF)

fetch: setup ## Fetch the demo's weights and reviews, which tests also use
	@PYTHONPATH=tools $(PY) -m gorbit demo --fetch

build: setup ## Build bin/gorbit and bin/gorbit-predict
	@mkdir -p bin
	@$(GO) build -trimpath -ldflags '-X github.com/gorbit-ml/gorbit/internal/base/version.described=$(COMMIT)' -o bin/ ./cmd/gorbit ./cmd/gorbit-predict

arm64: build ## Build the programs for 64-bit ARM in bin/arm64, with a cross compiler
	@COMMIT='$(COMMIT)' tools/arm64.sh

install: build ## Install the programs and TensorFlow's library (PREFIX=/usr/local, DESTDIR=)
	@$(PY) tools/dist.py install '$(DESTDIR)$(abspath $(PREFIX))'

uninstall: setup ## Remove what install put there (PREFIX=/usr/local, DESTDIR=)
	@$(PY) tools/dist.py uninstall '$(DESTDIR)$(abspath $(PREFIX))'

dist: build $(if $(filter-out $(shell uname -m),$(ARCH)),arm64) ## Pack the programs and the library in an archive, below dist (ARCH=aarch64)
	@mkdir -p dist
	@$(PY) tools/dist.py archive dist $(FOR)

wheel: build $(if $(filter-out $(shell uname -m),$(ARCH)),arm64) ## Pack the programs, the exporter and the package gorbit for pip (ARCH=aarch64)
	@$(PY) tools/dist_wheel.py dist $(FOR)

release: setup ## Make all that a release consists of, signed, below dist (KEY=key.pem)
	@$(PY) tools/release.py $(if $(KEY),--key '$(KEY)')

demo: build ## Fine-tune a BERT on movie reviews, evaluate, export, predict
	@PYTHONPATH=tools $(PY) -m gorbit demo

test: testing lint pytest gotest race ## Check the sources, run all tests, and list what was skipped and why
	@$(GIT) diff --quiet HEAD && [ "$$($(GIT) rev-parse HEAD)" = "$$(cat .cache/testing)" ] && mv .cache/testing .cache/tested || rm -f .cache/tested
	@echo "skipped by go test, and why:"; grep -B1 --no-group-separator -e '--- SKIP' .cache/gotest.log || echo "nothing"

# The commit whose tests begin: another may be there when they end.
testing: setup
	@mkdir -p .cache && $(GIT) rev-parse HEAD >.cache/testing 2>/dev/null || true

lint: setup ## Check formatting and common mistakes
	@unformatted=$$(gofmt -l */); [ -z "$$unformatted" ] || { echo "not in gofmt's format:" $$unformatted >&2; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck -tags disable_grpc_modules ./...
	$(PY) -m ruff check --quiet tools bench examples
	$(PY) -m ruff format --quiet --check tools bench examples

pytest: fetch ## Run Python's tests
	source .tf/env; for folder in tools bench; do (cd $$folder && ../$(PY) -m pytest -q -rs tests); done

# Runs go test and shows a line for each package, or all that a package printed if it failed.
GOTEST = $(GO) test -v -timeout 60m $(1) ./... 2>&1 | tee .cache/$@.log | awk '/^=== (RUN|PAUSE|CONT)|--- PASS/ { next } \
  { said = said $$0 "\n" } /^(ok  |FAIL|\?   )\t/ { printf "%s", /^FAIL/ ? said : $$0 "\n"; fflush(); said = "" } END { printf "%s", said }'

gotest: fetch ## Run Go's tests
	$(call GOTEST)

race: fetch ## Run Go's short tests under the race detector
	$(call GOTEST,-race -short)

test-elsewhere: fetch ## Run the tests of numbers as on other processors (ELSEWHERE="avx2 one-lane")
	@tools/elsewhere.sh $(ELSEWHERE)

fuzz: setup ## Fuzz every parser for a while (FUZZTIME=10s each)
	@# A minute, as Go would take, to make an interesting input smaller is longer than all the rest.
	@grep -rE '^func Fuzz' --include='*_test.go' --exclude-dir='.?*' . | sed -E 's,/[^/]*:func (\w+).*, \1,' | while read -r folder target; do \
	  echo "$$folder $$target"; \
	  ($(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "$$folder") </dev/null; \
	done

bench: ## Measure gorbit and its peers (BENCH="--quick", BENCH="--gpu", BENCH="--help")
	@$(if $(filter --gpu,$(BENCH)),$${PYTHON:-python3} bench/check_gpu.py --probe)
	@$(MAKE) --no-print-directory $(if $(filter --gpu,$(BENCH)),TF=gpu) build fetch
	@$(PY) bench $(BENCH)

check-gpu: ## Compare this machine's GPUs with its CPU, and measure gorbit and its peers on one
	@$${PYTHON:-python3} bench/check_gpu.py --probe
	@$(MAKE) --no-print-directory TF=gpu build
	@$(PY) bench/check_gpu.py $(CHECK)

site: setup ## Make a site of the documentation, with a search, below dist
	@PYTHONPATH=tools:bench $(PY) -m docsite.build

check-tf: build fetch ## Run the programs with other releases of TensorFlow (RELEASES="--only 2.21")
	@PYTHONPATH=tools:bench $(PY) -m check_tf.releases $(RELEASES)

check-arm: fetch arm64 ## Run the programs for 64-bit ARM in an emulator, and build packages for macOS
	@PYTHONPATH=tools:bench $(PY) -m check_tf.arm

check-module: fetch ## Use gorbit as a module of Go in an empty module, without the checkout
	GORBIT_CHECK_MODULE=1 $(GO) test -v -count 1 -timeout 60m -run TestModule ./cmd/gorbit-setup

check-api: setup ## Compare the public names with those of the last release (API=REVISION)
	@source .tf/env && GOFLAGS='-buildvcs=false -tags=disable_grpc_modules' tools/check_api.sh $(API)

check-vuln: build ## Look for known vulnerabilities in the programs, by govulncheck (VULNDB=FOLDER)
	@VULNDB='$(VULNDB)' tools/vuln.sh bin/gorbit bin/gorbit-predict $(wildcard bin/arm64/gorbit bin/arm64/gorbit-predict)

check-gpu-passes: build ## Show the graphs of GPUs to TensorFlow's own placer and optimizer (needs no GPU)
	@PYTHONPATH=tools:bench $(PY) -m check_gpu.passes $(PASSES)

check-gpu-compile: build ## Compile the training step for a GPU with XLA's compiler (needs no GPU)
	@PYTHONPATH=tools:bench $(PY) -m check_gpu.compiler $(COMPILE)

check-tpu-passes: build ## Show the graphs of TPUs to TensorFlow's own TPU passes (needs no TPU)
	@PYTHONPATH=tools:bench $(PY) -m check_tpu.passes $(PASSES)

check-tpu-compile: build ## Compile the programs of TPUs, and run one on CPUs (needs no TPU)
	@PYTHONPATH=tools:bench $(PY) -m check_tpu.compiler $(COMPILE)

clean: ## Remove build outputs, and files of the demo and tests
	rm -rf bin demo dist .cache/tests .cache/*.log

distclean: clean ## Also remove what was set up and fetched
	rm -rf .venv .tf .cache bench/.work tools/*.egg-info
