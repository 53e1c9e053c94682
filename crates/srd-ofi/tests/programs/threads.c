/* Eight threads use one endpoint, one completion queue and two counters at once (FI_THREAD_SAFE),
 * while others open, use and close endpoints in the same and in other fabrics. */

#include "common.h"
#include <rdma/fi_rma.h>

#define THREADS 8
#define MESSAGES 400
#define OTHERS 10
#define LONG 100000

static const struct api api = {fi_getinfo, fi_freeinfo, fi_dupinfo, fi_fabric};
static struct node a, b;
static struct fid_mr *mr;
static unsigned char shared[THREADS][4096];

/* What an operation is for. `FI_CONTEXT` is not asked for, so contexts are ours. */
struct op {
	unsigned char *bytes;
	size_t length;
	_Atomic int done;
};

/* Whoever reads a completion tells its owner. */
static void progress(struct node *n)
{
	struct fi_cq_tagged_entry entries[4];
	struct fi_cq_err_entry error = {0};
	long got = fi_cq_read(n->cq, entries, 4);

	if (got == -FI_EAVAIL) {
		/* Another thread may have taken it. */
		if (fi_cq_readerr(n->cq, &error, 0) == 1)
			fail(__LINE__, "an operation failed: %s", fi_strerror(error.err));
		return;
	}
	if (got < 0 && got != -FI_EAGAIN)
		fail(__LINE__, "fi_cq_read is %ld", got);
	for (long i = 0; i < got; i++)
		if (entries[i].op_context)
			((struct op *)entries[i].op_context)->done++;
}

static void await(struct op *op)
{
	double end = seconds() + PATIENCE_S;
	while (!op->done) {
		progress(&a);
		progress(&b);
		if (seconds() > end)
			fail(__LINE__, "an operation never ends");
	}
}

#define TRY(call) \
	do { \
		long code_; \
		while ((code_ = (call)) == -FI_EAGAIN) { \
			progress(&a); \
			progress(&b); \
		} \
		EXPECT(code_, 0); \
	} while (0)

static unsigned char byte_of(size_t thread, size_t message, size_t at)
{
	return (unsigned char)(thread * 31 + message * 7 + at * 3);
}

static void *work(void *argument)
{
	size_t me = (size_t)argument;
	unsigned char *out = malloc(LONG), *in = malloc(LONG);

	for (size_t m = 0; m < MESSAGES; m++) {
		size_t length = m % 16 == 0 ? LONG : 1 + m * 11 % 3000;
		uint64_t tag = me << 32 | m;
		struct op sent = {0}, received = {0}, written = {0}, read = {0};

		for (size_t i = 0; i < length; i++)
			out[i] = byte_of(me, m, i);
		memset(in, 0, length);
		TRY(fi_trecv(b.ep, in, LONG, NULL, FI_ADDR_UNSPEC, tag, 0, &received));
		TRY(fi_tsend(a.ep, out, length, NULL, a.peer, tag, &sent));
		await(&received);
		await(&sent);
		EXPECT(memcmp(in, out, length), 0);
		if (m % 4)
			continue;
		/* Each thread has a row of its own of the peer's memory. */
		size_t row = m % 3 ? 4096 : 100;
		uint64_t at = (uint64_t)shared[me];
		TRY(fi_write(a.ep, out, row, NULL, a.peer, at, fi_mr_key(mr), &written));
		await(&written);
		memset(in, 0, row);
		TRY(fi_read(a.ep, in, row, NULL, a.peer, at, fi_mr_key(mr), &read));
		await(&read);
		EXPECT(memcmp(in, out, row), 0);
	}
	free(in);
	free(out);
	return NULL;
}

