# Everything is set up inside the checkout: .venv (Python, TensorFlow, the
# exporter), .tf (the library for Go) and .cache (the demo's data).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# The flavour of TensorFlow's library: cpu, gpu or tpu. Without one, the flavour
# that is set up already, or cpu.
TF ?=

# Sets what cgo needs in every recipe that builds Go. Builds do not ask git for the version, which
# fails if the checkout belongs to another user: the Makefile asks, with safe.directory set.
# The tag leaves out 150 packages that the client of gs:// needs for gRPC, which it does not use.
BUILD := source .tf/env && export GOFLAGS="$${GOFLAGS:-} -buildvcs=false -tags=disable_grpc_modules"
GO := $(BUILD) && go
PY := .venv/bin/python

COMMIT = $(shell git -c safe.directory='*' describe --always --tags --dirty --match 'v*' 2>/dev/null)
LDFLAGS = -X github.com/gorbit-ml/gorbit/internal/base/version.described=$(COMMIT)

# Hide TensorFlow's notes in tests.
export TF_CPP_MIN_LOG_LEVEL ?= 2

# Options of bench, such as --quick; all of them with --help.
BENCH ?=

PACKAGES := ./...

# Packages that start goroutines are tested under the race detector. The others are tested without
# it, and so are the programs: their tests run processes, which it does not see. The packages and
# programs that take longest come first, so that none of them is left over at the end.
CONCURRENT := '\bgo func\b|\.Go\(|^\s*go [A-Za-z_.]+\(|\.Parallel\(\)'
RACED = $$(printf '%s\n' ./internal/exec/cluster; find . -name '*.go' -not -path './.*' \
  -not -path './cmd/*' -not -path './examples/*' | xargs grep -lE $(CONCURRENT) | xargs -n1 dirname | sort -u | \
  grep -vxF "$$(printf '%s\n' $(LONG_PACKAGES))")
PLAIN = ./cmd/gorbit $$(comm -23 <($(GO) list $(PACKAGES) | sed "s,^$$($(GO) list -m),.," | sort) \
  <(printf '%s\n' $(RACED) $(LONG_PACKAGES) | sort))

# The race detector doubles or triples the time of Go code. Of these packages, whose tests mostly
# compose graphs and train, it sees RACED_TESTS only: they go through every goroutine that the
# packages start, and through those of a whole run that is stopped. The target long runs the others.
# A test of a new goroutine belongs into the list.
LONG_PACKAGES := ./train ./strategy
RACED_TESTS := TestStoppedRunEndsAsAnother|TestDiskFull|TestNonFiniteLoss|TestAnyModelOnTPU|TestStartTPUWaits|$\
  TestAnswersComeInOrder|TestReplicasAnswerAsOne|TestEvaluateExamples|TestDrawnAgain|TestWorkersAreWatched|$\
  TestReplicasAreWatched|TestAwaitRun|TestFollowInBucket|TestPartsAreEvaluatedSideBySide|TestTPUEvaluates|$\
  TestTPUStopsBehindARefusedStep|TestTPUErrors|TestTPUFaults|TestTPUGoesSilent|TestSteps|$\
  TestNotFiniteEverywhere|TestEvaluateOnReplicas|TestWorkersReadImages

# Of these packages, COMPUTING_TESTS go through thousands of cases, for which the race detector takes
# five to ten times as long. It sees the same goroutines in the packages' other tests, such as
# TestResumeAfterManyInterruptions and TestFixedRowsBatches. The target plain runs COMPUTING_TESTS.
COMPUTING_PACKAGES := ./dataset ./runner
COMPUTING_TESTS := TestFixedRowsLaws|TestFixedRowsDropRemainder|TestFixedRowsDensity|TestPermutationIsFair|TestSamplingLaws|$\
  TestResumeWithStepsPerCall|TestResumeAfterKillAnywhere|TestResumeAfterStopAnywhere|TestStepsPerCallChangeNothingAnywhere

# The time limit of a package's tests; go test's own limit is too short for a busy machine.
LIMIT := 40m

# The folder for the list of skipped tests and reasons, which make test prints at the end.
SKIPPED := .cache/skipped

# Sets what builds in tests need. They need no debug information, and most packages of others need
# not be optimized, only those of OPTIMIZED: both halve what the compiler takes. Where there is the
# linker gold, they link in half of the time. What is vetted is compiled with the same flags, so that
# it is compiled once.
OPTIMIZED := std github.com/gorbit-ml/gorbit/... google.golang.org/protobuf/... \
  golang.org/x/tools/... honnef.co/go/tools/...
