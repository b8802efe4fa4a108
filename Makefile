# SPDX-License-Identifier: GPL-2.0
#
# towline: kernel module, library, tool, tests.  `make help` lists the targets.
#
# User code is built here; the module is built by kbuild from ./Kbuild in a
# tree of symbolic links, one tree for each kernel release, so that objects of
# different kernels never meet (scripts/make/modules.mk).

SHELL		:= /bin/bash
.DELETE_ON_ERROR:
.SUFFIXES:

ifneq ($(words $(CURDIR)),1)
$(error kbuild cannot build below a folder with a space in its name: $(CURDIR))
endif

top		:= $(CURDIR)
VERSION		:= $(shell cat VERSION)
SOVERSION	:= 0

# What a packager may set.  OUT takes another place for user code and test
# programs (a coverage build, say).
OUT		?= build
KDIR		?= /lib/modules/$(shell uname -r)/build
KERNELS		?= 6.1 6.12 7 debug
PREFIX		?= /usr/local
LIBDIR		?= $(PREFIX)/lib
CFLAGS		?= -O2 -g
WERROR		?= -Werror
PKG_CONFIG	?= pkg-config
PYTHON		?= /usr/bin/python3

all: lib tools modules

# One short line for each command; V=1 shows the command.
say		= $(if $(V),,@echo "  $1	$@";)

# ---- flags ---------------------------------------------------------------
warnings	:= -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
		   -Wwrite-strings -Wformat=2 -Wvla $(WERROR)
# Without the place of this tree, so that two clones build the same.
user_flags	= -std=gnu11 $(warnings) -ffile-prefix-map=$(top)=. -I$(OUT)/include -I. \
		  -DTOW_VERSION='"$(VERSION)"' $(CPPFLAGS) $(CFLAGS)
deps		= -MMD -MP -MF $@.d

# Objects depend on this file, and it changes only when a flag does.
flags		:= $(OUT)/.flags
$(flags): FORCE
	@mkdir -p $(@D)
	@echo '$(subst ','\'',$(CC) $(user_flags) $(LDFLAGS) $(RPATH))' | cmp -s - $@ || \
		echo '$(subst ','\'',$(CC) $(user_flags) $(LDFLAGS) $(RPATH))' > $@

# ---- headers: in the tree as they are when installed ----------------------
lib_headers	:= $(sort $(wildcard libshim/include/towline/*.h))
public_headers	:= $(lib_headers:libshim/%=$(OUT)/%) $(OUT)/include/towline/uapi.h

$(lib_headers:libshim/%=$(OUT)/%): $(OUT)/%: libshim/%
$(OUT)/include/towline/uapi.h: uapi/towline.h
$(public_headers):
	@mkdir -p $(@D)
	@ln -sfn $(top)/$< $@

# ---- library -------------------------------------------------------------
lib_sources	:= $(sort $(wildcard libshim/*/*.c))
lib_objects	:= $(lib_sources:%.c=$(OUT)/obj/%.o)
lib_map		:= libshim/core/libtowline.map
lib_real	:= $(OUT)/lib/libtowline.so.$(VERSION)
lib_soname	:= libtowline.so.$(SOVERSION)
lib_shared	:= $(OUT)/lib/libtowline.so
lib_static	:= $(OUT)/lib/libtowline.a

lib: $(lib_shared) $(lib_static)

# Loops that are to become vectors, each operation of which is rounded by itself.
$(OUT)/obj/libshim/server/optimize.o $(OUT)/obj/sanitized/libshim/server/optimize.o: \
	private user_flags += -O3 -fno-math-errno -ffp-contract=off

# libbsd is headers alone: <bsd/sys/tree.h>.  Nothing of it is linked.
$(OUT)/obj/libshim/%.o: libshim/%.c $(flags) VERSION | $(public_headers)
	@mkdir -p $(@D)
	@$(PKG_CONFIG) --exists libbsd || { \
		echo "towline: libbsd's headers are missing: apt-get install libbsd-dev (make setup)" >&2; exit 2; }
	$(call say,CC)$(CC) $(user_flags) -fPIC -fvisibility=hidden $(deps) -c -o $@ $<

