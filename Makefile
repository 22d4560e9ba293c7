# Two targets do everything on a fresh machine: `make demo` shows the agent at work, `make test`
# proves it.
SHELL   := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := build
# Programs, vet and staticcheck have CGO_ENABLED=0 and -trimpath, so that each package is compiled
# once for all of them, and once more for the race detector.
export CGO_ENABLED ?= 0

# Make cuts lists at spaces, and overlay file systems, which the labs' nodes have, cut at colons.
ifneq ($(words $(CURDIR))$(findstring :,$(CURDIR)),1)
$(error the path of this clone, $(CURDIR), has a space or a colon: move it)
endif

comma   := ,
BUILD   := build
# How short git makes a commit's name depends on how many objects a clone has: a fixed length is the
# same in all, shallow ones too. Tags that begin otherwise are no releases.
TAGS := --tags --match 'v[0-9]*'
VERSION := $(shell git describe $(TAGS) --always --abbrev=12 --dirty 2>/dev/null || echo unknown)
# Programs for another machine (GOARCH) are not put in the place of this machine's.
BIN := $(BUILD)$(if $(GOARCH),$(patsubst %,/%,$(filter-out $(shell go env GOHOSTARCH),$(GOARCH))))
# Without symbols, which neither traces nor profiles need: a third less to install.
LDFLAGS := -s -w -X main.version=$(VERSION)
# Namespaces, netlink and the daemons under test need root; the rest of the tests do not.
# The limit is for a machine with a load of 30, where bgp/gobgp alone takes over 20 minutes.
# Most tests wait most of the time: more packages at once than there are processors. Without symbols
# for a debugger a test binary is linked in half the time, and there are over 40.
TESTFLAGS ?= -race -timeout 60m -p 4 -ldflags='-s -w'

# What is built from one commit twice is the same twice: times in packages and images are the
# commit's.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)

# go.mod puts this folder in GoBGP's place: the released module with the patches of
# third_party/gobgp.
GOBGP := build/run-make-first/gobgp

.PHONY: build test test-gobgp test-dataplane lint demo bench chaos soak fuzz page clean tools
.PHONY: deb image release vuln gobgp proto kube-apiserver

# The patched GoBGP, into the folder that go.mod names.
gobgp:
	@third_party/gobgp/series fill $(GOBGP)

# The agent and, from the same module, the stock gobgp CLI.
build: gobgp
	@mkdir -p $(BIN)
	@[ -e $(BUILD)/vpp-route-agent ] || echo "The first build compiles about 820 packages, Go's" \
	  "own among them: 1 to 2 minutes on two cores, and what downloading them takes."
	CGO_ENABLED=0 deploy/go-build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/vpp-route-agent
	CGO_ENABLED=0 deploy/go-build -trimpath -ldflags '-s -w' -o $(BIN)/ \
	  github.com/osrg/gobgp/v3/cmd/gobgp

# A real API server for the tests of the Kubernetes datastore, which use it where it is. Building it
# takes some ten minutes on two cores.
KUBERNETES := third_party/kube-apiserver
RELEASE = $(shell sed -n 's|.*k8s.io/kubernetes \(v[^ ]*\).*|\1|p' $(KUBERNETES)/go.mod)
kube-apiserver: $(BUILD)/kube-apiserver
$(BUILD)/kube-apiserver: $(KUBERNETES)/go.mod $(KUBERNETES)/go.sum
	cd $(KUBERNETES) && CGO_ENABLED=0 nice go build -trimpath -o $(CURDIR)/$@ \
	  -ldflags '-s -w -X k8s.io/component-base/version.gitVersion=$(RELEASE)' \
	  k8s.io/kubernetes/cmd/kube-apiserver

# What the tests and the demo need of the machine; installs Debian packages where it may.
tools:
	@deploy/check-machine

# The Go code of external configuration's messages, beside its .proto files; it is committed.
proto: gobgp
	go run ./internal/external/proto

# gofmt, go vet, staticcheck, go mod tidy.
lint: gobgp
	@out=$$(gofmt -l cmd bgp deploy vpp ipam internal third_party); \
	[ -z "$$out" ] || { echo "not gofmt-ed: $$out"; exit 1; }
	go vet -trimpath ./...
	GOFLAGS="$$(go env GOFLAGS) -trimpath" go tool staticcheck ./...
	go mod tidy -diff

