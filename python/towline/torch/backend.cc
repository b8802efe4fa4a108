// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * PyTorch by towline: the backend "towline" of torch.distributed, and an allocator for CPU tensors.
 *
 * One source for PyTorch 1.13 (c10d::ProcessGroup) and 2.x (c10d::Backend); towline/torch/__init__.py
 * registers what is here.  What a collective of c10d's does is done by one call of libtowline's, or
 * by several; nothing is done by a thread of this file but to complete futures.
 *
 * What may be asked by several threads is under a lock of its own, and none of these locks is held
 * while Python's is waited for: what may have objects of Python's in it dies without them.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <c10/core/CPUAllocator.h>
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/torch.h>
#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <towline/arena.h>
#include <towline/bootstrap.h>
#include <towline/collective.h>

namespace {

using c10::intrusive_ptr;
using c10d::OpType;
using c10d::Work;
using std::chrono::milliseconds;
using Tensors = std::vector<at::Tensor>;
using Clock = std::chrono::steady_clock;

#if TORCH_VERSION_MAJOR >= 2
using Base = c10d::Backend;
#else
using Base = c10d::ProcessGroup;
#endif

/* How long a thread asks the library at a time: then signals' handlers run. */
constexpr milliseconds SLICE(100);
/* How long to wait for the reason why another rank could not come. */
constexpr milliseconds REASON(2000);
/* How long calls that were forgotten may take to end when their group does. */
constexpr milliseconds GRACE(5000);
/* How many calls are looked at as one is made: more than one. */
constexpr size_t LOOKED_AT = 3;
/* Letters of c10d's collectives, and of its own monitored barriers, have tags that programs have not. */
constexpr uint32_t COLLECTIVES = 1U << 31, BARRIERS = 3U << 30, NUMBERS = (1U << 28) - 1;
constexpr int PROGRAM_TAG_MAX = INT32_MAX;

/* ---- errors ---------------------------------------------------------------- */

std::string words(int error, uint32_t blamed)
{
	const std::string rank = "rank " + std::to_string(blamed);

	if (blamed == TOW_NO_RANK)
		return tow_strerror(error);
	switch (error) {
	case -ESTALE:
		return rank + " has died, or has left";
	case -ECONNRESET:
		return "the node of " + rank + " does not answer";
	case -ETIMEDOUT:
		return rank + " did not come before the timeout";
	case -ECANCELED:
		return rank + " could not go on, or has broken off";
	case -EPROTO:
		return rank + " has made another call in its place";
	default:
		return std::string(tow_strerror(error)) + "; " + rank + " is to blame";
	}
}

std::string told(const std::string &what, int error, uint32_t blamed)
{
	const char *name = strerrorname_np(-error);

	return "towline: " + what + ": " + words(error, blamed) + " (" + (name ? name : "?") + ")";
}

[[noreturn]] void fail(const std::string &what, int error, uint32_t blamed = TOW_NO_RANK)
{
	throw std::runtime_error(told(what, error, blamed));
}

[[noreturn]] void invalid(const std::string &what)
{
	throw py::value_error("towline: " + what);
}

/* ---- memory ---------------------------------------------------------------- */

/* What a process has once: opened when it is first needed, and there until the process ends, as tensors are. */
struct Node {
	tow_device *dev = nullptr;
	tow_arena *arena = nullptr;
	std::string error;
	int status = 0;
	Node *parents = nullptr;	/* of whoever forked the process that had this one */
};

std::mutex node_lock;
std::atomic<Node *> node_of_process;
/* What is in there a child does not free. */
Node *inherited;
class Completer;
std::atomic<Completer *> completer_of_process;
/* Another one in a child that was forked: what its parent's threads held then is held for ever. */
unsigned int process;

/* A child opens its own, and has none of its parent's threads: what is its parent's answers it -EPERM. */
void in_child()
{
	Node *node = node_of_process;

	if (node) {
		node->parents = inherited;
		inherited = node;
	}
	node_of_process = nullptr;
	completer_of_process = nullptr;
	process++;
	new (&node_lock) std::mutex;
}

Node *open_node()
{
	static const int once = pthread_atfork(nullptr, nullptr, in_child);
	tow_arena_attr attr = {};
	Node *node = new Node;

	(void)once;
	attr.size = sizeof(attr);
	attr.flags = TOW_ARENA_FALLBACK;
	node->status = tow_device_open(nullptr, 0, &node->dev);
	if (node->status)
		node->error = told("opening the node's RDMA device", node->status, TOW_NO_RANK);
	else if ((node->status = tow_arena_create(node->dev, &attr, &node->arena)))
		node->error = told("making an arena", node->status, TOW_NO_RANK);
	return node;
}

/* What could not be opened is tried again by who asks again. */
Node *node_or_reason(std::string &error, int &status)
{
	std::lock_guard<std::mutex> locked(node_lock);
	Node *node = node_of_process;

	if (!node) {
		node = open_node();
		if (node->status) {
			error = node->error;
			status = node->status;
			tow_device_close(node->dev);
			delete node;
			return nullptr;
		}
		node_of_process = node;
	}
	return node;
}

thread_local bool in_scope;
std::atomic<bool> whole_process;

/* Tensors within are in the arena. */
class Scope {
public:
	explicit Scope(bool on = true) : before(in_scope) { in_scope = on; }
	~Scope() { in_scope = before; }
	Scope(const Scope &) = delete;
	Scope &operator=(const Scope &) = delete;
private:
	const bool before;
};

void free_in_arena(void *memory)
{
	Node *node = node_of_process;

	c10::profiledCPUMemoryReporter().Delete(memory);
	/* A child has its parent's tensors, which it does not free: to its own arena they are nothing. */
	if (node)
		tow_arena_free(node->arena, memory);
}

/* How what is not in the arena is freed. */
c10::DeleterFnPtr free_elsewhere;

bool is_inherited(const void *memory)
{
	tow_region *region;
	uint64_t offset;

	for (Node *node = inherited; node; node = node->parents)
		if (!tow_arena_find(node->arena, memory, &region, &offset))
			return true;
	return false;
}

/* What raw_allocate() gave, wherever it was: only the address is known. */
void free_raw(void *memory)
{
	Node *node = node_of_process;

	if (is_inherited(memory) || (node && tow_arena_usable(node->arena, memory)))
		free_in_arena(memory);
	else
		free_elsewhere(memory);
}

/* For all CPU tensors: those of threads in a Scope are in the arena, others where they would be without. */
class Allocator final : public at::Allocator {
public:
	explicit Allocator(at::Allocator *other) : other_(other) { free_elsewhere = other->raw_deleter(); }
	c10::DeleterFnPtr raw_deleter() const override { return free_elsewhere ? free_raw : nullptr; }
#if TORCH_VERSION_MAJOR >= 2
	c10::DataPtr allocate(size_t bytes) override { return get(bytes); }
	void copy_data(void *to, const void *from, size_t bytes) const override
	{
		default_copy_data(to, from, bytes);
	}
#else
	c10::DataPtr allocate(size_t bytes) const override { return get(bytes); }
#endif

private:
	c10::DataPtr get(size_t bytes) const
	{
		Node *node = bytes && (in_scope || whole_process) ? node_of_process.load() : nullptr;
		void *memory = node ? tow_arena_alloc(node->arena, bytes) : nullptr;

		if (!memory)
			return other_->allocate(bytes);
		c10::profiledCPUMemoryReporter().New(memory, bytes);
		return { memory, memory, free_in_arena, at::Device(at::DeviceType::CPU) };
	}

