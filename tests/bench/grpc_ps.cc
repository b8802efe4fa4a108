// SPDX-License-Identifier: GPL-2.0
/*
 * What ps.c does, by gRPC over TCP: a call for each variable, all of a step at once, with the
 * gradient in the request and the value in the answer.
 *
 *	grpc_ps -m serve -a ADDRESS:PORT [-r RATE]
 *	grpc_ps -m work -a ADDRESS:PORT -M MODEL [-d DIVIDE] [-n STEPS]
 *
 * The server takes RATE (1) times a gradient from its value.  The worker prints what report() has
 * of steps.
 */
#include <getopt.h>
#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "grpc_tensor.grpc.pb.h"
#include "models.h"
#include "sample.h"

namespace {

class Server final : public towbench::Variables::Service {
public:
	explicit Server(float taken) : rate(taken) {}

private:
	grpc::Status Update(grpc::ServerContext *, const towbench::Tensor *gradient,
			    towbench::Tensor *value) override
	{
		const std::string &content = gradient->content();
		const float *from = reinterpret_cast<const float *>(content.data());
		size_t count = content.size() / sizeof(float);
		std::vector<float> &variable = find(gradient->variable(), count);

		for (size_t i = 0; i < count; i++)
			variable[i] -= rate * from[i];
		value->set_variable(gradient->variable());
		value->set_content(variable.data(), content.size());
		return grpc::Status::OK;
	}

	/* One call at a time has a variable. */
	std::vector<float> &find(int number, size_t count)
	{
		std::lock_guard<std::mutex> guard(lock);
		std::vector<float> &variable = variables[number];

		if (variable.empty())
			variable.resize(count);
		return variable;
	}

	/* Known when it runs: the same arithmetic as ours. */
	const float rate;
	std::mutex lock;
	std::map<int, std::vector<float>> variables;
};

int serve(const std::string &address, float rate)
{
	Server service(rate);
	grpc::ServerBuilder builder;

	builder.AddListeningPort(address, grpc::InsecureServerCredentials());
	builder.SetMaxReceiveMessageSize(-1);
	builder.SetMaxSendMessageSize(-1);
	builder.RegisterService(&service);
	std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
	if (!server) {
		std::fprintf(stderr, "grpc_ps: cannot listen at %s\n", address.c_str());
		return 1;
	}
	server->Wait();
	return 0;
}

/* A variable's gradient, and what comes back. */
struct Call {
	towbench::Tensor gradient, value;
	grpc::Status status;
	std::unique_ptr<grpc::ClientContext> context;
	std::unique_ptr<grpc::ClientAsyncResponseReader<towbench::Tensor>> reader;
};

class Worker {
public:
	Worker(const std::string &address, const struct model &model) : calls(model.count)
	{
		grpc::ChannelArguments arguments;

		arguments.SetMaxReceiveMessageSize(-1);
		arguments.SetMaxSendMessageSize(-1);
		stub = towbench::Variables::NewStub(grpc::CreateCustomChannel(
			address, grpc::InsecureChannelCredentials(), arguments));
		for (uint32_t i = 0; i < model.count; i++) {
			std::vector<float> ones(model.elements[i], 1);

			calls[i].gradient.set_variable(static_cast<int>(i));
			calls[i].gradient.set_content(ones.data(), ones.size() * sizeof(float));
		}
	}

	double step()
	{
		double begin = now_us();
		bool ok;
		void *tag;

		for (Call &call : calls) {
			call.context = std::make_unique<grpc::ClientContext>();
			call.context->set_wait_for_ready(true);
			call.reader = stub->AsyncUpdate(call.context.get(), call.gradient, &queue);
			call.reader->Finish(&call.value, &call.status, &call);
		}
		for (size_t i = 0; i < calls.size(); i++) {
			if (!queue.Next(&tag, &ok) || !ok)
				die("a call was lost");
			if (!static_cast<Call *>(tag)->status.ok())
				die(static_cast<Call *>(tag)->status.error_message());
		}
		return now_us() - begin;
	}

	/* Each step has subtracted 1. */
	void look(unsigned long steps) const
	{
		for (const Call &call : calls) {
			const std::string &content = call.value.content();
			const float *value = reinterpret_cast<const float *>(content.data());

			if (content.size() != call.gradient.content().size())
				die("another variable has come");
			for (size_t i = 0; i < content.size() / sizeof(float); i++)
				if (value[i] != -static_cast<float>(steps))
					die("another value has come");
		}
	}

private:
	[[noreturn]] static void die(const std::string &why)
	{
		std::fprintf(stderr, "grpc_ps: %s\n", why.c_str());
		std::exit(1);
	}

	std::vector<Call> calls;
	std::unique_ptr<towbench::Variables::Stub> stub;
	grpc::CompletionQueue queue;
};

int work(const std::string &address, const struct model &model, unsigned long steps)
{
	Worker worker(address, model);
	std::vector<double> samples;

	worker.step();
	for (unsigned long i = 0; i < steps; i++)
		samples.push_back(worker.step());
	worker.look(steps + 1);
	report(samples.data(), samples.size());
	return 0;
}

int usage()
{
	std::fputs("usage: grpc_ps -m work -a ADDRESS:PORT [-M MODEL] [-d DIVIDE] [-n STEPS]\n"
		   "       grpc_ps -m serve -a ADDRESS:PORT [-r RATE]\n",
		   stderr);
	return 2;
}

} // namespace

int main(int argc, char **argv)
{
	std::string mode, address, name;
	unsigned long divide = 1, steps = 10;
	float rate = 1;
	int option;

	while ((option = getopt(argc, argv, "m:a:M:d:n:r:")) != -1) {
		if (option == 'm')
			mode = optarg;
		else if (option == 'a')
			address = optarg;
		else if (option == 'M')
			name = optarg;
		else if (option == 'd')
			divide = std::strtoul(optarg, nullptr, 0);
		else if (option == 'n')
			steps = std::strtoul(optarg, nullptr, 0);
		else if (option == 'r')
			rate = std::strtof(optarg, nullptr);
		else
			return usage();
	}
	if (address.empty() || !steps || !divide)
		return usage();
	if (mode == "serve")
		return serve(address, rate);
	struct model model = model_make(name.c_str(), divide);
	return mode == "work" && model.count ? work(address, model, steps) : usage();
}
