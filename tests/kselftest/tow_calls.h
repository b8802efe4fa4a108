/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Rules that every call of the kernel keeps, whatever it is about: sizes, flags,
 * reserved fields, memory that is not there, who may make it.  A program has a
 * table of calls and a way to prepare a good request of each, and gets the cases
 * with TOW_CALL_CASES().
 */
#ifndef TOW_CALLS_H
#define TOW_CALLS_H

#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "tow_test.h"

/* The longest request that the kernel takes. */
#define TOW_REQUEST_MAX	4096U

/* A call, and what its structure looks like. */
struct tow_call {
	const char *name;
	unsigned long command;
	__u32 published;	/* bytes, for ever */
	__u32 size;		/* as this was compiled */
	__u32 flags;		/* that mean something on the way in */
	__u32 reserved;		/* offset of the reserved field */
	__u32 reserved_bytes;	/* 0: there is none */
	bool looks;		/* may be made by whoever has the file, for reading too */
	bool answers;		/* writes into the request */
	bool stays;		/* what it did is there, whoever did not read the answer */
};

#define TOW_CALL(NAME, PUBLISHED, TYPE) \
	.name = #NAME, .command = TOW_IOCTL_##NAME, .published = (PUBLISHED), \
	.size = sizeof(struct TYPE)

/* The field itself, or an array of them. */
#define TOW_RESERVED(TYPE, FIELD) \
	.reserved = offsetof(struct TYPE, FIELD), \
	.reserved_bytes = sizeof(((struct TYPE *)NULL)->FIELD)

/* Room for a request of any length; a program lays its structures over it. */
union tow_request {
	__u32 size;
	unsigned char bytes[2 * TOW_REQUEST_MAX];
	__u64 align;
};

/* Three pages that can be read and written, then one that is not there. */
struct tow_area {
	size_t page;
	unsigned char *start;
	unsigned char *end;
};

/* What a program has, for the cases below. */
struct tow_calls {
	const struct tow_call *calls;
	size_t count;
	void *self;			/* for those two */
	/*
	 * Fill in a request, of which the size is there and the rest zero: what
	 * it is answered, 0 or a refusal which shows that it was understood.
	 */
	int (*prepare)(void *self, size_t call, union tow_request *request);
	/* What a request that succeeded has made: 0, or a negative errno. */
	int (*undo)(void *self, size_t call, const union tow_request *request);
	int fd;
	int looking;			/* O_RDONLY */
	struct tow_area area;
};

#define TOW_EACH_CALL(SET, CALL) \
	for ((CALL) = 0; (CALL) < (SET)->count; (CALL)++)

static inline int tow_area_make(struct tow_area *area)
{
	area->page = (size_t)sysconf(_SC_PAGESIZE);
	area->start = mmap(NULL, 4 * area->page, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (area->start == MAP_FAILED)
		return -errno;
	area->end = area->start + 3 * area->page;
	return munmap(area->end, area->page) ? -errno : 0;
}

static inline int tow_call_prepare(const struct tow_calls *set, size_t call,
				   union tow_request *request)
{
	memset(request, 0, sizeof(*request));
	request->size = set->calls[call].size;
	return set->prepare(set->self, call, request);
}

static inline int tow_call_ask(const struct tow_calls *set, size_t call, void *request)
{
	return tow_test_ioctl(set->fd, set->calls[call].command, request);
}

/* To see that a refusal leaves no descriptor. */
static inline int tow_count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	while (dir && readdir(dir))
		count++;
	if (dir)
		closedir(dir);
	return count;
}

/*
 * Ask what was prepared, which is answered @good, in a structure of @size bytes
 * that comes back as one of @back bytes; and undo it.
 */
static inline void tow_call_good(struct __test_metadata *_metadata, const struct tow_calls *set,
				 size_t call, union tow_request *request, int good, __u32 back)
{
	__u32 size = request->size;

	ASSERT_EQ(good, tow_call_ask(set, call, request))
		TH_LOG("%s, size %u", set->calls[call].name, size);
	if (set->calls[call].answers) {
		EXPECT_EQ(back, request->size)
			TH_LOG("%s, size %u", set->calls[call].name, size);
	}
	if (!good) {
		EXPECT_EQ(0, set->undo(set->self, call, request))
			TH_LOG("%s", set->calls[call].name);
	}
}

