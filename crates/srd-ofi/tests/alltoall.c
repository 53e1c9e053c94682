/*
 * Endpoints in one process that all send to all: alltoall ENDPOINTS DEPTH BYTES TX_SIZE [REST]
 *
 * Every endpoint sends DEPTH messages of BYTES bytes to every other one, as far ahead as its queue
 * of TX_SIZE operations takes them (zero: the provider's), and receives as many. Each message names
 * its sender and number, and every word of it is checked. Prints a line of figures after the last
 * message, and one after a rest; stops with an error after 40 minutes. A rest lasts at least twice
 * as long as REST says in seconds (1.5), and until it gives back no more memory; zero: none.
 *
 * Memory is what the allocator has given out (heap_kb) and what is resident (resident_kb); a pair
 * is one endpoint's end of a pair that talks, so it is in use in both directions.
 */

#include <dirent.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/resource.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

/* Receives that an endpoint keeps posted. */
#define RECEIVES 64
/* Messages up to so many bytes are copied by the call that sends them. */
#define COPIED 1024

struct receive {
	struct fi_context context;
	char *buffer;
};

struct node {
	struct fid_ep *ep;
	struct receive *receives;
	char *out;
	/* What is sent next: to the node so many further on, and the number of the message. */
	unsigned long step, number;
	/* Which messages have come from each of the others. */
	uint64_t *seen;
};

static unsigned long nodes_count, depth, bytes;
static struct node *nodes;
static fi_addr_t *numbers;
static struct fid_cq *cq;

