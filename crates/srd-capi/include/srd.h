/*
 * srd.h - SRD for programs in C and C++: reliable messages and remote memory over every path of a
 * network. Link with -lsrd (pkg-config srd). The manual is srd(3), an example pingpong.c.
 *
 * Rules that hold for all functions:
 *
 * - Functions return 0 or a count, or one of the negative numbers SRD_E... on failure. After a
 *   failure srd_last_error() returns a text with the cause and the remedy.
 * - Functions do not wait, except srd_poll() with a timeout, and srd_close(). An operation that a
 *   function starts ends with one event, which srd_poll() returns. The event contains the `context`
 *   of the call unchanged.
 * - A buffer that is passed to an operation belongs to the library until the event of the operation
 *   was polled, or the endpoint was closed. Until then do not free it. Do not write to it if it is
 *   sent, and do not read or write it if a message or data is received into it.
 * - All threads may call all functions at the same time. Each event is returned to one thread.
 * - Endpoints, peers and keys are handles, which are checked: a handle that was released, or that
 *   belongs to another endpoint, causes SRD_EHANDLE. A null pointer causes SRD_EINVAL where the
 *   description of the function does not permit it.
 * - A child of fork() cannot use the endpoints of its parent (SRD_EFORKED). It can open its own.
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

/* The release of this header; srd_version() returns that of the library. */
#define SRD_VERSION "0.1.0"

/* An endpoint: an IP address and a UDP port, through which the program communicates. The pointer is
 * a handle, and cannot be dereferenced. */
typedef struct srd_endpoint srd_endpoint;

/* A handle for a peer (another endpoint) of one endpoint. It is never 0. */
typedef uint64_t srd_peer;

/* In place of the handle of a peer: any peer. */
#define SRD_ANY ((srd_peer)0)

/* Buffer size in bytes for the longest address with its closing zero. */
#define SRD_ADDRESS_BYTES 96

/* Return values of functions, and statuses of events. */
enum {
    SRD_OK = 0,
    /* Return values: */
    SRD_EINVAL = -1,       /* an argument is invalid */
    SRD_EHANDLE = -2,      /* the endpoint, peer or key does not exist, or not in this endpoint */
    SRD_EAGAIN = -3,       /* too many operations now: call srd_poll() and try again */
    SRD_EFULL = -4,        /* a limit is reached: release an object first */
    SRD_ETOOLONG = -5,     /* too many bytes for this buffer or operation */
    SRD_ENOTFOUND = -6,    /* no such receive waits */
    SRD_ESYSTEM = -7,      /* the operating system reported an error */
    SRD_EFORKED = -8,      /* the endpoint belongs to the parent process */
    SRD_EBROKEN = -9,      /* the sockets were lost: close the endpoint, open another */
    SRD_EINTERRUPTED = -10, /* a signal interrupted the wait */
    SRD_EINTERNAL = -11,   /* the library has failed: close the endpoint */
    /* Statuses of events: */
    SRD_ECANCELED = -20,   /* srd_cancel() was called */
    SRD_ETRUNCATED = -21,  /* the message was longer than the buffer */
    SRD_EUNREACHABLE = -22, /* the peer never answered: answer_timeout_ms */
    SRD_ETIMEDOUT = -23,   /* the peer answered before and has become silent: peer_timeout_ms */
    SRD_ERESTARTED = -24,  /* another endpoint has replaced the one at this address */
    SRD_EREMOVED = -25,    /* srd_disconnect() was called */
    SRD_EKEY = -26,        /* the peer refused the access: unknown key, out of bounds, or no right */
    SRD_EPROTOCOL = -27    /* the peer does not support this, or its answer is invalid */
};

/*
 * Options for opening an endpoint. Call srd_options_init(), then set the options that shall differ
 * from the defaults. Zero and null select the default, which is given in [brackets]. Texts and keys
 * are copied.
 */