	at::Allocator *const other_;
};

/* Before anything is allocated in the arena; for as long as there is the process. */
void install_allocator()
{
	static std::once_flag once;

	std::call_once(once, [] {
		c10::SetCPUAllocator(new Allocator(c10::GetCPUAllocator()), UINT8_MAX);
	});
}

void use_memory()
{
	std::string error;
	int status;

	if (!node_or_reason(error, status))
		throw std::runtime_error(error);
	install_allocator();
}

/* ---- tensors ---------------------------------------------------------------- */

tow_dtype element(uint8_t code, uint8_t bits)
{
	return { code, bits, 1 };
}

/* What the library sees of a tensor: complex numbers are two. */
struct Elements {
	tow_dtype type;
	uint64_t count;
};

Elements elements_of(const at::Tensor &tensor)
{
	const uint64_t count = tensor.numel();

	switch (tensor.scalar_type()) {
	case at::kDouble: return { element(TOW_DTYPE_FLOAT, 64), count };
	case at::kFloat: return { element(TOW_DTYPE_FLOAT, 32), count };
	case at::kHalf: return { element(TOW_DTYPE_FLOAT, 16), count };
	case at::kBFloat16: return { element(TOW_DTYPE_BFLOAT, 16), count };
	case at::kComplexDouble: return { element(TOW_DTYPE_FLOAT, 64), 2 * count };
	case at::kComplexFloat: return { element(TOW_DTYPE_FLOAT, 32), 2 * count };
	case at::kLong: return { element(TOW_DTYPE_INT, 64), count };
	case at::kInt: return { element(TOW_DTYPE_INT, 32), count };
	case at::kShort: return { element(TOW_DTYPE_INT, 16), count };
	case at::kChar: return { element(TOW_DTYPE_INT, 8), count };
	case at::kByte: return { element(TOW_DTYPE_UINT, 8), count };
	case at::kBool: return { element(TOW_DTYPE_BOOL, 8), count };
	default: /* They are moved only. */
		return { element(TOW_DTYPE_UINT, 8), count * tensor.element_size() };
	}
}

void must_be_here(const at::Tensor &tensor)
{
	if (!tensor.device().is_cpu())
		throw py::type_error("towline: a tensor is on device " + tensor.device().str() +
				     ", and this backend has tensors of the CPU.  Give those of a GPU "
				     "a backend of their own: init_process_group(\"cpu:towline,"
				     "cuda:nccl\") from PyTorch 2.0 on, new_group(backend=\"nccl\") before");
	if (tensor.layout() != at::kStrided)
		throw py::type_error("towline: a sparse tensor, which only all_reduce(op=SUM) takes");
}

const at::Tensor &only(const Tensors &tensors)
{
	if (tensors.size() != 1)
		invalid("one tensor is wanted, not " + std::to_string(tensors.size()));
	must_be_here(tensors[0]);
	return tensors[0];
}

void must_match(const at::Tensor &one, const at::Tensor &other)
{
	must_be_here(one);
	must_be_here(other);
	if (one.scalar_type() != other.scalar_type())
		throw py::type_error("towline: tensors of one call have elements of one type");
}

const Tensors &only_list(const std::vector<Tensors> &lists)
{
	if (lists.size() != 1)
		invalid("one list of tensors is wanted");
	return lists[0];
}

void must_be_of_root(const std::vector<Tensors> &lists, bool root)
{
	if (lists.size() != (root ? 1 : 0))
		invalid("one list of tensors is wanted at the root, and none at other ranks");
}

/* A tensor like that, in the arena if there is room: nothing of it is copied by the library. */
at::Tensor room(at::IntArrayRef sizes, const at::Tensor &like)
{
	Scope arena;

	return at::empty(sizes, like.options().memory_format(at::MemoryFormat::Contiguous));
}

at::Tensor room_for(size_t ranks, const at::Tensor &like)
{
	std::vector<int64_t> sizes = like.sizes().vec();

	sizes.insert(sizes.begin(), ranks);
	return room(sizes, like);
}

/* Is its memory all of its values, in their order? */
bool is_plain(const at::Tensor &tensor)
{
	return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

/* It, or a copy that is. */
at::Tensor whole(const at::Tensor &tensor)
{
	if (is_plain(tensor))
		return tensor;
	at::NoGradGuard plain;
	at::Tensor copy = room(tensor.sizes(), tensor);

	copy.copy_(tensor);
	return copy;
}

/* It, or one for what comes, which is copied to it. */
at::Tensor place_for(const at::Tensor &tensor)
{
	return is_plain(tensor) ? tensor : room(tensor.sizes(), tensor);
}

/* From so many elements on; nothing has a place, too. */
void *bytes_of(const at::Tensor &tensor, int64_t from = 0)
{
	alignas(64) static char nothing[64];

	return tensor.numel() ? static_cast<char *>(tensor.data_ptr()) + from * tensor.element_size() :
				nothing;
}

void must_be_alike(const Tensors &tensors, const at::Tensor &like, size_t count)
{
	if (tensors.size() != count)
		invalid("a list of " + std::to_string(count) + " tensors is wanted, not of " +
			std::to_string(tensors.size()));
	for (const at::Tensor &tensor : tensors) {
		must_match(tensor, like);
		if (tensor.numel() != like.numel())
			invalid("tensors of one call have as many elements");
	}
}

/* Do they lie one behind the other, so that the first one's memory is that of all? */
bool in_a_row(const Tensors &tensors)
{
	for (size_t i = 0; i < tensors.size(); i++)
		if (!is_plain(tensors[i]) ||
		    bytes_of(tensors[i]) != bytes_of(tensors[0], i * tensors[0].numel()))
			return false;
	return true;
}

tow_reduction reduction_of(const c10d::ReduceOp &op, const at::Tensor &tensor)
{
	static const struct {
		c10d::ReduceOp::RedOpType theirs;
		tow_reduction ours;
	} known[] = {
		{ c10d::ReduceOp::SUM, TOW_SUM }, { c10d::ReduceOp::AVG, TOW_AVG },
		{ c10d::ReduceOp::PRODUCT, TOW_PRODUCT }, { c10d::ReduceOp::MIN, TOW_MIN },
		{ c10d::ReduceOp::MAX, TOW_MAX }, { c10d::ReduceOp::BAND, TOW_BAND },
		{ c10d::ReduceOp::BOR, TOW_BOR }, { c10d::ReduceOp::BXOR, TOW_BXOR },
	};
	static const at::ScalarType reduced[] = {
		at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kComplexDouble,
		at::kComplexFloat, at::kLong, at::kInt, at::kChar, at::kByte, at::kBool,
	};
	const at::ScalarType type = tensor.scalar_type();

	if (std::find(std::begin(reduced), std::end(reduced), type) == std::end(reduced))
		throw py::type_error(std::string("towline: elements of type ") + c10::toString(type) +
				     " are moved, and not reduced");
	for (const auto &one : known)
		if (op.op_ == one.theirs) {
			if (tensor.is_complex() && one.ours != TOW_SUM && one.ours != TOW_AVG)
				throw py::type_error("towline: complex numbers are summed up, or averaged");
			return one.ours;
		}
	invalid("this reduction is not known here (PREMUL_SUM: multiply before)");
}

uint32_t library_ms(milliseconds time)
{
	return time.count() <= 0 ? 1 : std::min<int64_t>(time.count(), UINT32_MAX - 1);
}

/* ---- calls ---------------------------------------------------------------- */

/* Handlers of signals run, in Python's main thread; what they raise is raised here. */
void look_at_signals()
{
	if (!Py_IsInitialized())
		return;
	py::gil_scoped_acquire python;
	if (PyErr_CheckSignals())
		throw py::error_already_set();
}

class Call;

/*
 * Completes the futures of calls, by threads that are there until the process ends.  What is called
 * then may wait for another future, so one of them always waits for what ends next.
 */
class Completer {
public:
	static Completer &of_process();
	/* When @fd can be read the call is looked at: as which it is known; 0: that cannot be. */
	uint64_t watch(int fd, intrusive_ptr<Call> call);
	void forget(uint64_t number);

private:
	static constexpr int WAITING_MOST = 2;

	Completer() : poll_(epoll_create1(EPOLL_CLOEXEC)) {}
	void start();
	void run();
	intrusive_ptr<Call> next_ended();
	void complete(intrusive_ptr<Call> call);

	const int poll_;
	std::mutex lock_;
	std::unordered_map<uint64_t, intrusive_ptr<Call>> calls_;
	uint64_t last_ = 0;
	int waiting_ = 0;		/* threads */
};

/* What c10d asked for: one call of the library's, or several. */
class Call final : public Work {
public:
	Call(OpType type, std::string what, const char *title, const Tensors &inputs)
		: Work(-1, type, title, inputs), what_(std::move(what)) {}

	/* ---- as it is made, by one thread ---- */

	/* Where the library puts a work; @bytes are expected, or any number if it is -1. */
	tow_work **next(int64_t bytes = -1)
	{
		works_.push_back({ nullptr, bytes });
		return &works_.back().work;
	}
	/* What next() was for: 0, or there is none; a communicator that has failed says who is to blame. */
	void begun(tow_comm *comm, int error)
	{
		uint32_t blamed = TOW_NO_RANK;

		if (!error)
			return;
		works_.pop_back();
		if (tow_comm_error(comm, &blamed) != error)
			blamed = TOW_NO_RANK;
		fail(what_, error, blamed);
	}
	/* The library uses their memory until the end. */
	void hold(const at::Tensor &tensor) { held_.push_back(tensor.storage()); }
	void gives(Tensors result) { result_ = std::move(result); }
	/* To be done with what has come. */
	void then(std::function<void()> after) { after_.push_back(std::move(after)); }
	/* Into @to goes what comes into @from. */
	void copies(at::Tensor to, at::Tensor from)
	{
		if (!to.is_same(from))
			then([to, from] { to.copy_(from.view(to.sizes())); });
	}

	/* All of it has begun; or what has begun is all there is, and an error is raised. */
	void made(bool raises)
	{
		if (raises && !failed_)
			failed_ = std::make_exception_ptr(std::runtime_error(
				"towline: " + what_ + ": not begun"));
		made_ = true;
	}

	/* ---- by any ---- */

	/* Is there a future, which is for the completer to complete? */
	bool has_future() const { return has_future_; }
	bool is_letter() const { return c10d::isP2POp(opType_); }
	/* Has it ended, as somebody has found? */
	bool ended() const
	{
		std::lock_guard<std::mutex> locked(mutex_);
		return completed_;
	}
	/* Has it ended?  Goes on for so long; false also if another thread is at it and @us is 0. */
	bool look(uint32_t us);
	/* It was broken off, or its communicator has failed: others may write to its memory. */
	bool tainted() const { return tainted_; }

	bool isCompleted() override
	{
		must_be_ours();
		return look(0);
	}
	bool isSuccess() const override
	{
		std::lock_guard<std::mutex> locked(mutex_);
		return completed_ && !exception_;
	}
	std::exception_ptr exception() const override
	{
		std::lock_guard<std::mutex> locked(mutex_);
		return exception_;
	}
	int sourceRank() const override { return source_; }
	Tensors result() override { return result_; }
	void synchronize() override {}
	bool wait(milliseconds timeout) override;
	intrusive_ptr<c10::ivalue::Future> getFuture() override;
	/* The completer looks at it when there is something to see.  False: that cannot be. */
	bool watch();

private:
	struct Part {
		tow_work *work;
		int64_t bytes;
	};

	void must_be_ours() const
	{
		if (process_ != process)
			fail(what_, -EPERM);
	}
	/* Who changes a tensor's size now would free what others write to. */
	void taint()
	{
		tainted_ = true;
		for (const c10::Storage &storage : held_)
			storage.unsafeGetStorageImpl()->set_resizable(false);
	}
	void take(const Part &part, int ret, uint32_t blamed);
	void complete_future(c10::ivalue::Future &future);

	const std::string what_;
	const unsigned int process_ = process;
	/* Who asks the library, or changes what follows. */
	std::timed_mutex turn_;
	std::vector<Part> works_;
	size_t asked_ = 0;		/* of these, so many have ended */
	std::exception_ptr failed_;
	std::atomic<bool> made_ { false }, has_future_ { false };
	const bool inference_ = c10::InferenceMode::is_enabled();
	uint64_t watched_ = 0;		/* by the completer, as */
	std::atomic<bool> tainted_ { false };
	std::atomic<int> source_ { -1 };
	std::vector<c10::Storage> held_;	/* a tensor may get another one meanwhile */
	Tensors result_;
	std::vector<std::function<void()>> after_;
	intrusive_ptr<c10::ivalue::Future> future_;
};

void Call::take(const Part &part, int ret, uint32_t blamed)
{
	struct tow_work_info info = {};

	info.size = sizeof(info);
	if (ret < 0) {
		/* After another rank's other call, or a letter too long, all is as it was. */
		if (ret != -EPROTO && ret != -EMSGSIZE)
			taint();
		if (!failed_)
			failed_ = std::make_exception_ptr(std::runtime_error(told(what_, ret, blamed)));
		return;
	}
	if (part.bytes < 0 || tow_work_info(part.work, &info))
		return;
	source_ = info.rank;
	if (info.bytes != static_cast<uint64_t>(part.bytes) && !failed_)
		failed_ = std::make_exception_ptr(std::runtime_error(
			"towline: " + what_ + ": rank " + std::to_string(info.rank) + " has sent " +
			std::to_string(info.bytes) + " bytes, and not " + std::to_string(part.bytes)));
}

bool Call::look(uint32_t us)
{
	intrusive_ptr<c10::ivalue::Future> future;
	std::vector<std::function<void()>> after;
	std::vector<c10::Storage> held;

	{
		std::unique_lock<std::timed_mutex> turn(turn_, std::defer_lock);

		if (ended())
			return true;
		if (!made_ || (!us && !turn.try_lock()))
			return false;
		if (us && !turn.try_lock_for(std::chrono::microseconds(us)))
			return ended();
		if (ended())
			return true;
		for (; asked_ < works_.size(); asked_++) {
			uint32_t blamed = TOW_NO_RANK;
			int ret = tow_work_wait(works_[asked_].work, us, &blamed);

			if (!ret || ret == -EINTR)
				return false;
			take(works_[asked_], ret, blamed);
		}
		for (const Part &part : works_)
			tow_work_free(part.work);
		works_.clear();
		asked_ = 0;
		try {
			at::NoGradGuard plain;
			c10::InferenceMode as_made(inference_);

			for (const auto &one : after_)
				if (!failed_)
					one();
		} catch (...) {
			failed_ = std::current_exception();
		}
		after.swap(after_);
		if (!tainted_)
			held.swap(held_);
		if (watched_)
			Completer::of_process().forget(watched_);
		future = future_;
		finish(failed_);
	}
	if (future)
		complete_future(*future);
	return true;
}

bool Call::wait(milliseconds timeout)
{
	const bool forever = timeout == kNoTimeout || timeout == c10d::kUnsetTimeout;
	const Clock::time_point until = Clock::now() + (forever ? milliseconds(0) : timeout);

	must_be_ours();
	for (;;) {
		milliseconds slice = SLICE;

		if (!forever)
			slice = std::min(slice, std::chrono::duration_cast<milliseconds>(
						until - Clock::now()) + milliseconds(1));
		if (slice.count() > 0 && look(slice.count() * 1000))
			break;
		if (!forever && Clock::now() >= until)
			throw std::runtime_error("towline: " + what_ + ": not over before the timeout; it goes on");
		look_at_signals();
	}
	if (exception())
		std::rethrow_exception(exception());
	return true;
}

/* What is called then may raise what it likes: this thread has other things to do. */
void Call::complete_future(c10::ivalue::Future &future)
{
	try {
		if (exception())
			future.setError(exception());
		else
			future.markCompleted(c10::IValue(result_));
	} catch (const std::exception &error) {
		TORCH_WARN("towline: ", what_, ": what waited for its future: ", error.what());
	}
}

bool Call::watch()
{
	std::lock_guard<std::timed_mutex> turn(turn_);

	if (ended())
		return true;
	if (asked_ == works_.size())
		return false;
	int fd = tow_work_fd(works_[asked_].work);

	watched_ = fd < 0 ? 0 : Completer::of_process().watch(
				       fd, intrusive_ptr<Call>::reclaim_copy(this));
	return watched_;
}

intrusive_ptr<c10::ivalue::Future> Call::getFuture()
{
	intrusive_ptr<c10::ivalue::Future> future;
	bool over;

	must_be_ours();
	{
		std::lock_guard<std::timed_mutex> turn(turn_);

		if (future_)
			return future_;
		future_ = c10::make_intrusive<c10::ivalue::Future>(
			c10::ListType::create(c10::TensorType::get()));
		future = future_;
		has_future_ = true;
		/* Else whoever finds that it has ended sees the future. */
		over = ended();
	}
	if (over) {
		complete_future(*future);
		return future;
	}
	if (!watch())
		while (!look(1000 * SLICE.count()))
			;
	return future;
}

Completer &Completer::of_process()
{
	std::lock_guard<std::mutex> locked(node_lock);
	Completer *completer = completer_of_process;

	if (!completer) {
		completer = new Completer;
		completer->start();
		completer_of_process = completer;
	}
	return *completer;
}

uint64_t Completer::watch(int fd, intrusive_ptr<Call> call)
{
	std::lock_guard<std::mutex> locked(lock_);
	epoll_event event = {};

	event.events = EPOLLIN | EPOLLONESHOT;
	event.data.u64 = ++last_;
	/* Of a work that was watched before. */
	if (epoll_ctl(poll_, EPOLL_CTL_ADD, fd, &event) &&
	    (errno != EEXIST || epoll_ctl(poll_, EPOLL_CTL_MOD, fd, &event)))
		return 0;
	calls_.emplace(last_, std::move(call));
	return last_;
}

void Completer::forget(uint64_t number)
{
	intrusive_ptr<Call> call;
	std::lock_guard<std::mutex> locked(lock_);
	auto found = calls_.find(number);

	if (found != calls_.end()) {
		call = std::move(found->second);
		calls_.erase(found);
	}
}

/* The lock is held, or nobody else knows of it so far. */
void Completer::start()
{
	waiting_++;
	std::thread([this] { run(); }).detach();
}

intrusive_ptr<Call> Completer::next_ended()
{
	epoll_event event;
	int count = epoll_wait(poll_, &event, 1, -1);

	std::lock_guard<std::mutex> locked(lock_);
	auto found = count == 1 ? calls_.find(event.data.u64) : calls_.end();

	if (found == calls_.end())
		return {};
	intrusive_ptr<Call> call = std::move(found->second);
	calls_.erase(found);
	if (!--waiting_)
		start();
	return call;
}

void Completer::complete(intrusive_ptr<Call> call)
{
	/* More works than one: the next one says when it has ended. */
	while (!call->look(1000) && !call->watch())
		;
}

void Completer::run()
{
	for (;;) {
		if (intrusive_ptr<Call> call = next_ended()) {
			complete(std::move(call));
			std::lock_guard<std::mutex> locked(lock_);
			if (waiting_ == WAITING_MOST)
				return;
			waiting_++;
		}
	}
}

/* ---- meeting ---------------------------------------------------------------- */

/* Ranks tell each other something by the store that c10d gives them. */
class Meeting {
public:
	Meeting(intrusive_ptr<c10d::Store> store, int rank, int size, milliseconds timeout)
		: store_(std::move(store)), rank_(rank), size_(size), until_(Clock::now() + timeout),
		  /* A group of that name may have been there before, as often at each of its ranks. */
		  prefix_("towline/" + std::to_string(store_->add("towline/" + std::to_string(rank), 1)) + "/") {}

	/* tow_group_gather_fn. */
	static int gather(void *arg, const void *mine, size_t bytes, void *all)
	{
		auto *meeting = static_cast<Meeting *>(arg);

		try {
			return meeting->tell(mine, bytes, static_cast<char *>(all));
		} catch (const std::exception &error) {
			meeting->why_ = error.what();
			return -ETIMEDOUT;
		}
	}

	/* This rank cannot come: whoever waits for it raises that. */
	void cannot(const std::string &reason)
	{
		try {
			store_->set(reason_of(rank_), std::vector<uint8_t>(reason.begin(), reason.end()));
		} catch (const std::exception &) {
			/* They hear the error's name by the gather, or that it has not come. */
		}
	}

	/* What is to be raised after libtowline's error. */
	std::string outcome(const std::string &what, int error, uint32_t blamed)
	{
		if (!why_.empty())
			return "towline: " + what + ": " + why_;
		if (blamed == TOW_NO_RANK || static_cast<int>(blamed) == rank_) {
			cannot(told(what, error, TOW_NO_RANK));
			return told(what, error, TOW_NO_RANK);
		}
		try {
			store_->wait({ reason_of(blamed) }, REASON);
			auto reason = store_->get(reason_of(blamed));

			return "rank " + std::to_string(blamed) + " could not come: " +
			       std::string(reason.begin(), reason.end());
		} catch (const std::exception &) {
			return told(what, error, blamed);
		}
	}

private:
	int tell(const void *mine, size_t bytes, char *all)
	{
		const std::string key = prefix_ + std::to_string(number_++) + "/";
		auto *from = static_cast<const uint8_t *>(mine);

		store_->set(key + std::to_string(rank_), std::vector<uint8_t>(from, from + bytes));
		for (int rank = 0; rank < size_; rank++) {
			const std::string theirs = key + std::to_string(rank);

			wait_for(theirs, rank);
			auto value = store_->get(theirs);

			if (value.size() != bytes) {
				why_ = "rank " + std::to_string(rank) + " has another towline";
				return -EPROTO;
			}
			std::copy(value.begin(), value.end(), all + rank * bytes);
		}
		return 0;
	}

	void wait_for(const std::string &key, int rank)
	{
		auto left = std::chrono::duration_cast<milliseconds>(until_ - Clock::now());

		try {
			store_->wait({ key }, std::max(left, milliseconds(1)));
		} catch (const std::exception &error) {
			throw std::runtime_error("rank " + std::to_string(rank) +
						 " did not come: " + error.what());
		}
	}

	std::string reason_of(uint32_t rank) const
	{
		return prefix_ + "reason/" + std::to_string(rank);
	}

	const intrusive_ptr<c10d::Store> store_;
	const int rank_, size_;
	const Clock::time_point until_;
	const std::string prefix_;
	unsigned int number_ = 0;
	std::string why_;
};

/* ---- the process group ---------------------------------------------------------------- */

class Towline;

/* Somebody uses a group, which does not close meanwhile. */
class Use {
public:
	Use(Towline &group, const char *what);
	Use(Use &&other) noexcept : group_(std::exchange(other.group_, nullptr)) {}
	~Use();
private:
	Towline *group_;
};

/* A call while it is made: nobody else takes it for one that has ended. */
class Making {
public:
	Making(intrusive_ptr<Call> call, Use use) : call_(std::move(call)), use_(std::move(use)) {}
	Making(Making &&) = default;
	~Making()
	{
		if (call_)
			call_->made(std::uncaught_exceptions() > raised_);
	}
	Call *operator->() const { return call_.get(); }
	Call &operator*() const { return *call_; }
	/* It is made. */
	operator intrusive_ptr<Work>() { return done(); }
	intrusive_ptr<Call> done()
	{
		call_->made(false);
		return std::move(call_);
	}

private:
	intrusive_ptr<Call> call_;
	Use use_;
	const int raised_ = std::uncaught_exceptions();
};

class Towline final : public Base {
public:
	Towline(const intrusive_ptr<c10d::Store> &store, int rank, int size, milliseconds timeout);
	~Towline() override { close(); }
	/* Nobody has it any more: it is deleted when it is in no list, either. */
	void release_resources() override { close(); }
	/* What does not end soon is broken off, and nothing more can be begun. */
	void close();

	const std::string getBackendName() const override { return "towline"; }

	intrusive_ptr<Work> broadcast(Tensors &, const c10d::BroadcastOptions &) override;
	intrusive_ptr<Work> allreduce(Tensors &, const c10d::AllreduceOptions &) override;
	intrusive_ptr<Work> allreduce_coalesced(Tensors &,
						const c10d::AllreduceCoalescedOptions &) override;
	intrusive_ptr<Work> reduce(Tensors &, const c10d::ReduceOptions &) override;
	intrusive_ptr<Work> allgather(std::vector<Tensors> &, Tensors &,
				      const c10d::AllgatherOptions &) override;
	intrusive_ptr<Work> _allgather_base(at::Tensor &, at::Tensor &,
					    const c10d::AllgatherOptions &) override;
	intrusive_ptr<Work> allgather_coalesced(std::vector<Tensors> &, Tensors &,
						const c10d::AllgatherOptions &) override;
	intrusive_ptr<Work> gather(std::vector<Tensors> &, Tensors &,
				   const c10d::GatherOptions &) override;
	intrusive_ptr<Work> scatter(Tensors &, std::vector<Tensors> &,
				    const c10d::ScatterOptions &) override;
	intrusive_ptr<Work> reduce_scatter(Tensors &, std::vector<Tensors> &,
					   const c10d::ReduceScatterOptions &) override;
	intrusive_ptr<Work> _reduce_scatter_base(at::Tensor &, at::Tensor &,
						 const c10d::ReduceScatterOptions &) override;
	intrusive_ptr<Work> alltoall_base(at::Tensor &, at::Tensor &, std::vector<int64_t> &,
					  std::vector<int64_t> &,
					  const c10d::AllToAllOptions &) override;
	intrusive_ptr<Work> alltoall(Tensors &, Tensors &, const c10d::AllToAllOptions &) override;
	intrusive_ptr<Work> send(Tensors &, int, int) override;
	intrusive_ptr<Work> recv(Tensors &, int, int) override;
	intrusive_ptr<Work> recvAnysource(Tensors &, int) override;
	intrusive_ptr<Work> barrier(const c10d::BarrierOptions &) override;
	void monitoredBarrier(const c10d::BarrierOptions &, bool) override;
	void setSequenceNumberForGroup() override {}
	uint64_t getSequenceNumberForGroup() override { return collectives_; }
#if TORCH_VERSION_MAJOR >= 2
	intrusive_ptr<Work> allgather_into_tensor_coalesced(Tensors &, Tensors &,
							    const c10d::AllgatherOptions &) override;
	intrusive_ptr<Work> reduce_scatter_tensor_coalesced(
		Tensors &, Tensors &, const c10d::ReduceScatterOptions &) override;
#endif

	void break_off();
	struct tow_comm_stats counts();
	/* Has its communicator failed? */
	bool failed();

private:
	class Together;
	friend class Use;

	milliseconds time(milliseconds asked) const
	{
		return asked == c10d::kUnsetTimeout || asked == kNoTimeout ? timeout_ : asked;
	}
	tow_call_attr attr(milliseconds asked) const;
	void keep(const intrusive_ptr<Call> &call);
	Making make(OpType type, const char *what, const char *title,
				 const Tensors &inputs, const Tensors &result);

	void add_allreduce(Call &call, const at::Tensor &tensor, const c10d::ReduceOp &op,
			   milliseconds timeout);
	void add_allgather(Call &call, at::Tensor out, const at::Tensor &in, milliseconds timeout);
	void add_reduce_scatter(Call &call, const at::Tensor &out, const at::Tensor &in,
				const c10d::ReduceOp &op, milliseconds timeout);
	void add_send(Call &call, const at::Tensor &tensor, int64_t from, int64_t count, int to,
		      uint32_t tag, milliseconds timeout);
	void add_receive(Call &call, const at::Tensor &tensor, int64_t from, int64_t count,
			 uint32_t sender, uint32_t tag, milliseconds timeout);
	intrusive_ptr<Work> allgather_coalesced_base(Tensors &outs, Tensors &ins, const char *what,
						     OpType type, const c10d::AllgatherOptions &);
	intrusive_ptr<Work> reduce_scatter_base(Tensors &outs, Tensors &ins, OpType type,
						const c10d::ReduceScatterOptions &);
	intrusive_ptr<Work> receive(Tensors &tensors, uint32_t from, int tag);
	at::Tensor gathered(const at::Tensor &mine, milliseconds timeout);
	intrusive_ptr<Work> sum_sparse(at::Tensor &tensor, const c10d::AllreduceOptions &);
	void must_be_rank(int64_t rank) const;
	static uint32_t program_tag(int tag);
	/*
	 * Of the next collective that is made of letters: what comes too late for one is not another one's.
	 * Counted by who is refused, too: at other ranks it was begun.
	 */
	uint32_t next_tag() { return COLLECTIVES | (by_letters_++ & NUMBERS); }

	const milliseconds timeout_;
	const unsigned int process_ = process;
	Meeting meeting_;
	tow_group *group_ = nullptr;
	tow_comm *comm_ = nullptr;
	std::atomic<uint64_t> collectives_ { 0 };
	uint32_t barriers_ = 0, by_letters_ = 0;	/* collectives, by this rank */
	std::mutex lock_;
	std::list<intrusive_ptr<Call>> calls_;	/* that may not have ended */
	unsigned int users_ = 0;
	bool closing_ = false;
	std::condition_variable unused_;
};

Use::Use(Towline &group, const char *what) : group_(&group)
{
	if (group.process_ != process)
		fail(what, -EPERM);
	std::lock_guard<std::mutex> locked(group.lock_);
	if (group.closing_)
		throw std::runtime_error(std::string("towline: ") + what + ": the group has ended");
	group.users_++;
}

Use::~Use()
{
	if (!group_)
		return;
	std::lock_guard<std::mutex> locked(group_->lock_);
	if (!--group_->users_)
		group_->unused_.notify_all();
}

/* Calls made within begin together. */
class Towline::Together {
public:
	explicit Together(tow_comm *comm) : comm_(comm) { tow_calls_begin(comm_); }
	~Together() { tow_calls_end(comm_); }
	Together(const Together &) = delete;
	Together &operator=(const Together &) = delete;
private:
	tow_comm *const comm_;
};

Towline::Towline(const intrusive_ptr<c10d::Store> &store, int rank, int size, milliseconds timeout)
	: Base(rank, size), timeout_(timeout), meeting_(store, rank, size, timeout)
{
	tow_group_attr attr = {};
	tow_comm_attr how = {};
	tow_world world = {};
	uint32_t blamed = TOW_NO_RANK;
	std::string reason;
	int ret, status = 0;
	Node *node = node_or_reason(reason, status);

	if (!node)
		meeting_.cannot(reason);
	world.size = sizeof(world);
	world.rank = rank;
	world.world_size = size;
	attr.size = sizeof(attr);
	attr.timeout_ms = library_ms(timeout);
	attr.gather = Meeting::gather;
	attr.arg = &meeting_;
	attr.status = status;
	ret = tow_group_create(node ? node->dev : nullptr, &world, &attr, &group_, &blamed);
	if (!node)
		throw std::runtime_error(reason);
	if (ret)
		throw std::runtime_error(meeting_.outcome("meeting", ret, blamed));
	how.size = sizeof(how);
	how.timeout_ms = library_ms(timeout);
	how.flags = TOW_COMM_THREAD;
	ret = tow_comm_create(group_, node->arena, &how, &comm_, &blamed);
	if (ret) {
		tow_group_destroy(group_);
		throw std::runtime_error(meeting_.outcome("making a communicator", ret, blamed));
	}
	install_allocator();
}

void Towline::close()
{
	/* Python destroys it, and what ends now may call Python. */
	std::unique_ptr<py::gil_scoped_release> python;

	if (process_ != process || !comm_)
		return;
	if (Py_IsInitialized() && PyGILState_Check())
		python = std::make_unique<py::gil_scoped_release>();
	{
		std::unique_lock<std::mutex> locked(lock_);

		if (std::exchange(closing_, true))
			return;
		unused_.wait(locked, [this] { return !users_; });
	}
	/* What all ranks do ends if they come; a letter may be one that nobody wants. */
	const Clock::time_point until = Clock::now() + GRACE;

	for (const auto &call : calls_)
		while (!call->is_letter() && !call->look(1000 * SLICE.count()) && Clock::now() < until)
			;
	if (!std::all_of(calls_.begin(), calls_.end(), [](auto &call) { return call->look(0); }))
		tow_comm_abort(comm_);
	/* Then no thread that waits is in the library. */
	for (const auto &call : calls_)
		while (!call->look(1000 * SLICE.count()))
			;
	/* None of its calls is left, so it does not refuse. */
	tow_comm_destroy(comm_);
	comm_ = nullptr;
	calls_.clear();
	tow_group_destroy(group_);
}

void Towline::break_off()
{
	const Use use(*this, "abort");

	tow_comm_abort(comm_);
}

bool Towline::failed()
{
	const Use use(*this, "monitored_barrier");

	return tow_comm_error(comm_, nullptr);
}

tow_call_attr Towline::attr(milliseconds asked) const
{
	tow_call_attr attr = {};

	attr.size = sizeof(attr);
	attr.timeout_ms = library_ms(time(asked));
	return attr;
}

/*
 * Whoever forgets a call: the library uses its memory until it has ended.  Some of the others are looked
 * at, without the lock: who waits for their futures may call this group.
 */
void Towline::keep(const intrusive_ptr<Call> &call)
{
	std::list<intrusive_ptr<Call>> some;

	{
		std::lock_guard<std::mutex> locked(lock_);

		some.splice(some.end(), calls_, calls_.begin(),
			    std::next(calls_.begin(), std::min(LOOKED_AT, calls_.size())));
		calls_.push_back(call);
	}
	/* Who waits for a future may make calls, in which this one would come too late. */
	some.remove_if([](const auto &one) {
		return (one->has_future() ? one->ended() : one->look(0)) && !one->tainted();
	});
	std::lock_guard<std::mutex> locked(lock_);
	calls_.splice(calls_.end(), some);
}

Making Towline::make(OpType type, const char *what, const char *title, const Tensors &inputs,
		     const Tensors &result)
{
	Use use(*this, what);
	auto call = c10::make_intrusive<Call>(type, what, title, inputs);

	call->gives(result);
	keep(call);
	/* All ranks make these, and in the same order: TORCH_DISTRIBUTED_DEBUG=DETAIL compares the number. */
	if (title && !c10d::isP2POp(type))
		collectives_++;
	return Making(call, std::move(use));
}

void Towline::must_be_rank(int64_t rank) const
{
	if (rank < 0 || rank >= getSize())
		invalid("there is no rank " + std::to_string(rank) + " among " +
			std::to_string(getSize()));
}

uint32_t Towline::program_tag(int tag)
{
	if (tag < 0)
		invalid("a tag is 0 to " + std::to_string(PROGRAM_TAG_MAX));
	return tag;
}

/* ---- what calls are made of ---- */

void Towline::add_allreduce(Call &call, const at::Tensor &tensor, const c10d::ReduceOp &op,
			    milliseconds timeout)
{
	const tow_reduction reduction = reduction_of(op, tensor);
	const at::Tensor data = whole(tensor);
	const Elements elements = elements_of(data);
	const tow_call_attr how = attr(timeout);

	call.hold(data);
	call.copies(tensor, data);
	call.begun(comm_, tow_allreduce(comm_, nullptr, bytes_of(data), elements.count, elements.type,
				 reduction, &how, call.next()));
}

/* @out has no gaps. */
void Towline::add_allgather(Call &call, at::Tensor out, const at::Tensor &in, milliseconds timeout)
{
	const at::Tensor data = whole(in);
	const Elements elements = elements_of(data);
	const tow_call_attr how = attr(timeout);

	call.hold(data);
	call.hold(out);
	call.begun(comm_, tow_allgather(comm_, bytes_of(data), bytes_of(out), elements.count, elements.type,
				 &how, call.next()));
}

/* @in has no gaps. */
void Towline::add_reduce_scatter(Call &call, const at::Tensor &out, const at::Tensor &in,
				 const c10d::ReduceOp &op, milliseconds timeout)
{
	const tow_reduction reduction = reduction_of(op, in);
	const at::Tensor data = place_for(out);
	const Elements elements = elements_of(data);
	const tow_call_attr how = attr(timeout);

	call.hold(in);
	call.hold(data);
	call.copies(out, data);
	call.begun(comm_, tow_reduce_scatter(comm_, bytes_of(in), bytes_of(data), elements.count,
				      elements.type, reduction, &how, call.next()));
}

/* @count elements of @tensor, which has no gaps, from @from on. */
void Towline::add_send(Call &call, const at::Tensor &tensor, int64_t from, int64_t count, int to,
		       uint32_t tag, milliseconds timeout)
{
	const tow_call_attr how = attr(timeout);

	call.hold(tensor);
	call.begun(comm_, tow_send(comm_, bytes_of(tensor, from), count * tensor.element_size(),
			    element(TOW_DTYPE_UINT, 8), to, tag, &how, call.next()));
}

void Towline::add_receive(Call &call, const at::Tensor &tensor, int64_t from, int64_t count,
			  uint32_t sender, uint32_t tag, milliseconds timeout)
{
	const int64_t bytes = count * tensor.element_size();
	const tow_call_attr how = attr(timeout);

	call.hold(tensor);
	call.begun(comm_, tow_receive(comm_, bytes_of(tensor, from), bytes, element(TOW_DTYPE_UINT, 8),
			       sender, tag, &how, call.next(bytes)));
}

/* ---- one call of the library's each ---- */

intrusive_ptr<Work> Towline::broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts)
{
	const at::Tensor &tensor = only(tensors);

	must_be_rank(opts.rootRank);
	auto call = make(OpType::BROADCAST, "broadcast", "towline:broadcast", tensors, tensors);
	const at::Tensor data = whole(tensor);
	const Elements elements = elements_of(data);
	const tow_call_attr how = attr(opts.timeout);

	call->hold(data);
	if (getRank() != opts.rootRank)
		call->copies(tensor, data);
	call->begun(comm_, tow_broadcast(comm_, bytes_of(data), elements.count, elements.type,
				  opts.rootRank, &how, call->next()));
	return call;
}

intrusive_ptr<Work> Towline::allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts)
{
	if (tensors.size() == 1 && tensors[0].is_sparse() && tensors[0].device().is_cpu())
		return sum_sparse(tensors[0], opts);
	const at::Tensor &tensor = only(tensors);
	auto call = make(OpType::ALLREDUCE, "all_reduce", "towline:all_reduce", tensors, tensors);

	add_allreduce(*call, tensor, opts.reduceOp, opts.timeout);
	return call;
}

