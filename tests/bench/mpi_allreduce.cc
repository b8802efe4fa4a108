// SPDX-License-Identifier: GPL-2.0
/*
 * What allreduce.c does, by MPI_Allreduce() and its like:
 *
 *	mpirun … mpi_allreduce [-o WHAT] [-s BYTES] [-n CALLS]
 *
 * Rank 0 prints the same as there, but for sent_bytes.
 */
#include <getopt.h>
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "sample.h"

namespace {

struct Job {
	std::string what = "allreduce";
	unsigned long bytes = 4096, calls = 100;
	int rank = 0, ranks = 1;
	std::vector<float> in, out;

	bool takes_turns() const
	{
		return what == "broadcast" || what == "reduce";
	}

	void make_arrays()
	{
		size_t larger = bytes / sizeof(float);
		size_t shard = larger / static_cast<size_t>(ranks);

		in.resize(what == "allgather" ? shard : larger);
		out.resize(what == "reduce_scatter" ? shard : larger);
	}

	void call(int root)
	{
		int ins = static_cast<int>(in.size()), outs = static_cast<int>(out.size());

		if (what == "allreduce")
			MPI_Allreduce(MPI_IN_PLACE, out.data(), outs, MPI_FLOAT, MPI_SUM,
				      MPI_COMM_WORLD);
		else if (what == "reduce_scatter")
			MPI_Reduce_scatter_block(in.data(), out.data(), outs, MPI_FLOAT, MPI_SUM,
						 MPI_COMM_WORLD);
		else if (what == "allgather")
			MPI_Allgather(in.data(), ins, MPI_FLOAT, out.data(), ins, MPI_FLOAT,
				      MPI_COMM_WORLD);
		else if (what == "broadcast")
			MPI_Bcast(out.data(), outs, MPI_FLOAT, root, MPI_COMM_WORLD);
		else if (what == "reduce")
			MPI_Reduce(in.data(), out.data(), ins, MPI_FLOAT, MPI_SUM, root,
				   MPI_COMM_WORLD);
		else
			MPI_Barrier(MPI_COMM_WORLD);
	}

	double once(unsigned long number)
	{
		double begin = now_us();

		call(static_cast<int>(number % static_cast<unsigned long>(ranks)));
		return now_us() - begin;
	}
};

void measure(Job &job)
{
	unsigned long warm = job.takes_turns() ? static_cast<unsigned long>(job.ranks) : 1;
	std::vector<double> samples;
	double first;

	MPI_Barrier(MPI_COMM_WORLD);
	first = job.once(0);
	for (unsigned long i = 1; i < warm; i++)
		job.once(i);
	for (unsigned long i = 0; i < job.calls; i++)
		samples.push_back(job.once(i));
	if (job.rank)
		return;
	printf("first_us %.2f\n", first);
	report(samples.data(), samples.size());
}

} // namespace

int main(int argc, char **argv)
{
	Job job;
	int option;

	MPI_Init(&argc, &argv);
	while ((option = getopt(argc, argv, "o:s:n:")) != -1) {
		switch (option) {
		case 'o': job.what = optarg; break;
		case 's': job.bytes = strtoul(optarg, nullptr, 10); break;
		case 'n': job.calls = strtoul(optarg, nullptr, 10); break;
		default: return 2;
		}
	}
	if (!job.calls || job.bytes > 1UL << 30)
		return 2;
	MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &job.ranks);
	job.make_arrays();
	measure(job);
	MPI_Finalize();
	return 0;
}