/* A refusal, which writes nothing. */
static inline void tow_call_refused(struct __test_metadata *_metadata, const struct tow_calls *set,
				    size_t call, int error, union tow_request *request)
{
	union tow_request before = *request;

	EXPECT_EQ(error, tow_call_ask(set, call, request))
		TH_LOG("%s, size %u", set->calls[call].name, request->size);
	EXPECT_EQ(0, memcmp(before.bytes, request->bytes, sizeof(before.bytes)))
		TH_LOG("%s: a refusal wrote", set->calls[call].name);
}

/* ---- good requests ------------------------------------------------------------- */

/* Otherwise no other case shows anything; and a program of the first header. */
static inline void tow_calls_good(struct __test_metadata *_metadata, const struct tow_calls *set)
{
	union tow_request request;
	size_t call;
	int good;

	TOW_EACH_CALL(set, call) {
		EXPECT_LE(set->calls[call].published, set->calls[call].size)
			TH_LOG("%s", set->calls[call].name);
		EXPECT_EQ(0, set->calls[call].size % 8);
		good = tow_call_prepare(set, call, &request);
		tow_call_good(_metadata, set, call, &request, good, set->calls[call].size);
		good = tow_call_prepare(set, call, &request);
		request.size = set->calls[call].published;
		tow_call_good(_metadata, set, call, &request, good, request.size);
	}
}

/* ---- sizes --------------------------------------------------------------------- */

static inline void tow_calls_short(struct __test_metadata *_metadata, const struct tow_calls *set)
{
	union tow_request request;
	size_t call;
	__u32 size;

	TOW_EACH_CALL(set, call) {
		tow_call_prepare(set, call, &request);
		for (size = 0; size < set->calls[call].published; size++) {
			request.size = size;
			tow_call_refused(_metadata, set, call, -EINVAL, &request);
		}
	}
}

/* The words behind the size may be missing altogether. */
static inline void tow_calls_only_size(struct __test_metadata *_metadata,
				       const struct tow_calls *set)
{
	__u32 huge[] = { TOW_REQUEST_MAX + 1, 1U << 20, INT_MAX, 1U << 31, UINT_MAX };
	unsigned char *at = set->area.end - sizeof(__u32);
	size_t call, i;
	__u32 size;

	TOW_EACH_CALL(set, call) {
		size = set->calls[call].published - 1;
		memcpy(at, &size, sizeof(size));
		EXPECT_EQ(-EINVAL, tow_call_ask(set, call, at))
			TH_LOG("%s", set->calls[call].name);
		for (i = 0; i < ARRAY_SIZE(huge); i++) {
			memcpy(at, &huge[i], sizeof(size));
			EXPECT_EQ(-E2BIG, tow_call_ask(set, call, at))
				TH_LOG("%s, size %u", set->calls[call].name, huge[i]);
		}
	}
}

/* A program of a later header that asks for nothing new. */
static inline void tow_calls_zero_tail(struct __test_metadata *_metadata,
				       const struct tow_calls *set)
{
	__u32 longer[] = { 1, 7, 8, 1000, 0 };	/* 0: the longest */
	union tow_request request;
	size_t call, i, byte;
	__u32 size;
	int good;

	TOW_EACH_CALL(set, call) {
		for (i = 0; i < ARRAY_SIZE(longer); i++) {
			size = longer[i] ? set->calls[call].size + longer[i] : TOW_REQUEST_MAX;
			good = tow_call_prepare(set, call, &request);
			request.size = size;
			request.bytes[size] = 0xa5;
			tow_call_good(_metadata, set, call, &request, good, set->calls[call].size);
			for (byte = set->calls[call].size; byte < size; byte++) {
				ASSERT_EQ(0, request.bytes[byte])
					TH_LOG("%s: byte %zu written", set->calls[call].name, byte);
			}
			EXPECT_EQ(0xa5, request.bytes[size]);
		}
	}
}

static inline void tow_calls_nonzero_tail(struct __test_metadata *_metadata,
					  const struct tow_calls *set)
{
	union tow_request request;
	size_t call, byte;

	TOW_EACH_CALL(set, call) {
		tow_call_prepare(set, call, &request);
		request.size = TOW_REQUEST_MAX;
		for (byte = set->calls[call].size; byte < TOW_REQUEST_MAX;
		     byte += byte < set->calls[call].size + 16 ? 1 : 499) {
			request.bytes[byte] = 1;
			tow_call_refused(_metadata, set, call, -E2BIG, &request);
			request.bytes[byte] = 0;
		}
	}
}

/* ---- flags and reserved fields ---------------------------------------------------- */

