/*
 * srd.h - SRD for programs in C and C++: reliable messages and remote memory over every path of a
 * network. Link with -lsrd (pkg-config srd). The manual is srd(3), an example pingpong.c.
 *
 * Rules that hold everywhere:
 *
 * - Calls return 0 or a count, or one of the negative numbers SRD_E...; srd_last_error() then says
 *   in words what is wrong and what to do.
 * - Calls do not wait, except srd_poll() with a timeout and srd_close(). What a call begins ends with
 *   one event, which srd_poll() hands over, and which carries the call's `context` unchanged.
 * - A buffer that a call is given belongs to the library until that event was polled, or the
 *   endpoint was closed. Until then do not free it, do not write to it if it is sent, and do not
 *   touch it if it is received into.
 * - All calls may be made by all threads at the same time. Each event is handed to one of them.
 * - Endpoints, peers and keys are handles that are checked: one that was given back, or belongs to
 *   another endpoint, is SRD_EHANDLE. Null where it makes no sense is SRD_EINVAL.
 * - A child of fork() can use none of its parent's endpoints (SRD_EFORKED), but open its own.
 *
 * This file is part of OpenSRD. Apache License 2.0.
 */
#ifndef SRD_H
#define SRD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The release of this header; srd_version() tells that of the library. */
#define SRD_VERSION "0.1.0"

/* An endpoint: an address in the network with a port of its own. The pointer is a handle, and cannot
 * be dereferenced. */
typedef struct srd_endpoint srd_endpoint;

/* A peer of one endpoint. Never 0. */
typedef uint64_t srd_peer;

/* In place of a peer: any peer. */
#define SRD_ANY ((srd_peer)0)

/* Room for the longest address with its closing zero, bytes. */
#define SRD_ADDRESS_BYTES 96

/* What calls return, and events say. */
enum {
    SRD_OK = 0,
    /* Calls: */
    SRD_EINVAL = -1,       /* an argument makes no sense */
    SRD_EHANDLE = -2,      /* no endpoint, peer or key, or not of this endpoint, or closed */
    SRD_EAGAIN = -3,       /* no room now: srd_poll(), and try again */
    SRD_EFULL = -4,        /* a limit is reached: give something back */
    SRD_ETOOLONG = -5,     /* more bytes than this can carry */
    SRD_ENOTFOUND = -6,    /* nothing of the kind is waiting */
    SRD_ESYSTEM = -7,      /* the system refused */
    SRD_EFORKED = -8,      /* the endpoint is the parent process's */
    SRD_EBROKEN = -9,      /* the sockets were lost: close the endpoint, open another */
    SRD_EINTERRUPTED = -10, /* a signal came first */
    SRD_EINTERNAL = -11,   /* the library has failed: close the endpoint */
    /* Events: */
    SRD_ECANCELED = -20,   /* srd_cancel() was called */
    SRD_ETRUNCATED = -21,  /* the message was longer than the buffer */
    SRD_EUNREACHABLE = -22, /* the peer never answered: answer_timeout_ms */
    SRD_ETIMEDOUT = -23,   /* the peer answered before and has gone silent: peer_timeout_ms */
    SRD_ERESTARTED = -24,  /* the endpoint that was meant is gone, and another in its place */
    SRD_EREMOVED = -25,    /* srd_disconnect() was called */
    SRD_EKEY = -26,        /* the peer refused: no such key, out of bounds, or no right to it */
    SRD_EPROTOCOL = -27    /* the peer does not do this, or answered with what makes no sense */
};

/*
 * What an endpoint is opened with. Call srd_options_init(), then set what you want otherwise. Zero
 * and null stand for the default. Texts and keys are copied.
 */
