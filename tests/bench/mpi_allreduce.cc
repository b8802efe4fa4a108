// SPDX-License-Identifier: GPL-2.0
/*
 * What allreduce.c does, by MPI_Allreduce():
 *
 *	mpirun … mpi_allreduce [-s BYTES] [-n CALLS]
 *
 * Rank 0 prints the same as there, but for sent_bytes.
 */
#include <getopt.h>
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "sample.h"

namespace {

double call(std::vector<float> &data)
{
	double begin = now_us();

	MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_FLOAT, MPI_SUM,
		      MPI_COMM_WORLD);
	return now_us() - begin;
}

void measure(unsigned long bytes, unsigned long calls)
{
	std::vector<float> data(bytes / sizeof(float));
	std::vector<double> samples;
	double first;
	int rank;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Barrier(MPI_COMM_WORLD);
	first = call(data);
	for (unsigned long i = 0; i < calls; i++)
		samples.push_back(call(data));
	if (rank)
		return;
	printf("first_us %.2f\n", first);
	report(samples.data(), samples.size());
}

} // namespace

int main(int argc, char **argv)
{
	unsigned long bytes = 4096, calls = 100;
	int option;

	MPI_Init(&argc, &argv);
	while ((option = getopt(argc, argv, "s:n:")) != -1) {
		switch (option) {
		case 's': bytes = strtoul(optarg, nullptr, 10); break;
		case 'n': calls = strtoul(optarg, nullptr, 10); break;
		default: return 2;
		}
	}
	if (!calls || bytes > 1UL << 30)
		return 2;
	measure(bytes, calls);
	MPI_Finalize();
	return 0;
}
