/*
 * One operation of MPI, again and again, every word that arrives checked.
 *
 *     ranks OPERATION BYTES SECONDS [FILE]
 *
 *     ping-pong    a message to rank 1 and back; half of that is the time
 *     bandwidth    WINDOW messages to rank 1, and a word back
 *     all-to-all   MPI_Alltoall: BYTES for each rank
 *     across       every rank of the first half exchanges BYTES with every rank of the second
 *     all-reduce   MPI_Allreduce: the sum of BYTES
 *     gather       MPI_Gather: BYTES of each rank to rank 0
 *     incast       the same, but each sends to rank 0 directly, and all at one moment
 *
 * Rank 0 prints a line of JSON when counting begins and one at the end: into FILE, if there is
 * one, for what goes through a launcher comes seconds late where ranks leave it no core. A time is
 * that of the slowest rank, from when it left a barrier; filling and checking are not part of it.
 * Words depend on sender, receiver, iteration and place, so a word of another iteration is wrong.
 *
 * Bounds: ITERATIONS_MAX times, BYTES_MAX bytes a message, MEMORY_MAX bytes for all that a rank
 * sends, and as many for what it receives.
 */
#define _POSIX_C_SOURCE 200809L
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WINDOW = 16, WARM_UP = 2, BATCH_SMALL = 100, ITERATIONS_MAX = 20000, TAG = 1 };
#define BYTES_MAX (1L << 28)
#define MEMORY_MAX (1L << 30)
#define SMALL_MAX 4096

static int rank, ranks, words;
static uint64_t *sent, *arrived;
static MPI_Request *requests;

static uint64_t base(int from, int to, long iteration)
{
    uint64_t x = (uint64_t)from << 48 ^ (uint64_t)to << 32 ^ (uint64_t)iteration;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    return x ^ x >> 27;
}

static const uint64_t STEP = 0x9e3779b97f4a7c15u;

static void fill(uint64_t *block, uint64_t first)
{
    for (int i = 0; i < words; i++)
        block[i] = first + (uint64_t)i * STEP;
}

static long wrong_words(const uint64_t *block, uint64_t first, uint64_t step)
{
    long wrong = 0;
    for (int i = 0; i < words; i++)
        wrong += block[i] != first + (uint64_t)i * step;
    return wrong;
}

static uint64_t *block(uint64_t *blocks, int number)
{
    return blocks + (size_t)number * (size_t)words;
}

static void receive(int number, int from)
{
    MPI_Irecv(block(arrived, number), words, MPI_UINT64_T, from, TAG, MPI_COMM_WORLD,
              &requests[number]);
}

static void send(int number, int to, MPI_Request *request)
{
    MPI_Isend(block(sent, number), words, MPI_UINT64_T, to, TAG, MPI_COMM_WORLD, request);
}

/* ---- ping-pong */

static void ping_pong_fill(long iteration)
{
    fill(sent, base(rank, 1 - rank, iteration));
}