# Known vulnerabilities: in what our code calls, and in GoBGP as released. A replaced module has no
# version to look up, so a go.mod without the replacement is used for GoBGP. VULNFLAGS='-db=URL'
# asks a mirror. A database that does not answer is no failure, but the output says so.
vuln: gobgp
	@third_party/gobgp/series released $(BUILD)/released; \
	out=$$(go tool govulncheck $(VULNFLAGS) ./... 2>&1 && \
	  GOFLAGS=-modfile=$(CURDIR)/$(BUILD)/released.mod \
	    go tool govulncheck $(VULNFLAGS) -scan module 2>&1); \
	status=$$?; echo "$$out"; \
	case "$$out" in *"fetching vulnerabilities:"*) \
	  echo "vuln: the database does not answer; NOTHING WAS CHECKED" >&2; exit 0;; \
	esac; \
	exit $$status

# What the tests must have run on, or they fail: a suite that silently tested nothing real is not
# green. Namespaces need root, and VPP is used where one is found.
ROOTS    := $(comma)Linux$(comma)BIRD 1.6$(comma)BIRD 2$(comma)FRR
PROMISED := etcd,GoBGP,vpptest$(if $(filter 0,$(shell id -u)),$(ROOTS))
PROMISED := $(PROMISED)$(if $(shell command -v $(or $(VPP_BIN),vpp)),$(comma)VPP)
PROMISED := $(PROMISED)$(if $(wildcard $(BUILD)/kube-apiserver),$(comma)Kubernetes API server)

# At the end of each of its programs the race detector waits for more races: a second, if not told.
test: export GORACE ?= atexit_sleep_ms=100

# With the race detector random walks take five times as long. The model of the reflector controller
# is one goroutine: nothing can race, and no run has the detector. Agent and FIB take a tenth of
# their walks with it (their race_test.go), and all of them without.
RACE  := $(filter -race -race=true,$(TESTFLAGS))
PLAIN := $(filter-out $(RACE),$(TESTFLAGS))

# Everything that must hold, on every real part that the machine has; go vet is lint's.
test: tools build lint
	{ status=0; \
	  CGO_ENABLED=0 go test -trimpath -vet=off -json $(PLAIN) ./bgp/reflector || status=1; \
	  $(if $(RACE),echo 'Walks of agent and FIB without the race detector:'; \
	  CGO_ENABLED=0 go test -trimpath -vet=off -json -run '^TestWalk' $(PLAIN) \
	    ./internal/agent ./internal/fib || status=1; echo 'The rest with it:';) \
	  CGO_ENABLED=1 go test -vet=off -json $(TESTFLAGS) \
	    $$(go list ./... | grep -v '/bgp/reflector$$') || status=1; exit $$status; } | \
	  go run -trimpath ./internal/testreport -promise '$(PROMISED)'

# GoBGP's own tests, on the patched GoBGP, without three of them:
# - TestWatchEvent closes a channel twice when a second event comes before its watch has ended. It
#   does so in the released GoBGP, too.
# - TestGracefulRestartTimerExpired has a silent connection take a peer to IDLE. With
#   18-collision.patch a silent connection waits beside the session.
# - TestTcpConnectionClosedAfterPeerDel waits for ever when its peer is ACTIVE before the goroutine
#   of its watch has begun. It does so in the released GoBGP, too.
GOBGPSKIPS := TestWatchEvent|TestGracefulRestartTimerExpired|TestTcpConnectionClosedAfterPeerDel
test-gobgp: gobgp
	cd $(GOBGP) && go test -skip '^($(GOBGPSKIPS))$$' ./...

# The data plane suite alone: vpptest, the kernel, and a real VPP where one is found.
test-dataplane: gobgp
	go test -count=1 -v -run TestDataplane ./vpp/... ./internal/kernel | \
	  grep -Ev '^ *(=== |--- PASS: .*/)'

# The Debian package, into build/; GOARCH=arm64 for another machine, MAINTAINER='Name <address>' of
# who publishes it.
deb: build
	deploy/debian/build $(BIN)/vpp-route-agent '$(VERSION)' $(BUILD)

# The images vpp-route-agent and vpp-route-agent-lab with a Docker engine; no base image is pulled.
image: build
	deploy/image/build agent $(BIN)/vpp-route-agent '$(VERSION)' $(BUILD)/image
	deploy/image/build lab $(BIN)/vpp-route-agent '$(VERSION)' $(BUILD)/image