intrusive_ptr<Work> Towline::allreduce_coalesced(Tensors &tensors,
						 const c10d::AllreduceCoalescedOptions &opts)
{
	for (const at::Tensor &tensor : tensors) {
		must_be_here(tensor);
		reduction_of(opts.reduceOp, tensor);
	}
	auto call = make(OpType::ALLREDUCE_COALESCED, "all_reduce_coalesced", "towline:all_reduce",
			 tensors, tensors);
	const Together together(comm_);

	for (const at::Tensor &tensor : tensors)
		add_allreduce(*call, tensor, opts.reduceOp, opts.timeout);
	return call;
}

intrusive_ptr<Work> Towline::reduce(Tensors &tensors, const c10d::ReduceOptions &opts)
{
	const at::Tensor &tensor = only(tensors);
	const tow_reduction reduction = reduction_of(opts.reduceOp, tensor);

	must_be_rank(opts.rootRank);
	auto call = make(OpType::REDUCE, "reduce", "towline:reduce", tensors, tensors);
	const at::Tensor data = whole(tensor);
	const Elements elements = elements_of(data);
	const tow_call_attr how = attr(opts.timeout);

	call->hold(data);
	if (getRank() == opts.rootRank)
		call->copies(tensor, data);
	call->begun(comm_, tow_reduce(comm_, bytes_of(data), bytes_of(data), elements.count, elements.type,
			       reduction, opts.rootRank, &how, call->next()));
	return call;
}