typedef struct srd_options {
    size_t size;                /* sizeof(srd_options) of the program: srd_options_init() */
    const char *address;        /* IP address of this machine [the first that is no loopback] */
    const char *interface;      /* instead: the interface whose first address it is, as "eth0" */
    const char *job_key_file;   /* file with a job key: 64 hexadecimal digits, mode 600 [no encryption] */
    const uint8_t *job_key;     /* instead: the key itself, 32 bytes */
    uint16_t port;              /* UDP port [any] */
    uint16_t paths;             /* paths to each peer, 1 to 256 [64] */
    uint32_t packet_bytes_max;  /* UDP payload of a packet, 1024 to 65000 [what the interface passes] */
    uint32_t answer_timeout_ms; /* a peer that never answered fails after, up to an hour [30000] */
    uint32_t peer_timeout_ms;   /* a peer that fell silent fails after, up to an hour [10000] */
    uint32_t operations_max;    /* operations under way, up to 2^20; then SRD_EAGAIN [4096] */
    uint32_t receives_max;      /* receives that wait, up to 2^20; then SRD_EAGAIN [65536] */
    uint32_t events_max;        /* events that wait, up to 2^20; the others wait behind [8192] */
    uint32_t reserved;          /* 0 */
} srd_options;

/* Sets all to the defaults. */
static inline void srd_options_init(srd_options *options)
{
    memset(options, 0, sizeof *options);
    options->size = sizeof *options;
}

/* Which operation has ended: srd_event.kind. */
enum {
    SRD_SENT = 1,     /* srd_send */
    SRD_RECEIVED = 2, /* srd_recv */
    SRD_READ = 3,     /* srd_read */
    SRD_WRITTEN = 4,  /* srd_write, srd_write_notify */
    SRD_COMPUTED = 5, /* srd_fetch_add, srd_compare_swap */
    SRD_NOTIFIED = 6  /* a peer has called srd_write_notify, and its bytes stand in our memory */
};

/* An event. */
typedef struct srd_event {
    uint32_t kind;   /* SRD_SENT and so on */
    int32_t status;  /* 0, or why it failed: SRD_E... */
    void *context;   /* what the call was given; null for SRD_NOTIFIED */
    srd_peer peer;   /* the other end, 0 if there is none; it can be answered without connecting */
    uint64_t tag;    /* the message's tag; of a receive, the sender's */
    uint64_t length; /* bytes sent, received, read or written */
    uint64_t cut;    /* SRD_ETRUNCATED: bytes of the message that found no room, and are lost */
    uint64_t data;   /* SRD_NOTIFIED: what the peer gave with it */
} srd_event;

/* Flags of srd_send, srd_write and srd_write_notify; srd_read takes SRD_QUIET only. */
#define SRD_INJECT UINT32_C(1)    /* the buffer is yours again when the call returns; no event unless
                                     it fails. Up to srd_inject_bytes_max() bytes */
#define SRD_DELIVERED UINT32_C(2) /* ends when it stands in the peer's buffer, not when the peer's
                                     endpoint has it */
#define SRD_QUIET UINT32_C(4)     /* no event unless it fails */

/* Rights of peers: srd_share. */
#define SRD_SHARE_READ UINT32_C(1)  /* srd_read */
#define SRD_SHARE_WRITE UINT32_C(2) /* srd_write; with SRD_SHARE_READ, atomic operations */

/*
 * Opens an endpoint; `options` may be null. It has a thread, which works while the program does
 * not call. Without a job key nothing is encrypted, and every host that reaches the port is
 * trusted. With one, all endpoints that shall communicate need the same.
 * Errors: SRD_EINVAL, SRD_ESYSTEM (address, port, key file, memory), SRD_EFULL (1024 are open).
 */
int srd_open(const srd_options *options, srd_endpoint **endpoint);

/*
 * Closes an endpoint. Waits up to a second, until what was sent is acknowledged and what peers ask
 * is answered. Afterwards all buffers are the program's; events not yet polled are lost. A call that
 * another thread is in returns SRD_EHANDLE. Peers find out when they send: SRD_ETIMEDOUT,
 * SRD_EUNREACHABLE or SRD_ERESTARTED.
 * Errors: SRD_EHANDLE.
 */
int srd_close(srd_endpoint *endpoint);

