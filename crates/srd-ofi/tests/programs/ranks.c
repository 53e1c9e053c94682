/* Ranks of an MPI with four threads each (MPI_THREAD_MULTIPLE): every thread has a communicator of
 * its own and exchanges tagged messages with its twin in the next rank, finds some by probing, and
 * checks every byte. All threads meet in collectives of their communicators, too. Meanwhile each rank
 * starts programs, forks, and uses libfabric for itself. */

#include "common.h"
#include <mpi.h>

#define THREADS 4
#define ROUNDS 150
#define LONGEST 300000

static const struct api api = {fi_getinfo, fi_freeinfo, fi_dupinfo, fi_fabric};
static int rank, ranks;
static MPI_Comm comms[THREADS];

static void check(int true_, const char *what, int line)
{
	if (!true_) {
		printf("rank %d, line %d: %s\n", rank, line, what);
		fflush(stdout);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}
#define CHECK(what) check((what), #what, __LINE__)

static unsigned char byte_of(int from, int thread, int round, size_t at)
{
	return (unsigned char)(from * 101 + thread * 31 + round * 7 + at * 3);
}

static int length_of(int round)
{
	static const int lengths[] = {0, 1, 100, 8000, 40000, 70000, LONGEST};
	return lengths[round % 7];
}

/* A program, and a child that only ends. */
static void start_others(void)
{
	int code;

	CHECK(system("true") == 0);
	pid_t child = fork();
	if (child == 0)
		_exit(0);
	CHECK(waitpid(child, &code, 0) == child && code == 0);
}

/* Endpoints of the application's own, beside those of MPI. */
static void use_libfabric(void)
{
	struct node a, b;

	node_open(&api, &a, FI_VERSION(1, 17), FI_THREAD_SAFE);
	node_open(&api, &b, FI_VERSION(1, 17), FI_THREAD_SAFE);
	node_meet(&a, &b);
	exchange(&a, &b, 100000, (unsigned char)rank);
	node_close(&api, &a);
	node_close(&api, &b);
}

static void *work(void *argument)
{
	int me = (int)(size_t)argument;
	MPI_Comm comm = comms[me];
	int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
	unsigned char *out = malloc(LONGEST), *in = malloc(LONGEST);

	for (int round = 0; round < ROUNDS; round++) {
		int length = length_of(round + me), count;
		MPI_Request request;
		MPI_Status status;

		for (int i = 0; i < length; i++)
			out[i] = byte_of(rank, me, round, i);
		memset(in, 0, length);
		MPI_Isend(out, length, MPI_BYTE, next, round, comm, &request);
		if (round % 3 == 0) {
			MPI_Probe(before, MPI_ANY_TAG, comm, &status);
			MPI_Get_count(&status, MPI_BYTE, &count);
			CHECK(count == length && status.MPI_TAG == round);
			MPI_Recv(in, count, MPI_BYTE, before, status.MPI_TAG, comm, &status);
		} else if (round % 3 == 1) {
			MPI_Message message;
			int found = 0;
			while (!found)
				MPI_Improbe(MPI_ANY_SOURCE, round, comm, &found, &message, &status);
			MPI_Get_count(&status, MPI_BYTE, &count);
			CHECK(count == length);
			MPI_Mrecv(in, count, MPI_BYTE, &message, &status);
		} else {
			MPI_Recv(in, LONGEST, MPI_BYTE, before, round, comm, &status);
			MPI_Get_count(&status, MPI_BYTE, &count);
			CHECK(count == length);
		}
		for (int i = 0; i < length; i++)
			CHECK(in[i] == byte_of(before, me, round, i));
		MPI_Wait(&request, &status);
		if (round % 25 == 0) {
			long mine = round + rank + me, sum;
			MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, comm);
			CHECK(sum == (long)ranks * (round + me) + (long)ranks * (ranks - 1) / 2);
		}
		if (me == 0 && round % 30 == 0)
			start_others();
		if (me == 1 && round % 50 == 0)
			use_libfabric();
	}
	free(in);
	free(out);
	return NULL;
}

int main(int count, char **arguments)
{
	pthread_t threads[THREADS];
	int provided;

	MPI_Init_thread(&count, &arguments, MPI_THREAD_MULTIPLE, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (provided != MPI_THREAD_MULTIPLE) {
		printf("this MPI does not offer MPI_THREAD_MULTIPLE over this transport\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	for (int i = 0; i < THREADS; i++)
		MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
	for (size_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	for (int i = 0; i < THREADS; i++)
		MPI_Comm_free(&comms[i]);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("%d ranks, %d threads each, %d rounds\n", ranks, THREADS, ROUNDS);
	MPI_Finalize();
	return 0;
}
