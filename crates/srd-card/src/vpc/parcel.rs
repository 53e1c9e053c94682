//! A packet on its way through the limits.

use alloc::vec::Vec;

use super::flow::Sender;
use super::port::PortId;
use super::trace::Followed;

/// A packet before, in, or behind the limits.
pub(super) struct Parcel {
    pub(super) frame: Vec<u8>,
    pub(super) port: PortId,
    /// The last change before it was judged.
    pub(super) epoch: u64,
    pub(super) going: Going,
    pub(super) followed: Followed,
}

/// Which way a packet goes.
pub(super) enum Going {
    /// From the guest to the target of this number, while its verdict holds.
    Out(u32),
    /// To the guest.
    In(Sender),
}