intrusive_ptr<Work> Towline::allgather(std::vector<Tensors> &outs, Tensors &ins,
				       const c10d::AllgatherOptions &opts)
{
	const at::Tensor &in = only(ins);

	const Tensors &out = only_list(outs);

	must_be_alike(out, in, getSize());
	auto call = make(OpType::ALLGATHER, "all_gather", "towline:all_gather", ins, out);

	if (in_a_row(out)) {
		for (const at::Tensor &one : out)
			call->hold(one);
		add_allgather(*call, out[0], in, opts.timeout);
		return call;
	}
	const at::Tensor all = room_for(out.size(), in);

	add_allgather(*call, all, in, opts.timeout);
	for (size_t i = 0; i < out.size(); i++)
		call->copies(out[i], all[i]);
	return call;
}

intrusive_ptr<Work> Towline::_allgather_base(at::Tensor &out, at::Tensor &in,
					     const c10d::AllgatherOptions &opts)
{
	Tensors outs { out }, ins { in };

	return allgather_coalesced_base(outs, ins, "all_gather", OpType::_ALLGATHER_BASE, opts);
}

intrusive_ptr<Work> Towline::allgather_coalesced_base(Tensors &outs, Tensors &ins, const char *what,
						      OpType type, const c10d::AllgatherOptions &opts)
{
	if (outs.size() != ins.size())
		invalid("as many tensors are wanted for what comes as there are");
	for (size_t i = 0; i < ins.size(); i++) {
		must_match(outs[i], ins[i]);
		if (outs[i].numel() != getSize() * ins[i].numel())
			invalid("what comes has as many elements as all ranks' tensors");
	}
	auto call = make(type, what, "towline:all_gather", ins, outs);
	const Together together(comm_);

	for (size_t i = 0; i < ins.size(); i++) {
		const at::Tensor all = place_for(outs[i]);

		call->copies(outs[i], all);
		add_allgather(*call, all, ins[i], opts.timeout);
	}
	return call;
}

