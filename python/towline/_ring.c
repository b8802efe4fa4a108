// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Reads, writes and atomics of a queue from Python, without a call of Python's own for each: see
 * _queue.py, which makes queues and what is here.
 *
 * A Ring is a queue's two rings, a Transfer a way between a region and a remote range, a Request
 * something that was begun.  All of it is used with Python's lock held, which is let go of only
 * while the kernel is waited for.  The library is the one that _lib.py has found: what is no inline
 * function of its headers is called by the addresses that setup() is told.
 *
 * A request that has not ended is in a slot of its ring, and keeps its transfer and with it the
 * memory.  The slot's number is what the kernel gives back.
 */
#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <towline/slot.h>

/* The longest wait in one call: signals' handlers run in between. */
#define SLICE_US	20000

static int (*queue_submit)(struct tow_queue *queue);
static int (*queue_enter)(struct tow_queue *queue, uint32_t to_submit, uint32_t min_complete,
			  uint32_t timeout_us);
static int (*queue_found)(const struct tow_queue *queue, const struct tow_cqe *cqe, struct tow_remote **remote);
static int (*queue_connected)(const struct tow_queue *queue, const struct tow_cqe *cqe, struct tow_peer **peer);

/* The header's functions call it: hidden, so that it is this one for this file alone. */
__attribute__((visibility("hidden")))
int tow_queue_enter(struct tow_queue *queue, uint32_t to_submit, uint32_t min_complete, uint32_t timeout_us)
{
	return queue_enter(queue, to_submit, min_complete, timeout_us);
}

/* _lib.failure(), and _queue._ended(). */
static PyObject *failure, *ended;
static PyTypeObject *request_type;

struct request;

/*
 * A queue of as many entries as there are slots, and of twice as many completions: what has a time-out
 * may have two.  Of a queue of results there are as many slots as completions.
 */
struct ring {
	PyObject_HEAD
	struct tow_queue *queue;	/* NULL: it is closed */
	struct slot {
		struct request *request;
		uint32_t next_free;	/* plus 1; 0: there is none */
	} *slots;
	uint32_t entries;
	uint32_t free;			/* the first slot, plus 1; 0: there is none */
	uint32_t in_flight;		/* slots with a request */
	uint32_t waiting;		/* threads in the kernel */
	int fd;
	const struct tow_region *list;
	struct tow_vector *vectors;	/* TOW_VECTOR_MAX, the list's */
	PyObject *kept;			/* what these are in */
};

struct transfer {
	PyObject_HEAD
	struct ring *ring;
	struct tow_channel channel;
	const struct tow_region *region;
	const struct tow_remote *remote;
	const struct tow_remote *slot;	/* what counts at the peer, or NULL */
	PyObject *kept;			/* what these are of */
};

/* Of several entries, if it has more blocks than one may have. */
struct request {
	PyObject_HEAD
	struct ring *ring;
	PyObject *kept;			/* its transfer, say; NULL: it is not used any more */
	PyObject *callbacks;		/* a list, or NULL */
	PyObject *make;			/* of a name or a node: makes what it ends with of an address, or NULL */
	PyObject *value;		/* what it has ended with, or NULL */
	uint32_t parts;			/* entries that have not ended, or whose memory is in use */
	int status;			/* the first error, or 0 */
	bool over;
};

/* ---- errors ---- */

static void *fail(int error, const char *what)
{
	PyObject *made = PyObject_CallFunction(failure, "is", error, what);

	if (made) {
		PyErr_SetObject((PyObject *)Py_TYPE(made), made);
		Py_DECREF(made);
	}
	return NULL;
}

static bool usable(const struct ring *ring)
{
	if (ring->queue && ring->queue->ring)
		return true;
	if (ring->queue)
		fail(-EPERM, "in a child that was forked");
	else
		PyErr_SetString(PyExc_ValueError, "it is closed");
	return false;
}

/* ---- requests ---- */

/* What a callback has raised that is for who waits. */
static PyObject *late_type, *late_value, *late_traceback;

static void put_off(void)
{
	Py_XDECREF(late_type);
	Py_XDECREF(late_value);
	Py_XDECREF(late_traceback);
	PyErr_Fetch(&late_type, &late_value, &late_traceback);
}

/* Return: false: it is raised now. */
static bool nothing_late(void)
{
	if (!late_type)
		return true;
	PyErr_Restore(late_type, late_value, late_traceback);
	late_type = late_value = late_traceback = NULL;
	return false;
}

static void call_back(struct request *request, PyObject *callbacks)
{
	Py_ssize_t i;

	for (i = 0; callbacks && i < PyList_Size(callbacks); i++) {
		PyObject *done = PyObject_CallFunctionObjArgs(PyList_GetItem(callbacks, i),
							      (PyObject *)request, NULL);

		/* As concurrent.futures has it: said, and no matter; but for Ctrl-C and the like. */
		if (!done && PyErr_ExceptionMatches(PyExc_Exception))
			PyErr_WriteUnraisable(PyList_GetItem(callbacks, i));
		else if (!done)
			put_off();
		Py_XDECREF(done);
	}
	Py_XDECREF(callbacks);
}

