/* What the programs of the tests share: expectations, and an endpoint on loopback with what it
 * needs. libfabric is used through `api`, so that a program can load it by hand. */

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

/* No program waits longer for anything: the processors may be busy. */
#define PATIENCE_S 120

#define EXPECT(call, want) \
	do { \
		long got_ = (long)(call), wanted_ = (long)(want); \
		if (got_ != wanted_) \
			fail(__LINE__, "%s is %ld, not %ld", #call, got_, wanted_); \
	} while (0)

/* Ends the process, with the reason. */
static inline void fail(int line, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	printf("process %d, line %d: ", getpid(), line);
	vprintf(format, list);
	printf("\n");
	fflush(stdout);
	_exit(1);
}

static inline double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

/* libfabric's calls that are no inline functions. */
struct api {
	int (*getinfo)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *,
		       struct fi_info **);
	void (*freeinfo)(struct fi_info *);
	struct fi_info *(*dupinfo)(const struct fi_info *);
	int (*fabric)(struct fi_fabric_attr *, struct fid_fabric **, void *);
};

/* One endpoint with a fabric, domain, address vector and completion queue of its own. */
struct node {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	char name[64];
	size_t name_bytes;
	fi_addr_t peer;
};

static inline void node_open(const struct api *api, struct node *n, uint32_t version, int threads)
{
	struct fi_info *hints = api->dupinfo(NULL);
	struct fi_av_attr av = {.type = FI_AV_TABLE};
	struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD};

	hints->caps = FI_MSG | FI_TAGGED | FI_RMA;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_BASIC;
	hints->domain_attr->threading = threads;
	hints->fabric_attr->prov_name = strdup("srd");
	EXPECT(api->getinfo(version, "127.0.0.1", "0", FI_SOURCE, hints, &n->info), 0);
	api->freeinfo(hints);
	EXPECT(strcmp(n->info->fabric_attr->prov_name, "srd"), 0);
	EXPECT(api->fabric(n->info->fabric_attr, &n->fabric, NULL), 0);
	EXPECT(fi_domain(n->fabric, n->info, &n->domain, NULL), 0);
	EXPECT(fi_av_open(n->domain, &av, &n->av, NULL), 0);
	EXPECT(fi_cq_open(n->domain, &cq, &n->cq, NULL), 0);
	EXPECT(fi_endpoint(n->domain, n->info, &n->ep, NULL), 0);
	EXPECT(fi_ep_bind(n->ep, &n->av->fid, 0), 0);
	EXPECT(fi_ep_bind(n->ep, &n->cq->fid, FI_TRANSMIT | FI_RECV), 0);
	EXPECT(fi_enable(n->ep), 0);
	n->name_bytes = sizeof(n->name);
	EXPECT(fi_getname(&n->ep->fid, n->name, &n->name_bytes), 0);
}

static inline void node_meet(struct node *n, const struct node *other)
{
	EXPECT(fi_av_insert(n->av, other->name, 1, &n->peer, 0, NULL), 1);
}

static inline void node_close(const struct api *api, struct node *n)
{
	EXPECT(fi_close(&n->ep->fid), 0);
	EXPECT(fi_close(&n->cq->fid), 0);
	EXPECT(fi_close(&n->av->fid), 0);
	EXPECT(fi_close(&n->domain->fid), 0);
	EXPECT(fi_close(&n->fabric->fid), 0);
	api->freeinfo(n->info);
}

/* Waits for so many completions of a node. */
static inline void node_await(struct node *n, int count, double limit)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error = {0};
	double end = seconds() + limit;

	while (count > 0) {
		long got = fi_cq_read(n->cq, &entry, 1);
		if (got == 1)
			count--;
		else if (got == -FI_EAVAIL && fi_cq_readerr(n->cq, &error, 0) == 1)
			fail(__LINE__, "an operation failed: %s", fi_strerror(error.err));
		else if (got != -FI_EAGAIN)
			fail(__LINE__, "fi_cq_read is %ld", got);
		if (seconds() > end)
			fail(__LINE__, "%d completions are missing", count);
		if (got == -FI_EAGAIN)
			usleep(10);
	}
}

/* A message from one to the other, and its bytes compared. */
static inline void exchange(struct node *from, struct node *to, size_t bytes, unsigned char seed)
{
	unsigned char *out = malloc(bytes), *in = calloc(1, bytes);

	for (size_t i = 0; i < bytes; i++)
		out[i] = (unsigned char)(seed + i * 7);
	EXPECT(fi_trecv(to->ep, in, bytes, NULL, FI_ADDR_UNSPEC, seed, 0, NULL), 0);
	EXPECT(fi_tsend(from->ep, out, bytes, NULL, from->peer, seed, NULL), 0);
	double end = seconds() + PATIENCE_S;
	int sent = 0, received = 0;
	while (!sent || !received) {
		struct fi_cq_tagged_entry entry;
		if (!sent && fi_cq_read(from->cq, &entry, 1) == 1)
			sent = 1;
		if (!received && fi_cq_read(to->cq, &entry, 1) == 1)
			received = 1;
		if (seconds() > end)
			fail(__LINE__, "no message: sent %d, received %d", sent, received);
	}
	EXPECT(memcmp(in, out, bytes), 0);
	free(in);
	free(out);
}

/* Entries of a directory below /proc/self. */
static inline int entries_of(const char *directory)
{
	DIR *dir = opendir(directory);
	int count = 0;
	while (readdir(dir))
		count++;
	closedir(dir);
	return count - 2;
}

/* How many threads there are, once no more than so many are left: one that was joined stays in the
 * list for a moment. */
static inline int threads_after(int expected)
{
	int count = entries_of("/proc/self/task");
	for (int i = 0; i < 1000 * PATIENCE_S && count > expected; i++) {
		usleep(1000);
		count = entries_of("/proc/self/task");
	}
	return count;
}

/* Kilobytes that are resident and no file's: of files the kernel keeps what it likes. */
static inline long resident(void)
{
	char line[256];
	long kilobytes = -1;
	FILE *file = fopen("/proc/self/status", "r");
	while (fgets(line, sizeof(line), file) && sscanf(line, "RssAnon: %ld", &kilobytes) != 1)
		;
	fclose(file);
	if (kilobytes < 0)
		fail(__LINE__, "the kernel does not say what is resident");
	return kilobytes;
}

/* Waits for a child, which must end well, and soon. */
static inline void reap(pid_t child, const char *what)
{
	double end = seconds() + PATIENCE_S;
	int status;

	for (;;) {
		pid_t got = waitpid(child, &status, WNOHANG);
		if (got == child)
			break;
		if (seconds() > end) {
			kill(child, SIGKILL);
			fail(__LINE__, "%s: the child hangs", what);
		}
		usleep(1000);
	}
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		fail(__LINE__, "%s: the child ended with %#x", what, status);
}
