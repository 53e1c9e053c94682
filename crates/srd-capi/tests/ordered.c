/*
 * A stream of tagged messages of all sizes, with every message's place and every byte checked.
 *
 *   ordered [-a IP] [-n BYTES] [-r SEED]             the receiver; prints its address
 *   ordered [-a IP] [-n BYTES] [-r SEED] ADDRESS     the sender
 *
 * Both are given the same BYTES, which the messages add up to at least, and SEED, from which sizes
 * and bytes follow. A message's tag has its class in the upper half and its number in the lower.
 * Receives name the class only, and are posted block by block in an order of their own: that each
 * gets the message of its class that was sent next is what order means, whether receives or
 * messages come first. Both end with 0 if all was right.
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <srd.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE_BYTES_MAX = 4 << 20, CLASSES = 4, BLOCK = 8, BLOCKS = 4, SLOTS = BLOCK * BLOCKS };
enum { TIMEOUT_MS = 60000, CLASS_SHIFT = 32 };
#define NUMBER_MASK UINT64_C(0xffffffff)
#define TAG_BYE ((uint64_t)CLASSES << CLASS_SHIFT)

/* The multiplier of splitmix64's counter: odd, and no two words of a message are alike. */
#define STEP UINT64_C(0x9e3779b97f4a7c15)

static unsigned char *slots[SLOTS];
static uint64_t seed = 1;

static uint64_t mix(uint64_t bits)
{
    bits = (bits ^ bits >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ bits >> 27) * UINT64_C(0x94d049bb133111eb);
    return bits ^ bits >> 31;
}

/* Bits that follow from seed, number and what they are for. */
static uint64_t drawn(uint64_t number, uint64_t what)
{
    return mix(mix(seed + what * STEP) + number * STEP);
}

static uint64_t class_of(uint64_t number)
{
    return drawn(number, 1) % CLASSES;
}

/* Any size is as likely as any of twice as much; and one in four is about a few packets long. */
static size_t size_of(uint64_t number)
{
    uint64_t bits = drawn(number, 2);
    if (bits % 4 == 0)
        return (size_t)(1 + (bits >> 8) % 40000);
    size_t octave = (size_t)1 << (bits >> 8) % 22;
    return octave + (size_t)((bits >> 16) % (octave + 1));
}

/* The word of a message's bytes at a place. */
static uint64_t word(uint64_t first, size_t at)
{
    return first + at * STEP;
}

static void fill(unsigned char *bytes, size_t count, uint64_t number)
{
    uint64_t first = drawn(number, 3);
    size_t words = count / 8;
    for (size_t i = 0; i < words; i++) {
        uint64_t w = word(first, i);
        memcpy(bytes + 8 * i, &w, 8);
    }
    uint64_t last = word(first, words);
    memcpy(bytes + 8 * words, &last, count % 8);
}

static int is_right(const unsigned char *bytes, size_t count, uint64_t number)
{
    uint64_t first = drawn(number, 3), wrong = 0;
    size_t words = count / 8;
    for (size_t i = 0; i < words; i++) {
        uint64_t w;
        memcpy(&w, bytes + 8 * i, 8);
        wrong |= w ^ word(first, i);
    }
    uint64_t last = word(first, words);
    return wrong == 0 && memcmp(bytes + 8 * words, &last, count % 8) == 0;
}

/* How many messages add up to so many bytes. */
static uint64_t messages_of(uint64_t bytes, uint64_t *total)
{
    uint64_t number = 0;
    for (*total = 0; *total < bytes; number++)
        *total += size_of(number);
    return number;
}

static void check(int result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, srd_last_error());
        exit(1);
    }
}

/* The next event, which must be a success. */
static srd_event await(srd_endpoint *endpoint, const char *what)
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
    return event;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Posts the receives of a block, the last of some classes first: their order among classes is
   another than that of the messages, within a class it is the same. */
static void post_block(srd_endpoint *endpoint, uint64_t block, uint64_t messages)
{
    uint64_t first = block * BLOCK, rotated = drawn(block, 4);
    for (uint64_t turn = 0; turn < CLASSES; turn++) {
        uint64_t class = (turn + rotated) % CLASSES;
        for (uint64_t number = first; number < first + BLOCK && number < messages; number++) {
            if (class_of(number) != class)
                continue;
            check(srd_recv(endpoint, SRD_ANY, class << CLASS_SHIFT, NUMBER_MASK,
                           slots[number % SLOTS], MESSAGE_BYTES_MAX, (void *)(uintptr_t)number),
                  "receive");
        }
    }
}