static inline void tow_calls_unknown_flags(struct __test_metadata *_metadata,
					   const struct tow_calls *set)
{
	int fds = tow_count_fds();
	union tow_request request;
	size_t call;
	__u32 flag;

	TOW_EACH_CALL(set, call) {
		tow_call_prepare(set, call, &request);
		for (flag = 1; flag; flag <<= 1) {
			/* A known bit beside it does not help. */
			__u32 beside = flag | set->calls[call].flags;

			if (flag & set->calls[call].flags)
				continue;
			memcpy(request.bytes + 4, &flag, sizeof(flag));
			EXPECT_EQ(-EINVAL, tow_call_ask(set, call, &request))
				TH_LOG("%s, flag %#x", set->calls[call].name, flag);
			memcpy(request.bytes + 4, &beside, sizeof(beside));
			EXPECT_EQ(-EINVAL, tow_call_ask(set, call, &request))
				TH_LOG("%s, flags %#x", set->calls[call].name, beside);
		}
	}
	EXPECT_EQ(fds, tow_count_fds());
}

static inline void tow_calls_reserved(struct __test_metadata *_metadata,
				      const struct tow_calls *set)
{
	union tow_request request;
	unsigned char *byte;
	size_t call;
	__u32 bit;

	TOW_EACH_CALL(set, call) {
		tow_call_prepare(set, call, &request);
		for (bit = 0; bit < set->calls[call].reserved_bytes * 8; bit++) {
			byte = &request.bytes[set->calls[call].reserved + bit / 8];
			*byte = (unsigned char)(1U << bit % 8);
			EXPECT_EQ(-EINVAL, tow_call_ask(set, call, &request))
				TH_LOG("%s, reserved bit %u", set->calls[call].name, bit);
			*byte = 0;
		}
	}
}

/* ---- memory that is not there ------------------------------------------------------ */

static inline void tow_calls_nowhere(struct __test_metadata *_metadata,
				     const struct tow_calls *set)
{
	void *nowhere[] = {
		NULL, (void *)1, set->area.end, (void *)-1L, (void *)-4096L,
#if ULONG_MAX > UINT_MAX
		(void *)0xffff888000000000, (void *)0x8000000000000000,
		(void *)0x00007ffffffff000,
#else
		(void *)0xc0000000,
#endif
	};
	size_t call, i;

	TOW_EACH_CALL(set, call) {
		for (i = 0; i < ARRAY_SIZE(nowhere); i++) {
			EXPECT_EQ(-EFAULT, tow_call_ask(set, call, nowhere[i]))
				TH_LOG("%s at %p", set->calls[call].name, nowhere[i]);
		}
	}
}

/* So many bytes of the request are there: the last that can be read. */
static inline void tow_call_cut(struct __test_metadata *_metadata, const struct tow_calls *set,
				size_t call, const union tow_request *request, size_t there)
{
	memcpy(set->area.end - there, request, there);
	EXPECT_EQ(-EFAULT, tow_call_ask(set, call, set->area.end - there))
		TH_LOG("%s, %zu bytes there", set->calls[call].name, there);
}

/* It ends k bytes too late, for every k; within the structure, or behind it. */
static inline void tow_calls_missing_page(struct __test_metadata *_metadata,
					  const struct tow_calls *set)
{
	union tow_request request;
	size_t call, there;
	__u32 size;

	TOW_EACH_CALL(set, call) {
		size = set->calls[call].size;
		tow_call_prepare(set, call, &request);
		for (there = 0; there < size; there++)
			tow_call_cut(_metadata, set, call, &request, there);
		request.size += 64;
		for (; there < size + 64; there += 7)
			tow_call_cut(_metadata, set, call, &request, there);
	}
}

/* Neither alignment nor a page boundary in the middle matters. */
static inline void tow_calls_any_address(struct __test_metadata *_metadata,
					 const struct tow_calls *set)
{
	unsigned char *boundary = set->area.start + set->area.page;
	union tow_request request;
	size_t call, before;
	__u32 size;
	int good;

	TOW_EACH_CALL(set, call) {
		size = set->calls[call].size;
		for (before = 0; before <= size; before += 5) {
			good = tow_call_prepare(set, call, &request);
			memcpy(boundary - before, &request, size);
			ASSERT_EQ(good, tow_call_ask(set, call, boundary - before))
				TH_LOG("%s, %zu bytes before", set->calls[call].name, before);
			memcpy(&request, boundary - before, size);
			if (!good) {
				EXPECT_EQ(0, set->undo(set->self, call, &request));
			}
		}
	}
}

/*
 * Where the answer cannot be written: all of it read-only, the second half, the
 * last word.  The program looks what has stayed.
 */
