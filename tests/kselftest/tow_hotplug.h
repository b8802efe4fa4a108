/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Making software RDMA devices and taking them away.
 */
#ifndef TOW_HOTPLUG_H
#define TOW_HOTPLUG_H

#include <stdarg.h>
#include "tow_rdma.h"
#include "tow_sysfs.h"
#include "tow_test.h"

/* Run a command line; true if it succeeded. */
__attribute__((format(printf, 1, 2)))
static inline bool tow_shell(const char *format, ...)
{
	char command[512];
	va_list args;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	return !system(command);
}

/* The interface under the lab's device; it stays when the device goes. */
static inline const char *tow_link_interface(void)
{
	static char interface[64];
	char path[512];

	if (interface[0])
		return interface;
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/gid_attrs/ndevs/0",
		 tow_test_device());
	tow_test_read_line(path, interface, sizeof(interface));
	if (!interface[0])
		snprintf(interface, sizeof(interface), "eth0");
	return interface;
}

/* TOW_UNPLUG=pci: with the provider "dma", as a reset of its firmware does it. */
static inline bool tow_unplugs_pci(void)
{
	const char *how = getenv("TOW_UNPLUG");

	return how && !strcmp(how, "pci");
}

static inline bool tow_pci_ask(const char *path)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, "1", 1) == 1;

	if (fd >= 0)
		close(fd);
	return ok;
}

/* The device goes; or the PCI device, and it with that. */
static inline bool tow_link_del(const char *name)
{
	char path[512];

	if (!tow_unplugs_pci())
		return !tow_rdma_link_del(name);
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device/remove", name);
	return tow_pci_ask(path);
}

static inline bool tow_link_add(const char *name, const char *interface)
{
	if (tow_unplugs_pci() && !tow_pci_ask("/sys/bus/pci/rescan"))
		return false;
	return !tow_rdma_link_add(name, "rxe", interface);
}

/* The module that drives the lab's device. */
static inline const char *tow_link_driver(void)
{
	const char *provider = getenv("TOW_LAB_PROVIDER");

	if (provider && !strncmp(provider, "dma", 3))
		return "rxe_dma";
	return provider && !strcmp(provider, "hostile") ? "rxe_hostile" : "rdma_rxe";
}

/* A second device, over an interface of its own. */
#define TOW_SECOND_INTERFACE	"towdummy"

static inline bool tow_second_add(const char *name)
{
	return tow_shell("ip link add " TOW_SECOND_INTERFACE " type dummy && ip link set "
			 TOW_SECOND_INTERFACE " up") &&
	       tow_link_add(name, TOW_SECOND_INTERFACE);
}

/* The interface, and the device with it; true too if there is none. */
static inline bool tow_second_del(void)
{
	return access("/sys/class/net/" TOW_SECOND_INTERFACE, F_OK) ||
	       tow_shell("ip link del " TOW_SECOND_INTERFACE);
}

/* Wait for a path to be there, or to be gone. */
static inline bool tow_wait_path(const char *path, bool there)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);

	while (!access(path, F_OK) != there) {
		if (!tow_patient(&patience))
			return false;
		tow_test_sleep_ms(10);
	}
	return true;
}

static inline const char *tow_sysfs_dir(void)
{
	static char path[300];

	if (!path[0])
		snprintf(path, sizeof(path), "/sys/class/towline/%s", tow_test_device());
	return path;
}

/*
 * For the parent of a test program: whatever a case did, the next one finds
 * the device as the lab made it.
 */
static inline bool tow_link_restore_device(const char *name, const char *interface)
{
	char path[512];

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s", name);
	return !access(path, F_OK) || tow_link_add(name, interface);
}

/* The same where towline is loaded. */
static inline bool tow_link_restore(const char *name, const char *interface)
{
	char path[512];

	if (!tow_link_restore_device(name, interface))
		return false;
	snprintf(path, sizeof(path), TOW_TEST_DEVICES "/%s", name);
	return tow_wait_path(path, true);
}

#endif /* TOW_HOTPLUG_H */