# Static binaries for amd64 and arm64, SBOMs, man pages, notes, checksums, into build/release; the
# same bytes for the same commit.
release: gobgp
	deploy/release '$(VERSION)' $(BUILD)/release

# The main job on one machine: etcd, three nodes, real packets (needs root). ARGS=--keep to explore,
# LEARN=ipam without BGP, DATASTORE=kubernetes with the data in a stand-in for the Kubernetes API.
demo: tools build
	$(BUILD)/vpp-route-agent demo $(if $(LEARN),--learn $(LEARN)) \
	  $(if $(DATASTORE),--datastore $(DATASTORE)) $(if $(ENCAP),--encap $(ENCAP)) $(ARGS)

# Speed, as ratios taken in one run, against what bounds it; SHORT=1 for the short form, PLOT=1 for
# drawings in out/plots.
bench: tools build
	go run -trimpath ./internal/bench -agent $(BUILD)/vpp-route-agent -build $(BUILD) \
	  $(if $(SHORT),-short) $(if $(PLOT),-plot out/plots) $(BENCHFLAGS)

# The status page in Chromium, with real agents behind it (needs root, and of the network Debian's
# Chromium and npm's axe-core, once); SHORT=1 for what CI runs, UPDATE=1 for the pictures of docs.
page: tools build
	CGO_ENABLED=0 go build -trimpath -o $(BUILD)/pagetest ./internal/pagetest
	$(BUILD)/pagetest -agent $(BUILD)/vpp-route-agent -build $(BUILD) $(if $(SHORT),-short) \
	  $(if $(UPDATE),-images docs/images) $(PAGEFLAGS)

