/* Processes fork while endpoints are open, idle and at work. The child is told that they are not
 * its own, by errors and never by silence; it can open others; the parent goes on. */

#include "common.h"
#include <spawn.h>

extern char **environ;

static const struct api api = {fi_getinfo, fi_freeinfo, fi_dupinfo, fi_fabric};
static struct node a, b;
static volatile int stop;
static volatile long rounds;

/* Every call of the child's on what its parent opened. */
static void child_uses_the_parents(void)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error = {0};
	struct fid *queues[] = {&a.cq->fid};
	struct fid_mr *mr;
	fi_addr_t number;
	char bytes[16] = {0};
	size_t length = sizeof(bytes);
	double begin = seconds();

	EXPECT(fi_tsend(a.ep, bytes, 16, NULL, a.peer, 1, NULL), -FI_EOPBADSTATE);
	EXPECT(fi_trecv(a.ep, bytes, 16, NULL, FI_ADDR_UNSPEC, 1, 0, NULL), -FI_EOPBADSTATE);
	EXPECT(fi_inject(a.ep, bytes, 16, a.peer), -FI_EOPBADSTATE);
	EXPECT(fi_read(a.ep, bytes, 16, NULL, a.peer, 0, 0, NULL), -FI_EOPBADSTATE);
	/* Whoever waits for an end would wait for ever. */
	EXPECT(fi_cq_read(a.cq, &entry, 1), -FI_EOPBADSTATE);
	EXPECT(fi_cq_sread(a.cq, &entry, 1, NULL, -1), -FI_EOPBADSTATE);
	EXPECT(fi_cq_readerr(a.cq, &error, 0), -FI_EOPBADSTATE);
	EXPECT(fi_cq_signal(a.cq), -FI_EOPBADSTATE);
	EXPECT(fi_trywait(a.fabric, queues, 1), -FI_EOPBADSTATE);
	EXPECT(fi_getname(&a.ep->fid, bytes, &length), -FI_EOPBADSTATE);
	EXPECT(fi_av_insert(a.av, b.name, 1, &number, 0, NULL), -FI_EOPBADSTATE);
	EXPECT(fi_mr_reg(a.domain, bytes, 16, FI_REMOTE_READ, 0, 0, 0, &mr, NULL),
	       -FI_EOPBADSTATE);
	/* Closing forgets, and disturbs nobody. */
	node_close(&api, &a);
	node_close(&api, &b);
	/* Peers have 10 seconds to answer, and those of a child never would. */
	if (seconds() - begin > 9)
		fail(__LINE__, "the child needed %f s", seconds() - begin);
}

static void child_opens_its_own(void)
{
	struct node c, d;

	node_open(&api, &c, FI_VERSION(1, 17), FI_THREAD_SAFE);
	node_open(&api, &d, FI_VERSION(1, 17), FI_THREAD_SAFE);
	node_meet(&c, &d);
	node_meet(&d, &c);
	exchange(&c, &d, 100, 3);
	exchange(&d, &c, 300000, 4);
	node_close(&api, &c);
	node_close(&api, &d);
}

/* Sends without end, in both directions. */
static void *traffic(void *unused)
{
	(void)unused;
	for (unsigned char n = 10; !stop; n++) {
		exchange(&a, &b, n % 3 ? 2000 : 400000, n);
		exchange(&b, &a, 50000, n);
		rounds++;
	}
	return NULL;
}

/* Forks; the child does something and ends by `exit`, with all its handlers, or without. */
static void fork_and(void (*work)(void), int handlers, const char *what)
{
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		work();
		fflush(stdout);
		if (handlers)
			exit(0);
		_exit(0);
	}
	reap(child, what);
}

static void nothing(void)
{
}

static void await_rounds(long more)
{
	double end = seconds() + PATIENCE_S;
	for (long begin = rounds; rounds < begin + more; usleep(1000))
		if (seconds() > end)
			fail(__LINE__, "traffic stands still");
}

/* How many descriptors a started program has, as its exit code; one way or the other. */
static int started(int way)
{
	char *arguments[] = {"sh", "-c", "exit $(ls /proc/self/fd | wc -l)", NULL};
	pid_t child = -1;
	int status;

	if (way == 0) {
		status = system(arguments[2]);
	} else {
		if (way == 1)
			EXPECT(posix_spawn(&child, "/bin/sh", NULL, NULL, arguments, environ), 0);
		else if ((child = vfork()) == 0) {
			execv("/bin/sh", arguments);
			_exit(255);
		}
		EXPECT(waitpid(child, &status, 0), child);
	}
	EXPECT(WIFEXITED(status), 1);
	return WEXITSTATUS(status);
}

int main(void)
{
	pthread_t thread;
	int threads, inherited = started(0);

	node_open(&api, &a, FI_VERSION(1, 17), FI_THREAD_SAFE);
	node_open(&api, &b, FI_VERSION(1, 17), FI_THREAD_SAFE);
	node_meet(&a, &b);
	node_meet(&b, &a);
	exchange(&a, &b, 1000, 1);
	/* One for each node; those that libfabric starts while it looks for providers end by themselves. */
	threads = threads_after(3);
	EXPECT(threads, 3);

	fork_and(child_uses_the_parents, 1, "idle, the parent's");
	fork_and(child_opens_its_own, 1, "idle, its own");
	fork_and(nothing, 1, "idle, exit");
	exchange(&a, &b, 1000, 2);
	exchange(&b, &a, 300000, 2);

	EXPECT(pthread_create(&thread, NULL, traffic, NULL), 0);
	await_rounds(3);
	for (int i = 0; i < 60; i++) {
		fork_and(child_uses_the_parents, i & 1, "at work, the parent's");
		usleep(i * 37);
	}
	for (int i = 0; i < 5; i++) {
		fork_and(child_opens_its_own, i & 1, "at work, its own");
		fork_and(nothing, 1, "at work, exit");
	}
	/* Programs that are started see none of our descriptors. */
	for (int i = 0; i < 15; i++)
		EXPECT(started(i % 3), inherited);
	await_rounds(3);
	stop = 1;
	EXPECT(pthread_join(thread, NULL), 0);
	EXPECT(threads_after(threads), threads);
	node_close(&api, &a);
	node_close(&api, &b);
	printf("the parent goes on, and its children know their place\n");
	return 0;
}
