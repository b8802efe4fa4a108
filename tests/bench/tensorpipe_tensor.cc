// SPDX-License-Identifier: GPL-2.0
/*
 * What tensor_edge.c does, by TensorPipe over its transport of RDMA ("ibv"): a tensor a step
 * to the other end, which takes the largest element and answers with it.
 *
 *	tensorpipe_tensor -m serve -a ADDRESS:PORT
 *	tensorpipe_tensor -m send -a ADDRESS:PORT [-s BYTES] [-n STEPS]
 *
 * Tensors go over the channel "basic", the one that TensorPipe has for ordinary memory between
 * machines: through the connection's rings, into which and out of which they are copied.  The
 * memory is the same in all steps.  us_per_step.
 */
#include <getopt.h>
#include <tensorpipe/tensorpipe.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using tensorpipe::Allocation;
using tensorpipe::Descriptor;
using tensorpipe::Error;
using tensorpipe::Message;
using tensorpipe::Pipe;

constexpr unsigned long WARM = 3;

/* What a callback says, to be waited for. */
template <typename Said>
class Waiting {
	std::shared_ptr<std::promise<Said>> promise = std::make_shared<std::promise<Said>>();

public:
	void operator()(const Error &error, Said said)
	{
		if (error)
			promise->set_exception(
				std::make_exception_ptr(std::runtime_error(error.what())));
		else
			promise->set_value(std::move(said));
	}

	Said get()
	{
		return promise->get_future().get();
	}
};

Descriptor next(Pipe &pipe)
{
	Waiting<Descriptor> waiting;

	pipe.readDescriptor(waiting);
	return waiting.get();
}

void read(Pipe &pipe, Allocation allocation)
{
	Waiting<bool> waiting;

	pipe.read(std::move(allocation),
		  [waiting](const Error &error) mutable { waiting(error, true); });
	waiting.get();
}

void write(Pipe &pipe, Message message)
{
	Waiting<bool> waiting;

	pipe.write(std::move(message),
		   [waiting](const Error &error) mutable { waiting(error, true); });
	waiting.get();
}

tensorpipe::Buffer buffer_of(std::vector<float> &tensor)
{
	return tensorpipe::CpuBuffer{ .ptr = tensor.data() };
}

float largest(const std::vector<float> &tensor)
{
	float most = tensor[0];

	for (size_t i = 1; i < tensor.size(); i++)
		most = tensor[i] > most ? tensor[i] : most;
	return most;
}

void serve_one(Pipe &pipe)
{
	std::vector<float> tensor;

	for (;;) {
		Descriptor descriptor = next(pipe);
		Allocation allocation;
		Message answer;
		float most;

		tensor.resize(descriptor.tensors.at(0).length / sizeof(float));
		allocation.tensors.resize(1);
		allocation.tensors[0].buffer = buffer_of(tensor);
		read(pipe, allocation);
		most = largest(tensor);
		answer.metadata.assign(reinterpret_cast<const char *>(&most), sizeof(most));
		write(pipe, answer);
	}
}

void serve(tensorpipe::Context &context, const std::string &url)
{
	std::shared_ptr<tensorpipe::Listener> listener = context.listen({ url });

	for (;;) {
		Waiting<std::shared_ptr<Pipe>> waiting;

		listener->accept(waiting);
		std::shared_ptr<Pipe> pipe = waiting.get();
		try {
			serve_one(*pipe);
		} catch (const std::runtime_error &) {
			pipe->close();
		}
	}
}

void step(Pipe &pipe, std::vector<float> &tensor, unsigned long number)
{
	float element = static_cast<float>(number), most = 0;
	Message message;

	tensor[number % tensor.size()] = element;
	message.tensors.resize(1);
	message.tensors[0].buffer = buffer_of(tensor);
	message.tensors[0].length = tensor.size() * sizeof(float);
	write(pipe, message);
	Descriptor answer = next(pipe);
	read(pipe, Allocation());
	if (answer.metadata.size() == sizeof(most))
		std::memcpy(&most, answer.metadata.data(), sizeof(most));
	if (most != element)
		throw std::runtime_error("another tensor has come");
}

/* The other end, when it is there; and a first step. */
std::shared_ptr<Pipe> reach(tensorpipe::Context &context, const std::string &url,
			    std::vector<float> &tensor)
{
	for (int tries = 0;; tries++) {
		std::shared_ptr<Pipe> pipe = context.connect(url);

		try {
			step(*pipe, tensor, 1);
			return pipe;
		} catch (const std::runtime_error &) {
			pipe->close();
			if (tries == 300)
				throw;
		}
		std::this_thread::sleep_for(std::chrono::milliseconds(100));
	}
}

void send(tensorpipe::Context &context, const std::string &url, size_t bytes, unsigned long steps)
{
	using clock = std::chrono::steady_clock;
	std::vector<float> tensor(bytes / sizeof(float));
	std::shared_ptr<Pipe> pipe = reach(context, url, tensor);
	clock::time_point start;

	for (unsigned long number = 2; number <= WARM + steps; number++) {
		step(*pipe, tensor, number);
		if (number == WARM)
			start = clock::now();
	}
	std::chrono::duration<double, std::micro> took = clock::now() - start;
	std::printf("us_per_step %.1f\n", took.count() / static_cast<double>(steps));
	pipe->close();
}

int usage()
{
	std::fputs("usage: tensorpipe_tensor -m serve|send -a ADDRESS:PORT [-s BYTES] [-n STEPS]\n",
		   stderr);
	return 2;
}

} // namespace

int main(int argc, char **argv)
{
	auto context = std::make_shared<tensorpipe::Context>();
	unsigned long bytes = 1024, steps = 100;
	std::string mode, address;
	int option;

	while ((option = getopt(argc, argv, "m:a:s:n:")) != -1) {
		if (option == 'm')
			mode = optarg;
		else if (option == 'a')
			address = optarg;
		else if (option == 's')
			bytes = std::strtoul(optarg, nullptr, 0);
		else if (option == 'n')
			steps = std::strtoul(optarg, nullptr, 0);
		else
			return usage();
	}
	if (address.empty() || bytes < 16 || !steps || (mode != "serve" && mode != "send"))
		return usage();
	auto transport = tensorpipe::transport::ibv::create();
	if (!transport->isViable()) {
		std::fputs("tensorpipe_tensor: no RDMA device that it can use\n", stderr);
		return 1;
	}
	try {
		context->registerTransport(0, "ibv", transport);
		context->registerChannel(0, "basic", tensorpipe::channel::basic::create());
		if (mode == "serve")
			serve(*context, "ibv://" + address);
		else
			send(*context, "ibv://" + address, bytes, steps);
	} catch (const std::runtime_error &error) {
		std::fprintf(stderr, "tensorpipe_tensor: %s\n", error.what());
		return 1;
	}
	context->join();
	return 0;
}
