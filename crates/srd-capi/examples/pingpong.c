/*
 * Ping-pong and a write into remote memory, with srd.h alone.
 *
 *   cc -O2 -o pingpong pingpong.c $(pkg-config --cflags --libs srd)
 *   ./pingpong                     the server; prints its address
 *   ./pingpong ADDRESS             the client
 *
 *   -a IP   address of this side    -n N   round trips [10000]
 *   -k FILE job key, on both sides  -s N   bytes of a message [64]
 *
 * The client sends messages, which the server sends back, and checks every byte. Then the client
 * writes a megabyte into the server's memory, and the server reports whether the bytes are correct.
 * Both exit with 0 if there was no error.
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <srd.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { TAG_HELLO = 1, TAG_PING = 2, TAG_BYE = 3 };
enum { WRITE_BYTES = 1 << 20, MESSAGE_BYTES_MAX = 1 << 20, TIMEOUT_MS = 10000 };

/* The first message of the server to the client. */
struct hello {
    uint64_t key;
    uint64_t bytes;
};

static unsigned char memory[WRITE_BYTES];
static unsigned char out[MESSAGE_BYTES_MAX];
static unsigned char in[MESSAGE_BYTES_MAX];

static void check(int result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, srd_last_error());
        exit(1);
    }
}

/* Returns the next event. It must be a success, and of this kind unless `kind` is 0. */
static srd_event await(srd_endpoint *endpoint, uint32_t kind, const char *what)
{
    srd_event event;
    int count = srd_poll(endpoint, &event, 1, TIMEOUT_MS);
    check(count, what);
    if (count == 0) {
        fprintf(stderr, "%s: nothing came for %d ms\n", what, TIMEOUT_MS);
        exit(1);
    }
    if (event.status != SRD_OK) {
        fprintf(stderr, "%s: %s\n", what, srd_strerror(event.status));
        exit(1);
    }
    if (kind != 0 && event.kind != kind) {
        fprintf(stderr, "%s: event %" PRIu32 " came instead\n", what, event.kind);
        exit(1);
    }
    return event;
}

static void fill(unsigned char *bytes, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)(seed + i * 7 + i / 251);
}

static int is_filled(const unsigned char *bytes, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != (unsigned char)(seed + i * 7 + i / 251))
            return 0;
    return 1;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int serve(srd_endpoint *endpoint)
{
    char address[SRD_ADDRESS_BYTES];
    check(srd_address(endpoint, address, sizeof address), "address");
    printf("%s\n", address);
    fflush(stdout);

    struct hello hello = {0, sizeof memory};
    check(srd_share(endpoint, memory, sizeof memory, SRD_SHARE_WRITE, &hello.key), "share");

    /* The first message of the client: the server can answer the peer of its event. */
    srd_event event;
    int count = 0;
    check(srd_recv(endpoint, SRD_ANY, TAG_HELLO, 0, in, sizeof in, NULL), "receive");
    while (count == 0)
        check(count = srd_poll(endpoint, &event, 1, -1), "wait for a client");
    srd_peer client = event.peer;
    check(srd_recv(endpoint, client, TAG_PING, 0, out, sizeof out, NULL), "receive");
    check(srd_send(endpoint, client, TAG_HELLO, &hello, sizeof hello, SRD_INJECT, NULL), "send");

    /* Answers pings until the client has written to our memory. Two buffers take turns, because the
       previous ping may still be on its way back. */
    int sending[2] = {0, 0}, now = 0;
    for (;;) {
        do
            check(count = srd_poll(endpoint, &event, 1, TIMEOUT_MS), "poll");
        while (count == 0);
        if (event.status != SRD_OK) {
            fprintf(stderr, "server: %s\n", srd_strerror(event.status));
            return 1;
        }
        if (event.kind == SRD_NOTIFIED)
            break;
        if (event.kind == SRD_SENT)
            sending[event.context == in] = 0;
        if (event.kind != SRD_RECEIVED)
            continue;
        unsigned char *ping = now ? in : out;
        check(srd_send(endpoint, client, TAG_PING, ping, event.length, 0, ping), "send");
        sending[now] = 1;
        now = !now;
        while (sending[now])
            sending[await(endpoint, SRD_SENT, "send").context == in] = 0;
        check(srd_recv(endpoint, client, TAG_PING, 0, now ? in : out, sizeof in, NULL), "receive");
    }
    unsigned char right = event.data == 42 && is_filled(memory, sizeof memory, 42);
    check(srd_send(endpoint, client, TAG_BYE, &right, 1, SRD_INJECT, NULL), "send");
    printf("server: what was written is %s\n", right ? "right" : "WRONG");
    return !right;
}

