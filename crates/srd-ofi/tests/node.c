/*
 * An endpoint that does what its standard input says, a line at a time, and answers on standard
 * output: tests kill such processes, start them again, and compare what the others are told.
 *
 *   open ADDRESS PORT          -> open NAME
 *   insert NAME                -> number N            (NAME in hexadecimal digits)
 *   name ADDRESS PORT          -> name NAME           (the address of whoever is there)
 *   remove N                   -> removed CODE
 *   send N BYTES TAG COUNT     -> posted COUNT        (fewer if the provider says EAGAIN)
 *   deliver N BYTES TAG COUNT  -> posted COUNT        (until it stands in the receiver's buffer)
 *   recv BYTES TAG COUNT       -> posted COUNT
 *   read N BYTES KEY           -> posted 1
 *   write N BYTES KEY COUNT    -> posted COUNT
 *   share KEY                  -> shared CODE         (a megabyte, to be read and written)
 *   claim TAG                  -> claimed CODE ERRNO  (looks for a message and keeps it)
 *   take BYTES TAG             -> posted CODE         (receives the claimed message)
 *   discard TAG                -> posted CODE
 *   wait COUNT MS              -> each end as a line, then "waited COUNT MS"
 *   memory                     -> memory KB           (of the process, resident)
 *   close                      -> closed CODE MS
 *
 * Ends are "ok CONTEXT LENGTH" or "failed CONTEXT ERROR PROVIDER_ERROR TEXT". Contexts are tags,
 * and keys for what has no tag.
 */

#include <arpa/inet.h>
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
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#define BUFFER_BYTES (8u << 20)
#define SHARED_BYTES (1u << 20)

static struct fi_info *found;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct fid_cq *cq;
static struct fid_ep *ep;
static struct fid_mr *mr;
static char *out, *in, *shared;

static void must(int code, const char *what)
{
	if (code) {
		printf("%s: %s\n", what, fi_strerror(-code));
		exit(1);
	}
}

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void show_name(const char *word, const void *name, size_t length)
{
	const unsigned char *bytes = name;

	printf("%s ", word);
	for (size_t n = 0; n < length; n++)
		printf("%02x", bytes[n]);
	printf("\n");
}

static void open_all(const char *address, const char *port)
{
	struct fi_info *hints = fi_allocinfo();
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED};
	const char *size = getenv("CQ_SIZE");
	char name[64];
	size_t length = sizeof(name);

	cq_attr.size = size ? strtoul(size, NULL, 10) : 0;
	hints->caps = FI_MSG | FI_TAGGED | FI_RMA;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_SCALABLE;
	must(fi_getinfo(FI_VERSION(1, 17), address, port, FI_SOURCE, hints, &found), "getinfo");
	fi_freeinfo(hints);
	must(fi_fabric(found->fabric_attr, &fabric, NULL), "fabric");
	must(fi_domain(fabric, found, &domain, NULL), "domain");
	must(fi_av_open(domain, &av_attr, &av, NULL), "av");
	must(fi_cq_open(domain, &cq_attr, &cq, NULL), "cq");
	must(fi_endpoint(domain, found, &ep, NULL), "endpoint");
	must(fi_ep_bind(ep, &av->fid, 0), "bind av");
	must(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "bind cq");
	must(fi_enable(ep), "enable");
	must(fi_getname(&ep->fid, name, &length), "getname");
	show_name("open", name, length);
}

static void make_name(const char *address, const char *port)
{
	struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};

	inet_pton(AF_INET, address, &name.sin_addr);
	show_name("name", &name, sizeof(name));
}

static void insert(const char *digits)
{
	unsigned char name[64];
	fi_addr_t number = FI_ADDR_NOTAVAIL;
	size_t length = strlen(digits) / 2;

	for (size_t n = 0; n < length && n < sizeof(name); n++)
		sscanf(digits + 2 * n, "%2hhx", &name[n]);
	if (fi_av_insert(av, name, 1, &number, 0, NULL) != 1)
		must(-FI_EINVAL, "insert");
	printf("number %lu\n", (unsigned long)number);
}

/* Posts a message until it is taken; false if it is not within so many tries. */
static int post(fi_addr_t to, size_t bytes, unsigned long tag, unsigned long flags)
{
	struct iovec iov = {.iov_base = out, .iov_len = bytes};
	struct fi_msg_tagged message = {.msg_iov = &iov, .iov_count = 1, .addr = to, .tag = tag,
					.context = (void *)tag};
	ssize_t code = -FI_EAGAIN;

	for (int tries = 0; tries < 1000 && code == -FI_EAGAIN; tries++)
		code = fi_tsendmsg(ep, &message, flags | FI_COMPLETION);
	if (code && code != -FI_EAGAIN)
		must(code, "send");
	return code == 0;
}

static void send_many(char *const *words, unsigned long flags)
{
	unsigned long to = strtoul(words[1], NULL, 10), bytes = strtoul(words[2], NULL, 10);
	unsigned long tag = strtoul(words[3], NULL, 10), count = strtoul(words[4], NULL, 10), n;

	for (n = 0; n < count && post(to, bytes, tag, flags); n++)
		;
	printf("posted %lu\n", n);
}

static void recv_many(size_t bytes, unsigned long tag, unsigned long count)
{
	unsigned long n;

	for (n = 0; n < count; n++)
		if (fi_trecv(ep, in, bytes, NULL, FI_ADDR_UNSPEC, tag, 0, (void *)tag))
			break;
	printf("posted %lu\n", n);
}