/* Endpoints come and go meanwhile. */
static void *others(void *argument)
{
	(void)argument;
	for (int i = 0; i < OTHERS; i++) {
		struct node c, d;
		node_open(&api, &c, FI_VERSION(1, 17), FI_THREAD_SAFE);
		node_open(&api, &d, FI_VERSION(1, 17), FI_THREAD_SAFE);
		node_meet(&c, &d);
		node_meet(&d, &c);
		exchange(&c, &d, 1000, (unsigned char)i);
		node_close(&api, &c);
		node_close(&api, &d);
	}
	return NULL;
}

/* Memory is registered and taken back meanwhile. */
static void *memory(void *argument)
{
	static unsigned char bytes[4096];
	(void)argument;
	for (int i = 0; i < 100; i++) {
		struct fid_mr *own;
		EXPECT(fi_mr_reg(b.domain, bytes, sizeof(bytes), FI_REMOTE_READ, 0, 0, 0, &own, NULL), 0);
		usleep(100);
		EXPECT(fi_close(&own->fid), 0);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS + 3];
	struct fid_cntr *sent, *received;
	struct fi_cntr_attr attr = {.wait_obj = FI_WAIT_UNSPEC};

	node_open(&api, &a, FI_VERSION(1, 17), FI_THREAD_SAFE);
	node_open(&api, &b, FI_VERSION(1, 17), FI_THREAD_SAFE);
	/* Counters are bound before an endpoint is enabled, so these two are opened once more. */
	struct node *nodes[2] = {&a, &b};
	struct fid_cntr **counters[2] = {&sent, &received};
	uint64_t kinds[2] = {FI_SEND, FI_RECV};
	for (int i = 0; i < 2; i++) {
		struct node *n = nodes[i];
		EXPECT(fi_close(&n->ep->fid), 0);
		EXPECT(fi_cntr_open(n->domain, &attr, counters[i], NULL), 0);
		EXPECT(fi_endpoint(n->domain, n->info, &n->ep, NULL), 0);
		EXPECT(fi_ep_bind(n->ep, &n->av->fid, 0), 0);
		EXPECT(fi_ep_bind(n->ep, &n->cq->fid, FI_TRANSMIT | FI_RECV), 0);
		EXPECT(fi_ep_bind(n->ep, &(*counters[i])->fid, kinds[i]), 0);
		EXPECT(fi_enable(n->ep), 0);
		n->name_bytes = sizeof(n->name);
		EXPECT(fi_getname(&n->ep->fid, n->name, &n->name_bytes), 0);
	}
	node_meet(&a, &b);
	node_meet(&b, &a);
	EXPECT(fi_mr_reg(b.domain, shared, sizeof(shared), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0,
			 &mr, NULL), 0);

	for (size_t i = 0; i < THREADS; i++)
		EXPECT(pthread_create(&threads[i], NULL, work, (void *)i), 0);
	EXPECT(pthread_create(&threads[THREADS], NULL, others, NULL), 0);
	EXPECT(pthread_create(&threads[THREADS + 1], NULL, others, NULL), 0);
	EXPECT(pthread_create(&threads[THREADS + 2], NULL, memory, NULL), 0);
	for (size_t i = 0; i < THREADS + 3; i++)
		EXPECT(pthread_join(threads[i], NULL), 0);
	EXPECT(fi_cntr_wait(sent, THREADS * MESSAGES, 1000 * PATIENCE_S), 0);
	EXPECT(fi_cntr_wait(received, THREADS * MESSAGES, 1000 * PATIENCE_S), 0);
	EXPECT(fi_cntr_read(sent), THREADS * MESSAGES);
	EXPECT(fi_cntr_read(received), THREADS * MESSAGES);
	EXPECT(fi_cntr_readerr(sent), 0);
	EXPECT(fi_close(&mr->fid), 0);
	EXPECT(fi_close(&a.ep->fid), 0);
	EXPECT(fi_close(&b.ep->fid), 0);
	EXPECT(fi_close(&sent->fid), 0);
	EXPECT(fi_close(&received->fid), 0);
	printf("%d messages of %d threads\n", THREADS * MESSAGES, THREADS);
	return 0;
}
