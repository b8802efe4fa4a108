# SPDX-License-Identifier: GPL-2.0
#
# Installing.  What is installed is said once, as SOURCE=DESTINATION pairs;
# uninstall removes the same destinations, so the two cannot drift apart.

#help install        module, library, tool, headers, man pages, udev rule, systemd unit; DESTDIR and PREFIX
#help install-user   all of it but the module;  install-modules: only the module
#help install-dkms   the module's sources to /usr/src for dkms (see Documentation/packaging.md)
#help uninstall      removes what install and install-dkms put there

INCLUDEDIR	= $(PREFIX)/include
MANDIR		= $(PREFIX)/share/man
DOCDIR		= $(PREFIX)/share/doc/towline
# udev reads /usr/local/lib as well as /usr/lib and /lib
UDEVDIR		?= $(PREFIX)/lib/udev/rules.d
# systemd reads /usr/local/lib as well as /usr/lib and /lib
SYSTEMDDIR	?= $(PREFIX)/lib/systemd/system
DKMS_SRC	= /usr/src/towline-$(VERSION)

pairs		= $(foreach f,$2,$f=$1/$(notdir $f))
installed_programs = $(call pairs,$(PREFIX)/bin,$(OUT)/bin/towline)
installed_libs	= $(call pairs,$(LIBDIR),$(lib_real))
installed_data	= $(call pairs,$(LIBDIR),$(lib_static)) \
		  $(call pairs,$(LIBDIR)/pkgconfig,$(OUT)/towline.pc) \
		  $(call pairs,$(INCLUDEDIR)/towline,$(lib_headers)) \
		  uapi/towline.h=$(INCLUDEDIR)/towline/uapi.h \
		  $(foreach s,1 3 4 7,$(call pairs,$(MANDIR)/man$s,$(sort $(wildcard Documentation/man/*.$s)))) \
		  $(call pairs,$(UDEVDIR),scripts/packaging/60-towline.rules) \
		  $(call pairs,$(SYSTEMDDIR),$(OUT)/towline-apply@.service) \
		  $(call pairs,$(DOCDIR),LICENSE Documentation/packaging.md) \
		  scripts/packaging/towline.conf=$(DOCDIR)/examples/towline/GLOB.conf \
		  scripts/packaging/modules-load.d-towline.conf=$(DOCDIR)/examples/modules-load.d/towline.conf \
		  scripts/packaging/modprobe.d-towline.conf=$(DOCDIR)/examples/modprobe.d/towline.conf
installed_links	= libtowline.so.$(VERSION)=$(LIBDIR)/$(lib_soname) \
		  $(lib_soname)=$(LIBDIR)/libtowline.so
dkms_scripts	= scripts/packaging/check-ofed
dkms_data	= $(filter-out $(dkms_scripts),$(module_sources)) dkms.conf LICENSE \
		  $(sort $(wildcard LICENSES/*))

destinations	= $(foreach p,$1,$(DESTDIR)$(word 2,$(subst =, ,$p)))
# Folders that are towline's alone, innermost first; a DESTDIR is pruned whole.
own_folders	= $(INCLUDEDIR)/towline $(DOCDIR)/examples/modules-load.d \
		  $(DOCDIR)/examples/modprobe.d $(DOCDIR)/examples/towline \
		  $(DOCDIR)/examples $(DOCDIR)

module_release	= $(or $(kernel_release),$(shell uname -r))
module_folder	= /lib/modules/$(module_release)/updates

install: install-user install-modules

install-user: lib tools $(OUT)/towline.pc $(OUT)/towline-apply@.service
	@$(call install_pairs,0755,$(installed_programs))
	@$(call install_pairs,0644,$(installed_libs) $(installed_data))
	@set -e; for p in $(installed_links); do ln -sfn "$${p%%=*}" "$(DESTDIR)$${p#*=}"; done
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi

# Distributions' headers ask for signing and come without the key.
signing_key	= $(shell sed -n 's/^CONFIG_MODULE_SIG_KEY="\(..*\)"/\1/p' $(kdir_real)/.config)
have_key	= $(filter pkcs11:%,$(signing_key))$(wildcard $(addprefix $(kdir_real)/,$(signing_key)) \
		  $(filter /%,$(signing_key)))

# kbuild's own modules_install signs and compresses as the kernel's
# configuration asks.  It installs what modules.order lists, which names the
# test modules after `make test-modules`: hence the build before it.  depmod
# runs here and not there, as it makes no sense in a DESTDIR.
install-modules: modules
	+@$(locked) && $(call link_tree,$(module_sources)) && $(kbuild) modules && \
		$(kbuild) modules_install INSTALL_MOD_DIR=updates \
		cmd_depmod=true quiet_cmd_depmod= $(if $(strip $(have_key)),,CONFIG_MODULE_SIG_ALL=) \
		$(if $(DESTDIR),INSTALL_MOD_PATH=$(DESTDIR))
	@if [ -z "$(DESTDIR)" ]; then depmod -a $(module_release); fi

install-dkms:
	@set -e; for f in $(dkms_data); do install -D -m 0644 $$f "$(DESTDIR)$(DKMS_SRC)/$$f"; done
	@set -e; for f in $(dkms_scripts); do install -D -m 0755 $$f "$(DESTDIR)$(DKMS_SRC)/$$f"; done

uninstall:
	@rm -f $(call destinations,$(installed_programs) $(installed_libs) $(installed_data) $(installed_links))
	@rm -f $(foreach s,.ko .ko.gz .ko.xz .ko.zst,$(DESTDIR)$(module_folder)/towline$s)
	@rm -rf "$(DESTDIR)$(DKMS_SRC)"
	@for d in $(own_folders); do \
		[ ! -d "$(DESTDIR)$$d" ] || rmdir --ignore-fail-on-non-empty "$(DESTDIR)$$d"; done
	@if [ -n "$(DESTDIR)" ]; then \
		[ ! -d "$(DESTDIR)" ] || find "$(DESTDIR)" -mindepth 1 -depth -type d -empty -delete; \
	elif [ "$$(id -u)" = 0 ]; then \
		ldconfig; \
		[ ! -d "/lib/modules/$(module_release)" ] || depmod -a $(module_release); \
	fi

define install_pairs
set -e; for p in $2; do install -D -m $1 "$${p%%=*}" "$(DESTDIR)$${p#*=}"; done
endef

# The paths in them are part of the files, so they are made anew for each install.
$(OUT)/towline.pc $(OUT)/towline-apply@.service: $(OUT)/%: scripts/packaging/%.in VERSION FORCE
	@mkdir -p $(@D)
	@sed -e 's,@PREFIX@,$(PREFIX),' -e 's,@LIBDIR@,$(LIBDIR),' -e 's,@VERSION@,$(VERSION),' $< > $@

.PHONY: install install-user install-modules install-dkms uninstall
