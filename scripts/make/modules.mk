# SPDX-License-Identifier: GPL-2.0
#
# The kernel module: build/modules/RELEASE/ is a tree of symbolic links to the
# sources in which kbuild works, so that one checkout serves many kernels.
# TOW_GCOV=1 (coverage) has trees of its own.  TOW_LEAN=1, for the lab, leaves out debugging
# information, which takes a quarter of the time and nobody there reads, and builds
# with no warning of W=1.

#help modules        towline.ko for KDIR, in build/modules/RELEASE/
#help test-modules   the same, and tests/modules/*.ko
#help lab-modules    both, for every kernel in KERNELS (those the lab boots)

# What uname -r will say.  Not include/config/kernel.release: Debian's headers
# have the upstream version there.
kernel_release	:= $(shell sed -n 's/^.define UTS_RELEASE "\(.*\)"/\1/p' \
		   $(KDIR)/include/generated/utsrelease.h 2>/dev/null)
module_tree	= build/modules$(if $(TOW_GCOV),-gcov)/$(kernel_release)
kdir_real	= $(realpath $(KDIR))

# Everything that kbuild may see.  Kbuild, kmod/ and uapi/ are the module;
# check-ofed is what Kbuild asks about foreign RDMA stacks.
module_sources	:= Kbuild VERSION $(wildcard kmod/*.[ch] kmod/*/*.[ch] uapi/*.h) scripts/packaging/check-ofed
test_mod_sources := $(wildcard tests/modules/*.[ch])
kernel_inputs	= $(wildcard $(addprefix $(kdir_real)/,Module.symvers include/generated/autoconf.h \
		  include/generated/utsrelease.h))

# Variables given to kbuild by hand (W=1, C=2, KCFLAGS=…) are not in any
# stamp, so they always ask kbuild, which knows what to do again.
kbuild_asked	= $(if $(strip $(W) $(C) $(KCFLAGS) $(CF) $(CHECK)),FORCE)
kbuild		= $(MAKE) --no-print-directory -C $(kdir_real) M=$(top)/$(module_tree) $(if $(TOW_GCOV),TOW_GCOV=1) \
		  $(if $(TOW_LEAN),W=1 KCFLAGS="-g0 -Werror" CONFIG_DEBUG_INFO_BTF_MODULES=)

# One at a time in one tree, whoever else runs make here: links and kbuild both.
locked		= exec 9> $(module_tree)/.lock && flock 9

# Without headers the only thing to build is the refusal.
modules: $(if $(kernel_release),$(module_tree)/.modules-built,no-kernel-headers)

test-modules: $(if $(kernel_release),$(module_tree)/.test-modules-built,no-kernel-headers)

no-kernel-headers:
	@{ echo "towline: no kernel headers at $(KDIR)"; \
	echo "  Install them (Debian: apt-get install linux-headers-$$(uname -r)), or name others:"; \
	echo "  make KDIR=/path/to/headers.  Without them: make lib tools; for the lab: make lab-modules."; \
	} >&2; exit 2

ifneq ($(kernel_release),)
# Changes only when a source appears or goes, or the other kind is asked for.
made_of		= $(if $(TOW_LEAN),lean) $(module_sources) $(test_mod_sources)
$(module_tree)/.made-of: FORCE
	@mkdir -p $(@D)
	@echo $(made_of) | cmp -s - $@ || echo $(made_of) > $@

$(module_tree)/.modules-built: $(module_tree)/.made-of $(module_sources) $(kernel_inputs) $(kbuild_asked)
	+$(call say,KBUILD)$(locked) && $(call link_tree,$(module_sources)) && $(kbuild) modules
	@touch $@

# Both in one command line: one after the other, as they share a tree.
$(module_tree)/.test-modules-built: $(if $(filter modules all,$(MAKECMDGOALS)),| $(module_tree)/.modules-built)

$(module_tree)/.test-modules-built: $(module_tree)/.made-of $(module_sources) $(test_mod_sources) $(kernel_inputs) $(kbuild_asked)
	+$(call say,KBUILD)$(locked) && $(call link_tree,$(module_sources) $(test_mod_sources)) || exit 1; \
		$(if $(TOW_LEAN),$(from_cache) { $(lean_kbuild) && $(into_cache); },$(kbuild) TOW_TEST_MODULES=1 modules)
	@touch $(module_tree)/.modules-built $@
endif

# What the lab loads is kept in the cache by the content of all that it is made of, and
# taken from there unless something is asked of kbuild itself.
kept		= $(cache)/modules/$$( { $(CC) --version; echo $(made_of); cat $(kernel_inputs) $(dir $(KDIR))version \
		  $(module_sources) $(test_mod_sources) scripts/make/modules.mk; } | sha256sum | cut -c1-24)
from_cache	= kept=$(kept); { [ -z "$(kbuild_asked)" ] && [ -e $$kept/towline.ko ] && \
		  touch $$kept && cp -r $$kept/. $(module_tree); } ||
# -Werror is the compiler's; modpost and objtool only warn.
lean_kbuild	= set -o pipefail && $(kbuild) TOW_TEST_MODULES=1 modules 2>&1 | tee $(module_tree)/.said && \
		  ! grep -E 'WARNING|warning:' $(module_tree)/.said
into_cache	= { [ -e $$kept ] || [ -n "$(findstring n,$(firstword -$(MAKEFLAGS)))" ] || { \
		  rm -rf $$kept.$$$$ && mkdir -p $$kept.$$$$ && (cd $(module_tree) && \
		  cp --parents *.ko tests/modules/*.ko $$kept.$$$$) && \
		  { mv -T $$kept.$$$$ $$kept 2> /dev/null || rm -rf $$kept.$$$$; }; \
		  find $(cache)/modules -mindepth 1 -maxdepth 1 -mtime +30 -exec rm -rf {} +; }; }

# Links for $1 in the tree.  Links whose source is gone go too, or kbuild would
# still find them, and so do their modules, or somebody would still load them.  With a
# header that is gone all objects go, as kbuild does not build anew what had it.
define link_tree
mkdir -p $(module_tree) && \
{ [ -z "$$(find $(module_tree) -xtype l -name '*.h' -print -quit)" ] || \
	find $(module_tree) -name '*.o' -delete -o -name '.*.cmd' -delete; } && \
find $(module_tree) -xtype l -delete && \
for ko in $(module_tree)/tests/modules/*.ko; do [ -e $${ko%.ko}.c ] || rm -f $$ko; done && \
for f in $1; do \
	mkdir -p $(module_tree)/$$(dirname $$f) && \
	ln -sfn $(top)/$$f $(module_tree)/$$f || exit 1; \
done
endef

# What the lab boots has the modules unpacked there, whatever the host has.
lab-modules: $(KERNELS:%=lab-modules-%)

lab-modules-%:
	@[ -e build/kernels/$*/release ] || scripts/lab/kernel ensure $*
	@TOW_OFED_ROOT=$(top)/build/kernels/$*/root \
		$(MAKE) --no-print-directory KDIR=build/kernels/$*/kdir TOW_LEAN=1 test-modules

.PHONY: modules test-modules no-kernel-headers lab-modules