# A folder with a topology is a lab.
LABS := $(patsubst labs/%/,%,$(dir $(wildcard labs/*/*.clab.yml)))
.PHONY: labs tour $(LABS:%=lab-%) $(BUILD)/lab

# With SHORT, labs take turns: each commit has the next two.
ifneq ($(SHORT),)
ROUND := $(shell n=$$(git rev-list --count HEAD 2>/dev/null || echo 0); set -- $(LABS); \
	for i in 0 1; do shift $$(((2 * n + i) % $$#)); echo $$1; set -- $(LABS); done)
else
ROUND := $(LABS)
endif

# Every lab (SHORT=1: two that are up): built, its README walked through, removed (needs root).
# ARGS=-vpp for VPP.
labs: $(BUILD)/lab
	$(BUILD)/lab check $(ARGS) $(ROUND:%=labs/%)

# One lab. ARGS=-keep to explore, ARGS=-update to write its README's outputs.
$(LABS:%=lab-%): lab-%: $(BUILD)/lab
	$(BUILD)/lab check $(ARGS) labs/$*

# docs/tour.md with what its commands print now, which takes VPP; CHECK=1 compares what must not
# change of that, with or without VPP (needs root).
tour: $(BUILD)/lab
	$(BUILD)/lab tour -build $(BUILD) $(if $(CHECK),,-update) docs/tour.md

$(BUILD)/lab: tools build
	CGO_ENABLED=0 deploy/go-build -trimpath -o $@ ./internal/lab
	CGO_ENABLED=0 deploy/go-build -trimpath -o $@-client ./labs/external/client

# The agent that is upgraded from: that of the last tag before this commit, else of 100 commits ago.
# PREVIOUS= does without.
PREVIOUS ?= $(shell git describe $(TAGS) --abbrev=0 HEAD^ 2>/dev/null || echo HEAD~100)
ifeq ($(SHORT)$(filter -run -run=%,$(CHAOSFLAGS)),)
AGENTS   := 100
COMMIT   := $(shell git rev-parse --verify --quiet $(PREVIOUS)^{commit} 2>/dev/null)
OLDER    := $(COMMIT:%=$(BUILD)/previous/%/build/vpp-route-agent)
endif

# Every fault under traffic, packets counted, budgets held; SHORT=1 for what CI runs, PLOT=1 for
# drawings in out/plots (needs root; VPP where found). Before them thirty agents in one process move
# to reflectors and back with the race detector, and a hundred, which takes 2 GiB, without: more
# than that can follow.
chaos: tools build $(OLDER)
	@mkdir -p out
	go build -trimpath -o $(BUILD)/chaos ./internal/chaos
	$(if $(AGENTS),CGO_ENABLED=1 go test -race -vet=off -count=1 -timeout 30m \
	  -run '^TestNoRouteIsTouched$$' ./internal/reflectors -agents 30)
	$(if $(AGENTS),go test -vet=off -count=1 -timeout 30m -run '^TestNoRouteIsTouched$$' \
	  ./internal/reflectors -agents $(AGENTS))
	$(BUILD)/chaos -agent $(BUILD)/vpp-route-agent -build $(BUILD) $(if $(SHORT),-short) \
	  $(OLDER:%=-previous %) -logs out/chaos-logs $(if $(PLOT),-plot out/plots) \
	  $(CHAOSFLAGS)

$(BUILD)/previous/%/build/vpp-route-agent:
	rm -rf $(BUILD)/previous/$*
	git clone -q . $(BUILD)/previous/$*
	git -C $(BUILD)/previous/$* checkout -q --detach $*
	$(MAKE) -C $(BUILD)/previous/$* BUILD=build build

DURATION ?= 10m

# Random churn and faults for DURATION, with what must always hold checked all along.
soak: tools build
	@mkdir -p out
	go build -trimpath -o $(BUILD)/chaos ./internal/chaos
	$(BUILD)/chaos -agent $(BUILD)/vpp-route-agent -build $(BUILD) -soak $(DURATION) \
	  -logs out/soak-logs $(CHAOSFLAGS)

# What CI runs is counted in inputs, not in time: Go's fuzzing sometimes takes the end of its own
# time for a failure (golang/go#75804). A finding has an input; that ending has none. The targets
# share the inputs, so a new one takes its own from the others. What is not counted, tries to make
# an input smaller, FUZZFLAGS limits.
FUZZINPUTS ?= 255000
FUZZTIME ?= $(if $(SHORT),$$(($(FUZZINPUTS) / n))x,30s)
FUZZFLAGS := $(if $(SHORT),-fuzzminimizetime 20x)
SESSIONTIME ?= $(if $(SHORT),2m,1h)

# Every fuzz target for FUZZTIME (30s, or 100000x inputs), then sessions with a reflector for
# SESSIONTIME (1h), then every random test ten times as often as make test; SHORT=1 for what CI
# runs. The targets are found in the sources, because go list would link every package's tests; go
# vet is lint's.
fuzz: tools build
	@mkdir -p out; all=$$(for dir in $$(go list -f '{{.Dir}}' ./...); do \
	  cat $$dir/*_test.go 2>/dev/null | sed -n "s|^func \(Fuzz\w*\)(.*|$$dir \1|p"; done); \
	[ -n "$$all" ] || exit 1; n=$$(echo "$$all" | wc -l); time=$(FUZZTIME); \
	while read -r dir f; do \
	  echo "$${dir#$(CURDIR)/} $$f"; rm -f out/fuzz.log out/fuzz.status || exit 1; \
	  { go test -vet=off -run '^$$' -fuzz "^$$f$$" -fuzztime $$time $(FUZZFLAGS) $$dir 2>&1 \
	      </dev/null; echo $$? >out/fuzz.status; } | tee out/fuzz.log; \
	  [ "$$(cat out/fuzz.status)" = 0 ] && continue; \
	  [ "$$(grep -c -e '--- FAIL' out/fuzz.log)" = 1 ] && \
	    ! grep -q -e 'Failing input' -e 'seed corpus' out/fuzz.log && \
	    grep -A1 -e '--- FAIL' out/fuzz.log | \
	      grep -q '^    context deadline exceeded$$' || exit 1; \
	  echo "$$f: no finding; Go took the end of the time for one"; \
	done <<<"$$all"; echo "$$n fuzz targets, $$time each"
	go build -trimpath -o $(BUILD)/bgpfuzz ./internal/bgpfuzz
	$(BUILD)/bgpfuzz -build $(BUILD) -fuzztime $(SESSIONTIME) $(if $(SHORT),-seed 1,-shrink) \
	  $(BGPFUZZFLAGS)
	$(if $(SHORT),,go test -vet=off -count=1 -v -timeout 1h \
	  -run '^TestRandomWalks$$/^1000_nodes,_single$$' ./bgp/reflector -nodes 1000)
	$(if $(SHORT),,go test -vet=off -count=1 -timeout 2h $$(go list -f '{{.ImportPath}} \
	  {{.TestImports}}{{.XTestImports}}' ./... | sed -n 's| .*pgregory.net/rapid.*||p') \
	  -rapid.checks 1000)

clean:
	rm -rf $(BUILD) out
