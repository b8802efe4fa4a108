# SPDX-License-Identifier: GPL-2.0
#
# Targets that run something: setup, checks, lint, measures.

#help setup          packages (apt, as root or through sudo) and the lab's kernels
#help check          build all, lint, test on the host and in virtual machines
#help check-full     the same, each test on every kernel it is for that it has not passed on
#help                as it is now; MINUTES=N: begin none after that, the next one goes on there
#help check-quick    the same in 5 minutes: 6.1 only
#help check-host     only what needs no virtual machine
#help                TESTS='GLOB…' chooses tests, KERNELS='6.1 6.12 7 debug' kernels
#help check-torch    the tests of PyTorch's backend, which bring PyTorch with them: 150 packages
#help check-graph    the tests of graphs, also those that bring ONNX (build/onnx) and PyTorch with them
#help demo           two virtual machines: load the module, look at it, an RDMA ping; KERNEL=6.12
#help                TRANSPORT=rxe (dma: through an IOMMU)
#help demo-torch     two machines train with PyTorch, over towline and over Gloo; brings PyTorch with it
#help demo-graph     plans of ONNX models, and two machines run these; brings ONNX and Graphviz with it
#help lint           every linter over every file
#help bench          measures, to build/bench/results.json; BENCH='GLOB…' chooses
#help                AGAINST=COMMIT compares with that commit's towline: build/bench/against.json
#help                PROVIDER=dma: through an IOMMU, build/bench/dma/results.json
#help soak           the long tests, to build/soak/results.json; SOAK='GLOB…', SOAK_MINUTES=N
#help before         two nodes of 6.12, one with another commit's module: BEFORE=COMMIT
#help flaky          how the tests went on this machine, those in trouble first
#help coverage       tests on the debug kernel with gcov, to build/coverage

# make hands on what was given to it; the runners have their own defaults.
ifneq ($(filter command%,$(origin KERNELS)),)
export KERNELS
endif
export KERNEL TESTS BENCH SOAK SOAK_MINUTES MINUTES

setup:
	@scripts/setup $(if $(filter command%,$(origin KERNELS)),$(KERNELS))

check:
	@scripts/check/check

check-full:
	@scripts/check/check --full

check-quick:
	@scripts/check/check --quick

check-host:
	@scripts/check/check --host

check-torch:
	@TESTS='$(or $(TESTS),torch/*)' scripts/check/check --full

check-graph:
	@TESTS='$(or $(TESTS),graph/*)' scripts/check/check --full

demo:
	@scripts/demo

demo-torch:
	@scripts/demo torch

demo-graph:
	@scripts/demo graph

lint:
	@scripts/lint

bench:
	@scripts/bench/bench $(if $(AGAINST),--against '$(AGAINST)') $(if $(PROVIDER),--provider '$(PROVIDER)')

soak:
	@scripts/check/soak

before:
	@scripts/check/before '$(BEFORE)'

coverage:
	@scripts/check/coverage

flaky:
	@scripts/check/towcheck/history.py

# What all clones share: scripts/lab/towlab/cache.py says what.
cache		:= $(or $(TOW_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/towline)
#help clean-cache    remove what all clones share (now @CACHE@), when nothing uses it

clean-cache:
	@mkdir -p $(cache) && flock $(cache)/lock \
		find $(cache) -mindepth 1 -maxdepth 1 ! -name lock -exec rm -rf {} +

.PHONY: flaky clean-cache setup check check-full check-quick check-host check-torch check-graph demo demo-torch demo-graph lint bench soak before coverage