typedef struct srd_options {
    size_t size;                /* sizeof(srd_options) of the program: srd_options_init() */
    const char *address;        /* IP address of this machine [its first address except loopback] */
    const char *interface;      /* instead of `address`: the first address of this interface, as "eth0" */
    const char *job_key_file;   /* file with a job key: 64 hexadecimal digits, mode 600 [no encryption] */
    const uint8_t *job_key;     /* instead of `job_key_file`: the key, 32 bytes */
    uint16_t port;              /* UDP port [any] */
    uint16_t paths;             /* paths to each peer, 1 to 256 [64] */
    uint32_t packet_bytes_max;  /* UDP payload of a packet, 1024 to 65000 [as the interface permits] */
    uint32_t answer_timeout_ms; /* a peer that never answered fails after this time, up to an hour [30000] */
    uint32_t peer_timeout_ms;   /* a peer that becomes silent fails after this time, up to an hour; up to
                                 * one and a half times this time for operations that it has
                                 * acknowledged [10000] */
    uint32_t operations_max;    /* operations in progress, up to 2^20; beyond: SRD_EAGAIN [4096] */
    uint32_t receives_max;      /* posted receives, up to 2^20; beyond: SRD_EAGAIN [65536] */
    uint32_t events_max;        /* events in the queue, up to 2^20; further events wait for space [8192] */
    uint32_t reserved;          /* must be 0 */
} srd_options;

/* Sets all options to the defaults. */
static inline void srd_options_init(srd_options *options)
{
    memset(options, 0, sizeof *options);
    options->size = sizeof *options;
}

/* Kinds of events (srd_event.kind), each with the function whose operation has ended. */
enum {
    SRD_SENT = 1,     /* srd_send */
    SRD_RECEIVED = 2, /* srd_recv */
    SRD_READ = 3,     /* srd_read */
    SRD_WRITTEN = 4,  /* srd_write, srd_write_notify */
    SRD_COMPUTED = 5, /* srd_fetch_add, srd_compare_swap */
    SRD_NOTIFIED = 6  /* a peer has called srd_write_notify, and its bytes are in our memory */
};

/* An event. */
typedef struct srd_event {
    uint32_t kind;   /* SRD_SENT, SRD_RECEIVED, ... */
    int32_t status;  /* 0, or the reason of the failure: SRD_E... */
    void *context;   /* `context` of the call; null for SRD_NOTIFIED */
    srd_peer peer;   /* the other end, or 0; messages can be sent to it without srd_connect() */
    uint64_t tag;    /* tag of the message; for a receive, the tag that the sender chose */
    uint64_t length; /* number of bytes sent, received, read or written */
    uint64_t cut;    /* SRD_ETRUNCATED: number of bytes that did not fit into the buffer and are lost */
    uint64_t data;   /* SRD_NOTIFIED: `data` of the peer's call */
} srd_event;

/* Flags of srd_send, srd_write and srd_write_notify; srd_read takes SRD_QUIET only. */
#define SRD_INJECT UINT32_C(1)    /* the program may reuse the buffer when the call returns; no event
                                     unless it fails. Up to srd_inject_bytes_max() bytes */
#define SRD_DELIVERED UINT32_C(2) /* ends when the data is in the peer's buffer; otherwise it ends
                                     when the peer's endpoint has received it */
#define SRD_QUIET UINT32_C(4)     /* no event unless it fails */

/* Rights of peers (srd_share), with the functions that they permit. */
#define SRD_SHARE_READ UINT32_C(1)  /* srd_read */
#define SRD_SHARE_WRITE UINT32_C(2) /* srd_write; with SRD_SHARE_READ, atomic operations */

/*
 * Opens an endpoint; `options` may be null. Each endpoint has a thread, which makes progress while
 * the program calls no function. Without a job key nothing is encrypted, and every host that can
 * reach the port is trusted. With a job key, all endpoints that communicate need the same key.
 * Errors: SRD_EINVAL, SRD_ESYSTEM (address, port, key file, memory), SRD_EFULL (1024 endpoints are
 * open).
 */
int srd_open(const srd_options *options, srd_endpoint **endpoint);

/*
 * Closes an endpoint. Waits up to a second, until all sent data is acknowledged and all requests of
 * peers are answered. Afterwards all buffers belong to the program, and events that were not polled
 * are lost. A call that another thread makes at this time returns SRD_EHANDLE. The next operation
 * of a peer fails with SRD_ETIMEDOUT, SRD_EUNREACHABLE or SRD_ERESTARTED.
 * Errors: SRD_EHANDLE.
 */
int srd_close(srd_endpoint *endpoint);

