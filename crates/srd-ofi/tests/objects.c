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

static struct fi_info *info(void)
{
	struct fi_info *hints = fi_allocinfo(), *found;
	hints->caps = FI_MSG | FI_TAGGED;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_SCALABLE;
	EXPECT(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", "0", FI_SOURCE, hints, &found), 0);
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
	EXPECT(fi_getname(&ep->fid, &name, &length), -FI_ETOOSMALL);
	EXPECT(length, sizeof(name));
	/* Nobody has this number, and nobody sends. */
	EXPECT(fi_send(ep, &unused, 1, NULL, 77, NULL), -FI_EINVAL);
	EXPECT(fi_trecv(ep, &unused, 1, NULL, FI_ADDR_UNSPEC, 0, 0, &unused), 0);
	EXPECT(fi_cancel(&ep->fid, &unused), 0);
	EXPECT(fi_cq_read(cq, &entry, 1), -FI_EAVAIL);
	EXPECT(fi_cq_readerr(cq, &error, 0), 1);
	EXPECT(error.err, FI_ECANCELED);
	EXPECT(error.op_context == &unused, 1);
}

int main(void)
{
	struct fi_info *found = info();

	EXPECT(fi_fabric(found->fabric_attr, &fabric, NULL), 0);
	EXPECT(fi_domain(fabric, found, &domain, NULL), 0);
	EXPECT(fi_close(&fabric->fid), -FI_EBUSY);
	address_vector();
	queues();
	memory();
	endpoint(found);
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
	printf("every object opened and closed\n");
	return 0;
}
