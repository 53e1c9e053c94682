/*
 * Messages round a ring of ranks, 1 byte to 4 MB, every byte checked; then a sum, and memory that
 * all ranks write and add to.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { BYTES_MAX = 4 << 20, ROUNDS = 20, TAG = 7, WORDS = 64 };

static int rank, ranks;

static void fail(const char *what, long at)
{
    fprintf(stderr, "rank %d: wrong %s at %ld\n", rank, what, at);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static unsigned char byte(int from, int round, int at)
{
    return (unsigned char)(from * 31 + round * 7 + at * 13);
}

static void messages(int bytes)
{
    int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks, arrived;
    unsigned char *out = malloc((size_t)bytes), *in = malloc((size_t)bytes);
    MPI_Status status;
    if (!out || !in)
        fail("memory", bytes);
    for (int round = 0; round < ROUNDS; round++) {
        for (int at = 0; at < bytes; at++)
            out[at] = byte(rank, round, at);
        MPI_Sendrecv(out, bytes, MPI_BYTE, next, TAG, in, bytes, MPI_BYTE, last, TAG,
                     MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &arrived);
        if (arrived != bytes)
            fail("length", arrived);
        for (int at = 0; at < bytes; at++)
            if (in[at] != byte(last, round, at))
                fail("byte", at);
    }
    free(out);
    free(in);
}

static void sum(void)
{
    int mine = rank + 1, all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (all != ranks * (ranks + 1) / 2)
        fail("sum", all);
}

/* Word 0 is added to by all, word 1 + r is written by rank r. */
static void memory(void)
{
    int *words, one = 1, mine = 100 + rank;
    MPI_Win window;
    MPI_Win_allocate(WORDS * sizeof *words, sizeof *words, MPI_INFO_NULL, MPI_COMM_WORLD, &words,
                     &window);
    for (int at = 0; at < WORDS; at++)
        words[at] = 0;
    MPI_Win_fence(0, window);
    for (int to = 0; to < ranks; to++) {
        MPI_Accumulate(&one, 1, MPI_INT, to, 0, 1, MPI_INT, MPI_SUM, window);
        MPI_Put(&mine, 1, MPI_INT, to, 1 + rank, 1, MPI_INT, window);
    }
    MPI_Win_fence(0, window);
    for (int from = 0; from < ranks; from++)
        if (words[1 + from] != 100 + from)
            fail("word", 1 + from);
    if (words[0] != ranks)
        fail("accumulated word", words[0]);
    MPI_Win_free(&window);
}

int main(int count, char **arguments)
{
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks >= WORDS)
        fail("number of ranks", ranks);
    for (int bytes = 1; bytes <= BYTES_MAX; bytes *= 4)
        messages(bytes);
    sum();
    memory();
    printf("rank %d of %d\n", rank, ranks);
    return MPI_Finalize();
}