FOR_TESTS := $(BUILD) && flags='-s -w' && \
  if $$CC -fuse-ld=gold -Wl,--version >/dev/null 2>&1; then flags+=' -extldflags=-fuse-ld=gold'; fi && \
  GOFLAGS+=" '-ldflags=$$flags' '-gcflags=all=-N -l -dwarf=false'$(foreach p,$(OPTIMIZED), -gcflags=$(p)=-dwarf=false)"

# go test, whose skipped tests are noted in the file that comes next. It need not vet: the target
# vet does. Collecting garbage less often saves a fifth of the time of tests that compute in Go.
GOTEST = $(FOR_TESTS) && GOGC=400 $(NICE) $(PY) tools/gotest.py
NICE :=

# What make test compiles while the set-up downloads TensorFlow: packages that need none of it, plain
# for vet and for the race detector, and the program staticcheck.
EARLY := ./convert ./dataset/... ./graphs ./internal/app/hub ./internal/exec/launch ./internal/app/serve \
  ./internal/base/vfs/... ./runner ./summary ./text ./tfrecord ./train/predict ./train/task/...
COMPILE_EARLY = $(FOR_TESTS) && export GOGC=400 && go vet $(EARLY) && go build -race $(EARLY) && go tool -n staticcheck

FUZZTIME ?= 10s

.PHONY: help
help: ## List the targets
	@echo "Everything is set up inside the checkout, by itself, when it is first needed."
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Set up Python, TensorFlow and its library (TF=cpu|gpu|tpu)
	@tools/setup.sh $(TF)

.PHONY: build
build: setup ## Build bin/gorbit and bin/gorbit-predict
	@mkdir -p bin
	@$(GO) build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/gorbit ./cmd/gorbit-predict

# Where install puts the programs and the library, and a folder that stands in for / there.
PREFIX ?= /usr/local
DESTDIR ?=

.PHONY: install
install: build ## Install the programs and TensorFlow's library (PREFIX=/usr/local, DESTDIR=)
	@$(PY) tools/dist.py install '$(DESTDIR)$(abspath $(PREFIX))'

.PHONY: uninstall
uninstall: setup ## Remove what install put there (PREFIX=/usr/local, DESTDIR=)
	@$(PY) tools/dist.py uninstall '$(DESTDIR)$(abspath $(PREFIX))'

.PHONY: dist
dist: build ## Pack the programs and the library in an archive, below dist
	@mkdir -p dist
	@$(PY) tools/dist.py archive dist

.PHONY: demo
demo: build ## Fine-tune a BERT on movie reviews, evaluate, export, predict
	@tools/demo.sh

.PHONY: test
test: export MEANWHILE = $(COMPILE_EARLY)
test: fetch ## Check the sources, run all tests, and list what was skipped and why
	@# All at once: Python's tests have one process, and those of the programs mostly wait. Lint, which
	@# uses all cores, comes last.
	@# The scripts that Go's tests let Python run are forks of one process. As batch work, processes take
	@# turns less often, which takes less of the processors' time.
	@$(PY) tools/batch.py $(PY) tools/warm_python.py $(MAKE) --no-print-directory -j4 --output-sync=none race pytest plain long lint
	@cat $(SKIPPED)/{tools,bench,plain,computing,race,raced,long} >$(SKIPPED)/all
	@if [ -s $(SKIPPED)/all ]; then echo "skipped, and why:"; sed 's/^/  /' $(SKIPPED)/all; \
	  else echo "nothing was skipped"; fi

.PHONY: lint
lint: vet ## Check formatting and common mistakes
	@echo "staticcheck, ruff"
	@# With less memory it would collect garbage for a third of its time.
	@$(FOR_TESTS) && GOGC=off GOMEMLIMIT=3GiB go tool staticcheck -tags disable_grpc_modules $(PACKAGES)
	@$(PY) -m ruff check --quiet tools bench examples
	@$(PY) -m ruff format --quiet --check tools bench examples

.PHONY: vet
vet: setup
	@echo "gofmt, go vet"
	@unformatted=$$(gofmt -l $$(find . -name '*.go' -not -path './.*')); \
	  [ -z "$$unformatted" ] || { echo "not in gofmt's format:" $$unformatted >&2; exit 1; }
	@$(FOR_TESTS) && GOGC=400 go vet $(PACKAGES)

.PHONY: pytest
pytest: fetch ## Run Python's tests
	@echo "pytest tools bench"
	@mkdir -p $(SKIPPED)
	@$(FOR_TESTS); for folder in tools bench; do \
	  (cd $$folder && ../$(PY) -m pytest -q -rs tests) | tee $(SKIPPED)/out; \
	  sed -n "s/^SKIPPED \[[0-9]*\] /$$folder\//p" $(SKIPPED)/out >$(SKIPPED)/$$folder; \
	done

