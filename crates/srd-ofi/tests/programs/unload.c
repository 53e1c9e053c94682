/* libfabric is loaded by hand, used with SRD, and let go, again and again: nothing is left but
 * what the first round leaves. Then it is let go with endpoints at work, and the process ends. */

#include "common.h"
#include <dlfcn.h>

#define ROUNDS 50

static struct api api;

static void *load(void)
{
	void *library = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		fail(__LINE__, "%s", dlerror());
	*(void **)&api.getinfo = dlsym(library, "fi_getinfo");
	*(void **)&api.freeinfo = dlsym(library, "fi_freeinfo");
	*(void **)&api.dupinfo = dlsym(library, "fi_dupinfo");
	*(void **)&api.fabric = dlsym(library, "fi_fabric");
	return library;
}

static void open_two(struct node *a, struct node *b)
{
	node_open(&api, a, FI_VERSION(1, 17), FI_THREAD_SAFE);
	node_open(&api, b, FI_VERSION(1, 17), FI_THREAD_SAFE);
	node_meet(a, b);
	node_meet(b, a);
}

static void use(void)
{
	struct node a, b;
	open_two(&a, &b);
	exchange(&a, &b, 100, 1);
	exchange(&b, &a, 200000, 2);
	node_close(&api, &a);
	node_close(&api, &b);
}

static void rounds(void)
{
	int descriptors = 0, threads = 0;
	long kilobytes = 0;

	for (int i = 0; i < ROUNDS; i++) {
		void *library = load();
		use();
		EXPECT(dlclose(library), 0);
		/* The first rounds bring what stays. */
		if (i == 4) {
			/* A thread that ends has its descriptors for as long. */
			threads = threads_after(1);
			descriptors = entries_of("/proc/self/fd");
		}
		/* What malloc keeps goes up and down: the most of the first half counts. */
		if (i < ROUNDS / 2 && resident() > kilobytes)
			kilobytes = resident();
	}
	EXPECT(threads, 1);
	EXPECT(threads_after(threads), threads);
	EXPECT(entries_of("/proc/self/fd"), descriptors);
	/* Threads that the scheduler holds up have malloc take another arena, which it keeps. What is lost
	 * in each round grows further. */
	for (int more = 0; resident() > kilobytes + 4096; more++) {
		if (more == 4)
			fail(__LINE__, "%ld KB have become %ld", kilobytes, resident());
		kilobytes = resident();
		for (int i = 0; i < ROUNDS; i++) {
			void *library = load();
			use();
			EXPECT(dlclose(library), 0);
		}
	}
	printf("%d rounds: %d descriptors, %d thread, at most %ld KB in the first half and %ld KB after all\n", ROUNDS,
	       descriptors, threads, kilobytes, resident());
}

/* A message of which the receiver knows nothing yet is under way as long as anybody is there. */
static void begin(struct node *a)
{
	static char bytes[1 << 20];
	for (int i = 0; i < 8; i++)
		EXPECT(fi_tsend(a->ep, bytes, sizeof(bytes), NULL, a->peer, 9, NULL), 0);
}

/* A child that leaves endpoints at work behind, in one of several ways. */
static void leave(int way)
{
	struct node a, b;
	void *library = load();

	open_two(&a, &b);
	exchange(&a, &b, 1000, 1);
	begin(&a);
	if (way & 1)
		EXPECT(dlclose(library), 0);
	if (way & 2)
		usleep(20000);
	if (way & 4)
		exit(0);
	/* Closed one by one, while it is under way. */
	double begin = seconds();
	node_close(&api, &a);
	node_close(&api, &b);
	/* A second for each, and what a busy machine adds; peers have 10 seconds to answer. */
	if (seconds() - begin > 9)
		fail(__LINE__, "closing took %f s", seconds() - begin);
	exit(0);
}

int main(void)
{
	fflush(stdout);
	for (int way = 0; way < 8; way++) {
		pid_t child = fork();
		if (child == 0)
			leave(way);
		reap(child, "endpoints left at work");
	}
	rounds();
	return 0;
}