static inline void tow_calls_unwritable(struct __test_metadata *_metadata,
					const struct tow_calls *set)
{
	unsigned char *boundary = set->area.start + set->area.page;
	union tow_request request;
	size_t call, i;

	TOW_EACH_CALL(set, call) {
		__u32 size = set->calls[call].size;
		size_t writable[] = { 0, size - (size / 2 & ~7U), size - 4 };

		if (!set->calls[call].answers || set->calls[call].stays)
			continue;
		for (i = 0; i < ARRAY_SIZE(writable); i++) {
			tow_call_prepare(set, call, &request);
			memcpy(boundary - writable[i], &request, size);
			ASSERT_EQ(0, mprotect(boundary, set->area.page, PROT_READ));
			EXPECT_EQ(-EFAULT, tow_call_ask(set, call, boundary - writable[i]))
				TH_LOG("%s, %zu bytes writable", set->calls[call].name,
				       writable[i]);
			ASSERT_EQ(0, mprotect(boundary, set->area.page, PROT_READ | PROT_WRITE));
		}
	}
}

/* ---- which error comes first --------------------------------------------------------- */

/* EBADF before EPERM before EFAULT; ENODEV, before all of them, is unplug's. */
static inline void tow_calls_who_first(struct __test_metadata *_metadata,
				       const struct tow_calls *set)
{
	int status;
	size_t call;
	pid_t child;

	EXPECT_EQ(-ENOTTY, tow_test_ioctl(set->looking, _IO(TOW_IOCTL_TYPE, 0x7f), NULL));
	TOW_EACH_CALL(set, call) {
		unsigned long command = set->calls[call].command;

		if (set->calls[call].looks)
			continue;
		child = fork();
		if (!child)
			_exit(tow_test_ioctl(set->looking, command, NULL) != -EBADF ||
			      tow_test_ioctl(set->fd, command, NULL) != -EPERM);
		ASSERT_EQ(child, waitpid(child, &status, 0));
		EXPECT_EQ(0, status)
			TH_LOG("%s", set->calls[call].name);
		EXPECT_EQ(-EBADF, tow_test_ioctl(set->looking, command, NULL));
	}
}

/* Size before content; flags before handles and descriptors. */
static inline void tow_calls_size_first(struct __test_metadata *_metadata,
					const struct tow_calls *set)
{
	union tow_request request;
	size_t call;

	TOW_EACH_CALL(set, call) {
		memset(&request, 0xff, sizeof(request));
		request.size = set->calls[call].published - 1;
		EXPECT_EQ(-EINVAL, tow_call_ask(set, call, &request));
		request.size = set->calls[call].size + 8;
		EXPECT_EQ(-E2BIG, tow_call_ask(set, call, &request))
			TH_LOG("%s", set->calls[call].name);
		request.size = set->calls[call].size;
		EXPECT_EQ(-EINVAL, tow_call_ask(set, call, &request))
			TH_LOG("%s", set->calls[call].name);
	}
}

/* ---- all of them, as cases of a fixture whose member "set" is a struct tow_calls --------- */

#define TOW_CALL_CASE(FIXTURE, CASE, CHECK) \
	TEST_F(FIXTURE, CASE) \
	{ \
		tow_calls_##CHECK(_metadata, &self->set); \
	}

#define TOW_CALL_CASES(FIXTURE) \
	TOW_CALL_CASE(FIXTURE, good_requests_are_good, good) \
	TOW_CALL_CASE(FIXTURE, short_is_einval, short) \
	TOW_CALL_CASE(FIXTURE, short_and_huge_read_only_the_size, only_size) \
	TOW_CALL_CASE(FIXTURE, long_with_zero_tail_is_accepted, zero_tail) \
	TOW_CALL_CASE(FIXTURE, long_with_nonzero_tail_is_e2big, nonzero_tail) \
	TOW_CALL_CASE(FIXTURE, unknown_flags_are_einval, unknown_flags) \
	TOW_CALL_CASE(FIXTURE, nonzero_reserved_is_einval, reserved) \
	TOW_CALL_CASE(FIXTURE, no_such_address, nowhere) \
	TOW_CALL_CASE(FIXTURE, missing_page_at_every_offset, missing_page) \
	TOW_CALL_CASE(FIXTURE, any_address_works, any_address) \
	TOW_CALL_CASE(FIXTURE, who_may_comes_first, who_first) \
	TOW_CALL_CASE(FIXTURE, size_before_content, size_first)

#endif /* TOW_CALLS_H */
