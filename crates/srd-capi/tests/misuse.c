/* Mistakes of programs are errors with a text, and harm nobody. */
#include <srd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define REFUSED(call, error)                                                                       \
    do {                                                                                           \
        int got_ = (call);                                                                         \
        if (got_ != (error) || srd_last_error()[0] == 0) {                                         \
            printf("line %d: %s: %d (%s), not %d\n", __LINE__, #call, got_, srd_last_error(),      \
                   (int)(error));                                                                  \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define WORKS(call)                                                                                \
    do {                                                                                           \
        if ((call) < 0) {                                                                          \
            printf("line %d: %s: %s\n", __LINE__, #call, srd_last_error());                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void options(void)
{
    srd_endpoint *ep = (srd_endpoint *)&ep;
    srd_options o;
    struct {
        srd_options known;
        uint64_t later;
    } newer;
    memset(&o, 0, sizeof o);
    REFUSED(srd_open(&o, &ep), SRD_EINVAL);
    if (ep != NULL)
        exit(1);
    o.size = sizeof o - 1;
    REFUSED(srd_open(&o, &ep), SRD_EINVAL);
    o.size = (size_t)-1;
    REFUSED(srd_open(&o, &ep), SRD_EINVAL);
    srd_options_init(&o);
    REFUSED(srd_open(&o, NULL), SRD_EINVAL);
    o.address = "nowhere";
    REFUSED(srd_open(&o, &ep), SRD_EINVAL);
    o.address = "192.0.2.77"; /* set aside for documents: nobody's */
    REFUSED(srd_open(&o, &ep), SRD_ESYSTEM);
    o.address = "\xff";
    REFUSED(srd_open(&o, &ep), SRD_EINVAL);
    o.address = "127.0.0.1";
    o.paths = 257;
    REFUSED(srd_open(&o, &ep), SRD_EINVAL);
    o.paths = 0;
    o.job_key_file = "/nowhere/key";
    REFUSED(srd_open(&o, &ep), SRD_ESYSTEM);
    o.job_key_file = NULL;
    o.reserved = 1;
    REFUSED(srd_open(&o, &ep), SRD_EINVAL);
    o.reserved = 0;
    /* A program of a later release: what it leaves alone is no matter, what it sets is. */
    memset(&newer, 0, sizeof newer);
    newer.known = o;
    newer.known.size = sizeof newer;
    WORKS(srd_open(&newer.known, &ep));
    WORKS(srd_close(ep));
    newer.later = 1;
    REFUSED(srd_open(&newer.known, &ep), SRD_EINVAL);
}

static void words(srd_endpoint *one, srd_endpoint *two, const char *address)
{
    srd_peer peer, others;
    uint64_t key, word = 0;
    char text[SRD_ADDRESS_BYTES], buf[64] = {0};
    size_t most;
    WORKS(srd_connect(one, address, &peer));
    WORKS(srd_connect(two, address, &others));
    REFUSED(srd_send(one, others, 0, buf, 1, 0, NULL), SRD_EHANDLE);
    REFUSED(srd_recv(one, others, 0, 0, buf, 1, NULL), SRD_EHANDLE);
    REFUSED(srd_read(one, others, buf, 1, 1, 0, 0, NULL), SRD_EHANDLE);
    REFUSED(srd_write(one, others, buf, 1, 1, 0, 0, NULL), SRD_EHANDLE);
    REFUSED(srd_fetch_add(one, others, 1, 0, 1, &word, NULL), SRD_EHANDLE);
    REFUSED(srd_disconnect(one, others), SRD_EHANDLE);
    REFUSED(srd_peer_address(one, others, text, sizeof text), SRD_EHANDLE);
    REFUSED(srd_send(one, SRD_ANY, 0, buf, 1, 0, NULL), SRD_EHANDLE);
    REFUSED(srd_send(one, 12345, 0, buf, 1, 0, NULL), SRD_EHANDLE);
    REFUSED(srd_send(one, peer, 0, NULL, 1, 0, NULL), SRD_EINVAL);
    REFUSED(srd_send(one, peer, 0, buf, (size_t)-1, 0, NULL), SRD_EINVAL);
    REFUSED(srd_send(one, peer, 0, buf, 1, 8, NULL), SRD_EINVAL);
    REFUSED(srd_send(one, peer, 0, buf, 1, SRD_INJECT | SRD_DELIVERED, NULL), SRD_EINVAL);
    REFUSED(srd_read(one, peer, buf, 1, 1, 0, SRD_INJECT, NULL), SRD_EINVAL);
    WORKS(srd_inject_bytes_max(one, &most));
    REFUSED(srd_inject_bytes_max(one, NULL), SRD_EINVAL);
    char *large = calloc(1, most + 1);
    REFUSED(srd_send(one, peer, 0, large, most + 1, SRD_INJECT, NULL), SRD_ETOOLONG);
    free(large);
    REFUSED(srd_recv(one, SRD_ANY, 0, 0, NULL, 1, NULL), SRD_EINVAL);
    REFUSED(srd_cancel(one, buf), SRD_ENOTFOUND);
    REFUSED(srd_fetch_add(one, peer, 1, 4, 1, &word, NULL), SRD_EINVAL);
    REFUSED(srd_compare_swap(one, peer, 1, 0, 1, 2, NULL, NULL), SRD_EINVAL);
    REFUSED(srd_share(one, buf, 0, SRD_SHARE_READ, &key), SRD_EINVAL);
    REFUSED(srd_share(one, NULL, 1, SRD_SHARE_READ, &key), SRD_EINVAL);
    REFUSED(srd_share(one, buf, 1, 0, &key), SRD_EINVAL);
    REFUSED(srd_share(one, buf, 1, 4, &key), SRD_EINVAL);
    REFUSED(srd_share(one, buf, 1, SRD_SHARE_READ, NULL), SRD_EINVAL);
    WORKS(srd_share(two, buf, sizeof buf, SRD_SHARE_READ, &key));
    REFUSED(srd_unshare(one, key), SRD_EHANDLE);
    WORKS(srd_unshare(two, key));
    REFUSED(srd_unshare(two, key), SRD_EHANDLE);
    REFUSED(srd_connect(one, NULL, &peer), SRD_EINVAL);
    REFUSED(srd_connect(one, address, NULL), SRD_EINVAL);
    REFUSED(srd_connect(one, "elsewhere", &others), SRD_EINVAL);
    REFUSED(srd_connect(one, "[::1]:7", &others), SRD_EINVAL);
    REFUSED(srd_address(one, NULL, SRD_ADDRESS_BYTES), SRD_EINVAL);
    REFUSED(srd_address(one, text, 5), SRD_ETOOLONG);
    WORKS(srd_disconnect(one, peer));
    REFUSED(srd_disconnect(one, peer), SRD_EHANDLE);
    REFUSED(srd_send(one, peer, 0, buf, 1, 0, NULL), SRD_EHANDLE);
}

int main(void)
{
    srd_endpoint *one, *two;
    srd_options o;
    srd_event event;
    char address[SRD_ADDRESS_BYTES];
    if (srd_last_error()[0] != 0 || strcmp(srd_version(), SRD_VERSION) != 0)
        return 1;
    options();
    srd_options_init(&o);
    o.address = "127.0.0.1";
    WORKS(srd_open(&o, &one));
    WORKS(srd_open(&o, &two));
    WORKS(srd_address(two, address, sizeof address));
    words(one, two, address);
    REFUSED(srd_poll(one, NULL, 1, 0), SRD_EINVAL);
    REFUSED(srd_poll(one, &event, 0, 0), SRD_EINVAL);
    REFUSED(srd_poll(one, &event, -1, 0), SRD_EINVAL);
    /* Words of endpoints. */
    REFUSED(srd_poll(NULL, &event, 1, 0), SRD_EHANDLE);
    REFUSED(srd_poll((srd_endpoint *)&event, &event, 1, 0), SRD_EHANDLE);
    REFUSED(srd_fd(NULL), SRD_EHANDLE);
    pid_t child = fork();
    if (child == 0) {
        REFUSED(srd_send(one, 1, 0, NULL, 0, 0, NULL), SRD_EFORKED);
        REFUSED(srd_poll(one, &event, 1, 0), SRD_EFORKED);
        WORKS(srd_open(&o, &two));
        WORKS(srd_close(two));
        _exit(7);
    }
    int status;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7) {
        printf("the child of a fork could not\n");
        return 1;
    }
    WORKS(srd_close(one));
    REFUSED(srd_close(one), SRD_EHANDLE);
    REFUSED(srd_poll(one, &event, 1, 0), SRD_EHANDLE);
    WORKS(srd_close(two));
    REFUSED(srd_close(NULL), SRD_EHANDLE);
    if (strcmp(srd_strerror(-999), srd_strerror(SRD_OK)) == 0)
        return 1;
    printf("refused\n");
    return 0;
}