/* It has ended. */
static void tell(struct request *request)
{
	PyObject *callbacks = request->callbacks;

	request->over = true;
	request->callbacks = NULL;
	call_back(request, callbacks);
}

/* A request's entry is not on its way any more: the slot, and its reference, are gone. */
static void let_go(struct ring *ring, uint32_t number)
{
	struct request *request = ring->slots[number].request;

	ring->slots[number].request = NULL;
	ring->slots[number].next_free = ring->free;
	ring->free = number + 1;
	ring->in_flight--;
	request->parts--;
	Py_DECREF(request);
}

/* What a completion has found, which must be in its place still: an object of the library's. */
static void *take_found(const struct tow_queue *queue, const struct tow_cqe *cqe, int *status)
{
	struct tow_remote *remote = NULL;
	struct tow_peer *peer = NULL;

	if (cqe->flags & TOW_CQE_FOUND)
		*status = queue_found(queue, cqe, &remote);
	else if (cqe->flags & TOW_CQE_CONNECTED)
		*status = queue_connected(queue, cqe, &peer);
	return remote ? (void *)remote : peer;
}

static void make_value(struct request *request, void *found)
{
	PyObject *address = PyLong_FromVoidPtr(found);

	if (address)
		request->value = PyObject_CallFunctionObjArgs(request->make, address, NULL);
	Py_XDECREF(address);
	if (!request->value) {
		/* As with callbacks. */
		if (PyErr_ExceptionMatches(PyExc_Exception))
			PyErr_WriteUnraisable(request->make);
		else
			put_off();
		request->status = -ENOMEM;
	} else if (request->value == Py_None) {
		request->status = -ECANCELED;
	}
}

static void take_cqe(struct ring *ring, const struct tow_cqe *cqe, void *found)
{
	struct request *request;

	if (cqe->user_data >= ring->entries)
		return;
	request = ring->slots[cqe->user_data].request;
	if (!request)
		return;
	if (!request->status && !(cqe->flags & TOW_CQE_RELEASED))
		request->status = cqe->status;
	/* It was late, and has ended when its memory is not used any more. */
	if (cqe->flags & TOW_CQE_HELD)
		return;
	Py_INCREF((PyObject *)request);
	let_go(ring, (uint32_t)cqe->user_data);
	if (!request->parts && !request->over) {
		PyObject *kept = request->kept;

		request->kept = NULL;
		if (found && request->make)
			make_value(request, found);
		Py_XDECREF(kept);
		tell(request);
	}
	Py_DECREF(request);
}

/* Take what is there: how many. */
static uint32_t reap(struct ring *ring)
{
	const struct tow_cqe *there;
	uint32_t count = 0;

	while (ring->queue && (there = tow_queue_cqe(ring->queue, ring->queue->cq_head))) {
		struct tow_cqe cqe = *there;
		void *found = take_found(ring->queue, there, &cqe.status);

		/* Callbacks may come here, too. */
		tow_queue_cqe_seen(ring->queue);
		take_cqe(ring, &cqe, found);
		count++;
	}
	return count;
}

/* Wait for a completion, but not longer.  Return: false: something was raised. */
static bool go_on(struct ring *ring, uint32_t timeout_us)
{
	struct tow_queue *queue = ring->queue;
	uint32_t found;
	int ret;

	if (!usable(ring))
		return false;
	if (reap(ring) || !timeout_us)
		return nothing_late();
	Py_INCREF((PyObject *)ring);
	ring->waiting++;
	Py_BEGIN_ALLOW_THREADS
	ret = tow_queue_enter(queue, 0, 1, timeout_us);
	Py_END_ALLOW_THREADS
	ring->waiting--;
	found = reap(ring);
	Py_DECREF(ring);
	if (!nothing_late())
		return false;
	if (!found && (ret == -ENODEV || ret == -EPERM)) {
		fail(ret, "waiting for a queue");
		return false;
	}
	return !PyErr_CheckSignals();
}