static void ping_pong(void)
{
    for (int turn = 0; turn < 2 && rank < 2; turn++) {
        if (turn == rank)
            MPI_Send(sent, words, MPI_UINT64_T, 1 - rank, TAG, MPI_COMM_WORLD);
        else
            MPI_Recv(arrived, words, MPI_UINT64_T, 1 - rank, TAG, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    }
}

static long ping_pong_check(long iteration)
{
    return rank < 2 ? wrong_words(arrived, base(1 - rank, rank, iteration), STEP) : 0;
}

/* ---- bandwidth: blocks of a window are told apart by their "receiver" */

static void bandwidth_fill(long iteration)
{
    for (int i = 0; i < WINDOW && rank == 0; i++)
        fill(block(sent, i), base(0, i, iteration));
}

static void bandwidth(void)
{
    uint64_t word = 0;
    if (rank > 1)
        return;
    for (int i = 0; i < WINDOW; i++)
        if (rank == 0)
            send(i, 1, &requests[i]);
        else
            receive(i, 0);
    MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
    if (rank == 0)
        MPI_Recv(&word, 1, MPI_UINT64_T, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(&word, 1, MPI_UINT64_T, 0, TAG, MPI_COMM_WORLD);
}

static long bandwidth_check(long iteration)
{
    long wrong = 0;
    for (int i = 0; i < WINDOW && rank == 1; i++)
        wrong += wrong_words(block(arrived, i), base(0, i, iteration), STEP);
    return wrong;
}

/* ---- everybody with everybody */

static void all_to_all_fill(long iteration)
{
    for (int to = 0; to < ranks; to++)
        fill(block(sent, to), base(rank, to, iteration));
}

static void all_to_all(void)
{
    MPI_Alltoall(sent, words, MPI_UINT64_T, arrived, words, MPI_UINT64_T, MPI_COMM_WORLD);
}

static long all_to_all_check(long iteration)
{
    long wrong = 0;
    for (int from = 0; from < ranks; from++)
        wrong += wrong_words(block(arrived, from), base(from, rank, iteration), STEP);
    return wrong;
}

static int is_across(int other)
{
    return (rank < ranks / 2) != (other < ranks / 2);
}

static void across(void)
{
    for (int other = 0; other < ranks; other++)
        if (is_across(other)) {
            receive(other, other);
            send(other, other, &requests[ranks + other]);
        } else {
            requests[other] = requests[ranks + other] = MPI_REQUEST_NULL;
        }
    MPI_Waitall(2 * ranks, requests, MPI_STATUSES_IGNORE);
}

static long across_check(long iteration)
{
    long wrong = 0;
    for (int from = 0; from < ranks; from++)
        if (is_across(from))
            wrong += wrong_words(block(arrived, from), base(from, rank, iteration), STEP);
    return wrong;
}

/* ---- all-reduce: sums of words are linear in the place, too */

static void all_reduce_fill(long iteration)
{
    fill(sent, base(rank, 0, iteration));
}

static void all_reduce(void)
{
    MPI_Allreduce(sent, arrived, words, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
}

static long all_reduce_check(long iteration)
{
    uint64_t first = 0;
    for (int from = 0; from < ranks; from++)
        first += base(from, 0, iteration);
    return wrong_words(arrived, first, STEP * (uint64_t)ranks);
}

/* ---- everybody to rank 0 */

static void gather_fill(long iteration)
{
    fill(sent, base(rank, 0, iteration));
}

static void gather(void)
{
    MPI_Gather(sent, words, MPI_UINT64_T, arrived, words, MPI_UINT64_T, 0, MPI_COMM_WORLD);
}

static void incast(void)
{
    if (rank > 0) {
        MPI_Send(sent, words, MPI_UINT64_T, 0, TAG, MPI_COMM_WORLD);
        return;
    }
    memcpy(arrived, sent, (size_t)words * sizeof *sent);
    requests[0] = MPI_REQUEST_NULL;
    for (int from = 1; from < ranks; from++)
        receive(from, from);
    MPI_Waitall(ranks, requests, MPI_STATUSES_IGNORE);
}

static long gather_check(long iteration)
{
    long wrong = 0;
    for (int from = 0; from < ranks && rank == 0; from++)
        wrong += wrong_words(block(arrived, from), base(from, 0, iteration), STEP);
    return wrong;
}

/* ---- all of them */

static const struct operation {
    const char *name;
    void (*fill)(long iteration);
    void (*run)(void);
    long (*check)(long iteration);
} OPERATIONS[] = {
    {"ping-pong", ping_pong_fill, ping_pong, ping_pong_check},
    {"bandwidth", bandwidth_fill, bandwidth, bandwidth_check},
    {"all-to-all", all_to_all_fill, all_to_all, all_to_all_check},
    {"across", all_to_all_fill, across, across_check},
    {"all-reduce", all_reduce_fill, all_reduce, all_reduce_check},
    {"gather", gather_fill, gather, gather_check},
    {"incast", gather_fill, incast, gather_check},
};

static void refuse(const char *why)
{
    if (rank == 0)
        fprintf(stderr, "ranks: %s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 2);
    exit(2);
}

static void *memory(size_t bytes)
{
    void *all = malloc(bytes);
    if (!all)
        refuse("no memory");
    return memset(all, 0xee, bytes);
}

/* The text up to the end of its line, as a string of JSON. */
static void print_text(const char *text)
{
    putchar('"');
    for (; *text && *text != '\n'; text++)
        putchar(*text == '"' || *text == '\\' || (unsigned char)*text < 32 ? ' ' : *text);
    putchar('"');
}

static void say_begin(void)
{
    char name[MPI_MAX_PROCESSOR_NAME] = "", version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    char *names = rank == 0 ? memory((size_t)ranks * sizeof name) : NULL;
    int length;
    MPI_Get_processor_name(name, &length);
    MPI_Get_library_version(version, &length);
    MPI_Gather(name, sizeof name, MPI_CHAR, names, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank > 0)
        return;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    printf("{\"begin_ns\":%lld,\"mpi\":",
           (long long)now.tv_sec * 1000000000LL + (long long)now.tv_nsec);
    print_text(version);
    printf(",\"hosts\":[");
    for (int i = 0; i < ranks; i++) {
        printf("%s", i ? "," : "");
        print_text(names + (size_t)i * sizeof name);
    }
    printf("]}\n");
    fflush(stdout);
    free(names);
}

static void print_numbers(const char *name, const double *numbers, long count)
{
    printf(",\"%s\":[", name);
    for (long i = 0; i < count; i++)
        printf("%s%.3f", i ? "," : "", numbers[i]);
    printf("]");
}

/* One iteration; its time in seconds at rank 0. */
static double once(const struct operation *operation, long iteration, int apart, long *wrong)
{
    operation->fill(iteration);
    if (apart)
        MPI_Barrier(MPI_COMM_WORLD);
    double took = MPI_Wtime();
    operation->run();
    took = MPI_Wtime() - took;
    *wrong += operation->check(iteration);
    double slowest = took;
    if (apart)
        MPI_Reduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    return slowest;
}

static void measure(const struct operation *operation, double seconds)
{
    /* Round trips keep the ranks in step by themselves. */
    int apart = operation->run != ping_pong;
    int batch = !apart && words <= SMALL_MAX / 8 ? BATCH_SMALL : 1;
    double *us = memory(ITERATIONS_MAX * sizeof *us), *at_ms = memory(ITERATIONS_MAX * sizeof *us);
    double begin = 0;
    long count = 0, wrong = 0, all_wrong = 0, iteration = 0;
    for (long turn = 0;; turn++) {
        if (turn == WARM_UP) {
            say_begin();
            begin = MPI_Wtime();
        }
        int go = turn < WARM_UP ||
                 (MPI_Wtime() - begin < seconds && count + batch <= ITERATIONS_MAX);
        MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
        if (!go)
            break;
        for (int i = 0; i < batch; i++) {
            double took = once(operation, iteration++, apart, &wrong);
            if (turn < WARM_UP)
                continue;
            us[count] = took * 1e6 / (apart ? 1 : 2);
            at_ms[count++] = (MPI_Wtime() - begin) * 1e3;
        }
    }
    MPI_Reduce(&wrong, &all_wrong, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("{\"wrong_words\":%ld", all_wrong);
        print_numbers("us", us, count);
        print_numbers("at_ms", at_ms, count);
        printf("}\n");
        fflush(stdout);
    }
    free(us);
    free(at_ms);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 4 && argc != 5)
        refuse("usage: ranks OPERATION BYTES SECONDS [FILE]");
    if (argc == 5 && rank == 0 && !freopen(argv[4], "w", stdout))
        refuse("cannot write the file");
    const struct operation *operation = NULL;
    for (size_t i = 0; i < sizeof OPERATIONS / sizeof *OPERATIONS; i++)
        if (!strcmp(argv[1], OPERATIONS[i].name))
            operation = &OPERATIONS[i];
    long bytes = atol(argv[2]);
    double seconds = atof(argv[3]);
    if (!operation)
        refuse("no such operation");
    if (bytes < 8 || bytes > BYTES_MAX || bytes % 8 != 0)
        refuse("BYTES must be 8 to 2^28, and a multiple of 8");
    if (!(seconds > 0 && seconds <= 86400))
        refuse("SECONDS must be more than 0 and at most 86400");
    if (ranks < 2)
        refuse("two ranks at least");
    words = (int)(bytes / 8);
    int blocks = ranks > WINDOW ? ranks : WINDOW;
    if (blocks > MEMORY_MAX / bytes)
        refuse("too much: ranks, 16 at least, times BYTES must be at most 2^30");
    sent = memory((size_t)blocks * (size_t)bytes);
    arrived = memory((size_t)blocks * (size_t)bytes);
    requests = memory(2 * (size_t)blocks * sizeof *requests);
    measure(operation, seconds);
    MPI_Finalize();
    return 0;
}