/*
 * Writes the endpoint's address, such as "srd://192.0.2.1:40001/17d3a5c2e8b90f41", and a zero byte
 * to `text`. `room` is the size of `text` in bytes; SRD_ADDRESS_BYTES always suffice. Pass the
 * address to other processes by any means. Its last part identifies this run of the endpoint: an
 * endpoint that is opened at the same IP address and port later has another one. Returns the length
 * of the text.
 * Errors: SRD_EHANDLE, SRD_EINVAL, SRD_ETOOLONG (room).
 */
int srd_address(srd_endpoint *endpoint, char *text, size_t room);

/*
 * Adds the endpoint at an address as a peer, and writes its handle to `*peer`. Sends nothing and
 * does not wait: if there is no endpoint at the address, the first operation fails. An address such
 * as "192.0.2.1:40001" is also accepted, and stands for any run of the endpoint there. An endpoint
 * may also connect to its own address. If the address is already that of a peer, the result is the
 * handle of this peer, which then has to be disconnected once more.
 * Errors: SRD_EHANDLE, SRD_EINVAL (no valid address, or another IP version than the endpoint's),
 * SRD_EFULL (2^20 peers).
 */
int srd_connect(srd_endpoint *endpoint, const char *address, srd_peer *peer);

/*
 * Undoes one srd_connect(). With the last one, the peer's handle becomes invalid, operations in
 * progress to the peer end with SRD_EREMOVED, and receives for this peer wait until they are
 * cancelled. Also accepts a peer that an event named, without an srd_connect(). The handle of such a
 * peer also becomes invalid when the peer has failed and has been silent for long (a minute or
 * more): its use then returns SRD_EHANDLE.
 * Errors: SRD_EHANDLE.
 */
int srd_disconnect(srd_endpoint *endpoint, srd_peer peer);

/*
 * Writes the address of a peer to `text`, in the form of srd_address().
 * Errors: those of srd_address.
 */
int srd_peer_address(srd_endpoint *endpoint, srd_peer peer, char *text, size_t room);

/*
 * Sends a message of `len` bytes, without an upper limit, with a tag. Messages to one peer arrive
 * once and in order. The event is SRD_SENT. If the peer cannot store a message, the message waits
 * until the peer's program receives earlier messages. Later messages to this peer then wait as well,
 * but no messages to other peers.
 * Errors: SRD_EHANDLE, SRD_EINVAL, SRD_EAGAIN, SRD_ETOOLONG (SRD_INJECT), SRD_EFORKED,
 * SRD_EBROKEN.
 */
int srd_send(srd_endpoint *endpoint, srd_peer peer, uint64_t tag, const void *buf, size_t len,
             uint32_t flags, void *context);

/*
 * Posts a receive for one message of `peer`, or of any peer with SRD_ANY. The tag of the message
 * must be equal to `tag` in all bits except those of `ignore` (0: exactly this tag; UINT64_MAX: any
 * tag). A message that arrived before the call is also received, the oldest first. If a message
 * matches several receives, it goes to the one that was posted first. The event is SRD_RECEIVED. Of
 * a message that is longer than `len`, the first `len` bytes are received, with SRD_ETRUNCATED.
 * Errors: SRD_EHANDLE, SRD_EINVAL, SRD_EAGAIN, SRD_EFORKED, SRD_EBROKEN.
 */
int srd_recv(srd_endpoint *endpoint, srd_peer peer, uint64_t tag, uint64_t ignore, void *buf,
             size_t len, void *context);

/*
 * Cancels the oldest posted receive with this context. Its event is SRD_RECEIVED with SRD_ECANCELED.
 * The buffer belongs to the library until this event was polled.
 * Errors: SRD_EHANDLE, SRD_ENOTFOUND (no such receive waits: it has ended, or its message is
 * arriving).
 */
int srd_cancel(srd_endpoint *endpoint, void *context);

/* Writes the maximum number of bytes of an operation with SRD_INJECT to `*bytes`.
 * Errors: SRD_EHANDLE, SRD_EINVAL. */
int srd_inject_bytes_max(srd_endpoint *endpoint, size_t *bytes);

/*
 * Shares memory with peers: `access` is SRD_SHARE_READ, SRD_SHARE_WRITE or both. Writes a key of 64
 * random bits to `*key`. Send the key to peers in a message: every peer with the key has access. The
 * memory stays shared until srd_unshare() or srd_close(), and must not be freed before that.
 * Errors: SRD_EHANDLE, SRD_EINVAL, SRD_EFULL (65536 pieces of memory are shared), SRD_ESYSTEM.
 */
