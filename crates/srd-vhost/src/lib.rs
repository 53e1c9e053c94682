//! A network device for virtual machines and DPDK programs: the back end of vhost-user.
//!
//! A front end (QEMU, DPDK's virtio-user) connects to a socket and hands over its memory. Its
//! driver puts frames into rings there, and finds those for it in others: no system call moves a
//! packet.
//!
//! ```text
//!  front end                                back end
//!  +-----------------+   socket: requests   +----------------------------+
//!  | driver          |--------------------->| session: features, memory, |
//!  |                 |   with descriptors   |          rings             |
//!  |  ring 1: sends  |=====================>| Device::read  -> Frame     |
//!  |  ring 0: gets   |<=====================| Device::write <- Frame     |
//!  +-----------------+   shared memory      +----------------------------+
//! ```
//!
//! | file | what |
//! |---|---|
//! | [`device`] | the socket, the front end behind it, frames |
//! | [`session`] | what a front end has set up, request by request |
//! | `socket` | requests with their descriptors from a stream |
//! | [`message`] | the form of requests |
//! | [`frame`] | frames from and to buffers of a ring |
//! | [`ring`] | one split ring |
//! | [`memory`] | the front end's memory |
//! | `kind` | descriptors of a front end, before anything is asked of them |
//! | `signal` | event descriptors |
//! | `sys` | everything `unsafe`: signals that never wait, and memory that goes away |
//!
//! Sources: *Vhost-user Protocol* of QEMU's documentation, and *Virtual I/O Device (VIRTIO)* 1.2,
//! sections 2.7 (split rings) and 5.1 (network device). Split rings only; one pair of them.
//!
//! # What a front end cannot do
//! The driver is not trusted: no address that it writes leads outside of the memory that it has
//! handed over, no chain of descriptors is followed for longer than [`ring::PIECES_MAX`], and
//! each of its errors is counted. A buffer that is wrong is dropped; a ring whose indices are
//! wrong stops until the front end sets it up again.
//!
//! Nor is the front end. Events have to be event descriptors (eventfd) and memory a file in
//! memory (memfd, tmpfs, hugetlbfs), which is checked without a call to a file system that may
//! not answer (`kind`). No event descriptor that is full or blocking holds up the device
//! (`sys::signal`). Memory that can be sealed has to be sealed against truncation
//! (`F_SEAL_SHRINK`); if other memory is truncated, zeros take its place, and the session ends
//! (`sys::guard`). The descriptors of a front end that was given up are closed before another
//! front end is accepted at that socket, since its file system may hold the closing up.
//!
//! # Why not the crates `vhost` and `virtio-queue`
//! `vhost` refuses `SET_VRING_ENABLE` before `SET_FEATURES`, which is the order that QEMU has.
//! `virtio-queue` publishes used buffers one by one, while the buffers of one frame (`MRG_RXBUF`)
//! have to appear at once. It does not distinguish a truncated chain from a complete one, and
//! does not read `VRING_AVAIL_F_NO_INTERRUPT`. All access to the memory is by `vm-memory`.

pub mod device;
pub mod frame;
mod kind;
pub mod memory;
pub mod message;
pub mod ring;
pub mod session;
mod signal;
mod socket;
mod sys;

pub use device::{Counts, Device, listen};
pub use frame::{ETHERNET_BYTES, Frame, HEADER_BYTES};