/*
 * Writes the endpoint's address, as "srd://192.0.2.1:40001/17d3a5c2e8b90f41", and a zero to `text`;
 * `room` is its size in bytes, SRD_ADDRESS_BYTES suffice. Hand it to other processes in any way.
 * The last part names this run of the endpoint: one that is opened at the same place later has
 * another. Returns the length of the text.
 * Errors: SRD_EHANDLE, SRD_EINVAL, SRD_ETOOLONG (room).
 */
int srd_address(srd_endpoint *endpoint, char *text, size_t room);

/*
 * Makes the endpoint at an address known as `*peer`. Sends nothing and does not wait: if no endpoint
 * is there, the first operation fails. "192.0.2.1:40001" is an address, too, and means any run of an
 * endpoint there. The endpoint's own address is one as well. The same address again is the same peer,
 * to be disconnected as often.
 * Errors: SRD_EHANDLE, SRD_EINVAL (what is no address, or of the other family), SRD_EFULL (2^20
 * peers).
 */
int srd_connect(srd_endpoint *endpoint, const char *address, srd_peer *peer);

/*
 * Takes an srd_connect() back. With the last one the peer's handle ends, operations under way to the
 * peer end with SRD_EREMOVED, and receives that name it wait until they are cancelled. Works for
 * peers that an event named, too, and were never connected to.
 * Errors: SRD_EHANDLE.
 */
int srd_disconnect(srd_endpoint *endpoint, srd_peer peer);

/*
 * Writes the address of a peer, as srd_address() does.
 * Errors: those of srd_address.
 */
int srd_peer_address(srd_endpoint *endpoint, srd_peer peer, char *text, size_t room);

/*
 * Sends `len` bytes, of any number, with a tag. Messages to one peer arrive once and in order. Ends
 * as SRD_SENT. A message that the peer has no room for waits until the peer's program receives earlier
 * ones. It delays later messages to this peer, but no messages to other peers.
 * Errors: SRD_EHANDLE, SRD_EINVAL, SRD_EAGAIN, SRD_ETOOLONG (SRD_INJECT), SRD_EFORKED,
 * SRD_EBROKEN.
 */
int srd_send(srd_endpoint *endpoint, srd_peer peer, uint64_t tag, const void *buf, size_t len,
             uint32_t flags, void *context);

/*
 * Receives the first message of `peer`, or of SRD_ANY, whose tag is `tag` in all bits but those of
 * `ignore` (0: exactly this tag; UINT64_MAX: any). Messages that came before wait for it. Of several
 * receives that a message fits, it goes to the one posted first. Ends as SRD_RECEIVED; a message
 * that is longer than `len` leaves what fits, as SRD_ETRUNCATED.
 * Errors: SRD_EHANDLE, SRD_EINVAL, SRD_EAGAIN, SRD_EFORKED, SRD_EBROKEN.
 */
int srd_recv(srd_endpoint *endpoint, srd_peer peer, uint64_t tag, uint64_t ignore, void *buf,
             size_t len, void *context);

/*
 * Cancels the receive posted first with this context. It ends as SRD_RECEIVED with SRD_ECANCELED;
 * the buffer is the program's when that was polled.
 * Errors: SRD_EHANDLE, SRD_ENOTFOUND (none waits: it has ended, or its message is arriving).
 */
int srd_cancel(srd_endpoint *endpoint, void *context);

/* The most bytes that SRD_INJECT takes, to `*bytes`. Errors: SRD_EHANDLE, SRD_EINVAL. */
int srd_inject_bytes_max(srd_endpoint *endpoint, size_t *bytes);

/*
 * Lets peers use memory: `access` is SRD_SHARE_READ, SRD_SHARE_WRITE or both. `*key` is what they
 * need, 64 random bits; send it to them in a message. Every peer with the key has the right. The
 * memory stays shared until srd_unshare() or srd_close(), and must not be freed before.
 * Errors: SRD_EHANDLE, SRD_EINVAL, SRD_EFULL (65536 are shared), SRD_ESYSTEM.
 */
