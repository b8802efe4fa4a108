// SPDX-License-Identifier: GPL-2.0
/*
 * AllReduce as allreduce.c does it, by Gloo's AllreduceRingChunked ("ring"),
 * AllreduceHalvingDoubling ("direct") or allreduce() ("call", over TCP only), over its transport for
 * RDMA or the one for TCP; or how long it takes to connect all to each other ("create"):
 *
 *	gloo_allreduce -r RANK [-p RANKS] -a ADDRESS:PORT [-t ibverbs|tcp] [-d DEVICE]
 *		[-g GID_INDEX] [-o OWN_ADDRESS] [-k ring|direct|call|create] [-s BYTES] [-n CALLS]
 *		[-x WORK]
 *
 * -x: an algorithm is run by another thread while the rank does so much work (sample.h), and then waits
 * for it, as torch does.
 *
 * Rank 0 listens at ADDRESS:PORT, by which all learn where the others are.  It prints the same
 * as there, but for sent_bytes.
 */
#include <arpa/inet.h>
#include <getopt.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/ibverbs/device.h>
#include <gloo/transport/tcp/device.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "sample.h"

namespace {

using gloo::transport::Device;

/* Connections to rank 0, by which all say what they have: each as often, and all get all of it. */
class Meeting : public gloo::rendezvous::Store {
	std::map<std::string, std::vector<char>> said;
	std::vector<int> sockets;	/* of rank 0: to all others; else to rank 0 */
	int rank, ranks;

	static void write_all(int socket, const void *data, size_t bytes)
	{
		if (::send(socket, data, bytes, MSG_NOSIGNAL) != static_cast<ssize_t>(bytes))
			throw std::runtime_error("another one is gone");
	}

	static std::vector<char> read_one(int socket)
	{
		uint32_t bytes = 0;

		if (recv(socket, &bytes, sizeof(bytes), MSG_WAITALL) != sizeof(bytes))
			throw std::runtime_error("another one says nothing");
		std::vector<char> data(bytes);
		if (recv(socket, data.data(), bytes, MSG_WAITALL) != static_cast<ssize_t>(bytes))
			throw std::runtime_error("another one says too little");
		return data;
	}

	static void add(std::vector<char> &message, const char *data, size_t size)
	{
		auto bytes = static_cast<uint32_t>(size);
		const auto *head = reinterpret_cast<const char *>(&bytes);

		message.insert(message.end(), head, head + sizeof(bytes));
		message.insert(message.end(), data, data + size);
	}

	static void no_delay(int socket)
	{
		int yes = 1;

		setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	}

	void read_pair(int socket)
	{
		auto name = read_one(socket);

		said[std::string(name.begin(), name.end())] = read_one(socket);
	}