/* @outs: by rank, and then as @ins. */
intrusive_ptr<Work> Towline::allgather_coalesced(std::vector<Tensors> &outs, Tensors &ins,
						 const c10d::AllgatherOptions &opts)
{
	if (outs.size() != static_cast<size_t>(getSize()))
		invalid("a list of tensors of each rank is wanted");
	for (const Tensors &out : outs) {
		if (out.size() != ins.size())
			invalid("each rank's list has as many tensors as this rank's");
		for (size_t i = 0; i < ins.size(); i++)
			must_be_alike({ out[i] }, ins[i], 1);
	}
	auto call = make(OpType::ALLGATHER_COALESCED, "all_gather_coalesced", "towline:all_gather",
			 ins, outs[getRank()]);
	const Together together(comm_);

	for (size_t i = 0; i < ins.size(); i++) {
		must_be_here(ins[i]);
		const at::Tensor all = room_for(outs.size(), ins[i]);

		add_allgather(*call, all, ins[i], opts.timeout);
		for (size_t rank = 0; rank < outs.size(); rank++)
			call->copies(outs[rank][i], all[rank]);
	}
	return call;
}

intrusive_ptr<Work> Towline::reduce_scatter(Tensors &outs, std::vector<Tensors> &ins,
					    const c10d::ReduceScatterOptions &opts)
{
	const at::Tensor &out = only(outs);

	const Tensors &in = only_list(ins);

	must_be_alike(in, out, getSize());
	reduction_of(opts.reduceOp, out);
	auto call = make(OpType::REDUCE_SCATTER, "reduce_scatter", "towline:reduce_scatter", in, outs);

	if (in_a_row(in)) {
		for (const at::Tensor &one : in)
			call->hold(one);
		add_reduce_scatter(*call, out, in[0], opts.reduceOp, opts.timeout);
		return call;
	}
	const at::Tensor all = room_for(in.size(), out);
	at::NoGradGuard plain;

	for (size_t i = 0; i < in.size(); i++)
		all[i].copy_(in[i].reshape(out.sizes()));
	add_reduce_scatter(*call, out, all, opts.reduceOp, opts.timeout);
	return call;
}

