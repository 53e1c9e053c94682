/* What srd.h promises, between endpoints of one process. */
#define _POSIX_C_SOURCE 200809L
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <srd.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CHECK(truth)                                                                               \
    do {                                                                                           \
        if (!(truth)) {                                                                            \
            printf("line %d: %s (%s)\n", __LINE__, #truth, srd_last_error());                      \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Longest that anything may take: the processors may be busy. */
enum { PATIENCE_MS = 60000 };

/* Peers that never answer are given up after so many milliseconds, others in time. */
static srd_endpoint *open_with(uint16_t port, uint32_t answer_ms)
{
    srd_options o;
    srd_endpoint *ep;
    srd_options_init(&o);
    o.address = "127.0.0.1";
    o.port = port;
    o.answer_timeout_ms = answer_ms;
    o.peer_timeout_ms = PATIENCE_MS / 4;
    CHECK(srd_open(&o, &ep) == 0);
    return ep;
}

static srd_endpoint *open_at(uint16_t port)
{
    return open_with(port, PATIENCE_MS / 2);
}

static srd_peer connect_to(srd_endpoint *from, srd_endpoint *to)
{
    char text[SRD_ADDRESS_BYTES], back[SRD_ADDRESS_BYTES];
    srd_peer peer;
    CHECK(srd_address(to, text, sizeof text) > 0);
    CHECK(srd_connect(from, text, &peer) == 0);
    CHECK(srd_peer_address(from, peer, back, sizeof back) > 0 && strcmp(text, back) == 0);
    return peer;
}

static srd_event next(srd_endpoint *ep, uint32_t kind, int status)
{
    srd_event event;
    CHECK(srd_poll(ep, &event, 1, PATIENCE_MS) == 1);
    if (event.kind != kind || event.status != status)
        printf("event %u with %d\n", event.kind, event.status);
    CHECK(event.kind == kind && event.status == status);
    return event;
}

static void messages(srd_endpoint *a, srd_endpoint *b)
{
    char in[8] = {0};
    int one, two;
    srd_peer to = connect_to(a, b);
    /* Tags decide, also for messages that came before; one that is too long is cut. */
    CHECK(srd_send(a, to, 5, "first", 5, SRD_INJECT, NULL) == 0);
    CHECK(srd_send(a, to, 6, "a long message", 14, 0, &one) == 0);
    CHECK(next(a, SRD_SENT, 0).context == &one);
    CHECK(srd_recv(b, SRD_ANY, 6, 0, in, sizeof in, &two) == 0);
    srd_event event = next(b, SRD_RECEIVED, SRD_ETRUNCATED);
    CHECK(event.context == &two && event.length == 8 && event.cut == 6 && event.tag == 6);
    CHECK(memcmp(in, "a long m", 8) == 0);
    CHECK(srd_recv(b, event.peer, 0, UINT64_MAX, in, sizeof in, NULL) == 0);
    event = next(b, SRD_RECEIVED, 0);
    CHECK(event.tag == 5 && event.length == 5 && memcmp(in, "first", 5) == 0);
    /* Whoever wrote can be answered. */
    CHECK(srd_recv(a, to, 7, 0, in, sizeof in, NULL) == 0);
    CHECK(srd_send(b, event.peer, 7, NULL, 0, SRD_QUIET | SRD_DELIVERED, NULL) == 0);
    CHECK(next(a, SRD_RECEIVED, 0).length == 0);
    /* A receive that is cancelled gives its buffer back. */
    CHECK(srd_recv(b, SRD_ANY, 9, 0, in, sizeof in, &one) == 0);
    CHECK(srd_cancel(b, &one) == 0);
    CHECK(next(b, SRD_RECEIVED, SRD_ECANCELED).context == &one);
    /* To oneself. */
    srd_peer self = connect_to(a, a);
    CHECK(srd_send(a, self, 1, "me", 2, SRD_INJECT, NULL) == 0);
    CHECK(srd_recv(a, self, 1, 0, in, sizeof in, NULL) == 0);
    CHECK(next(a, SRD_RECEIVED, 0).length == 2 && memcmp(in, "me", 2) == 0);
    CHECK(srd_poll(a, &event, 1, 0) == 0 && srd_poll(b, &event, 1, 0) == 0);
}

static void memory(srd_endpoint *a, srd_endpoint *b)
{
    static unsigned char theirs[100000], ours[100000], back[100000];
    static uint64_t number = 40;
    uint64_t key, counter, was;
    srd_peer to = connect_to(a, b);
    for (size_t i = 0; i < sizeof ours; i++)
        ours[i] = (unsigned char)(i * 31 + i / 256);
    CHECK(srd_share(b, theirs, sizeof theirs, SRD_SHARE_READ | SRD_SHARE_WRITE, &key) == 0);
    CHECK(srd_write_notify(a, to, ours, sizeof ours, key, 0, 77, SRD_QUIET, NULL) == 0);
    CHECK(next(b, SRD_NOTIFIED, 0).data == 77);
    CHECK(memcmp(ours, theirs, sizeof ours) == 0);
    CHECK(srd_read(a, to, back, 1000, key, 500, 0, back) == 0);
    srd_event event = next(a, SRD_READ, 0);
    CHECK(event.context == back && event.length == 1000 && memcmp(back, theirs + 500, 1000) == 0);
    CHECK(srd_write(a, to, "xyz", 3, key, sizeof theirs - 3, SRD_DELIVERED, NULL) == 0);
    next(a, SRD_WRITTEN, 0);
    CHECK(memcmp(theirs + sizeof theirs - 3, "xyz", 3) == 0);
    /* Out of bounds, another key, and taken back. */
    CHECK(srd_read(a, to, back, 2, key, sizeof theirs - 1, 0, NULL) == 0);
    next(a, SRD_READ, SRD_EKEY);
    CHECK(srd_write(a, to, back, 2, key + 1, 0, 0, NULL) == 0);
    next(a, SRD_WRITTEN, SRD_EKEY);
    CHECK(srd_unshare(b, key) == 0);
    CHECK(srd_read(a, to, back, 2, key, 0, 0, NULL) == 0);
    next(a, SRD_READ, SRD_EKEY);
    /* No right to it. */
    CHECK(srd_share(b, theirs, sizeof theirs, SRD_SHARE_READ, &key) == 0);
    CHECK(srd_write(a, to, back, 2, key, 0, 0, NULL) == 0);
    next(a, SRD_WRITTEN, SRD_EKEY);
    /* Atomic operations. */
    CHECK(srd_share(b, &number, 8, SRD_SHARE_READ | SRD_SHARE_WRITE, &counter) == 0);
    CHECK(srd_fetch_add(a, to, counter, 0, 2, &was, NULL) == 0);
    next(a, SRD_COMPUTED, 0);
    CHECK(was == 40 && number == 42);
    CHECK(srd_compare_swap(a, to, counter, 0, 41, 1, &was, NULL) == 0);
    next(a, SRD_COMPUTED, 0);
    CHECK(was == 42 && number == 42);
    CHECK(srd_compare_swap(a, to, counter, 0, 42, 1, &was, NULL) == 0);
    next(a, SRD_COMPUTED, 0);
    CHECK(was == 42 && number == 1);
    CHECK(srd_fetch_add(a, to, counter, 0, 4, NULL, NULL) == 0);
    next(a, SRD_COMPUTED, 0);
    CHECK(number == 5);
}

/* Until its descriptor says that nothing is left to do: a packet may be late. */
static void await_quiet(srd_endpoint *ep, struct pollfd *fd)
{
    srd_event event;
    do
        CHECK(srd_poll(ep, &event, 1, 0) == 0);
    while (poll(fd, 1, 0) != 0);
}

/* Waits for descriptors only: nobody calls into b until its descriptor says so. */
static void descriptors(srd_endpoint *a, srd_endpoint *b)
{
    char in[8];
    srd_event event;
    srd_peer to = connect_to(a, b);
    struct pollfd fd = {srd_fd(b), POLLIN, 0};
    CHECK(fd.fd >= 0 && srd_fd(b) == fd.fd);
    for (int n = 0; n < 50; n++) {
        int got;
        CHECK(srd_recv(b, SRD_ANY, 3, 0, in, sizeof in, NULL) == 0);
        await_quiet(b, &fd);
        CHECK(srd_send(a, to, 3, &n, sizeof n, SRD_INJECT, NULL) == 0);
        /* Packets without a message wake it, too. */
        do {
            CHECK(poll(&fd, 1, PATIENCE_MS) == 1);
            CHECK((got = srd_poll(b, &event, 1, 0)) >= 0);
        } while (got == 0);
        CHECK(event.length == sizeof n && memcmp(in, &n, sizeof n) == 0);
    }
    await_quiet(b, &fd);
}

enum { THREADS = 4, EACH = 300 };
static srd_endpoint *busy, *sink;
static srd_peer busy_to;

static void *sender(void *tag)
{
    for (int n = 0; n < EACH; n++) {
        int result;
        while ((result = srd_send(busy, busy_to, (uint64_t)(uintptr_t)tag, &n, sizeof n,
                                  SRD_INJECT, NULL)) == SRD_EAGAIN)
            ;
        CHECK(result == 0);
    }
    return NULL;
}

static void *receiver(void *tag)
{
    int got, done;
    for (int n = 0; n < EACH; n++) {
        /* Events go to any of the threads: each waits for one, and there are as many as there
           are receives. */
        srd_event event;
        int *in = calloc(1, sizeof *in);
        CHECK(srd_recv(sink, SRD_ANY, (uint64_t)(uintptr_t)tag, 0, in, sizeof *in, in) == 0);
        CHECK(srd_poll(sink, &event, 1, PATIENCE_MS) == 1 && event.status == 0);
        memcpy(&got, event.context, sizeof got);
        done = event.length == sizeof got && got >= 0 && got < EACH;
        CHECK(done);
        free(event.context);
    }
    return NULL;
}

static void threads(srd_endpoint *a, srd_endpoint *b)
{
    pthread_t all[2 * THREADS];
    srd_event event;
    busy = a;
    sink = b;
    busy_to = connect_to(a, b);
    for (uintptr_t n = 0; n < THREADS; n++) {
        CHECK(pthread_create(&all[n], NULL, sender, (void *)(100 + n)) == 0);
        CHECK(pthread_create(&all[THREADS + n], NULL, receiver, (void *)(100 + n)) == 0);
    }
    for (int n = 0; n < 2 * THREADS; n++)
        CHECK(pthread_join(all[n], NULL) == 0);
    CHECK(srd_poll(b, &event, 1, 0) == 0);
}

static _Atomic int has_ended;

static void *waiter(void *ep)
{
    srd_event event;
    int result = srd_poll(ep, &event, 1, -1);
    has_ended = 1;
    return (void *)(intptr_t)result;
}

/* A wait ends with a signal, and when another thread closes the endpoint. */
static void on_signal(int signal)
{
    (void)signal;
}

static void waits(void)
{
    srd_endpoint *ep = open_at(0);
    struct timespec moment = {0, 100000000};
    struct sigaction action;
    pthread_t thread;
    void *result;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, waiter, ep) == 0);
    /* A signal that comes before the wait ends none. */
    do {
        nanosleep(&moment, NULL);
        pthread_kill(thread, SIGUSR1);
    } while (!has_ended);
    CHECK(pthread_join(thread, &result) == 0 && (intptr_t)result == SRD_EINTERRUPTED);
    CHECK(pthread_create(&thread, NULL, waiter, ep) == 0);
    nanosleep(&moment, NULL);
    CHECK(srd_close(ep) == 0);
    CHECK(pthread_join(thread, &result) == 0 && (intptr_t)result == SRD_EHANDLE);
}

/* Peers that are not there, that went, that came back as another, and that we leave. */
static void peers(void)
{
    srd_endpoint *a = open_with(0, 3000);
    srd_peer to, nobody;
    char in[8], text[SRD_ADDRESS_BYTES];
    srd_event event;
    CHECK(srd_connect(a, "127.0.0.1:9", &nobody) == 0);
    CHECK(srd_send(a, nobody, 0, "x", 1, 0, NULL) == 0);
    next(a, SRD_SENT, SRD_EUNREACHABLE);

    srd_endpoint *b = open_at(0);
    CHECK(srd_address(b, text, sizeof text) > 0);
    to = connect_to(a, b);
    CHECK(srd_recv(b, SRD_ANY, 0, 0, in, sizeof in, NULL) == 0);
    CHECK(srd_send(a, to, 0, "x", 1, 0, NULL) == 0);
    next(a, SRD_SENT, 0);
    CHECK(srd_close(b) == 0);
    CHECK(srd_send(a, to, 0, "x", 1, 0, NULL) == 0);
    next(a, SRD_SENT, SRD_ETIMEDOUT);

    b = open_at((uint16_t)strtoul(strrchr(text, ':') + 1, NULL, 10));
    CHECK(srd_send(a, to, 0, "x", 1, 0, NULL) == 0);
    next(a, SRD_SENT, SRD_ERESTARTED);
    CHECK(srd_disconnect(a, to) == 0);

    to = connect_to(a, b);
    CHECK(srd_send(a, to, 0, "x", 1, 0, NULL) == 0);
    next(a, SRD_SENT, 0);
    CHECK(srd_send(a, nobody, 0, "x", 1, 0, in) == 0);
    CHECK(srd_disconnect(a, nobody) == 0);
    event = next(a, SRD_SENT, SRD_EREMOVED);
    CHECK(event.context == in && event.peer == SRD_ANY);
    CHECK(srd_close(b) == 0 && srd_close(a) == 0);
}

/* A program that does not poll is told so, loses nothing, and can go on. */
static void limits(void)
{
    srd_options o;
    srd_endpoint *a, *b;
    srd_event events[64];
    char in[8];
    int sent = 0, told = 0, result;
    srd_options_init(&o);
    o.address = "127.0.0.1";
    o.operations_max = 16;
    o.receives_max = 16;
    o.events_max = 4;
    CHECK(srd_open(&o, &a) == 0 && srd_open(&o, &b) == 0);
    for (int n = 0; n < 16; n++)
        CHECK(srd_recv(b, SRD_ANY, 0, 0, in, sizeof in, NULL) == 0);
    CHECK(srd_recv(b, SRD_ANY, 0, 0, in, sizeof in, NULL) == SRD_EAGAIN);
    srd_peer to = connect_to(a, b);
    while ((result = srd_send(a, to, 1, "x", 1, 0, NULL)) == 0 && sent < 100000)
        sent++;
    CHECK(result == SRD_EAGAIN && sent >= 16);
    while (told < sent) {
        int count = srd_poll(a, events, 64, PATIENCE_MS);
        CHECK(count > 0 && count <= 4);
        told += count;
    }
    CHECK(srd_send(a, to, 1, "x", 1, SRD_INJECT, NULL) == 0);
    CHECK(srd_close(a) == 0 && srd_close(b) == 0);
}

int main(void)
{
    srd_endpoint *a = open_at(0), *b = open_at(0);
    messages(a, b);
    memory(a, b);
    threads(a, b);
    descriptors(a, b);
    waits();
    limits();
    CHECK(srd_close(b) == 0 && srd_close(a) == 0);
    peers();
    printf("as promised\n");
    return 0;
}
