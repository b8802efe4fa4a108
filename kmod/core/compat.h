/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Every difference between kernel versions, and nothing else.
 *
 * Differences are probed by what a kernel has, not by its version: vendors
 * carry changes back, and a version says nothing then.
 */
#ifndef TOW_COMPAT_H
#define TOW_COMPAT_H

#include <linux/device/class.h>
#include <linux/hrtimer.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/types.h>
#ifdef TOW_HAVE_IPV6_STUB
#include <net/ipv6_stubs.h>
#else
#include <net/ipv6.h>
#endif

/* class.devnode takes a const struct device since 6.2; Kbuild looks. */
#ifdef TOW_DEVNODE_IS_CONST
#define TOW_DEVNODE_DEVICE	const struct device
#else
#define TOW_DEVNODE_DEVICE	struct device
#endif

/* Flags of a mapping are changed by functions since 6.3; Kbuild looks. */
#ifdef TOW_HAVE_VM_FLAGS_SET
static inline void tow_vm_flags_set(struct vm_area_struct *vma,
				    vm_flags_t flags)
{
	vm_flags_set(vma, flags);
}

static inline void tow_vm_flags_clear(struct vm_area_struct *vma,
				      vm_flags_t flags)
{
	vm_flags_clear(vma, flags);
}
#else
static inline void tow_vm_flags_set(struct vm_area_struct *vma,
				    vm_flags_t flags)
{
	vma->vm_flags |= flags;
}

static inline void tow_vm_flags_clear(struct vm_area_struct *vma,
				      vm_flags_t flags)
{
	vma->vm_flags &= ~flags;
}
#endif

/*
 * pin_user_pages_fast(); without FOLL_WRITE the device only reads the pages, and the
 * program may write to them meanwhile.
 *
 * Until 6.2 the zero page, and a file's pages in a private mapping, were pinned
 * as they were, and a later write of the program went to a copy.  FOLL_WRITE
 * with FOLL_FORCE makes the copies at once.  FOLL_FORCE does not check that the
 * memory may be read, so pinning for reading is tried first; and it fails in a
 * shared read-only mapping, whose pages are never copied.
 */
static inline int tow_pin_user_pages(unsigned long start, int count,
				     unsigned int flags, struct page **pages)
{
	int got = pin_user_pages_fast(start, count, flags, pages);

#ifdef TOW_PIN_TO_READ_IS_STALE
	if (got <= 0 || flags & FOLL_WRITE)
		return got;
	unpin_user_pages(pages, got);
	got = pin_user_pages_fast(start, got, flags | FOLL_WRITE | FOLL_FORCE,
				  pages);
	/* The next page may be of another mapping. */
	if (got == -EFAULT)
		got = pin_user_pages_fast(start, 1, flags, pages);
#endif
	return got;
}

/*
 * Symbols of the dma-buf framework have their own namespace.  This is what
 * MODULE_IMPORT_NS() expands to: its argument is a word until 6.12, a string
 * now.
 */
#define TOW_IMPORT_DMA_BUF	MODULE_INFO(import_ns, "DMA_BUF")

/*
 * Since 7.1 the importer's callback for a dma-buf that its exporter takes back,
 * the exporter's call of it, and the check that an importer has the callback
 * have other names; Kbuild looks.
 */
#ifdef TOW_HAVE_INVALIDATE_MAPPINGS
#define TOW_MOVE_NOTIFY		invalidate_mappings
#define tow_dma_buf_invalidate(dmabuf)	dma_buf_invalidate_mappings(dmabuf)
#define tow_dma_buf_revocable(attachment) dma_buf_attach_revocable(attachment)
#else
#define TOW_MOVE_NOTIFY		move_notify
#define tow_dma_buf_invalidate(dmabuf)	dma_buf_move_notify(dmabuf)
#define tow_dma_buf_revocable(attachment) (!!(attachment)->importer_ops)
#endif

/* One call since 6.13; hrtimer_init() is gone since 6.15; Kbuild looks. */
static inline void tow_hrtimer_setup(struct hrtimer *timer,
				     enum hrtimer_restart (*over)(struct hrtimer *),
				     clockid_t clock, enum hrtimer_mode mode)
{
#ifdef TOW_HAVE_HRTIMER_SETUP
	hrtimer_setup(timer, over, clock, mode);
#else
	hrtimer_init(timer, clock, mode);
	timer->function = over;
#endif
}

/* A kernel whose IPv6 may be a module calls it by a table; Kbuild looks. */
static inline struct dst_entry *tow_route6(struct net *net, struct flowi6 *flow)
{
#ifdef TOW_HAVE_IPV6_STUB
	return ipv6_stub->ipv6_dst_lookup_flow(net, NULL, flow, NULL);
#else
	return ip6_dst_lookup_flow(net, NULL, flow, NULL);
#endif
}

#endif /* TOW_COMPAT_H */