int srd_share(srd_endpoint *endpoint, void *buf, size_t len, uint32_t access, uint64_t *key);

/*
 * Ends the sharing of memory. After the call returns, no peer accesses the memory; operations of
 * peers on it fail with SRD_EKEY.
 * Errors: SRD_EHANDLE (the endpoint shares no memory under this key).
 */
int srd_unshare(srd_endpoint *endpoint, uint64_t key);

/*
 * Reads `len` bytes of the memory that the peer shares under `key`, from `offset` bytes after its
 * beginning, into `buf`. The peer's program is not involved and gets no event. The event is SRD_READ.
 * There is no order between reads, writes and messages.
 * Errors: those of srd_send.
 */
int srd_read(srd_endpoint *endpoint, srd_peer peer, void *buf, size_t len, uint64_t key,
             uint64_t offset, uint32_t flags, void *context);

/*
 * Writes `len` bytes of `buf` to the memory that the peer shares under `key`, from `offset` bytes
 * after its beginning. The peer gets no event. The event is SRD_WRITTEN.
 * Errors: those of srd_send.
 */
int srd_write(srd_endpoint *endpoint, srd_peer peer, const void *buf, size_t len, uint64_t key,
              uint64_t offset, uint32_t flags, void *context);

/*
 * Works like srd_write(). In addition, the peer gets an event SRD_NOTIFIED with `data` when all bytes
 * are in its memory.
 * Errors: those of srd_send.
 */
int srd_write_notify(srd_endpoint *endpoint, srd_peer peer, const void *buf, size_t len,
                     uint64_t key, uint64_t offset, uint64_t data, uint32_t flags, void *context);

/*
 * Adds `add` to a 64-bit number, in the peer's byte order, in memory that the peer shares for reading
 * and writing; `offset` must be a multiple of 8. The former value is written to `*result`, which
 * belongs to the library until the event was polled; `result` may be null. Atomic operations on a
 * number are executed one after the other, even if they come from different peers. The peer's own
 * program must not change the number directly; it can use these functions with its own address. The
 * operation keeps its order among messages to the same peer. The event is SRD_COMPUTED.
 * Errors: those of srd_send.
 */
int srd_fetch_add(srd_endpoint *endpoint, srd_peer peer, uint64_t key, uint64_t offset,
                  uint64_t add, uint64_t *result, void *context);

/*
 * Works like srd_fetch_add(), but sets the number to `desired` if it equals `expected`. The former
 * value is written to `*result`: if it equals `expected`, the number was set.
 * Errors: those of srd_send.
 */
int srd_compare_swap(srd_endpoint *endpoint, srd_peer peer, uint64_t key, uint64_t offset,
                     uint64_t expected, uint64_t desired, uint64_t *result, void *context);

/*
 * Makes progress, and writes up to `max` events to `events`, the oldest first. If there is no event,
 * waits for the first one for at most `timeout_ms` milliseconds: 0 means no wait, and -1 no limit.
 * Returns the number of events; 0 after the timeout. For the lowest latency, call it repeatedly with
 * a timeout of 0.
 * Errors: SRD_EHANDLE, SRD_EINVAL, SRD_EINTERRUPTED (a signal was handled; call again), SRD_EFORKED;
 * SRD_EBROKEN when all events were polled and no further operation will end.
 */
int srd_poll(srd_endpoint *endpoint, srd_event *events, int max, int timeout_ms);

/*
 * Returns a file descriptor for poll(2), epoll(7) and event loops. It is readable while events wait.
 * Before you wait for it, call srd_poll() until it returns 0. The descriptor belongs to the endpoint:
 * do not read from it and do not close it.
 * Errors: SRD_EHANDLE, SRD_EFORKED.
 */
int srd_fd(srd_endpoint *endpoint);

/* Returns the meaning of a number SRD_E... as a constant text. */
const char *srd_strerror(int error);

/*
 * Returns the text of the last call of this thread that failed: the cause and the remedy. The text is
 * empty if no call has failed, and valid until the next call of this thread fails.
 */
const char *srd_last_error(void);

/* Returns the release of the library, such as "0.1.0", as a constant text. */
const char *srd_version(void);

#ifdef __cplusplus
}
#endif

#endif