$(lib_real): $(lib_objects) $(lib_map)
	@mkdir -p $(@D)
	$(call say,LD)$(CC) $(CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(lib_soname) -Wl,-z,defs \
		-Wl,--version-script=$(lib_map) -o $@ $(lib_objects) -lpthread -lm

$(OUT)/lib/$(lib_soname): $(lib_real)
	@ln -sfn $(<F) $@

$(lib_shared): $(OUT)/lib/$(lib_soname)
	@ln -sfn $(<F) $@

$(lib_static): $(lib_objects)
	@mkdir -p $(@D)
	@rm -f $@
	$(call say,AR)$(AR) rcs $@ $(lib_objects)

# ---- tools ---------------------------------------------------------------
# The tool finds the library beside itself, in the build tree and installed
# (bin/ beside lib/), whatever ld.so's cache says.  Distributions that want no
# search path in programs set RPATH= .
tool_objects	:= $(patsubst %.c,$(OUT)/obj/%.o,$(sort $(wildcard tools/*.c)))
RPATH		?= -Wl,-rpath,'$$ORIGIN/../lib'
tool_libs	= $(shell $(PKG_CONFIG) --libs json-c)
tool_flags	= $(shell $(PKG_CONFIG) --cflags json-c)

tools: $(OUT)/bin/towline

$(OUT)/obj/tools/%.o: tools/%.c $(flags) VERSION | $(public_headers)
	@mkdir -p $(@D)
	@$(PKG_CONFIG) --exists json-c || { \
		echo "towline: json-c's headers are missing: apt-get install libjson-c-dev (make setup)" >&2; exit 2; }
	$(call say,CC)$(CC) $(user_flags) $(tool_flags) $(deps) -c -o $@ $<

$(OUT)/bin/towline: $(tool_objects) $(lib_shared)
	@mkdir -p $(@D)
	$(call say,LD)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(tool_objects) -L$(OUT)/lib -ltowline \
		$(RPATH) $(tool_libs)

# ---- Python --------------------------------------------------------------
# A wheel, in OUT/python; built from a copy, as setuptools leaves files where it builds.  It takes
# Python's headers (python3-dev), 3.11 or later.
python: lib
	@rm -rf $(OUT)/obj/python && mkdir -p $(OUT)/obj && cp -r python $(OUT)/obj/python
	$(call say,WHEEL)TOWLINE_INCLUDE=$(abspath $(OUT)/include) $(PYTHON) -m pip --quiet wheel \
		--no-index --no-deps --no-build-isolation --wheel-dir $(OUT)/python $(OUT)/obj/python

# What is compiled of it, by itself: tests take it from here.
ring_module	:= $(OUT)/python/_ring.abi3.so

python-ring: $(ring_module)

$(ring_module): python/towline/_ring.c $(flags) | $(public_headers)
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(user_flags) -fPIC -shared -fvisibility=hidden \
		$(shell $(PYTHON)-config --includes) $(LDFLAGS) -o $@ $<

# ---- examples ------------------------------------------------------------
# Programs as users write them: the demo runs them.
examples	:= $(patsubst Documentation/examples/%.c,$(OUT)/examples/%, \
		   $(sort $(wildcard Documentation/examples/*.c)))

# What the training over gRPC sends.
training_code	:= $(OUT)/examples/training/tensors_pb2.py

examples: $(examples) $(training_code)

$(OUT)/examples/%: Documentation/examples/%.c $(lib_shared) $(flags) | $(public_headers)
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(user_flags) $(deps) $(LDFLAGS) -o $@ $< -L$(OUT)/lib -ltowline $(RPATH)

$(training_code): Documentation/examples/training/tensors.proto
	@mkdir -p $(@D)
	$(call say,PROTOC)protoc -I $(<D) --python_out=$(@D) --grpc_out=$(@D) \
		--plugin=protoc-gen-grpc=$(shell command -v grpc_python_plugin) $<

# ---- the rest ------------------------------------------------------------
include scripts/make/modules.mk
include scripts/make/tests.mk
include scripts/make/install.mk
include scripts/make/torch.mk
-include scripts/make/check.mk

# Kernels are the one thing that takes minutes to make again.
clean:
	@if [ -d build ]; then \
		find build -mindepth 1 -maxdepth 1 ! -name kernels ! -name venv ! -name nixl ! -name onnx -exec rm -rf {} +; \
	fi
	@if [ "$(OUT)" != build ]; then rm -rf "$(OUT)"/{obj,lib,bin,include,tests,examples,.flags}; fi

help:
	@size=$$(du -sh $(cache) 2>/dev/null | cut -f1); \
		sed -n "s/^#help //p" $(MAKEFILE_LIST) | sed "s/@CACHE@/$${size:-empty}/"

#help all            library, tool, and the module for KDIR (default: the running kernel)
#help lib tools      only the library; only the towline command
#help python         a wheel of the Python package, in build/python
#help python-ring    its compiled part alone, in build/python: tests take it from there
#help examples       Documentation/examples: programs against the library, what the training needs
#help clean          removes what was built, but not build/kernels, build/venv, build/nixl and build/onnx

FORCE:
.PHONY: all lib tools python python-ring examples clean help FORCE

-include $(lib_objects:=.d) $(tool_objects:=.d) $(examples:=.d)