static void must(long code, const char *what)
{
	if (code) {
		printf("%s: %s\n", what, fi_strerror((int)-code));
		exit(1);
	}
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static unsigned long entries(const char *path)
{
	unsigned long count = 0;
	DIR *directory = opendir(path);

	while (directory && readdir(directory))
		count++;
	if (directory)
		closedir(directory);
	return count - 2;
}

static unsigned long heap_kb(void)
{
	struct mallinfo2 info = mallinfo2();

	return (info.uordblks + info.hblkhd) / 1024;
}

static unsigned long resident_kb(void)
{
	unsigned long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");

	if (!file || fscanf(file, "%*u %lu", &pages) != 1)
		must(-FI_EIO, "statm");
	fclose(file);
	return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void post_receive(unsigned long at, struct receive *receive)
{
	must(fi_trecv(nodes[at].ep, receive->buffer, bytes, NULL, FI_ADDR_UNSPEC, 0, ~0ull,
		      &receive->context), "recv");
}

static void open_node(struct fid_domain *domain, struct fi_info *info, struct fid_av *av,
		      unsigned long at)
{
	struct node *node = &nodes[at];
	char name[64];
	size_t length = sizeof(name);

	must(fi_endpoint(domain, info, &node->ep, NULL), "endpoint");
	must(fi_ep_bind(node->ep, &av->fid, 0), "bind av");
	must(fi_ep_bind(node->ep, &cq->fid, FI_RECV), "bind cq");
	must(fi_ep_bind(node->ep, &cq->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION), "bind cq");
	must(fi_enable(node->ep), "enable");
	must(fi_getname(&node->ep->fid, name, &length), "getname");
	if (fi_av_insert(av, name, 1, &numbers[at], 0, NULL) != 1)
		must(-FI_EINVAL, "insert");
	node->step = 1;
	node->receives = calloc(RECEIVES, sizeof(*node->receives));
	node->seen = calloc(nodes_count, sizeof(*node->seen));
	/* A message that is not copied has a place of its own while it is under way. */
	node->out = malloc(bytes * (bytes > COPIED ? depth * nodes_count : 1));
}

/* A receive names its node in the tag's place of the context. */
static void post_receives(unsigned long at)
{
	for (int n = 0; n < RECEIVES; n++) {
		struct receive *receive = &nodes[at].receives[n];

		receive->buffer = malloc(bytes);
		receive->context.internal[0] = (void *)at;
		receive->context.internal[1] = receive;
		post_receive(at, receive);
	}
}

/* Sends the next message, unless the queue is full. */
static void send_next(unsigned long at)
{
	struct node *node = &nodes[at];
	unsigned long to = (at + node->step) % nodes_count;
	unsigned long place = bytes > COPIED ? (node->step * depth + node->number) * bytes : 0;
	uint64_t *words = (uint64_t *)(node->out + place);
	struct iovec iov = {.iov_base = words, .iov_len = bytes};
	struct fi_msg_tagged message = {.msg_iov = &iov, .iov_count = 1, .addr = numbers[to],
					.tag = at};
	ssize_t code;

	for (unsigned long n = 0; n < bytes / 8; n++)
		words[n] = at << 40 | node->number << 24 | n;
	code = fi_tsendmsg(node->ep, &message, bytes > COPIED ? 0 : FI_INJECT);
	if (code == -FI_EAGAIN)
		return;
	must(code, "send");
	if (++node->number == depth) {
		node->number = 0;
		node->step++;
	}
}

static void check(unsigned long at, struct receive *receive, const struct fi_cq_tagged_entry *entry)
{
	const uint64_t *words = (const uint64_t *)receive->buffer;
	uint64_t from = entry->tag, number = words[0] >> 24 & 0xffff;
	int twice = number >= depth || nodes[at].seen[from] >> number & 1;

	for (uint64_t n = 0; n < bytes / 8; n++) {
		uint64_t want = from << 40 | number << 24 | n;

		if (words[n] != want || entry->len != bytes || twice) {
			printf("node %lu: word %lu of %lu from %lu is %lx, not %lx\n", at, n,
			       entry->len / 8, from, words[n], want);
			exit(1);
		}
	}
	nodes[at].seen[from] |= 1ull << number;
}

/* Takes what has come; returns how many messages that were. */
static unsigned long take(void)
{
	struct fi_cq_tagged_entry got[64];
	unsigned long count = 0;
	ssize_t code = fi_cq_read(cq, got, 64);

	if (code == -FI_EAVAIL) {
		struct fi_cq_err_entry error = {0};
		char text[256];

		fi_cq_readerr(cq, &error, 0);
		printf("%s: %s\n", fi_strerror(error.err),
		       fi_cq_strerror(cq, error.prov_errno, error.err_data, text, sizeof(text)));
		exit(1);
	}
	for (ssize_t n = 0; n < code; n++) {
		struct fi_context *context = got[n].op_context;
		unsigned long at = (unsigned long)context->internal[0];
		struct receive *receive = context->internal[1];

		check(at, receive, &got[n]);
		post_receive(at, receive);
		count++;
	}
	return count;
}

/* How many threads there are, once those have ended that close the sockets of refused links: they
 * end by themselves. */
static unsigned long threads(void)
{
	unsigned long count = entries("/proc/self/task");

	for (int i = 0; i < 60000 && count > nodes_count + 1; i++) {
		usleep(1000);
		count = entries("/proc/self/task");
	}
	return count;
}

static void report(const char *when, double seconds, unsigned long heap, unsigned long resident)
{
	unsigned long pairs = nodes_count * (nodes_count - 1);
	unsigned long heap_now = heap_kb(), resident_now = resident_kb();

	printf("%s seconds %.1f descriptors %lu threads %lu heap_kb %lu resident_kb %lu "
	       "heap_bytes_per_pair %lu resident_bytes_per_pair %lu\n",
	       when, seconds, entries("/proc/self/fd"), threads(), heap_now, resident_now,
	       (heap_now - heap) * 1024 / pairs,
	       (resident_now - resident) * 1024 / pairs);
}

static void exchange(void)
{
	unsigned long wanted = nodes_count * (nodes_count - 1) * depth, total = 0;
	double begin = now();

	while (total < wanted) {
		unsigned long count;

		for (unsigned long at = 0; at < nodes_count; at++)
			if (nodes[at].step < nodes_count)
				send_next(at);
		while ((count = take()) > 0)
			total += count;
		if (now() - begin > 2400) {
			printf("%lu of %lu messages after 40 minutes\n", total, wanted);
			exit(1);
		}
	}
}

static void rest(double seconds)
{
	unsigned long before;
	int turns = 0;

	do {
		before = heap_kb();
		for (double begin = now(); now() - begin < seconds; usleep(100000))
			take();
	} while (seconds > 0 && (++turns < 2 || heap_kb() < before));
}

int main(int argc, char **argv)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED};
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	unsigned long heap, resident;
	double begin;

	if (argc < 5 || argc > 6)
		return 2;
	nodes_count = strtoul(argv[1], NULL, 10);
	depth = strtoul(argv[2], NULL, 10);
	bytes = strtoul(argv[3], NULL, 10);
	hints->tx_attr->size = strtoul(argv[4], NULL, 10);
	if (depth < 1 || depth > 64 || bytes < 8 || bytes > 64 << 20)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	hints->caps = FI_MSG | FI_TAGGED;
	hints->mode = FI_CONTEXT;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_SCALABLE;
	must(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", "0", FI_SOURCE, hints, &info), "getinfo");
	must(fi_fabric(info->fabric_attr, &fabric, NULL), "fabric");
	must(fi_domain(fabric, info, &domain, NULL), "domain");
	must(fi_av_open(domain, &av_attr, &av, NULL), "av");
	must(fi_cq_open(domain, &cq_attr, &cq, NULL), "cq");
	nodes = calloc(nodes_count, sizeof(*nodes));
	numbers = calloc(nodes_count, sizeof(*numbers));
	begin = now();
	for (unsigned long at = 0; at < nodes_count; at++)
		open_node(domain, info, av, at);
	for (unsigned long at = 0; at < nodes_count; at++)
		post_receives(at);
	heap = heap_kb();
	resident = resident_kb();
	report("opened", now() - begin, heap, resident);
	begin = now();
	exchange();
	report("exchanged", now() - begin, heap, resident);
	begin = now();
	rest(argc > 5 ? strtod(argv[5], NULL) : 1.5);
	report("rested", now() - begin, heap, resident);
	begin = now();
	for (unsigned long at = 0; at < nodes_count; at++)
		must(fi_close(&nodes[at].ep->fid), "close");
	printf("closed seconds %.1f\n", now() - begin);
	return 0;
}
