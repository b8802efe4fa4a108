// SPDX-License-Identifier: GPL-2.0
/*
 * What tensor_edge.c does, by gRPC over TCP: a tensor a step to a server, which takes the
 * largest element and answers with it.
 *
 *	grpc_tensor -m serve -a ADDRESS:PORT
 *	grpc_tensor -m send -a ADDRESS:PORT [-s BYTES] [-n STEPS]
 *
 * One message is used in all steps; its bytes are copied by gRPC and the protocol buffers as
 * they see fit.  us_per_step.
 */
#include <getopt.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "grpc_tensor.grpc.pb.h"

namespace {

constexpr unsigned long WARM = 3;

class Server final : public towbench::Consumer::Service {
	grpc::Status Put(grpc::ServerContext *, const towbench::Tensor *tensor,
			 towbench::Largest *largest) override
	{
		const std::string &content = tensor->content();
		const float *data = reinterpret_cast<const float *>(content.data());
		float most = data[0];

		for (size_t i = 1; i < content.size() / sizeof(float); i++)
			most = data[i] > most ? data[i] : most;
		largest->set_element(most);
		return grpc::Status::OK;
	}
};

int serve(const std::string &address)
{
	Server service;
	grpc::ServerBuilder builder;

	builder.AddListeningPort(address, grpc::InsecureServerCredentials());
	builder.SetMaxReceiveMessageSize(-1);
	builder.RegisterService(&service);
	std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
	if (!server) {
		std::fprintf(stderr, "grpc_tensor: cannot listen at %s\n", address.c_str());
		return 1;
	}
	server->Wait();
	return 0;
}

bool step(towbench::Consumer::Stub &consumer, towbench::Tensor &tensor, unsigned long number)
{
	towbench::Largest largest;
	grpc::ClientContext context;
	float element = static_cast<float>(number);
	std::string *content = tensor.mutable_content();

	context.set_wait_for_ready(true);
	tensor.set_step(static_cast<int64_t>(number));
	std::memcpy(&(*content)[number % (content->size() / sizeof(float)) * sizeof(float)],
		    &element, sizeof(element));
	grpc::Status status = consumer.Put(&context, tensor, &largest);
	if (!status.ok())
		std::fprintf(stderr, "grpc_tensor: %s\n", status.error_message().c_str());
	else if (largest.element() != element)
		std::fprintf(stderr, "grpc_tensor: another tensor has come\n");
	return status.ok() && largest.element() == element;
}

int send(const std::string &address, size_t bytes, unsigned long steps)
{
	using clock = std::chrono::steady_clock;
	grpc::ChannelArguments arguments;
	towbench::Tensor tensor;
	clock::time_point start;

	arguments.SetMaxReceiveMessageSize(-1);
	arguments.SetMaxSendMessageSize(-1);
	auto consumer = towbench::Consumer::NewStub(grpc::CreateCustomChannel(
		address, grpc::InsecureChannelCredentials(), arguments));
	tensor.set_dtype(1);
	tensor.add_dim(static_cast<int64_t>(bytes / sizeof(float)));
	tensor.mutable_content()->assign(bytes, '\0');
	for (unsigned long number = 1; number <= WARM + steps; number++) {
		if (!step(*consumer, tensor, number))
			return 1;
		if (number == WARM)
			start = clock::now();
	}
	std::chrono::duration<double, std::micro> took = clock::now() - start;
	std::printf("us_per_step %.1f\n", took.count() / static_cast<double>(steps));
	return 0;
}

int usage()
{
	std::fputs("usage: grpc_tensor -m serve|send -a ADDRESS:PORT [-s BYTES] [-n STEPS]\n",
		   stderr);
	return 2;
}

} // namespace

int main(int argc, char **argv)
{
	std::string mode, address;
	unsigned long bytes = 1024, steps = 100;
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
	if (address.empty() || bytes < 16 || !steps)
		return usage();
	if (mode == "serve")
		return serve(address);
	return mode == "send" ? send(address, bytes, steps) : usage();
}
