/*
 * Numbered messages over the fabric `srd-direct`, which delivers in any order.
 *
 *   direct receive ADDRESS COUNT
 *     prints "name NAME" (hexadecimal digits), receives the messages, prints "received COUNT once,
 *     LATE after a later one", and ends with its standard input.
 *   direct send ADDRESS COUNT NAME
 *     sends the messages, waits until all have arrived, and prints "sent COUNT".
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#define MESSAGE_BYTES 1000
#define SLOTS 64
#define PATIENCE_S 60

/* A buffer, with the context that the modes of this fabric require. */
struct slot {
	struct fi_context2 context;
	unsigned char bytes[MESSAGE_BYTES];
};

static struct fi_info *found;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct fid_cq *cq;
static struct fid_ep *ep;
static struct fid_mr *mr;
static struct slot slots[SLOTS];

static void must(long code, const char *what)
{
	if (code) {
		printf("%s: %s\n", what, fi_strerror((int)-code));
		fflush(stdout);
		exit(1);
	}
}

static void open_all(const char *address)
{
	struct fi_info *hints = fi_allocinfo();
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_MSG};

	hints->caps = FI_MSG;
	hints->mode = FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_LOCAL;
	hints->fabric_attr->name = strdup("srd-direct");
	must(fi_getinfo(FI_VERSION(1, 17), address, "0", FI_SOURCE, hints, &found), "getinfo");
	fi_freeinfo(hints);
	if (found->tx_attr->msg_order || found->rx_attr->msg_order)
		must(-FI_EOTHER, "an order of messages");
	must(fi_fabric(found->fabric_attr, &fabric, NULL), "fabric");
	must(fi_domain(fabric, found, &domain, NULL), "domain");
	must(fi_av_open(domain, &av_attr, &av, NULL), "av");
	must(fi_cq_open(domain, &cq_attr, &cq, NULL), "cq");
	must(fi_endpoint(domain, found, &ep, NULL), "endpoint");
	must(fi_ep_bind(ep, &av->fid, 0), "bind av");
	must(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "bind cq");
	must(fi_enable(ep), "enable");
	must(fi_mr_reg(domain, slots, sizeof(slots), FI_SEND | FI_RECV, 0, 0, 0, &mr, NULL), "mr");
}

/* Returns the slot of the next completion. */
static struct slot *next_end(void)
{
	struct fi_cq_msg_entry entry;
	struct fi_cq_err_entry error = {0};
	time_t limit = time(NULL) + PATIENCE_S;

	for (;;) {
		ssize_t got = fi_cq_read(cq, &entry, 1);
		if (got == 1)
			return entry.op_context;
		if (got == -FI_EAVAIL && fi_cq_readerr(cq, &error, 0) == 1)
			must(-error.err, "an operation");
		if (got != -FI_EAGAIN)
			must(got, "cq");
		if (time(NULL) > limit)
			must(-FI_ETIMEDOUT, "no completion");
	}
}

static void post(struct slot *slot)
{
	must(fi_recv(ep, slot->bytes, MESSAGE_BYTES, fi_mr_desc(mr), FI_ADDR_UNSPEC, slot), "recv");
}

static void receive(uint32_t count)
{
	unsigned char name[64], *came = calloc(count, 1);
	size_t length = sizeof(name);
	uint32_t newest = 0, late = 0;

	must(fi_getname(&ep->fid, name, &length), "getname");
	for (int n = 0; n < SLOTS; n++)
		post(&slots[n]);
	printf("name ");
	for (size_t n = 0; n < length; n++)
		printf("%02x", name[n]);
	printf("\n");
	fflush(stdout);
	for (uint32_t received = 0; received < count; received++) {
		struct slot *slot = next_end();
		uint32_t number;
		memcpy(&number, slot->bytes, sizeof(number));
		if (number >= count || came[number]++)
			must(-FI_EOTHER, "a message that came before, or was never sent");
		for (size_t n = sizeof(number); n < MESSAGE_BYTES; n++)
			if (slot->bytes[n] != (unsigned char)(number + n))
				must(-FI_EOTHER, "damaged bytes");
		late += number < newest;
		newest = number > newest ? number : newest;
		post(slot);
	}
	printf("received %u once, %u after a later one\n", count, late);
	fflush(stdout);
	/* Acknowledgements may still be requested. */
	while (getchar() != EOF)
		;
}

static void send_all(uint32_t count, const char *digits)
{
	unsigned char name[64];
	size_t length = strlen(digits) / 2;
	fi_addr_t to;
	uint32_t under_way = 0;

	for (size_t n = 0; n < length && n < sizeof(name); n++)
		sscanf(digits + 2 * n, "%2hhx", &name[n]);
	must(fi_av_insert(av, name, 1, &to, 0, NULL) - 1, "insert");
	for (uint32_t number = 0; number < count; number++) {
		struct slot *slot = under_way < SLOTS ? &slots[under_way++] : next_end();
		memcpy(slot->bytes, &number, sizeof(number));
		for (size_t n = sizeof(number); n < MESSAGE_BYTES; n++)
			slot->bytes[n] = (unsigned char)(number + n);
		must(fi_send(ep, slot->bytes, MESSAGE_BYTES, fi_mr_desc(mr), to, slot), "send");
	}
	for (; under_way; under_way--)
		next_end();
	printf("sent %u\n", count);
}

int main(int count, char **arguments)
{
	if (count < 4)
		return 2;
	open_all(arguments[2]);
	uint32_t messages = (uint32_t)strtoul(arguments[3], NULL, 10);
	if (count > 4)
		send_all(messages, arguments[4]);
	else
		receive(messages);
	must(fi_close(&mr->fid), "close mr");
	must(fi_close(&ep->fid), "close ep");
	must(fi_close(&cq->fid), "close cq");
	must(fi_close(&av->fid), "close av");
	must(fi_close(&domain->fid), "close domain");
	must(fi_close(&fabric->fid), "close fabric");
	fi_freeinfo(found);
	return 0;
}