static void transfer(int read, char *const *words)
{
	unsigned long to = strtoul(words[1], NULL, 10), bytes = strtoul(words[2], NULL, 10);
	unsigned long key = strtoul(words[3], NULL, 10);
	unsigned long count = words[4] ? strtoul(words[4], NULL, 10) : 1, n;

	for (n = 0; n < count; n++) {
		ssize_t code = read ? fi_read(ep, in, bytes, NULL, to, 0, key, (void *)key)
				    : fi_write(ep, out, bytes, NULL, to, 0, key, (void *)key);
		if (code == -FI_EAGAIN)
			break;
		must(code, "transfer");
	}
	printf("posted %lu\n", n);
}

static ssize_t claimed(unsigned long flags, size_t bytes, unsigned long tag)
{
	struct iovec iov = {.iov_base = in, .iov_len = bytes};
	struct fi_msg_tagged message = {.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
					.tag = tag, .context = (void *)tag};

	return fi_trecvmsg(ep, &message, flags);
}

static void claim(unsigned long tag)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error = {0};
	ssize_t code = claimed(FI_PEEK | FI_CLAIM, 0, tag);

	if (code == 0)
		code = fi_cq_read(cq, &entry, 1);
	if (code == -FI_EAVAIL)
		fi_cq_readerr(cq, &error, 0);
	printf("claimed %zd %d\n", code, error.err);
}

static void show_failure(void)
{
	struct fi_cq_err_entry error = {0};
	char text[256];

	if (fi_cq_readerr(cq, &error, 0) != 1)
		must(-FI_EOTHER, "readerr");
	printf("failed %lu %d %d %s\n", (unsigned long)error.op_context, error.err, error.prov_errno,
	       fi_cq_strerror(cq, error.prov_errno, error.err_data, text, sizeof(text)));
}

static void await(long count, double ms)
{
	struct fi_cq_tagged_entry entry;
	double begin = now_ms();
	long n = 0;

	while (n < count && now_ms() - begin < ms) {
		ssize_t code = fi_cq_read(cq, &entry, 1);

		if (code == 1) {
			printf("ok %lu %zu\n", (unsigned long)entry.op_context, entry.len);
			n++;
		} else if (code == -FI_EAVAIL) {
			show_failure();
			n++;
		} else if (code == -FI_EAGAIN) {
			usleep(100);
		} else {
			must(code, "read");
		}
	}
	printf("waited %ld %.0f\n", n, now_ms() - begin);
}

static void show_memory(void)
{
	unsigned long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");

	if (!file || fscanf(file, "%*u %lu", &pages) != 1)
		must(-FI_EIO, "statm");
	fclose(file);
	printf("memory %lu\n", pages * (sysconf(_SC_PAGESIZE) / 1024));
}

static void close_all(void)
{
	double begin = now_ms();
	int code = fi_close(&ep->fid);
	double took = now_ms() - begin;

	if (mr)
		must(fi_close(&mr->fid), "close mr");
	must(fi_close(&cq->fid), "close cq");
	must(fi_close(&av->fid), "close av");
	must(fi_close(&domain->fid), "close domain");
	must(fi_close(&fabric->fid), "close fabric");
	printf("closed %d %.0f\n", code, took);
}

static int obey(char **words, int count)
{
#define IS(what, least) (strcmp(words[0], what) == 0 && count > (least))
	if (IS("open", 2))
		open_all(words[1], words[2]);
	else if (IS("name", 2))
		make_name(words[1], words[2]);
	else if (IS("insert", 1))
		insert(words[1]);
	else if (IS("remove", 1)) {
		fi_addr_t number = strtoul(words[1], NULL, 10);
		printf("removed %d\n", fi_av_remove(av, &number, 1, 0));
	} else if (IS("send", 4))
		send_many(words, 0);
	else if (IS("deliver", 4))
		send_many(words, FI_DELIVERY_COMPLETE);
	else if (IS("recv", 3))
		recv_many(strtoul(words[1], NULL, 10), strtoul(words[2], NULL, 10),
			  strtoul(words[3], NULL, 10));
	else if (IS("read", 3))
		transfer(1, words);
	else if (IS("write", 4))
		transfer(0, words);
	else if (IS("share", 1))
		printf("shared %d\n", fi_mr_reg(domain, shared, SHARED_BYTES,
						FI_REMOTE_READ | FI_REMOTE_WRITE, 0,
						strtoul(words[1], NULL, 10), 0, &mr, NULL));
	else if (IS("claim", 1))
		claim(strtoul(words[1], NULL, 10));
	else if (IS("take", 2))
		printf("posted %zd\n", claimed(FI_CLAIM, strtoul(words[1], NULL, 10),
					       strtoul(words[2], NULL, 10)));
	else if (IS("discard", 1))
		printf("posted %zd\n", claimed(FI_CLAIM | FI_DISCARD, 0, strtoul(words[1], NULL, 10)));
	else if (IS("wait", 2))
		await(strtol(words[1], NULL, 10), strtod(words[2], NULL));
	else if (IS("memory", 0))
		show_memory();
	else if (IS("close", 0)) {
		close_all();
		return 0;
	} else {
		printf("what is %s?\n", words[0]);
		exit(1);
	}
	return 1;
}

int main(void)
{
	char line[512], *words[8];
	int go_on = 1;

	setvbuf(stdout, NULL, _IOLBF, 0);
	out = calloc(1, BUFFER_BYTES);
	in = calloc(1, BUFFER_BYTES);
	shared = calloc(1, SHARED_BYTES);
	while (go_on && fgets(line, sizeof(line), stdin)) {
		int count = 0;

		memset(words, 0, sizeof(words));
		for (char *word = strtok(line, " \n"); word && count < 7; word = strtok(NULL, " \n"))
			words[count++] = word;
		if (count)
			go_on = obey(words, count);
	}
	return 0;
}
