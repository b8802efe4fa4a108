// SPDX-License-Identifier: GPL-2.0
/*
 * What allreduce.c does, by two processes with Gloo's AllreduceRingChunked ("ring") or
 * AllreduceHalvingDoubling ("direct"), over its transport for RDMA or the one for TCP:
 *
 *	gloo_allreduce -r 0|1 -a ADDRESS:PORT [-t ibverbs|tcp] [-d DEVICE] [-g GID_INDEX]
 *		[-o OWN_ADDRESS] [-k ring|direct] [-s BYTES] [-n CALLS]
 *
 * Rank 0 listens at ADDRESS:PORT, by which both learn where the other one is.  It prints the same
 * as there, but for sent_bytes.
 */
#include <arpa/inet.h>
#include <getopt.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/ibverbs/device.h>
#include <gloo/transport/tcp/device.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "sample.h"

namespace {

using gloo::transport::Device;

/* A connection between the two, by which each says what it has. */
class Pair : public gloo::rendezvous::Store {
	std::map<std::string, std::vector<char>> said;
	int socket = -1;

	void write_all(const void *data, size_t bytes)
	{
		if (::send(socket, data, bytes, MSG_NOSIGNAL) != static_cast<ssize_t>(bytes))
			throw std::runtime_error("the other one is gone");
	}

	std::vector<char> read_one()
	{
		uint32_t bytes = 0;

		if (recv(socket, &bytes, sizeof(bytes), MSG_WAITALL) != sizeof(bytes))
			throw std::runtime_error("the other one says nothing");
		std::vector<char> data(bytes);
		if (recv(socket, data.data(), bytes, MSG_WAITALL) != static_cast<ssize_t>(bytes))
			throw std::runtime_error("the other one says too little");
		return data;
	}

	void write_one(const char *data, size_t size)
	{
		auto bytes = static_cast<uint32_t>(size);

		write_all(&bytes, sizeof(bytes));
		write_all(data, size);
	}

public:
	Pair(bool listens, const sockaddr_in &address)
	{
		const auto *where = reinterpret_cast<const sockaddr *>(&address);
		int own = ::socket(AF_INET, SOCK_STREAM, 0), yes = 1;

		if (listens) {
			setsockopt(own, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
			if (bind(own, where, sizeof(address)) || listen(own, 1))
				throw std::runtime_error("cannot listen");
			socket = accept(own, nullptr, nullptr);
			close(own);
			return;
		}
		for (int i = 0; i < 300 && connect(own, where, sizeof(address)); i++) {
			close(own);
			usleep(100000);
			own = ::socket(AF_INET, SOCK_STREAM, 0);
		}
		socket = own;
	}

	~Pair() override
	{
		close(socket);
	}

	void set(const std::string &key, const std::vector<char> &data) override
	{
		said[key] = data;
		write_one(key.data(), key.size());
		write_one(data.data(), data.size());
	}

	std::vector<char> get(const std::string &key) override
	{
		wait({ key });
		return said[key];
	}

	void wait(const std::vector<std::string> &keys) override
	{
		for (const auto &key : keys) {
			while (!said.count(key)) {
				auto name = read_one();

				said[std::string(name.begin(), name.end())] = read_one();
			}
		}
	}
};

struct Options {
	int rank = 0;
	std::string address, port, transport = "ibverbs", device = "rxe0", own, algorithm = "ring";
	int gid = 1;
	unsigned long bytes = 4096, calls = 100;
};

std::shared_ptr<Device> make_device(const Options &options)
{
	if (options.transport == "tcp")
		return gloo::transport::tcp::CreateDevice(options.own.c_str());
	return gloo::transport::ibverbs::CreateDevice({ options.device, 1, options.gid });
}

double call(gloo::Algorithm &algorithm)
{
	double begin = now_us();

	algorithm.run();
	return now_us() - begin;
}

/* Gloo aborts when a buffer is destroyed whose last send has not completed: none is. */
[[noreturn]] void leave()
{
	fflush(stdout);
	usleep(200000);
	_exit(0);
}

[[noreturn]] void measure(const Options &options, const std::shared_ptr<gloo::Context> &context)
{
	std::vector<float> data(options.bytes / sizeof(float));
	std::vector<float *> arrays = { data.data() };
	std::vector<double> samples;
	std::unique_ptr<gloo::Algorithm> algorithm;
	int count = static_cast<int>(data.size());

	if (options.algorithm == "ring")
		algorithm = std::make_unique<gloo::AllreduceRingChunked<float>>(context, arrays,
										count);
	else
		algorithm = std::make_unique<gloo::AllreduceHalvingDoubling<float>>(context,
										    arrays, count);
	double first = call(*algorithm);

	for (unsigned long i = 0; i < options.calls; i++)
		samples.push_back(call(*algorithm));
	if (!options.rank) {
		printf("first_us %.2f\n", first);
		report(samples.data(), samples.size());
	}
	leave();
}

bool parse(int argc, char **argv, Options &options)
{
	int option;

	while ((option = getopt(argc, argv, "r:a:t:d:g:o:k:s:n:")) != -1) {
		std::string value = optarg ? optarg : "";

		switch (option) {
		case 'r': options.rank = atoi(optarg); break;
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
	Pair store(!options.rank, address);
	auto device = make_device(options);
	auto context = std::make_shared<gloo::rendezvous::Context>(options.rank, 2);

	context->connectFullMesh(store, device);
	measure(options, context);
} catch (const std::exception &error) {
	fprintf(stderr, "gloo_allreduce: %s\n", error.what());
	return 1;
}