	void listen_for(int others, const sockaddr *where, socklen_t bytes)
	{
		int own = ::socket(AF_INET, SOCK_STREAM, 0), yes = 1;

		setsockopt(own, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
		if (bind(own, where, bytes) || listen(own, others))
			throw std::runtime_error("cannot listen");
		for (int i = 0; i < others; i++)
			sockets.push_back(accept(own, nullptr, nullptr));
		close(own);
	}

	void go_to(const sockaddr *where, socklen_t bytes)
	{
		int own = ::socket(AF_INET, SOCK_STREAM, 0);

		for (int i = 0; i < 300 && connect(own, where, bytes); i++) {
			close(own);
			usleep(100000);
			own = ::socket(AF_INET, SOCK_STREAM, 0);
		}
		sockets.push_back(own);
	}

public:
	Meeting(int rank, int ranks, const sockaddr_in &address) : rank(rank), ranks(ranks)
	{
		const auto *where = reinterpret_cast<const sockaddr *>(&address);

		if (rank)
			go_to(where, sizeof(address));
		else
			listen_for(ranks - 1, where, sizeof(address));
		for (int socket : sockets)
			no_delay(socket);
	}

	~Meeting() override
	{
		for (int socket : sockets)
			close(socket);
	}

	void set(const std::string &key, const std::vector<char> &data) override
	{
		std::vector<char> message;

		said = { { key, data } };
		if (rank) {
			add(message, key.data(), key.size());
			add(message, data.data(), data.size());
			write_all(sockets[0], message.data(), message.size());
			for (int i = 0; i < ranks; i++)
				read_pair(sockets[0]);
			return;
		}
		for (int socket : sockets)
			read_pair(socket);
		for (const auto &one : said) {
			add(message, one.first.data(), one.first.size());
			add(message, one.second.data(), one.second.size());
		}
		for (int socket : sockets)
			write_all(socket, message.data(), message.size());
	}

	std::vector<char> get(const std::string &key) override
	{
		return said.at(key);
	}

	void wait(const std::vector<std::string> &keys) override
	{
		for (const auto &key : keys)
			if (!said.count(key))
				throw std::runtime_error("nobody has said " + key);
	}

	/* Nobody goes on before all have come. */
	void gather()
	{
		set(std::to_string(rank), { 0 });
	}
};

struct Options {
	int rank = 0, ranks = 2;
	std::string address, port, transport = "ibverbs", device = "rxe0", own, algorithm = "ring";
	int gid = 1;
	unsigned long bytes = 4096, calls = 100, work = 0;
};

std::shared_ptr<Device> make_device(const Options &options)
{
	if (options.transport == "tcp")
		return gloo::transport::tcp::CreateDevice(options.own.c_str());
	return gloo::transport::ibverbs::CreateDevice({ options.device, 1, options.gid });
}

std::shared_ptr<gloo::rendezvous::Context> connect_all(const Options &options, Meeting &store,
						       std::shared_ptr<Device> &device)
{
	auto context = std::make_shared<gloo::rendezvous::Context>(options.rank, options.ranks);

	context->connectFullMesh(store, device);
	return context;
}

double timed(const std::function<void()> &what)
{
	double begin = now_us();

	what();
	return now_us() - begin;
}

/* Gloo aborts when a buffer is destroyed whose last send has not completed: none is. */
[[noreturn]] void leave()
{
	fflush(stdout);
	usleep(200000);
	_exit(0);
}

[[noreturn]] void measure(const Options &options, const std::function<double()> &once)
{
	std::vector<double> samples;
	double first = once();

	for (unsigned long i = 0; i < options.calls; i++)
		samples.push_back(once());
	if (!options.rank) {
		printf("first_us %.2f\n", first);
		report(samples.data(), samples.size());
	}
	leave();
}

[[noreturn]] void measure_creation(const Options &options, Meeting &store,
				   std::shared_ptr<Device> &device)
{
	measure(options, [&] {
		std::shared_ptr<gloo::Context> context;

		store.gather();
		double took = timed([&] { context = connect_all(options, store, device); });
		store.gather();
		return took;
	});
}

/* As torch's collectives do: any array, and nothing is made for it before. */
[[noreturn]] void measure_calls(const Options &options,
				const std::shared_ptr<gloo::Context> &context)
{
	void (*add)(void *, const void *, const void *, size_t) = gloo::sum<float>;
	std::vector<float> data(options.bytes / sizeof(float));

	measure(options, [&] {
		return timed([&] {
			gloo::AllreduceOptions how(context);

			how.setOutput(data.data(), data.size());
			how.setReduceFunction(add);
			gloo::allreduce(how);
		});
	});
}

[[noreturn]] void measure_algorithm(const Options &options,
				    const std::shared_ptr<gloo::Context> &context)
{
	std::vector<float> data(options.bytes / sizeof(float));
	std::vector<float *> arrays = { data.data() };
	std::unique_ptr<gloo::Algorithm> algorithm;
	int count = static_cast<int>(data.size());

	if (options.algorithm == "ring")
		algorithm = std::make_unique<gloo::AllreduceRingChunked<float>>(context, arrays,
										count);
	else
		algorithm = std::make_unique<gloo::AllreduceHalvingDoubling<float>>(context,
										    arrays, count);
	measure(options, [&] {
		return timed([&] {
			if (!options.work)
				return algorithm->run();
			auto running = std::async(std::launch::async, [&] { algorithm->run(); });

			do_work(options.work);
			running.get();
		});
	});
}

bool parse(int argc, char **argv, Options &options)
{
	int option;

	while ((option = getopt(argc, argv, "r:p:a:t:d:g:o:k:s:n:x:")) != -1) {
		std::string value = optarg ? optarg : "";

		switch (option) {
		case 'r': options.rank = atoi(optarg); break;
		case 'p': options.ranks = atoi(optarg); break;
		case 'a':
			options.address = value.substr(0, value.find(':'));
			options.port = value.substr(value.find(':') + 1);
			break;
		case 't': options.transport = value; break;
		case 'd': options.device = value; break;
		case 'g': options.gid = atoi(optarg); break;
		case 'o': options.own = value; break;
		case 'k': options.algorithm = value; break;
		case 's': options.bytes = strtoul(optarg, nullptr, 10); break;
		case 'n': options.calls = strtoul(optarg, nullptr, 10); break;
		case 'x': options.work = strtoul(optarg, nullptr, 10); break;
		default: return false;
		}
	}
	return optind == argc && options.calls;
}

} // namespace

int main(int argc, char **argv)
try {
	Options options;
	sockaddr_in address = {};

	if (!parse(argc, argv, options))
		return 2;
	address.sin_family = AF_INET;
	address.sin_port = htons(static_cast<uint16_t>(atoi(options.port.c_str())));
	if (inet_pton(AF_INET, options.address.c_str(), &address.sin_addr) != 1)
		return 2;
	Meeting store(options.rank, options.ranks, address);
	auto device = make_device(options);

	if (options.algorithm == "create")
		measure_creation(options, store, device);
	auto context = connect_all(options, store, device);

	if (options.algorithm == "call")
		measure_calls(options, context);
	measure_algorithm(options, context);
} catch (const std::exception &error) {
	fprintf(stderr, "gloo_allreduce: %s\n", error.what());
	return 1;
}
