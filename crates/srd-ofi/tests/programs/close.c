/* A registration that ends while an endpoint of its domain is being closed: from then on no peer
 * reaches the memory, although the endpoint still answers its peers. */

#include "common.h"
#include <sys/mman.h>

#define PAGE 4096

static void *closes(void *node)
{
	EXPECT(fi_close(&((struct node *)node)->ep->fid), 0);
	return NULL;
}

int main(void)
{
	const struct api api = {fi_getinfo, fi_freeinfo, fi_dupinfo, fi_fabric};
	struct node a, b;
	struct fid_mr *mr;
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error = {0};
	char out[8] = "written", lost = 0;
	fi_addr_t nobody;
	pthread_t closing;
	double end;

	node_open(&api, &a, FI_VERSION(1, 17), FI_THREAD_SAFE);
	node_open(&api, &b, FI_VERSION(1, 17), FI_THREAD_SAFE);
	node_meet(&a, &b);
	node_meet(&b, &a);
	exchange(&a, &b, 100, 1);
	char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	EXPECT(page == MAP_FAILED, 0);
	EXPECT(fi_mr_reg(b.domain, page, PAGE, FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL), 0);
	uint64_t key = fi_mr_key(mr);
	EXPECT(fi_write(a.ep, out, 8, NULL, a.peer, (uint64_t)page, key, NULL), 0);
	node_await(&a, 1, PATIENCE_S);
	EXPECT(memcmp(page, out, 8), 0);

	/* The close waits for a message that nobody acknowledges. */
	EXPECT(fi_av_insertsvc(b.av, "127.0.0.1", "9", &nobody, 0, NULL), 1);
	EXPECT(fi_tsend(b.ep, &lost, 1, NULL, nobody, 7, NULL), 0);
	EXPECT(pthread_create(&closing, NULL, closes, &b), 0);
	usleep(50000);
	EXPECT(fi_close(&mr->fid), 0);
	EXPECT(mprotect(page, PAGE, PROT_NONE), 0);
	for (end = seconds() + 1.5; seconds() < end; usleep(1000)) {
		fi_write(a.ep, out, 8, NULL, a.peer, (uint64_t)page, key, NULL);
		while (fi_cq_read(a.cq, &entry, 1) == 1 || fi_cq_readerr(a.cq, &error, 0) == 1)
			;
	}
	EXPECT(pthread_join(closing, NULL), 0);
	EXPECT(fi_close(&b.cq->fid), 0);
	EXPECT(fi_close(&b.av->fid), 0);
	EXPECT(fi_close(&b.domain->fid), 0);
	EXPECT(fi_close(&b.fabric->fid), 0);
	fi_freeinfo(b.info);
	node_close(&api, &a);
	printf("no peer wrote after the registration had ended\n");
	return 0;
}
