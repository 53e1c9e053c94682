//! UDP sockets: their options, and the packets that they send and receive.
//!
//! | module | contents |
//! |---|---|
//! | `socket`, `steer` | one socket with its options; the BPF programs of sockets |
//! | `send`, `recv`, `call` | gathering sends, scattering receives, and their system calls |
//! | `cmsg` | control messages: the metadata of datagrams |
//! | `refused` | ICMP errors from the error queue of a socket |

mod call;
pub(crate) mod cmsg;
pub(crate) mod recv;
pub(crate) mod refused;
pub(crate) mod send;
pub(crate) mod socket;
mod steer;
