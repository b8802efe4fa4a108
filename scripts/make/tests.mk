# SPDX-License-Identifier: GPL-2.0
#
# Test programs: every tests/{kselftest,bench,unit,lab}/*.c is one program.
# A source may say, each in a comment line of its own:
#	/* build: also 32-bit */		NAME.32 is built as well, with -m32
#	/* build: also tsan */			of a unit: NAME.tsan, which looks for races, as well
#	/* build: link -libverbs … */		more for the linker

#help test-programs  every tests/{kselftest,bench,unit,lab}/*.c

selftest_kernel	:= 6.12
selftests	:= build/kernels/src-$(selftest_kernel)/tools/testing/selftests
selftest_header	:= $(selftests)/kselftest_harness.h

kselftests	:= $(patsubst tests/kselftest/%.c,$(OUT)/tests/kselftest/%,$(wildcard tests/kselftest/*.c))
benches		:= $(patsubst tests/bench/%.c,$(OUT)/tests/bench/%,$(wildcard tests/bench/*.c))
units		:= $(patsubst tests/unit/%.c,$(OUT)/tests/unit/%,$(wildcard tests/unit/*.c))
also_32		:= $(patsubst tests/%.c,$(OUT)/tests/%.32,$(shell \
		   grep -lFx '/* build: also 32-bit */' tests/kselftest/*.c tests/bench/*.c 2>/dev/null))
# What runs around tests: linked statically, as that starts sooner.
arounds		:= $(patsubst tests/lab/%.c,$(OUT)/tests/lab/%,$(wildcard tests/lab/*.c))
tsan_units	:= $(patsubst tests/%.c,$(OUT)/tests/%.tsan,$(shell \
		   grep -lFx '/* build: also tsan */' tests/unit/*.c 2>/dev/null))
test_programs	:= $(kselftests) $(benches) $(units) $(tsan_units) $(also_32) $(arounds)

test-programs: $(test_programs)
kselftest-programs: $(kselftests) $(filter $(OUT)/tests/kselftest/%,$(also_32))
bench-programs: $(benches) $(filter $(OUT)/tests/bench/%,$(also_32))
unit-programs: $(units) $(tsan_units)

$(selftest_header):
	scripts/lab/kernel source $(selftest_kernel) >/dev/null

# The kernel's own headers are not ours to keep free of warnings.
test_flags	= $(user_flags) -isystem $(selftests) -D_GNU_SOURCE
linked		= $(shell sed -n 's,^/\* build: link \(.*\) \*/$$,\1,p' $<)
link_program	= -L$(OUT)/lib -Wl,-rpath,'$$ORIGIN/../../lib' $(linked) -lpthread

define program_rules
$(OUT)/tests/$1/%.32: tests/$1/%.c $$(flags) | $$(public_headers) $(selftest_header)
	@mkdir -p $$(@D)
	$$(call say,CC)$$(CC) -m32 $$(test_flags) $$(deps) $$(LDFLAGS) -o $$@ $$< $$(linked) -lpthread

$(OUT)/tests/$1/%: tests/$1/%.c $$(flags) | $$(public_headers) $(selftest_header) $$(lib_shared)
	@mkdir -p $$(@D)
	$$(call say,CC)$$(CC) $$(test_flags) $$(deps) $$(LDFLAGS) -o $$@ $$< $$(link_program)
endef
$(eval $(call program_rules,kselftest))
$(eval $(call program_rules,bench))

# They know the library's inside, which the shared one hides.
$(OUT)/tests/bench/tensor_alloc $(OUT)/tests/kselftest/librendezvous: $(lib_static)

# What measures compare with and is there as a library only: Debian's, and one of PyPI's.
grpc_peers	:= $(OUT)/tests/bench/grpc_tensor $(OUT)/tests/bench/grpc_ps
tensorpipe_tensor := $(OUT)/tests/bench/tensorpipe_tensor
mooncake	:= $(OUT)/venv/mooncake
mpi_allreduce	:= $(OUT)/tests/bench/mpi_allreduce
gloo_allreduce	:= $(OUT)/tests/bench/gloo_allreduce
# Apart from these, as it is large: for measures that compare with it.
nixl		:= $(OUT)/nixl/nixl
bench-nixl: $(nixl)
# ONNX and its runtime, for tests of graphs: they want another protobuf than gRPC here does.
onnx		:= $(OUT)/onnx/onnx
graph-onnx: $(onnx)
bench-peers: $(grpc_peers) $(tensorpipe_tensor) $(mooncake) $(mpi_allreduce) $(gloo_allreduce)

$(mpi_allreduce): tests/bench/mpi_allreduce.cc tests/bench/sample.h $(flags)
	@mkdir -p $(@D)
	$(call say,CXX)mpicxx.openmpi -O2 -std=c++17 -Wall -Wextra -DOMPI_SKIP_MPICXX -o $@ $<

$(gloo_allreduce): tests/bench/gloo_allreduce.cc tests/bench/sample.h $(flags)
	@mkdir -p $(@D)
	$(call say,CXX)$(CXX) -O2 -std=c++17 -Wall -Wextra -o $@ $< -lgloo -libverbs -lpthread

$(tensorpipe_tensor): tests/bench/tensorpipe_tensor.cc $(flags)
	@mkdir -p $(@D)
	$(call say,CXX)$(CXX) -O2 -std=c++17 -Wall -Wextra -o $@ $< -ltensorpipe

$(mooncake): tests/bench/requirements.txt
$(nixl): tests/bench/requirements.nixl.txt
$(onnx): tests/graph/requirements.txt
$(mooncake) $(nixl) $(onnx):
	$(call say,VENV)python3 -m venv $(@D)
	$(call say,PIP)$(@D)/bin/pip install --quiet --no-deps --require-virtualenv -r $<
	@touch $@

$(OUT)/obj/bench/grpc_tensor.grpc.pb.cc: tests/bench/grpc_tensor.proto
	@mkdir -p $(@D)
	$(call say,PROTOC)protoc -I tests/bench --cpp_out=$(@D) --grpc_out=$(@D) \
		--plugin=protoc-gen-grpc=$(shell command -v grpc_cpp_plugin) $<

$(OUT)/tests/bench/grpc_ps: tests/bench/models.h tests/bench/sample.h
$(grpc_peers): $(OUT)/tests/bench/%: tests/bench/%.cc $(OUT)/obj/bench/grpc_tensor.grpc.pb.cc $(flags)
	@mkdir -p $(@D)
	$(call say,CXX)$(CXX) -O2 -std=c++17 -Wall -Wextra -I$(OUT)/obj/bench \
		$(shell $(PKG_CONFIG) --cflags grpc++ protobuf) -o $@ $< $(OUT)/obj/bench/grpc_tensor*.pb.cc \
		$(shell $(PKG_CONFIG) --libs grpc++ protobuf)

$(OUT)/tests/lab/%: tests/lab/%.c $(flags) | $(public_headers) $(lib_shared)
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(user_flags) -D_GNU_SOURCE $(deps) $(LDFLAGS) -o $@ $< \
		$(if $(linked),$(link_program),-static)

# Unit tests see the inside of the library and the tool (static functions stay
# out of sight), and what of the module needs nothing of the kernel; they run
# under the sanitizers.
sanitize	:= -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
kmod_sources	:= kmod/ring/order.c kmod/peer/state.c
unit_sources	:= $(lib_sources) $(kmod_sources) $(filter-out tools/towline.c,$(sort $(wildcard tools/*.c)))
unit_objects	:= $(unit_sources:%.c=$(OUT)/obj/sanitized/%.o)

# What the kernel's <linux/types.h> has.
$(OUT)/obj/sanitized/kmod/%.o: private user_flags += -include tests/unit/tow_kernel.h

$(OUT)/obj/sanitized/%.o: %.c $(flags) VERSION | $(public_headers)
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(user_flags) $(tool_flags) $(sanitize) $(deps) -c -o $@ $<

$(OUT)/tests/unit/%: tests/unit/%.c $(unit_objects) $(flags) | $(public_headers) $(selftest_header)
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(test_flags) $(tool_flags) -Ilibshim/core $(sanitize) $(deps) $(LDFLAGS) \
		-o $@ $< $(unit_objects) $(linked) $(tool_libs) -lpthread -lm

# Races are looked for in the library alone, built as one with the test; its sources
# say _GNU_SOURCE, as empty as it is said here.  Fences, of which it knows nothing, are those
# of queues.
$(OUT)/tests/unit/%.tsan: tests/unit/%.c $(lib_sources) $(lib_headers) \
		$(wildcard libshim/*/*.h tests/unit/*.h) $(flags) | $(public_headers) $(selftest_header)
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(filter-out -D_GNU_SOURCE,$(test_flags)) -Ilibshim/core -fsanitize=thread -Wno-tsan \
		$(LDFLAGS) -o $@ -D_GNU_SOURCE= $< $(lib_sources) $(linked) -lpthread -lm

# ---- fuzzing ------------------------------------------------------------------
#help fuzz           look for inputs that break the allocator, for FUZZ_SECONDS (clang)

FUZZ_SECONDS	?= 60
fuzz_flags	= $(filter-out -D_GNU_SOURCE,$(test_flags)) -D_GNU_SOURCE= -DTOW_LIBFUZZER -Ilibshim/core \
		  -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all

fuzz: $(public_headers) $(selftest_header)
	@command -v clang >/dev/null || { \
		echo "towline: clang is missing: apt-get install clang libclang-rt-dev" >&2; exit 2; }
	@mkdir -p $(OUT)/tests/fuzz/corpus
	$(call say,CC)clang $(fuzz_flags) -o $(OUT)/tests/fuzz/arena tests/unit/fuzz_arena.c $(lib_sources) -lpthread -lm
	$(OUT)/tests/fuzz/arena -max_total_time=$(FUZZ_SECONDS) $(OUT)/tests/fuzz/corpus

.PHONY: fuzz test-programs kselftest-programs bench-programs bench-peers bench-nixl unit-programs
.SECONDARY: $(unit_objects)

-include $(unit_objects:=.d) $(test_programs:=.d)

# ---- frozen interfaces -----------------------------------------------------
#help abi-update     accept a change of uapi/towline.h or of the library's types

# The deliberate act: the tests compare with these files and never write them.
abi-update: lib
	scripts/packaging/abi uapi uapi/towline.abi
	scripts/packaging/abi lib libshim/towline.abi

.PHONY: abi-update