intrusive_ptr<Work> Towline::reduce_scatter_base(Tensors &outs, Tensors &ins, OpType type,
						 const c10d::ReduceScatterOptions &opts)
{
	if (outs.size() != ins.size())
		invalid("as many tensors are wanted for what comes as there are");
	for (size_t i = 0; i < ins.size(); i++) {
		must_match(outs[i], ins[i]);
		if (ins[i].numel() != getSize() * outs[i].numel())
			invalid("what is reduced has as many elements as all ranks get");
		reduction_of(opts.reduceOp, ins[i]);
	}
	auto call = make(type, "reduce_scatter", "towline:reduce_scatter", ins, outs);
	const Together together(comm_);

	for (size_t i = 0; i < ins.size(); i++)
		add_reduce_scatter(*call, outs[i], whole(ins[i]), opts.reduceOp, opts.timeout);
	return call;
}

intrusive_ptr<Work> Towline::_reduce_scatter_base(at::Tensor &out, at::Tensor &in,
						  const c10d::ReduceScatterOptions &opts)
{
	Tensors outs { out }, ins { in };

	return reduce_scatter_base(outs, ins, OpType::_REDUCE_SCATTER_BASE, opts);
}

#if TORCH_VERSION_MAJOR >= 2
intrusive_ptr<Work> Towline::allgather_into_tensor_coalesced(Tensors &outs, Tensors &ins,
							     const c10d::AllgatherOptions &opts)
{
	return allgather_coalesced_base(outs, ins, "all_gather_coalesced", OpType::COALESCED, opts);
}