static int ask(srd_endpoint *endpoint, const char *address, size_t bytes, size_t times)
{
    srd_peer server;
    check(srd_connect(endpoint, address, &server), "connect");
    struct hello hello;
    check(srd_recv(endpoint, server, TAG_HELLO, 0, &hello, sizeof hello, NULL), "receive");
    check(srd_send(endpoint, server, TAG_HELLO, "hello", 5, SRD_INJECT, NULL), "send");
    await(endpoint, SRD_RECEIVED, "hello");

    size_t inject_max;
    check(srd_inject_bytes_max(endpoint, &inject_max), "limits");
    uint32_t flags = bytes <= inject_max ? SRD_INJECT : 0;
    uint64_t *round_ns = calloc(times, sizeof *round_ns);
    if (!round_ns)
        return 1;
    for (size_t n = 0; n < times; n++) {
        fill(out, bytes, (unsigned)n);
        uint64_t start = now_ns();
        check(srd_recv(endpoint, server, TAG_PING, 0, in, sizeof in, NULL), "receive");
        check(srd_send(endpoint, server, TAG_PING, out, bytes, flags, NULL), "send");
        /* If the library has not copied the buffer, it must not be filled before SRD_SENT. */
        srd_event event = await(endpoint, 0, "ping");
        if (event.kind == SRD_SENT)
            event = await(endpoint, SRD_RECEIVED, "ping");
        else if (flags != SRD_INJECT)
            await(endpoint, SRD_SENT, "ping");
        round_ns[n] = now_ns() - start;
        if (event.length != bytes || !is_filled(in, bytes, (unsigned)n)) {
            fprintf(stderr, "client: round trip %zu came back wrong\n", n);
            return 1;
        }
    }
    qsort(round_ns, times, sizeof *round_ns, ascending);
    printf("client: %zu round trips of %zu bytes, median %.1f us, p99 %.1f us\n", times, bytes,
           (double)round_ns[times / 2] / 1e3, (double)round_ns[times * 99 / 100] / 1e3);
    free(round_ns);

    unsigned char right = 0;
    fill(memory, sizeof memory, 42);
    check(srd_recv(endpoint, server, TAG_BYE, 0, &right, 1, NULL), "receive");
    check(srd_write_notify(endpoint, server, memory, sizeof memory, hello.key, 0, 42, SRD_QUIET,
                           NULL),
          "write");
    await(endpoint, SRD_RECEIVED, "write");
    printf("client: %d bytes written into the server's memory, %s\n", WRITE_BYTES,
           right ? "right" : "WRONG");
    return !right;
}

int main(int argc, char **argv)
{
    srd_options options;
    size_t bytes = 64, times = 10000;
    int option;
    srd_options_init(&options);
    while ((option = getopt(argc, argv, "a:k:n:s:")) != -1) {
        switch (option) {
        case 'a': options.address = optarg; break;
        case 'k': options.job_key_file = optarg; break;
        case 'n': times = strtoul(optarg, NULL, 10); break;
        case 's': bytes = strtoul(optarg, NULL, 10); break;
        default: return 2;
        }
    }
    if (times == 0 || bytes > MESSAGE_BYTES_MAX || argc - optind > 1) {
        fprintf(stderr, "usage: pingpong [-a IP] [-k FILE] [-n TIMES] [-s BYTES] [ADDRESS]\n");
        return 2;
    }
    srd_endpoint *endpoint;
    check(srd_open(&options, &endpoint), "open");
    int result = optind == argc ? serve(endpoint) : ask(endpoint, argv[optind], bytes, times);
    check(srd_close(endpoint), "close");
    return result;
}
