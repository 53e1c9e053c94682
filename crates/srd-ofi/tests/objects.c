/* An application that opens every object, on loopback, and checks what is refused and why. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>
#include <poll.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#define EXPECT(call, want) \
	do { \
		long got = (call), wanted = (want); \
		if (got != wanted) { \
			printf("line %d: %s is %ld, not %ld\n", __LINE__, #call, got, wanted); \
			exit(1); \
		} \
	} while (0)

static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct fid_cq *cq;
static struct fid_eq *eq;
static struct fid_cntr *cntr;
static struct fid_ep *ep;

static struct fi_info *info(uint32_t version)
{
	struct fi_info *hints = fi_allocinfo(), *found;
	hints->caps = FI_MSG | FI_TAGGED | FI_RMA;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_SCALABLE;
	EXPECT(fi_getinfo(version, "127.0.0.1", "0", FI_SOURCE, hints, &found), 0);
	fi_freeinfo(hints);
	EXPECT(strcmp(found->fabric_attr->prov_name, "srd"), 0);
	return found;
}

static void address_vector(void)
{
	struct fi_av_attr attr = {.type = FI_AV_TABLE};
	struct sockaddr_in peers[2] = {{.sin_family = AF_INET, .sin_port = htons(7)}}, back;
	size_t length = sizeof(back);
	fi_addr_t numbers[2];
	int errors[2];
	char text[64];

	EXPECT(fi_av_open(domain, &attr, &av, NULL), 0);
	peers[0].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	EXPECT(fi_av_insert(av, peers, 2, numbers, FI_SYNC_ERR, errors), 1);
	EXPECT(numbers[0], 0);
	EXPECT(numbers[1], FI_ADDR_NOTAVAIL);
	EXPECT(errors[0], 0);
	EXPECT(errors[1], FI_EINVAL);
	EXPECT(fi_av_lookup(av, 0, &back, &length), 0);
	EXPECT(length, sizeof(back));
	EXPECT(memcmp(&back, peers, sizeof(back)), 0);
	length = sizeof(text);
	EXPECT(strcmp(fi_av_straddr(av, peers, text, &length), "fi_srd://127.0.0.1:7"), 0);
	EXPECT(fi_av_insertsvc(av, "localhost", "8", &numbers[1], 0, NULL), 1);
	EXPECT(numbers[1], 1);
	EXPECT(fi_av_remove(av, numbers, 2, 0), 0);
	EXPECT(fi_av_lookup(av, 0, &back, &length), -FI_EINVAL);
}

static void queues(void)
{
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD};
	struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_UNSPEC};
	struct fi_cntr_attr cntr_attr = {.wait_obj = FI_WAIT_UNSPEC};
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error = {0};
	struct pollfd pollfd = {.events = POLLIN};
	struct fid *fids[1];

	EXPECT(fi_cq_open(domain, &cq_attr, &cq, NULL), 0);
	EXPECT(fi_cq_read(cq, &entry, 1), -FI_EAGAIN);
	EXPECT(fi_cq_readerr(cq, &error, 0), -FI_EAGAIN);
	EXPECT(fi_cq_sread(cq, &entry, 1, NULL, 1), -FI_EAGAIN);
	fids[0] = &cq->fid;
	EXPECT(fi_trywait(fabric, fids, 1), 0);
	EXPECT(fi_control(&cq->fid, FI_GETWAIT, &pollfd.fd), 0);
	EXPECT(poll(&pollfd, 1, 0), 0);
	EXPECT(fi_eq_open(fabric, &eq_attr, &eq, NULL), 0);
	EXPECT(fi_cntr_open(domain, &cntr_attr, &cntr, NULL), 0);
	EXPECT(fi_cntr_add(cntr, 3), 0);
	EXPECT(fi_cntr_wait(cntr, 3, 0), 0);
	EXPECT(fi_cntr_wait(cntr, 4, 1), -FI_ETIMEDOUT);
	EXPECT(fi_cntr_read(cntr), 3);
}

static void memory(void)
{
	struct fid_mr *mr, *other;
	char bytes[64];

	EXPECT(fi_mr_reg(domain, bytes, sizeof(bytes), FI_REMOTE_READ, 0, 42, 0, &mr, NULL), 0);
	EXPECT(fi_mr_key(mr), 42);
	EXPECT(fi_mr_reg(domain, bytes, 1, FI_REMOTE_READ, 0, 42, 0, &other, NULL), -FI_ENOKEY);
	EXPECT(fi_close(&domain->fid), -FI_EBUSY);
	EXPECT(fi_close(&mr->fid), 0);
	EXPECT(fi_mr_reg(domain, bytes, 1, FI_REMOTE_READ, 0, 42, 0, &other, NULL), 0);
	EXPECT(fi_close(&other->fid), 0);
}

static void endpoint(struct fi_info *found)
{
	struct sockaddr_in name;
	size_t length = sizeof(name), keep = 0, bytes = sizeof(keep);
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error = {0};
	char unused;

	EXPECT(fi_endpoint(domain, found, &ep, NULL), 0);
	EXPECT(fi_enable(ep), -FI_ENOAV);
	EXPECT(fi_ep_bind(ep, &av->fid, 0), 0);
	EXPECT(fi_enable(ep), -FI_ENOCQ);
	EXPECT(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), 0);
	EXPECT(fi_ep_bind(ep, &cntr->fid, FI_SEND), 0);
	EXPECT(fi_ep_bind(ep, &eq->fid, 0), 0);
	EXPECT(fi_ep_bind(ep, &fabric->fid, 0), -FI_EINVAL);
	keep = 512;
	EXPECT(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &keep, bytes), 0);
	keep = 0;
	EXPECT(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &keep, &bytes), 0);
	EXPECT(keep, 512);
	EXPECT(fi_enable(ep), 0);
	EXPECT(fi_getname(&ep->fid, &name, &length), 0);
	EXPECT(name.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
	EXPECT(name.sin_port == 0, 0);
	length = 4;
	EXPECT(fi_getname(&ep->fid, &unused, &length), -FI_ETOOSMALL);
	EXPECT(length, sizeof(name));
	/* The default flag says nothing about reads, which send no data. */
	uint64_t flags = FI_TRANSMIT | FI_INJECT;
	EXPECT(fi_control(&ep->fid, FI_SETOPSFLAG, &flags), 0);
	fi_addr_t self;
	EXPECT(fi_av_insert(av, &name, 1, &self, 0, NULL), 1);
	EXPECT(fi_read(ep, &unused, 1, NULL, self, 0, 42, &unused), 0);
	EXPECT(fi_cq_sread(cq, &entry, 1, NULL, 5000), -FI_EAVAIL);
	EXPECT(fi_cq_readerr(cq, &error, 0), 1);
	EXPECT(error.err, FI_EKEYREJECTED);
	struct iovec local = {.iov_base = &unused, .iov_len = 1};
	struct fi_rma_iov remote = {.len = 1, .key = 42};
	struct fi_msg_rma read = {.msg_iov = &local, .iov_count = 1, .addr = self,
				  .rma_iov = &remote, .rma_iov_count = 1};
	EXPECT(fi_readmsg(ep, &read, FI_INJECT), -FI_EINVAL);
	flags = FI_TRANSMIT;
	EXPECT(fi_control(&ep->fid, FI_SETOPSFLAG, &flags), 0);
	memset(&error, 0, sizeof(error));
	/* Nobody has this number, and nobody sends. */
	EXPECT(fi_send(ep, &unused, 1, NULL, 77, NULL), -FI_EINVAL);
	EXPECT(fi_trecv(ep, &unused, 1, NULL, FI_ADDR_UNSPEC, 0, 0, &unused), 0);
	EXPECT(fi_cancel(&ep->fid, &unused), 0);
	EXPECT(fi_cq_read(cq, &entry, 1), -FI_EAVAIL);
	EXPECT(fi_cq_readerr(cq, &error, 0), 1);
	EXPECT(error.err, FI_ECANCELED);
	EXPECT(error.op_context == &unused, 1);
}