/* @timeout: seconds, or None.  Return: how many; less than 0: something was raised. */
static double seconds_of(PyObject *timeout)
{
	double seconds;

	if (!timeout || timeout == Py_None)
		return 1e300;
	seconds = PyFloat_AsDouble(timeout);
	if (PyErr_Occurred())
		return -1;
	if (!(seconds >= 0)) {
		PyErr_SetString(PyExc_ValueError, "a time is 0 or more seconds, or None");
		return -1;
	}
	return seconds;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Return: false: something was raised, ETIMEDOUT for one. */
static bool wait_for(struct request *request, PyObject *timeout)
{
	double left = seconds_of(timeout), until;

	if (left < 0 || (!request->over && !go_on(request->ring, 0)))
		return false;
	if (request->over)
		return true;
	until = now() + left;
	while (!request->over) {
		double us = left * 1e6;

		if (!go_on(request->ring, us < SLICE_US ? (uint32_t)us : SLICE_US))
			return false;
		if (request->over)
			break;
		left = until - now();
		if (left <= 0) {
			fail(-ETIMEDOUT, "it goes on");
			return false;
		}
	}
	return true;
}

static const char *what_of(const struct request *request)
{
	return request->make ? "looking for it" : "a transfer";
}

static PyObject *request_error(struct request *request)
{
	if (!request->status)
		return Py_NewRef(Py_None);
	return PyObject_CallFunction(failure, "is", request->status, what_of(request));
}

static PyObject *request_done(PyObject *self, PyObject *unused)
{
	struct request *request = (struct request *)self;

	(void)unused;
	if (!request->over && !go_on(request->ring, 0))
		return NULL;
	return PyBool_FromLong(request->over);
}

static PyObject *timeout_of(PyObject *arguments, PyObject *keywords)
{
	static char name[] = "timeout";
	static char *names[] = { name, NULL };
	PyObject *timeout = Py_None;

	return PyArg_ParseTupleAndKeywords(arguments, keywords, "|O", names, &timeout) ? timeout : NULL;
}

static PyObject *request_exception(PyObject *self, PyObject *arguments, PyObject *keywords)
{
	PyObject *timeout = timeout_of(arguments, keywords);

	if (!timeout || !wait_for((struct request *)self, timeout))
		return NULL;
	return request_error((struct request *)self);
}

static PyObject *request_result(PyObject *self, PyObject *arguments, PyObject *keywords)
{
	PyObject *timeout = timeout_of(arguments, keywords);
	struct request *request = (struct request *)self;

	if (!timeout || !wait_for(request, timeout))
		return NULL;
	if (request->status)
		return fail(request->status, what_of(request));
	return Py_NewRef(request->value ? request->value : Py_None);
}

static PyObject *request_add_done_callback(PyObject *self, PyObject *function)
{
	struct request *request = (struct request *)self;

	if (request->over) {
		PyObject *one = PyList_New(0);

		if (!one || PyList_Append(one, function)) {
			Py_XDECREF(one);
			return NULL;
		}
		call_back(request, one);
		return Py_NewRef(Py_None);
	}
	if (!request->callbacks)
		request->callbacks = PyList_New(0);
	if (!request->callbacks || PyList_Append(request->callbacks, function))
		return NULL;
	return Py_NewRef(Py_None);
}

static PyObject *request_await(PyObject *self)
{
	PyObject *coroutine = PyObject_CallFunctionObjArgs(ended, self, NULL);
	PyObject *iterator = coroutine ? PyObject_CallMethod(coroutine, "__await__", NULL) : NULL;

	Py_XDECREF(coroutine);
	return iterator;
}

static PyObject *request_ring(PyObject *self, void *unused)
{
	(void)unused;
	return Py_NewRef((PyObject *)((struct request *)self)->ring);
}

static void request_dealloc(PyObject *self)
{
	struct request *request = (struct request *)self;
	PyTypeObject *type = Py_TYPE(self);

	Py_XDECREF(request->callbacks);
	Py_XDECREF(request->make);
	Py_XDECREF(request->value);
	Py_XDECREF(request->kept);
	Py_XDECREF((PyObject *)request->ring);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

static PyMethodDef request_methods[] = {
	{ "done", request_done, METH_NOARGS,
	  "Has it ended, well or not?" },
	{ "result", (PyCFunction)(void (*)(void))request_result, METH_VARARGS | METH_KEYWORDS,
	  "Until it has ended, but no longer than timeout, in seconds; None: for ever.\n\n"
	  "Raises Error: what it has ended with.  Timeout: it goes on." },
	{ "exception", (PyCFunction)(void (*)(void))request_exception, METH_VARARGS | METH_KEYWORDS,
	  "As result(), but what it has ended with is returned, or None." },
	{ "add_done_callback", request_add_done_callback, METH_O,
	  "Have a function called with it when it has ended, by whoever finds that; or at once." },
	{ NULL, NULL, 0, NULL }
};

static PyGetSetDef request_gets[] = {
	{ "_ring", request_ring, NULL, NULL, NULL },
	{ NULL, NULL, NULL, NULL, NULL }
};

static PyType_Slot request_slots[] = {
	{ Py_tp_doc, (void *)"Something that a queue does, with the semantics of concurrent.futures.Future.\n\n"
		     "It goes on, and its memory is kept, also when this object is gone." },
	{ Py_tp_methods, request_methods },
	{ Py_tp_getset, request_gets },
	{ Py_tp_dealloc, request_dealloc },
	{ Py_am_await, request_await },
	{ 0, NULL }
};

static PyType_Spec request_spec = {
	.name = "towline._ring.Request", .basicsize = sizeof(struct request),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, .slots = request_slots,
};

/* ---- transfers ---- */

/* A request that has not begun, of so many entries; NULL: something was raised. */
static struct request *make(struct ring *ring, PyObject *kept, uint64_t entries)
{
	struct request *request;

	if (!usable(ring))
		return NULL;
	if (entries > ring->entries) {
		PyErr_SetString(PyExc_ValueError, "more than the queue's entries may have");
		return NULL;
	}
	if (ring->entries - ring->in_flight < entries)
		reap(ring);
	/* A callback may have closed it. */
	if (!usable(ring))
		return NULL;
	if (ring->entries - ring->in_flight < entries)
		return fail(-EBUSY, "too much of the queue's has not ended");
	request = (struct request *)((allocfunc)PyType_GetSlot(request_type, Py_tp_alloc))(request_type, 0);
	if (!request)
		return NULL;
	request->ring = (struct ring *)Py_NewRef((PyObject *)ring);
	request->kept = Py_NewRef(kept);
	return request;
}

/* The kernel has not taken the last entry, and will not: it is taken back. */
static void take_back(struct tow_queue *queue)
{
	queue->sq_tail--;
	tow_store_release(&queue->ring->sq_tail, queue->sq_tail);
}

/* It is on its way from now on, by the number of a slot that is free. */
static uint32_t put(struct request *request)
{
	struct ring *ring = request->ring;
	uint32_t number = ring->free - 1;

	ring->free = ring->slots[number].next_free;
	ring->slots[number].request = (struct request *)Py_NewRef((PyObject *)request);
	ring->in_flight++;
	request->parts++;
	return number;
}

/*
 * Hand the entry over.  Return: false: something was raised: the kernel has no room while entries that were
 * late keep their turn, for one.
 */
static bool hand_over(struct request *request, struct tow_sqe *sqe, uint32_t timeout_ms)
{
	struct ring *ring = request->ring;
	struct tow_queue *queue = ring->queue;
	uint32_t number = put(request);
	int ret;

	tow_sqe_set_data(sqe, number);
	if (timeout_ms)
		tow_sqe_set_timeout(sqe, timeout_ms);
	ret = queue_submit(queue);
	if (tow_load_acquire(&queue->ring->sq_head) == queue->sq_tail)
		return true;
	take_back(queue);
	let_go(ring, number);
	fail(ret < 0 ? ret : -EBUSY, "handing over to a queue");
	return false;
}

/* @arguments: @count numbers, and perhaps a time-out, of which @timeout_ms is made.  False: raised. */
static bool numbers_of(PyObject *const *arguments, Py_ssize_t given, Py_ssize_t count, const char *usage,
		       uint64_t *numbers, uint32_t *timeout_ms)
{
	Py_ssize_t i;

	if (given != count && given != count + 1) {
		PyErr_SetString(PyExc_TypeError, usage);
		return false;
	}
	for (i = 0; i < count; i++) {
		PyObject *whole = PyLong_Check(arguments[i]) ? Py_NewRef(arguments[i]) :
							       PyNumber_Index(arguments[i]);

		numbers[i] = whole ? PyLong_AsUnsignedLongLong(whole) : 0;
		Py_XDECREF(whole);
		if (PyErr_Occurred())
			return false;
	}
	*timeout_ms = 0;
	if (given > count && arguments[count] != Py_None) {
		double seconds = seconds_of(arguments[count]);

		if (seconds < 0)
			return false;
		*timeout_ms = seconds * 1000 >= UINT32_MAX ? UINT32_MAX : (uint32_t)(seconds * 1000) + 1;
	}
	return true;
}

/* Does what its operation needs come with @transfer? */
static bool can(const struct transfer *transfer, uint8_t opcode)
{
	if (opcode != TOW_OP_WRITE_NOTIFY || transfer->slot)
		return true;
	PyErr_SetString(PyExc_ValueError, "the transfer has no slot");
	return false;
}

/* What is asked of @transfer by one entry: @numbers as its function has them. */
static PyObject *one(PyObject *self, PyObject *const *arguments, Py_ssize_t given, uint8_t opcode,
		     Py_ssize_t count, const char *usage)
{
	struct transfer *transfer = (struct transfer *)self;
	struct request *request;
	struct tow_sqe *sqe;
	uint64_t numbers[4] = { 0 };
	uint32_t timeout_ms;

	if (!can(transfer, opcode) || !numbers_of(arguments, given, count, usage, numbers, &timeout_ms))
		return NULL;
	request = make(transfer->ring, self, 1);
	if (!request)
		return NULL;
	/* There is one: all that were taken were handed over, or taken back. */
	sqe = tow_queue_get_sqe(transfer->ring->queue);
	if (!count) {
		tow_prep_notify(sqe, &transfer->channel, transfer->slot);
	} else {
		if (opcode == TOW_OP_FETCH_ADD) {
			numbers[3] = numbers[2];
			numbers[2] = 0;
		} else if (opcode == TOW_OP_WRITE_NOTIFY) {
			numbers[3] = tow_handle_of(transfer->slot);
		}
		tow_prep_transfer(sqe, opcode, &transfer->channel, transfer->region, numbers[0],
				  transfer->remote, numbers[1], numbers[2], numbers[3]);
	}
	if (hand_over(request, sqe, timeout_ms))
		return (PyObject *)request;
	Py_DECREF(request);
	return NULL;
}

static PyObject *transfer_write(PyObject *self, PyObject *const *arguments, Py_ssize_t given)
{
	return one(self, arguments, given, TOW_OP_WRITE, 3,
		   "write(offset, remote_offset, nbytes, timeout=None)");
}

static PyObject *transfer_write_notify(PyObject *self, PyObject *const *arguments, Py_ssize_t given)
{
	return one(self, arguments, given, TOW_OP_WRITE_NOTIFY, 3,
		   "write_notify(offset, remote_offset, nbytes, timeout=None)");
}

static PyObject *transfer_notify(PyObject *self, PyObject *const *arguments, Py_ssize_t given)
{
	return one(self, arguments, given, TOW_OP_WRITE_NOTIFY, 0, "notify(timeout=None)");
}

static PyObject *transfer_read(PyObject *self, PyObject *const *arguments, Py_ssize_t given)
{
	return one(self, arguments, given, TOW_OP_READ, 3,
		   "read(offset, remote_offset, nbytes, timeout=None)");
}

static PyObject *transfer_fetch_add(PyObject *self, PyObject *const *arguments, Py_ssize_t given)
{
	return one(self, arguments, given, TOW_OP_FETCH_ADD, 3,
		   "fetch_add(offset, remote_offset, addend, timeout=None)");
}

static PyObject *transfer_compare_swap(PyObject *self, PyObject *const *arguments, Py_ssize_t given)
{
	return one(self, arguments, given, TOW_OP_COMPARE_SWAP, 4,
		   "compare_swap(offset, remote_offset, compare, swap, timeout=None)");
}

/* ---- blocks ---- */

/* Numbers of 64 bits, one behind the other; or one number for all, which has no buffer. */
struct numbers {
	Py_buffer view;
	const uint64_t *each;
	uint64_t all;
	Py_ssize_t count;
};

static bool take_numbers(PyObject *from, bool may_be_one, struct numbers *numbers)
{
	const char *format;

	numbers->view.obj = NULL;
	if (may_be_one && PyLong_Check(from)) {
		numbers->all = PyLong_AsUnsignedLongLong(from);
		numbers->each = NULL;
		return numbers->all != (uint64_t)-1 || !PyErr_Occurred();
	}
	if (PyObject_GetBuffer(from, &numbers->view, PyBUF_CONTIG_RO | PyBUF_FORMAT))
		return false;
	format = numbers->view.format ? numbers->view.format : "B";
	if (numbers->view.itemsize != 8 || format[1] || !strchr("lLqQ", format[0])) {
		PyErr_SetString(PyExc_TypeError, "offsets and bytes are arrays of int64, without gaps");
		PyBuffer_Release(&numbers->view);
		return false;
	}
	numbers->each = numbers->view.buf;
	numbers->count = numbers->view.len / 8;
	/* One of NumPy's numbers. */
	if (may_be_one && !numbers->view.ndim) {
		numbers->all = *numbers->each;
		numbers->each = NULL;
	}
	return true;
}

static void give_numbers(struct numbers *numbers)
{
	if (numbers->view.obj)
		PyBuffer_Release(&numbers->view);
}

/* Return: how many blocks there are; -1: something was raised. */
static Py_ssize_t take_blocks(PyObject *const *arguments, struct numbers *blocks)
{
	int taken = 0;

	while (taken < 3 && take_numbers(arguments[taken], taken == 2, &blocks[taken]))
		taken++;
	if (taken == 3 && blocks[0].count && blocks[0].count == blocks[1].count &&
	    (!blocks[2].each || blocks[2].count == blocks[0].count))
		return blocks[0].count;
	if (taken == 3)
		PyErr_SetString(PyExc_ValueError, "as many offsets as remote offsets, and bytes, at least one");
	while (taken--)
		give_numbers(&blocks[taken]);
	return -1;
}

/* The next entry's, from block @from on.  Return: how many. */
static uint32_t put_vectors(struct ring *ring, const struct numbers *blocks, Py_ssize_t from, Py_ssize_t count)
{
	uint32_t i, many = count - from < TOW_VECTOR_MAX ? (uint32_t)(count - from) : TOW_VECTOR_MAX;

	for (i = 0; i < many; i++) {
		ring->vectors[i].offset = blocks[0].each[from + i];
		ring->vectors[i].remote_offset = blocks[1].each[from + i];
		ring->vectors[i].bytes = blocks[2].each ? blocks[2].each[from + i] : blocks[2].all;
	}
	return many;
}

static bool hand_over_blocks(struct request *request, uint8_t opcode, const struct numbers *blocks,
			     Py_ssize_t count, uint32_t timeout_ms)
{
	const struct transfer *transfer = (const struct transfer *)request->kept;
	struct ring *ring = request->ring;
	Py_ssize_t from;
	uint32_t many;

	for (from = 0; from < count; from += many) {
		struct tow_sqe *sqe = tow_queue_get_sqe(ring->queue);
		/* It is counted once, with the last of them. */
		bool told = opcode == TOW_OP_WRITE_NOTIFY && count - from <= TOW_VECTOR_MAX;

		many = put_vectors(ring, blocks, from, count);
		tow_prep_transfer(sqe, opcode == TOW_OP_WRITE_NOTIFY && !told ? TOW_OP_WRITE : opcode,
				  &transfer->channel, transfer->region, 0, transfer->remote, 0, 0,
				  told ? tow_handle_of(transfer->slot) : 0);
		tow_sqe_set_vector(sqe, ring->list, 0, many);
		if (!hand_over(request, sqe, timeout_ms)) {
			if (!from)
				return false;
			/* Others were: it ends when they do. */
			PyErr_Clear();
			request->status = -EBUSY;
			break;
		}
	}
	return true;
}

static PyObject *many(PyObject *self, PyObject *const *arguments, Py_ssize_t given, uint8_t opcode,
		      const char *usage)
{
	struct numbers blocks[3];
	struct request *request;
	uint32_t timeout_ms;
	Py_ssize_t count;
	bool begun = false;
	int i;

	if (!can((struct transfer *)self, opcode))
		return NULL;
	if (given < 3 || !numbers_of(arguments + 3, given - 3, 0, usage, NULL, &timeout_ms)) {
		if (!PyErr_Occurred())
			PyErr_SetString(PyExc_TypeError, usage);
		return NULL;
	}
	count = take_blocks(arguments, blocks);
	if (count < 0)
		return NULL;
	request = make(((struct transfer *)self)->ring, self,
		       ((uint64_t)count + TOW_VECTOR_MAX - 1) / TOW_VECTOR_MAX);
	if (request)
		begun = hand_over_blocks(request, opcode, blocks, count, timeout_ms);
	for (i = 0; i < 3; i++)
		give_numbers(&blocks[i]);
	if (begun)
		return (PyObject *)request;
	Py_XDECREF((PyObject *)request);
	return NULL;
}

static PyObject *transfer_write_blocks(PyObject *self, PyObject *const *arguments, Py_ssize_t given)
{
	return many(self, arguments, given, TOW_OP_WRITE,
		    "write_blocks(offsets, remote_offsets, nbytes, timeout=None)");
}

static PyObject *transfer_write_blocks_notify(PyObject *self, PyObject *const *arguments, Py_ssize_t given)
{
	return many(self, arguments, given, TOW_OP_WRITE_NOTIFY,
		    "write_blocks_notify(offsets, remote_offsets, nbytes, timeout=None)");
}

static PyObject *transfer_read_blocks(PyObject *self, PyObject *const *arguments, Py_ssize_t given)
{
	return many(self, arguments, given, TOW_OP_READ,
		    "read_blocks(offsets, remote_offsets, nbytes, timeout=None)");
}

static PyObject *transfer_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
	PyObject *ring, *region, *remote, *slot, *kept;
	struct transfer *transfer;
	unsigned int channel;

	(void)keywords;
	if (!PyArg_ParseTuple(arguments, "OIOOOO", &ring, &channel, &region, &remote, &slot, &kept))
		return NULL;
	transfer = (struct transfer *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
	if (!transfer)
		return NULL;
	transfer->ring = (struct ring *)Py_NewRef(ring);
	transfer->kept = Py_NewRef(kept);
	transfer->channel.number = channel;
	transfer->region = PyLong_AsVoidPtr(region);
	transfer->remote = PyLong_AsVoidPtr(remote);
	transfer->slot = slot == Py_None ? NULL : PyLong_AsVoidPtr(slot);
	if (!PyErr_Occurred())
		return (PyObject *)transfer;
	Py_DECREF(transfer);
	return NULL;
}

static void transfer_dealloc(PyObject *self)
{
	struct transfer *transfer = (struct transfer *)self;
	PyTypeObject *type = Py_TYPE(self);

	Py_XDECREF(transfer->kept);
	Py_XDECREF((PyObject *)transfer->ring);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

#define FAST(function)	((PyCFunction)(void (*)(void))(function))

static PyMethodDef transfer_methods[] = {
	{ "write", FAST(transfer_write), METH_FASTCALL,
	  "write(offset, remote_offset, nbytes, timeout=None) -> Request\n\n"
	  "From the region to the remote range, of rights WRITE.  Until it has ended these bytes of the\n"
	  "region are not changed, and those of the remote range are used by nobody." },
	{ "write_notify", FAST(transfer_write_notify), METH_FASTCALL,
	  "write_notify(offset, remote_offset, nbytes, timeout=None) -> Request\n\n"
	  "As write(), of 1 byte at least; the transfer's slot counts it when all of it is there." },
	{ "notify", FAST(transfer_notify), METH_FASTCALL,
	  "notify(timeout=None) -> Request\n\n"
	  "The transfer's slot counts it, when all that this transfer wrote before is there." },
	{ "read", FAST(transfer_read), METH_FASTCALL,
	  "read(offset, remote_offset, nbytes, timeout=None) -> Request\n\n"
	  "From the remote range, of rights READ, to the region." },
	{ "write_blocks", FAST(transfer_write_blocks), METH_FASTCALL,
	  "write_blocks(offsets, remote_offsets, nbytes, timeout=None) -> Request\n\n"
	  "Many at once: arrays of int64; of nbytes, or one number for all.  Entries have 4,096 each; it\n"
	  "has ended when all have, with the first error." },
	{ "write_blocks_notify", FAST(transfer_write_blocks_notify), METH_FASTCALL,
	  "write_blocks_notify(offsets, remote_offsets, nbytes, timeout=None) -> Request\n\n"
	  "As write_blocks(); the transfer's slot counts it once, when all of them are there." },
	{ "read_blocks", FAST(transfer_read_blocks), METH_FASTCALL,
	  "read_blocks(offsets, remote_offsets, nbytes, timeout=None) -> Request" },
	{ "fetch_add", FAST(transfer_fetch_add), METH_FASTCALL,
	  "fetch_add(offset, remote_offset, addend, timeout=None) -> Request\n\n"
	  "To the 8 bytes there, of rights ATOMIC; what was there is put into the region." },
	{ "compare_swap", FAST(transfer_compare_swap), METH_FASTCALL,
	  "compare_swap(offset, remote_offset, compare, swap, timeout=None) -> Request\n\n"
	  "As fetch_add(): there is swap afterwards if compare was there." },
	{ NULL, NULL, 0, NULL }
};

static PyType_Slot transfer_slots[] = {
	{ Py_tp_doc, (void *)"A way between a region and a remote range: made by Queue.transfer().\n\n"
		     "Offsets are in bytes.  timeout: in seconds, after which a request is given up: it ends with\n"
		     "Timeout as soon as its memory is not used any more.\n"
		     "Raises Error: EBUSY: too much of the queue's has not ended; EPERM; ENODEV.\n"
		     "What is out of bounds, or without the right, its request ends with." },
	{ Py_tp_methods, transfer_methods },
	{ Py_tp_new, transfer_new },
	{ Py_tp_dealloc, transfer_dealloc },
	{ 0, NULL }
};

static PyType_Spec transfer_spec = {
	.name = "towline._ring.Transfer", .basicsize = sizeof(struct transfer),
	.flags = Py_TPFLAGS_DEFAULT, .slots = transfer_slots,
};

/* ---- rings ---- */

static PyObject *ring_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
	PyObject *queue, *list, *vectors, *kept;
	int fd, results;
	struct ring *ring;
	uint32_t i;

	(void)keywords;
	if (!PyArg_ParseTuple(arguments, "OipOOO", &queue, &fd, &results, &list, &vectors, &kept))
		return NULL;
	ring = (struct ring *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
	if (!ring)
		return NULL;
	ring->queue = PyLong_AsVoidPtr(queue);
	ring->list = PyLong_AsVoidPtr(list);
	ring->vectors = PyLong_AsVoidPtr(vectors);
	if (PyErr_Occurred()) {
		Py_DECREF(ring);
		return NULL;
	}
	ring->entries = results ? ring->queue->cq_entries : ring->queue->sq_entries;
	ring->slots = PyMem_Calloc(ring->entries, sizeof(*ring->slots));
	if (!ring->slots) {
		Py_DECREF(ring);
		return PyErr_NoMemory();
	}
	for (i = 0; i < ring->entries; i++)
		ring->slots[i].next_free = i;
	ring->free = ring->entries;
	ring->fd = fd;
	ring->kept = Py_NewRef(kept);
	return (PyObject *)ring;
}

/* An entry that waits for a slot, whose address comes first; the last argument is kept until then. */
static PyObject *ring_wait(PyObject *self, PyObject *arguments)
{
	PyObject *slot, *timeout, *kept, *whole;
	struct ring *ring = (struct ring *)self;
	const struct tow_slot *address;
	struct request *request;
	uint32_t timeout_ms;
	struct tow_sqe *sqe;
	uint64_t number;

	if (!PyArg_ParseTuple(arguments, "OOOO", &slot, &whole, &timeout, &kept))
		return NULL;
	address = PyLong_AsVoidPtr(slot);
	if (PyErr_Occurred() ||
	    !numbers_of((PyObject *const []){ whole, timeout }, 2, 1, "wait(slot, number, timeout=None)", &number,
			&timeout_ms))
		return NULL;
	request = make(ring, kept, 1);
	if (!request)
		return NULL;
	sqe = tow_queue_get_sqe(ring->queue);
	tow_prep_wait(sqe, address, number);
	if (hand_over(request, sqe, timeout_ms))
		return (PyObject *)request;
	Py_DECREF(request);
	return NULL;
}

/* A request that somebody else begins, by the number that comes with it; what it finds is made by @making. */
static PyObject *ring_expect(PyObject *self, PyObject *arguments)
{
	struct ring *ring = (struct ring *)self;
	PyObject *making, *kept, *pair;
	struct request *request;
	uint32_t number;

	if (!PyArg_ParseTuple(arguments, "OO", &making, &kept))
		return NULL;
	request = make(ring, kept, 1);
	if (!request)
		return NULL;
	request->make = Py_NewRef(making);
	number = put(request);
	pair = Py_BuildValue("NI", request, number);
	if (!pair)
		let_go(ring, number);
	return pair;
}

/* It was not begun: the library's @error. */
static PyObject *ring_refuse(PyObject *self, PyObject *arguments)
{
	struct ring *ring = (struct ring *)self;
	struct tow_cqe cqe = { 0 };
	unsigned int number;
	int error;

	if (!PyArg_ParseTuple(arguments, "Ii", &number, &error))
		return NULL;
	cqe.user_data = number;
	cqe.status = error;
	take_cqe(ring, &cqe, NULL);
	return Py_NewRef(Py_None);
}

static PyObject *ring_progress(PyObject *self, PyObject *timeout)
{
	double seconds = seconds_of(timeout);

	if (seconds < 0)
		return NULL;
	seconds *= 1e6;
	if (!go_on((struct ring *)self, seconds < SLICE_US ? (uint32_t)seconds : SLICE_US))
		return NULL;
	return Py_NewRef(Py_None);
}

/* What has not ended is said to be cancelled.  Its memory may be in use for ever: it is kept. */
static PyObject *ring_close(PyObject *self, PyObject *unused)
{
	struct ring *ring = (struct ring *)self;
	struct tow_queue *queue = ring->queue;
	uint32_t i;

	(void)unused;
	ring->queue = NULL;
	/* In a child that was forked all of it is the parent's. */
	if (!queue || !queue->ring)
		return Py_NewRef(Py_None);
	for (i = 0; i < ring->entries; i++) {
		struct request *request = ring->slots[i].request;

		if (request && !request->over) {
			request->status = -ECANCELED;
			tell(request);
		}
	}
	/* They use it still. */
	while (ring->waiting) {
		Py_BEGIN_ALLOW_THREADS
		usleep(1000);
		Py_END_ALLOW_THREADS
	}
	return Py_NewRef(Py_None);
}

static PyObject *ring_in_flight(PyObject *self, void *unused)
{
	(void)unused;
	return PyLong_FromUnsignedLong(((struct ring *)self)->in_flight);
}

static PyObject *ring_fd(PyObject *self, void *unused)
{
	(void)unused;
	return PyLong_FromLong(((struct ring *)self)->fd);
}

static void ring_dealloc(PyObject *self)
{
	struct ring *ring = (struct ring *)self;
	PyTypeObject *type = Py_TYPE(self);

	PyMem_Free(ring->slots);
	Py_XDECREF(ring->kept);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

static PyMethodDef ring_methods[] = {
	{ "progress", ring_progress, METH_O, "Take completions; wait for one, for up to so many seconds, or 0.02." },
	{ "wait", ring_wait, METH_VARARGS, "A slot's address, how many, a time-out, what is kept: a Request." },
	{ "expect", ring_expect, METH_VARARGS, "What makes its result, what is kept: a Request, and its number." },
	{ "refuse", ring_refuse, METH_VARARGS, "A number of expect()'s, and the error with which it ends." },
	{ "close", ring_close, METH_NOARGS, "It has no queue any more." },
	{ NULL, NULL, 0, NULL }
};

static PyGetSetDef ring_gets[] = {
	{ "in_flight", ring_in_flight, NULL, "Entries whose memory is in use.", NULL },
	{ "fd", ring_fd, NULL, "The queue's descriptor.", NULL },
	{ NULL, NULL, NULL, NULL, NULL }
};

static PyType_Slot ring_slots[] = {
	{ Py_tp_methods, ring_methods },
	{ Py_tp_getset, ring_gets },
	{ Py_tp_new, ring_new },
	{ Py_tp_dealloc, ring_dealloc },
	{ 0, NULL }
};

static PyType_Spec ring_spec = {
	.name = "towline._ring.Ring", .basicsize = sizeof(struct ring),
	.flags = Py_TPFLAGS_DEFAULT, .slots = ring_slots,
};

/* ---- the module ---- */

/* The number of a slot whose address that is. */
static PyObject *value(PyObject *module, PyObject *address)
{
	const struct tow_slot *slot = PyLong_AsVoidPtr(address);

	(void)module;
	return PyErr_Occurred() ? NULL : PyLong_FromUnsignedLongLong(tow_slot_value(slot));
}

static PyObject *setup(PyObject *module, PyObject *arguments)
{
	PyObject *submit, *enter, *found, *connected, *making, *awaiting;

	(void)module;
	if (!PyArg_ParseTuple(arguments, "OOOOOO", &submit, &enter, &found, &connected, &making, &awaiting))
		return NULL;
	queue_submit = (int (*)(struct tow_queue *))PyLong_AsVoidPtr(submit);
	queue_enter = (int (*)(struct tow_queue *, uint32_t, uint32_t, uint32_t))PyLong_AsVoidPtr(enter);
	queue_found = (int (*)(const struct tow_queue *, const struct tow_cqe *, struct tow_remote **))
		PyLong_AsVoidPtr(found);
	queue_connected = (int (*)(const struct tow_queue *, const struct tow_cqe *, struct tow_peer **))
		PyLong_AsVoidPtr(connected);
	if (PyErr_Occurred())
		return NULL;
	Py_XDECREF(failure);
	Py_XDECREF(ended);
	failure = Py_NewRef(making);
	ended = Py_NewRef(awaiting);
	return Py_NewRef(Py_None);
}

static PyMethodDef functions[] = {
	{ "setup", setup, METH_VARARGS,
	  "Addresses of tow_queue_submit(), _enter(), _found() and _connected(); _lib.failure(); _queue._ended()." },
	{ "value", value, METH_O, "Of the slot at an address." },
	{ NULL, NULL, 0, NULL }
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT, .m_name = "towline._ring", .m_size = -1, .m_methods = functions,
};

PyMODINIT_FUNC PyInit__ring(void);

PyMODINIT_FUNC PyInit__ring(void)
{
	PyObject *module = PyModule_Create(&definition);
	PyObject *ring = PyType_FromSpec(&ring_spec), *transfer = PyType_FromSpec(&transfer_spec);

	request_type = (PyTypeObject *)PyType_FromSpec(&request_spec);
	if (!module || !ring || !transfer || !request_type || PyModule_AddObjectRef(module, "Ring", ring) ||
	    PyModule_AddObjectRef(module, "Transfer", transfer) ||
	    PyModule_AddObjectRef(module, "Request", (PyObject *)request_type)) {
		Py_XDECREF(module);
		module = NULL;
	}
	Py_XDECREF(ring);
	Py_XDECREF(transfer);
	return module;
}