intrusive_ptr<Work> Towline::reduce_scatter_tensor_coalesced(
	Tensors &outs, Tensors &ins, const c10d::ReduceScatterOptions &opts)
{
	return reduce_scatter_base(outs, ins, OpType::COALESCED, opts);
}
#endif

intrusive_ptr<Work> Towline::barrier(const c10d::BarrierOptions &opts)
{
	auto call = make(OpType::BARRIER, "barrier", "towline:barrier", {}, {});
	const tow_call_attr how = attr(opts.timeout);

	call->begun(comm_, tow_barrier(comm_, &how, call->next()));
	return call;
}

/* What all ranks have, and at once. */
at::Tensor Towline::gathered(const at::Tensor &mine, milliseconds timeout)
{
	at::Tensor all = room_for(getSize(), mine);
	auto begin = [&] {
		auto call = make(OpType::ALLGATHER, "all_reduce", nullptr, {}, {});

		add_allgather(*call, all, mine, timeout);
		return call.done();
	};

	begin()->wait(kNoTimeout);
	return all;
}

/*
 * Of sparse tensors all get what each has, and add it up.  How much each has is told first, so this
 * has ended when it returns.
 */
intrusive_ptr<Work> Towline::sum_sparse(at::Tensor &tensor, const c10d::AllreduceOptions &opts)
{
	if (opts.reduceOp.op_ != c10d::ReduceOp::SUM)
		invalid("sparse tensors are summed up, and not reduced otherwise");
	at::NoGradGuard plain;
	collectives_++;
	const at::Tensor mine = tensor.coalesce();
	const at::Tensor indices = mine.indices(), values = mine.values();
	std::vector<int64_t> shape { mine.sparse_dim(), mine.dense_dim() };

	shape.insert(shape.end(), mine.sizes().begin(), mine.sizes().end());
	const at::Tensor counts = gathered(at::tensor({ mine._nnz(), mine.dim() }, at::kLong), opts.timeout);
	const at::Tensor dims = counts.select(1, 1);

	if (dims.ne(mine.dim()).any().item<bool>())
		invalid("sparse tensors of one call have as many dimensions");
	if (gathered(at::tensor(shape, at::kLong), opts.timeout).ne(at::tensor(shape, at::kLong))
		    .any().item<bool>())
		invalid("sparse tensors of one call have the same shape");
	const int64_t most = counts.select(1, 0).max().item<int64_t>(), have = mine._nnz();
	std::vector<int64_t> value_sizes = values.sizes().vec();

	value_sizes[0] = most;
	at::Tensor my_indices = at::zeros({ mine.sparse_dim(), most }, at::kLong);
	at::Tensor my_values = at::zeros(value_sizes, values.options());

	my_indices.narrow(1, 0, have).copy_(indices);
	my_values.narrow(0, 0, have).copy_(values);
	const at::Tensor all_indices = gathered(my_indices, opts.timeout);
	const at::Tensor all_values = gathered(my_values, opts.timeout);
	std::vector<at::Tensor> index, value;

	for (int rank = 0; rank < getSize(); rank++) {
		const int64_t count = counts[rank][0].item<int64_t>();

		index.push_back(all_indices[rank].narrow(1, 0, count));
		value.push_back(all_values[rank].narrow(0, 0, count));
	}
	tensor.copy_(at::sparse_coo_tensor(at::cat(index, 1), at::cat(value, 0), mine.sizes(),
					   mine.options()).coalesce());
	auto call = c10::make_intrusive<Call>(OpType::ALLREDUCE, "all_reduce", nullptr, Tensors());

	call->gives({ tensor });
	call->made(false);
	call->look(0);
	return call;
}

/* ---- letters ---- */

intrusive_ptr<Work> Towline::send(Tensors &tensors, int to, int tag)
{
	const at::Tensor data = whole(only(tensors));
	const uint32_t known = program_tag(tag);

	must_be_rank(to);
	auto call = make(OpType::SEND, "send", "towline:send", tensors, {});

	add_send(*call, data, 0, data.numel(), to, known, c10d::kUnsetTimeout);
	return call;
}

intrusive_ptr<Work> Towline::receive(Tensors &tensors, uint32_t from, int tag)
{
	const at::Tensor &tensor = only(tensors);
	const uint32_t known = program_tag(tag);
	const bool any = from == TOW_ANY_RANK;
	const at::Tensor data = place_for(tensor);
	auto call = make(any ? OpType::RECVANYSOURCE : OpType::RECV, "recv",
			 any ? "towline:recvAnySource" : "towline:recv", tensors, tensors);

	call->copies(tensor, data);
	add_receive(*call, data, 0, data.numel(), from, known, c10d::kUnsetTimeout);
	return call;
}

intrusive_ptr<Work> Towline::recv(Tensors &tensors, int from, int tag)
{
	must_be_rank(from);
	return receive(tensors, from, tag);
}

intrusive_ptr<Work> Towline::recvAnysource(Tensors &tensors, int tag)
{
	return receive(tensors, TOW_ANY_RANK, tag);
}

intrusive_ptr<Work> Towline::gather(std::vector<Tensors> &outs, Tensors &ins,
				    const c10d::GatherOptions &opts)
{
	const uint32_t tag = next_tag();
	const at::Tensor data = whole(only(ins));
	const bool root = getRank() == opts.rootRank;

	must_be_rank(opts.rootRank);
	must_be_of_root(outs, root);
	if (root)
		must_be_alike(outs[0], data, getSize());
	auto call = make(OpType::GATHER, "gather", "towline:gather", ins, root ? outs[0] : Tensors());
	const Together together(comm_);

	if (!root) {
		add_send(*call, data, 0, data.numel(), opts.rootRank, tag, opts.timeout);
		return call;
	}
	for (int rank = 0; rank < getSize(); rank++) {
		const at::Tensor &out = outs[0][rank];

		if (rank == getRank()) {
			call->copies(out, data);
			continue;
		}
		const at::Tensor to = place_for(out);

		call->copies(out, to);
		add_receive(*call, to, 0, to.numel(), rank, tag, opts.timeout);
	}
	return call;
}

intrusive_ptr<Work> Towline::scatter(Tensors &outs, std::vector<Tensors> &ins,
				     const c10d::ScatterOptions &opts)
{
	const uint32_t tag = next_tag();
	const at::Tensor &out = only(outs);
	const bool root = getRank() == opts.rootRank;

	must_be_rank(opts.rootRank);
	must_be_of_root(ins, root);
	if (root)
		must_be_alike(ins[0], out, getSize());
	auto call = make(OpType::SCATTER, "scatter", "towline:scatter", root ? ins[0] : Tensors(), outs);
	const Together together(comm_);

	if (!root) {
		const at::Tensor to = place_for(out);

		call->copies(out, to);
		add_receive(*call, to, 0, to.numel(), opts.rootRank, tag, opts.timeout);
		return call;
	}
	for (int rank = 0; rank < getSize(); rank++) {
		const at::Tensor data = whole(ins[0][rank]);

		if (rank == getRank())
			call->copies(out, data);
		else
			add_send(*call, data, 0, data.numel(), rank, tag, opts.timeout);
	}
	return call;
}

/* Of how many elements each rank's part is; @splits are of the first dimension, or it is cut evenly. */
std::vector<int64_t> parts_of(const at::Tensor &tensor, const std::vector<int64_t> &splits, int ranks)
{
	const int64_t rows = tensor.dim() ? tensor.size(0) : 1, row = rows ? tensor.numel() / rows : 0;
	std::vector<int64_t> parts;

	if (splits.empty() && rows % ranks)
		invalid("the first dimension is not a multiple of the number of ranks");
	if (!splits.empty() && splits.size() != static_cast<size_t>(ranks))
		invalid("a split size for each rank is wanted");
	for (int rank = 0; rank < ranks; rank++) {
		const int64_t part = splits.empty() ? rows / ranks : splits[rank];

		if (part < 0)
			invalid("a split size is negative");
		parts.push_back(part * row);
	}
	if (!splits.empty() && std::accumulate(splits.begin(), splits.end(), int64_t(0)) != rows)
		invalid("split sizes add up to the first dimension");
	return parts;
}

intrusive_ptr<Work> Towline::alltoall_base(at::Tensor &out, at::Tensor &in,
					   std::vector<int64_t> &out_splits,
					   std::vector<int64_t> &in_splits,
					   const c10d::AllToAllOptions &opts)
{
	const uint32_t tag = next_tag();
	must_match(out, in);
	const std::vector<int64_t> comes = parts_of(out, out_splits, getSize());
	const std::vector<int64_t> goes = parts_of(in, in_splits, getSize());

	if (comes[getRank()] != goes[getRank()])
		invalid("a rank sends itself as much as it receives");
	auto call = make(OpType::ALLTOALL_BASE, "all_to_all_single", "towline:all_to_all", { in }, { out });
	const at::Tensor from = whole(in), to = place_for(out);
	int64_t at_in = 0, at_out = 0;
	const Together together(comm_);

	call->copies(out, to);
	for (int rank = 0; rank < getSize(); rank++) {
		if (rank == getRank()) {
			memcpy(bytes_of(to, at_out), bytes_of(from, at_in),
			       goes[rank] * from.element_size());
		} else {
			add_receive(*call, to, at_out, comes[rank], rank, tag, opts.timeout);
			add_send(*call, from, at_in, goes[rank], rank, tag, opts.timeout);
		}
		at_in += goes[rank];
		at_out += comes[rank];
	}
	return call;
}