static void verify(const srd_event *event)
{
    uint64_t number = (uintptr_t)event->context, tag = number & NUMBER_MASK;
    if (event->kind != SRD_RECEIVED || event->tag != (class_of(number) << CLASS_SHIFT | tag)) {
        fprintf(stderr, "receive %" PRIu64 " of class %" PRIu64 ": message %" PRIu64
                " of class %" PRIu64 " came\n", number, class_of(number),
                event->tag & NUMBER_MASK, event->tag >> CLASS_SHIFT);
        exit(1);
    }
    if (event->length != size_of(number)) {
        fprintf(stderr, "message %" PRIu64 ": %" PRIu64 " bytes in place of %zu\n", number,
                event->length, size_of(number));
        exit(1);
    }
    if (!is_right(slots[number % SLOTS], size_of(number), number)) {
        fprintf(stderr, "message %" PRIu64 " of %zu bytes: wrong bytes\n", number, size_of(number));
        exit(1);
    }
}

static int receive(srd_endpoint *endpoint, uint64_t messages, uint64_t total)
{
    char address[SRD_ADDRESS_BYTES];
    uint64_t blocks = (messages + BLOCK - 1) / BLOCK, posted = 0, done = 0;
    uint64_t left[BLOCKS] = {0};
    check(srd_address(endpoint, address, sizeof address), "address");
    for (; posted < BLOCKS && posted < blocks; posted++) {
        post_block(endpoint, posted, messages);
        left[posted % BLOCKS] = BLOCK;
    }
    printf("%s\n", address);
    fflush(stdout);

    srd_event event = {0};
    double begun = 0;
    for (; done < messages; done++) {
        event = await(endpoint, "receive");
        if (done == 0)
            begun = seconds();
        verify(&event);
        /* Blocks are used again in turns, the oldest first, each when all of it is right. */
        left[(uintptr_t)event.context / BLOCK % BLOCKS]--;
        while (posted < blocks && left[posted % BLOCKS] == 0) {
            post_block(endpoint, posted, messages);
            left[posted % BLOCKS] = BLOCK;
            posted++;
        }
    }
    double took = seconds() - begun;
    /* Nobody closes before the other has all that he waits for. */
    check(srd_recv(endpoint, event.peer, TAG_BYE, 0, slots[0], 3, NULL), "receive");
    check(srd_send(endpoint, event.peer, TAG_BYE, "bye", 3, SRD_INJECT, NULL), "bye");
    await(endpoint, "bye");
    printf("%" PRIu64 " messages, %" PRIu64 " bytes, in order and right, in %.1f s: %.0f MB/s\n",
           messages, total, took, (double)total / took / 1e6);
    return 0;
}

static int stream(srd_endpoint *endpoint, const char *address, uint64_t messages)
{
    srd_peer peer;
    char bye[3];
    int busy[SLOTS] = {0}, answered = 0;
    uint64_t number = 0, under_way = 0;
    check(srd_connect(endpoint, address, &peer), "connect");
    check(srd_recv(endpoint, peer, TAG_BYE, 0, bye, sizeof bye, bye), "receive");
    while (!answered || under_way > 0) {
        while (number < messages && !busy[number % SLOTS]) {
            size_t slot = number % SLOTS, size = size_of(number);
            fill(slots[slot], size, number);
            check(srd_send(endpoint, peer, class_of(number) << CLASS_SHIFT | number, slots[slot],
                           size, 0, &busy[slot]),
                  "send");
            busy[slot] = 1;
            number++;
            under_way++;
        }
        srd_event event = await(endpoint, "send");
        if (event.context == bye) {
            answered = 1;
            continue;
        }
        *(int *)event.context = 0;
        under_way--;
    }
    check(srd_send(endpoint, peer, TAG_BYE, "bye", 3, SRD_INJECT, NULL), "bye");
    return number < messages;
}

int main(int argc, char **argv)
{
    srd_options options;
    uint64_t bytes = 50000000, total;
    int option;
    srd_options_init(&options);
    while ((option = getopt(argc, argv, "a:n:r:")) != -1) {
        switch (option) {
        case 'a': options.address = optarg; break;
        case 'n': bytes = strtoull(optarg, NULL, 10); break;
        case 'r': seed = strtoull(optarg, NULL, 10); break;
        default: return 2;
        }
    }
    uint64_t messages = messages_of(bytes, &total);
    if (messages == 0 || messages > NUMBER_MASK || argc - optind > 1) {
        fprintf(stderr, "usage: ordered [-a IP] [-n BYTES] [-r SEED] [ADDRESS]\n");
        return 2;
    }
    for (size_t i = 0; i < SLOTS; i++) {
        slots[i] = malloc(MESSAGE_BYTES_MAX);
        if (!slots[i])
            return 1;
    }
    srd_endpoint *endpoint;
    check(srd_open(&options, &endpoint), "open");
    int result = optind == argc ? receive(endpoint, messages, total)
                                : stream(endpoint, argv[optind], messages);
    check(srd_close(endpoint), "close");
    return result;
}