.PHONY: fetch
fetch: setup ## Fetch the demo's weights and reviews, which tests also use
	@tools/fetch_demo.sh

.PHONY: gotest
gotest: plain race long ## Run Go's tests

# What plain and long build, vet has compiled: at the same time both would compile it.
.PHONY: plain
plain: fetch vet ## Run Go's tests of programs, and of packages without goroutines
	@echo "go test, of programs and of packages without goroutines"
	@# The tests of programs that are parallel mostly wait for processes.
	@$(GOTEST) $(SKIPPED)/plain go test -vet=off -timeout $(LIMIT) -parallel 4 $(PLAIN)
	@$(GOTEST) $(SKIPPED)/computing go test -vet=off -timeout $(LIMIT) -run '^($(COMPUTING_TESTS))$$' $(COMPUTING_PACKAGES)

# It has the most to compile and the most packages to spread it over. So it leaves the processors to
# the others first, which end with one package each.
.PHONY: race
race: NICE := nice -n 5
race: fetch ## Run Go's tests of packages with goroutines under the race detector
	@echo "go test -race, of packages with goroutines"
	@$(GOTEST) $(SKIPPED)/raced go test -race -vet=off -timeout $(LIMIT) -run '^($(RACED_TESTS))$$' $(LONG_PACKAGES)
	@$(GOTEST) $(SKIPPED)/race go test -race -vet=off -timeout $(LIMIT) -skip '^($(COMPUTING_TESTS))$$' $(RACED)

# Not from go test's cache: to keep the results of these tests, it takes some 20 seconds to note which
# files they opened, hundreds of thousands of times, when all else has ended.
.PHONY: long
long: fetch vet ## Run the other tests of packages of which race runs some
	@echo "go test $(LONG_PACKAGES), without the tests that race runs"
	@$(GOTEST) $(SKIPPED)/long go test -count=1 -vet=off -timeout $(LIMIT) -skip '^($(RACED_TESTS))$$' $(LONG_PACKAGES)

.PHONY: packages
packages:
	@printf 'plain %s\n' $(PLAIN)
	@printf 'race %s\n' $(RACED)
	@printf 'long %s\n' $(LONG_PACKAGES)

.PHONY: fuzz
fuzz: setup ## Fuzz every parser for a while (FUZZTIME=10s each)
	@# A minute, as Go would take, to make an interesting input smaller is longer than all the rest.
	@source .tf/env; \
	grep -rlE '^func Fuzz' --include='*_test.go' . | grep -v '^./\.' | while read -r file; do \
	  for target in $$(grep -oE '^func Fuzz[A-Za-z0-9_]*' "$$file" | cut -d' ' -f2); do \
	    echo "$$(dirname "$$file") $$target"; \
	    go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "$$(dirname "$$file")"; \
	  done; \
	done

.PHONY: bench
bench: ## Measure gorbit and its peers (BENCH="--quick", BENCH="--gpu", BENCH="--help")
	@$(if $(filter --gpu,$(BENCH)),$${PYTHON:-python3} bench/check_gpu.py --probe)
	@$(MAKE) --no-print-directory $(if $(filter --gpu,$(BENCH)),TF=gpu) build fetch
	@$(PY) bench $(BENCH)

# Options of check-gpu, such as "--config tiny"; all of them with --help.
CHECK ?=

.PHONY: check-gpu
check-gpu: ## Compare this machine's GPUs with its CPU, and measure gorbit and its peers on one
	@$${PYTHON:-python3} bench/check_gpu.py --probe
	@$(MAKE) --no-print-directory TF=gpu build
	@$(PY) bench/check_gpu.py $(CHECK)

# Options of check-tpu-passes, such as "--configs tiny --replicas 8"; all of them with --help.
PASSES ?=

.PHONY: check-tpu-passes
check-tpu-passes: build ## Show the graphs of TPUs to TensorFlow's own TPU passes (needs no TPU)
	@PYTHONPATH=tools:bench $(PY) -m check_tpu.passes $(PASSES)

# Options of check-tpu-compile, such as "--configs tiny --no-search"; all of them with --help.
COMPILE ?=

.PHONY: check-tpu-compile
check-tpu-compile: build ## Compile the programs of TPUs with the TPU compiler (needs no TPU)
	@PYTHONPATH=tools:bench $(PY) -m check_tpu.compiler $(COMPILE)

.PHONY: clean
clean: ## Remove build outputs, and files of the demo and tests
	rm -rf bin demo dist .cache/tests .cache/skipped

.PHONY: distclean
distclean: clean ## Also remove what was set up and fetched
	rm -rf .venv .tf .cache bench/.work tools/*.egg-info