int srd_share(srd_endpoint *endpoint, void *buf, size_t len, uint32_t access, uint64_t *key);

/*
 * Takes memory back. When the call returns it is not used any more; peers that try get SRD_EKEY.
 * Errors: SRD_EHANDLE (no key of this endpoint's, or taken back before).
 */
int srd_unshare(srd_endpoint *endpoint, uint64_t key);

/*
 * Reads `len` bytes of what the peer shares under `key`, from `offset` bytes after its beginning,
 * into `buf`. The peer's program does nothing for it and gets no event. Ends as SRD_READ.
 * Reads, writes and messages keep no order among each other.
 * Errors: those of srd_send.
 */
int srd_read(srd_endpoint *endpoint, srd_peer peer, void *buf, size_t len, uint64_t key,
             uint64_t offset, uint32_t flags, void *context);

/*
 * Writes `len` bytes into what the peer shares, as srd_read reads. Ends as SRD_WRITTEN.
 * Errors: those of srd_send.
 */
int srd_write(srd_endpoint *endpoint, srd_peer peer, const void *buf, size_t len, uint64_t key,
              uint64_t offset, uint32_t flags, void *context);

/*
 * As srd_write, and gives the peer an event SRD_NOTIFIED with `data` when all the bytes stand in
 * its memory.
 * Errors: those of srd_send.
 */
int srd_write_notify(srd_endpoint *endpoint, srd_peer peer, const void *buf, size_t len,
                     uint64_t key, uint64_t offset, uint64_t data, uint32_t flags, void *context);

/*
 * Adds to a number of 64 bits, in the peer's byte order, in what the peer shares for reading and
 * writing; `offset` is a multiple of 8. The former value goes to `*result`, which belongs to the
 * library until the event; null if it is not wanted. Such operations are done one after the other,
 * also those of different peers; the peer's program itself must leave the number alone or use these
 * calls, with its own address. Keeps its order among messages to the same peer. Ends as SRD_COMPUTED.
 * Errors: those of srd_send.
 */
int srd_fetch_add(srd_endpoint *endpoint, srd_peer peer, uint64_t key, uint64_t offset,
                  uint64_t add, uint64_t *result, void *context);

/*
 * As srd_fetch_add, but sets the number to `desired` if it is `expected`. The former value goes to
 * `*result`: if that is `expected`, the number was set.
 * Errors: those of srd_send.
 */
int srd_compare_swap(srd_endpoint *endpoint, srd_peer peer, uint64_t key, uint64_t offset,
                     uint64_t expected, uint64_t desired, uint64_t *result, void *context);

/*
 * Moves data, and hands over up to `max` events, oldest first. Without events it waits for the first:
 * 0 not at all, -1 for ever, else so many milliseconds. Returns how many; 0 after the timeout. For
 * the lowest latency call it again and again with 0.
 * Errors: SRD_EHANDLE, SRD_EINVAL, SRD_EINTERRUPTED (a signal was handled; call again), SRD_EFORKED;
 * SRD_EBROKEN when all events are polled: nothing will come to an end any more.
 */
int srd_poll(srd_endpoint *endpoint, srd_event *events, int max, int timeout_ms);

/*
 * A descriptor for poll(2), epoll(7) and event loops: readable while events wait. Before you wait for
 * it, call srd_poll() until it returns 0. It belongs to the endpoint: neither read nor close it.
 * Returns the descriptor. Errors: SRD_EHANDLE, SRD_EFORKED.
 */
int srd_fd(srd_endpoint *endpoint);

/* What a number SRD_E... means. The text is constant. */
const char *srd_strerror(int error);

/*
 * The text of the last call of this thread that failed: what is wrong, and what to do. Empty
 * if none failed. Valid until the next call of this thread fails.
 */
const char *srd_last_error(void);

/* The release of the library, as "0.1.0". The text is constant. */
const char *srd_version(void);

#ifdef __cplusplus
}
#endif

#endif
