/* Children of forks in the middle of traffic of many threads: they are told that the endpoints are
 * not theirs, and open others; nothing hangs, and the parent goes on. */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <signal.h>
#include <srd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(true_)                                                                               \
    do {                                                                                           \
        if (!(true_)) {                                                                            \
            printf("line %d: %s: %s\n", __LINE__, #true_, srd_last_error());                       \
            fflush(stdout);                                                                        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)
#define THREADS 3

static srd_endpoint *pairs[THREADS][2];
static volatile int stop;
static volatile long rounds[THREADS];

static srd_endpoint *open_one(void)
{
    srd_options options;
    srd_endpoint *endpoint;
    srd_options_init(&options);
    options.address = "127.0.0.1";
    options.paths = 2;
    CHECK(srd_open(&options, &endpoint) == 0);
    return endpoint;
}

static srd_peer connect_to(srd_endpoint *from, srd_endpoint *to)
{
    char address[SRD_ADDRESS_BYTES];
    srd_peer peer;
    CHECK(srd_address(to, address, sizeof address) > 0);
    CHECK(srd_connect(from, address, &peer) == 0);
    return peer;
}

static void await(srd_endpoint *endpoint)
{
    srd_event event;
    int got;
    do
        got = srd_poll(endpoint, &event, 1, 60000);
    while (got == SRD_EINTERRUPTED);
    CHECK(got == 1 && event.status == SRD_OK);
}

static void message(srd_endpoint *from, srd_peer peer, srd_endpoint *to)
{
    static const char text[20000] = "text";
    char room[sizeof text];
    CHECK(srd_recv(to, SRD_ANY, 1, 0, room, sizeof room, NULL) == 0);
    CHECK(srd_send(from, peer, 1, text, sizeof text, 0, NULL) == 0);
    await(to);
    await(from);
}

static void *traffic(void *which)
{
    srd_endpoint **pair = pairs[(size_t)which];
    srd_peer peer = connect_to(pair[0], pair[1]);
    while (!stop) {
        message(pair[0], peer, pair[1]);
        rounds[(size_t)which]++;
    }
    return NULL;
}

static void child(void)
{
    srd_event event;
    for (int i = 0; i < THREADS; i++) {
        CHECK(srd_poll(pairs[i][0], &event, 1, -1) == SRD_EFORKED);
        CHECK(srd_send(pairs[i][0], 1, 0, NULL, 0, 0, NULL) == SRD_EFORKED);
    }
    srd_endpoint *a = open_one(), *b = open_one();
    message(a, connect_to(a, b), b);
    /* Words of the child are none of the parent's. */
    for (int i = 0; i < THREADS; i++) {
        CHECK(srd_poll(pairs[i][0], &event, 1, 0) == SRD_EFORKED);
        CHECK(srd_close(pairs[i][0]) == 0);
    }
    CHECK(srd_close(a) == 0 && srd_close(b) == 0);
    exit(0);
}

int main(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        pairs[i][0] = open_one();
        pairs[i][1] = open_one();
    }
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, traffic, (void *)i) == 0);
    for (int n = 0; n < 40; n++) {
        struct timespec moment = {0, 1000 * (n * 37 % 1000)};
        int status = -1;
        nanosleep(&moment, NULL);
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            /* One that hangs is a failure. */
            alarm(120);
            child();
        }
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        for (long before = rounds[i]; rounds[i] < before + 3;)
            usleep(1000);
    stop = 1;
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(srd_close(pairs[i][0]) == 0 && srd_close(pairs[i][1]) == 0);
    printf("the parent goes on\n");
    return 0;
}
