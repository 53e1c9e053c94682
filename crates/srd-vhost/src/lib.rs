//! A network device for virtual machines and DPDK programs: the back end of vhost-user.
//!
//! A front end (QEMU, DPDK's virtio-user) connects to a socket and shares its memory. The front
//! end's driver writes frames into rings in this memory, and reads incoming frames from other
//! rings. No system call transfers a packet.
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
//! | file | content |
//! |---|---|
//! | [`device`] | the socket, the front end behind it, frames |
//! | [`session`] | state that a front end sets up by requests |
//! | `socket` | reception of requests with their descriptors |
//! | [`message`] | formats of requests and answers |
//! | [`frame`] | reading and writing of frames in buffers of a ring |
//! | [`ring`] | one split ring |
//! | [`memory`] | the front end's memory |
//! | `kind` | kinds of the front end's descriptors, found without a blocking call |
//! | `signal` | event descriptors |
//! | `sys` | all `unsafe` code: signals that never block, and memory that disappears |
//!
//! Sources: *Vhost-user Protocol* of QEMU's documentation, and *Virtual I/O Device (VIRTIO)* 1.2,
//! sections 2.7 (split rings) and 5.1 (network device). Only split rings are supported.
//!
//! # What a front end cannot do
//! The driver is not trusted. No address of the driver leads outside of the memory that the front
//! end shares, no chain of descriptors is followed for longer than [`ring::PIECES_MAX`], and each
//! error of the driver is counted. An invalid buffer is dropped. A ring with invalid indices stops
//! until the front end sets it up again.
//!
//! The front end is not trusted either. Events have to be event descriptors (eventfd), and memory
//! has to be a file in memory (memfd, tmpfs, hugetlbfs). Both are checked without a call to a file
//! system, which may not answer (`kind`). An event descriptor that is full or blocking does not
//! delay the device (`sys::signal`). Memory that can be sealed has to be sealed against truncation
//! (`F_SEAL_SHRINK`). If other memory is truncated, zeros replace it, and the session ends
//! (`sys::guard`). The descriptors of a front end that was disconnected are closed before another
//! front end is accepted at the same socket, because closing them may block in the front end's file
//! system.
//!
//! # Why not the crates `vhost` and `virtio-queue`
//! `vhost` refuses `SET_VRING_ENABLE` before `SET_FEATURES`, but QEMU sends them in this order.
//! `virtio-queue` publishes used buffers one by one, but the buffers of one frame (`MRG_RXBUF`)
//! have to appear together. It does not distinguish a truncated chain from a complete one, and does
//! not read `VRING_AVAIL_F_NO_INTERRUPT`. All access to the memory uses `vm-memory`.

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