/* Cancels a receive, and reads the error into an entry whose other bytes are 0x5a. */
static void cancelled(struct fi_cq_err_entry *error, void *data, size_t size)
{
	struct fi_cq_tagged_entry entry;
	char unused;

	memset(error, 0x5a, sizeof(*error));
	error->err_data = data;
	error->err_data_size = size;
	EXPECT(fi_trecv(ep, &unused, 1, NULL, FI_ADDR_UNSPEC, 0, 0, &unused), 0);
	EXPECT(fi_cancel(&ep->fid, &unused), 0);
	EXPECT(fi_cq_read(cq, &entry, 1), -FI_EAVAIL);
	EXPECT(fi_cq_readerr(cq, error, 0), 1);
	EXPECT(error->err, FI_ECANCELED);
}

/* On input, err_data is valid only with a size. */
static void error_data(void)
{
	struct fi_cq_err_entry error;
	char text[64] = "an old text";
	const char *said;

	cancelled(&error, (void *)0x5a5a5a5a5a5a5a5a, 0);
	EXPECT(error.err_data == (void *)0x5a5a5a5a5a5a5a5a, 0);
	EXPECT(error.err_data_size, 0);
	said = fi_cq_strerror(cq, error.prov_errno, error.err_data, NULL, 0);
	EXPECT(strcmp(said, "it was cancelled"), 0);
	cancelled(&error, text, sizeof(text));
	EXPECT(error.err_data == text, 1);
	said = fi_cq_strerror(cq, error.prov_errno, error.err_data, NULL, 0);
	EXPECT(strcmp(said, "it was cancelled"), 0);
}