intrusive_ptr<Work> Towline::alltoall(Tensors &outs, Tensors &ins, const c10d::AllToAllOptions &opts)
{
	const uint32_t tag = next_tag();
	const size_t ranks = getSize();

	if (outs.size() != ranks || ins.size() != ranks)
		invalid("lists of one tensor for each rank are wanted");
	for (size_t rank = 0; rank < ranks; rank++) {
		must_match(outs[rank], ins[rank]);
	}
	must_be_alike({ outs[getRank()] }, ins[getRank()], 1);
	auto call = make(OpType::ALLTOALL, "all_to_all", "towline:all_to_all", ins, outs);
	const Together together(comm_);

	for (size_t rank = 0; rank < ranks; rank++) {
		const at::Tensor from = whole(ins[rank]), &out = outs[rank];

		if (static_cast<int>(rank) == getRank()) {
			call->copies(out, from);
			continue;
		}
		const at::Tensor to = place_for(out);

		call->copies(out, to);
		add_receive(*call, to, 0, to.numel(), rank, tag, opts.timeout);
		add_send(*call, from, 0, from.numel(), rank, tag, opts.timeout);
	}
	return call;
}

/* All tell rank 0 that they are there, and it tells them that all are. */
void Towline::monitoredBarrier(const c10d::BarrierOptions &opts, bool wait_all_ranks)
{
	const uint32_t tag = BARRIERS | (barriers_++ & NUMBERS);
	const Clock::time_point until = Clock::now() + time(opts.timeout);
	auto left = [until] {
		return std::max(milliseconds(1),
				std::chrono::duration_cast<milliseconds>(until - Clock::now()));
	};
	auto letter = [&](int rank, bool send) {
		auto call = make(OpType::BARRIER, "monitored_barrier", nullptr, {}, {});
		at::Tensor nothing = at::empty({ 0 }, at::kByte);

		if (send)
			add_send(*call, nothing, 0, 0, rank, tag, left());
		else
			add_receive(*call, nothing, 0, 0, rank, tag, left());
		return call.done();
	};
	std::vector<std::pair<int, intrusive_ptr<Call>>> letters;
	std::string missing, first;

	if (getRank()) {
		letter(0, true)->wait(kNoTimeout);
		letter(0, false)->wait(kNoTimeout);
		return;
	}
	for (int rank = 1; rank < getSize(); rank++)
		letters.emplace_back(rank, letter(rank, false));
	for (auto &[rank, call] : letters) {
		try {
			call->wait(kNoTimeout);
		} catch (const py::error_already_set &) {
			throw;
		} catch (const std::exception &error) {
			/* Who has died, or has broken off, is named there. */
			if (failed())
				throw;
			if (missing.empty())
				first = error.what();
			missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
			if (!wait_all_ranks)
				break;
		}
	}
	if (!missing.empty())
		throw std::runtime_error("towline: monitored_barrier: rank" +
					 std::string(missing.find(',') == std::string::npos ? " " : "s ") +
					 missing + " did not come in " +
					 std::to_string(time(opts.timeout).count()) + " ms (" + first + ")");
	for (int rank = 1; rank < getSize(); rank++)
		letter(rank, true)->wait(kNoTimeout);
}

/* ---- asking ---- */

struct tow_comm_stats Towline::counts()
{
	const Use use(*this, "stats");
	struct tow_comm_stats stats = {};

	stats.size = sizeof(stats);
	tow_comm_stats(comm_, &stats);
	return stats;
}

/* ---- Python ---- */

py::dict dict_of(const struct tow_comm_stats &stats)
{
	using namespace py::literals;

	return py::dict("calls"_a = stats.calls, "sent_bytes"_a = stats.sent_bytes,
			"eager_bytes"_a = stats.eager_bytes, "staged_bytes"_a = stats.staged_bytes,
			"copied_bytes"_a = stats.copied_bytes);
}

py::dict memory_dict()
{
	using namespace py::literals;
	struct tow_arena_stats stats = {};
	Node *node = node_of_process;

	stats.size = sizeof(stats);
	if (node)
		tow_arena_stats(node->arena, &stats);
	return py::dict("in_use_bytes"_a = stats.in_use_bytes,
			"reserved_bytes"_a = stats.reserved_bytes, "peak_bytes"_a = stats.peak_bytes,
			"allocations"_a = stats.allocations, "fallbacks"_a = stats.fallbacks,
			"fallback_bytes"_a = stats.fallback_bytes);
}

bool in_pool(const at::Tensor &tensor)
{
	Node *node = node_of_process;
	tow_region *region;
	uint64_t offset;

	return node && tensor.device().is_cpu() && tensor.layout() == at::kStrided &&
	       !tow_arena_find(node->arena, tensor.data_ptr(), &region, &offset);
}

/* Those that were made here, of which some may be gone; under node_lock. */
std::vector<c10::weak_intrusive_ptr<Towline>> groups;

intrusive_ptr<Base> create(const intrusive_ptr<c10d::Store> &store, int rank, int size, milliseconds timeout)
{
	auto made = c10::make_intrusive<Towline>(store, rank, size, timeout);
	std::lock_guard<std::mutex> locked(node_lock);

	groups.erase(std::remove_if(groups.begin(), groups.end(), [](auto &one) { return one.expired(); }),
		     groups.end());
	groups.emplace_back(made);
	return made;
}

/* Also those that were destroyed, and that an exception's traceback has still. */
void close_all()
{
	std::vector<c10::weak_intrusive_ptr<Towline>> every;

	{
		std::lock_guard<std::mutex> locked(node_lock);
		every.swap(groups);
	}
	for (auto &one : every)
		if (intrusive_ptr<Towline> group = one.lock())
			group->close();
}

Towline &ours(const intrusive_ptr<Base> &group)
{
	auto *made = dynamic_cast<Towline *>(group.get());

	if (!made)
		throw py::type_error("towline: it is a group of another backend, " +
				     group->getBackendName());
	return *made;
}

/* By as many threads as PyTorch computes with, each with a part that is worth one. */
void copy(char *to, const char *from, size_t bytes)
{
	constexpr size_t LEAST = 8 << 20;
	size_t parts = std::min<size_t>(at::get_num_threads(), bytes / LEAST);
	std::vector<std::thread> others;

	others.reserve(parts);
	try {
		for (; parts > 1; parts--) {
			size_t part = bytes / parts;

			others.emplace_back(memcpy, to + bytes - part, from + bytes - part, part);
			bytes -= part;
		}
	} catch (const std::exception &) {
		/* No more threads: what is left is this one's. */
	}
	memcpy(to, from, bytes);
	for (std::thread &other : others)
		other.join();
}

}

PYBIND11_MODULE(_backend, module)
{
	using Released = py::call_guard<py::gil_scoped_release>;

	module.def("create", create, Released());
	module.def("close_all", close_all, Released());
	module.def("abort", [](const intrusive_ptr<Base> &group) { ours(group).break_off(); }, Released());
	module.def("close", [](const intrusive_ptr<Base> &group) { ours(group).close(); }, Released());
	module.def("monitored_barrier", [](const intrusive_ptr<Base> &group, milliseconds timeout,
					   bool wait_all_ranks) {
		c10d::BarrierOptions opts;

		opts.timeout = timeout;
		ours(group).monitoredBarrier(opts, wait_all_ranks);
	}, Released());
	module.def("stats", [](const intrusive_ptr<Base> &group) { return dict_of(ours(group).counts()); });
	module.def("memory", memory_dict);
	module.def("in_pool", in_pool);
	module.def("use_memory", use_memory, Released());
	module.def("scope", [](bool on) { bool before = in_scope; in_scope = on; return before; });
	/* No handler of a signal's runs in between: see towline/torch/_persistent.py. */
	module.def("commit", [](uintptr_t word, int64_t trained, uintptr_t to, uintptr_t from, size_t bytes,
				int64_t copied) {
		auto *at = reinterpret_cast<std::atomic<int64_t> *>(word);

		at->store(trained, std::memory_order_seq_cst);
		copy(reinterpret_cast<char *>(to), reinterpret_cast<const char *>(from), bytes);
		at->store(copied, std::memory_order_seq_cst);
	}, Released());
	module.def("copy", [](uintptr_t to, uintptr_t from, size_t bytes) {
		copy(reinterpret_cast<char *>(to), reinterpret_cast<const char *>(from), bytes);
	}, Released());
	module.def("whole_process", [](bool on) { return whole_process.exchange(on); });
}