/* For a program that was built for a release before 1.5, the entry has no size of err_data. */
static void old_error_data(void)
{
	struct {
		struct fi_cq_err_entry entry;
		char beyond[16];
	} old;
	char *after = (char *)&old.entry.err_data_size;

	memset(&old, 0x5a, sizeof(old));
	cancelled(&old.entry, (void *)0x5a5a5a5a5a5a5a5a, 0x5a5a5a5a5a5a5a5a);
	EXPECT(old.entry.err_data == (void *)0x5a5a5a5a5a5a5a5a, 0);
	for (size_t i = 0; i < sizeof(old.entry.err_data_size); i++)
		EXPECT(after[i], 0x5a);
}

/* A full queue of receives holds up neither the queue of sends nor the counters. */
static void full_queue(struct fi_info *found)
{
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
	struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC};
	struct fi_cntr_attr cntr_attr = {.wait_obj = FI_WAIT_UNSPEC};
	struct fi_cq_tagged_entry entries[4];
	struct fid_cq *received, *sent;
	struct fid_cntr *sends, *receives;
	struct fid_av *vector;
	struct fid_ep *busy;
	char name[64], in[4], out[4] = {0};
	size_t length = sizeof(name);
	fi_addr_t self;
	long count = 0;

	EXPECT(fi_av_open(domain, &av_attr, &vector, NULL), 0);
	EXPECT(fi_cq_open(domain, &attr, &sent, NULL), 0);
	attr.size = 2;
	EXPECT(fi_cq_open(domain, &attr, &received, NULL), 0);
	EXPECT(fi_cntr_open(domain, &cntr_attr, &sends, NULL), 0);
	EXPECT(fi_cntr_open(domain, &cntr_attr, &receives, NULL), 0);
	EXPECT(fi_endpoint(domain, found, &busy, NULL), 0);
	EXPECT(fi_ep_bind(busy, &vector->fid, 0), 0);
	EXPECT(fi_ep_bind(busy, &received->fid, FI_RECV), 0);
	EXPECT(fi_ep_bind(busy, &sent->fid, FI_TRANSMIT), 0);
	EXPECT(fi_ep_bind(busy, &sends->fid, FI_SEND), 0);
	EXPECT(fi_ep_bind(busy, &receives->fid, FI_RECV), 0);
	EXPECT(fi_enable(busy), 0);
	EXPECT(fi_getname(&busy->fid, name, &length), 0);
	EXPECT(fi_av_insert(vector, name, 1, &self, 0, NULL), 1);
	for (int i = 0; i < 4; i++) {
		EXPECT(fi_trecv(busy, &in[i], 1, NULL, FI_ADDR_UNSPEC, i, 0, NULL), 0);
		EXPECT(fi_tsend(busy, &out[i], 1, NULL, self, i, NULL), 0);
	}
	for (long n = 0; n < 4; n += count) {
		count = fi_cq_sread(sent, entries, 4, NULL, 5000);
		EXPECT(count > 0, 1);
	}
	EXPECT(fi_cntr_wait(sends, 4, 5000), 0);
	EXPECT(fi_cntr_wait(receives, 4, 5000), 0);
	for (long n = 0; n < 4; n++) {
		EXPECT(fi_cq_sread(received, entries, 1, NULL, 5000), 1);
		EXPECT(entries[0].tag, n);
	}
	EXPECT(fi_close(&busy->fid), 0);
	EXPECT(fi_close(&receives->fid), 0);
	EXPECT(fi_close(&sends->fid), 0);
	EXPECT(fi_close(&received->fid), 0);
	EXPECT(fi_close(&sent->fid), 0);
	EXPECT(fi_close(&vector->fid), 0);
}

/* Opens all objects for a release of libfabric, uses them, and closes them. */
static void with(uint32_t version)
{
	struct fi_info *found = info(version);

	EXPECT(fi_fabric(found->fabric_attr, &fabric, NULL), 0);
	EXPECT(fi_domain(fabric, found, &domain, NULL), 0);
	EXPECT(fi_close(&fabric->fid), -FI_EBUSY);
	address_vector();
	queues();
	memory();
	endpoint(found);
	if (version < FI_VERSION(1, 5))
		old_error_data();
	else
		error_data();
	full_queue(found);
	EXPECT(fi_close(&av->fid), -FI_EBUSY);
	EXPECT(fi_close(&cq->fid), -FI_EBUSY);
	EXPECT(fi_close(&cntr->fid), -FI_EBUSY);
	EXPECT(fi_close(&eq->fid), -FI_EBUSY);
	EXPECT(fi_close(&domain->fid), -FI_EBUSY);
	EXPECT(fi_close(&ep->fid), 0);
	EXPECT(fi_close(&av->fid), 0);
	EXPECT(fi_close(&cq->fid), 0);
	EXPECT(fi_close(&cntr->fid), 0);
	EXPECT(fi_close(&eq->fid), 0);
	EXPECT(fi_close(&domain->fid), 0);
	EXPECT(fi_close(&fabric->fid), 0);
	fi_freeinfo(found);
}

int main(void)
{
	with(FI_VERSION(1, 17));
	with(FI_VERSION(1, 4));
	printf("every object opened and closed\n");
	return 0;
}
