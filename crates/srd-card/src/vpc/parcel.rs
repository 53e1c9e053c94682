//! A packet on its way through the limits.

use alloc::vec::Vec;

use super::flow::Sender;
use super::port::PortId;
use super::trace::Followed;

/// A packet before, in, or behind the limits.
pub(super) struct Parcel {
    pub(super) frame: Vec<u8>,
    pub(super) port: PortId,
    /// The rules that judged it.
    pub(super) epoch: u32,
    pub(super) going: Going,
    pub(super) followed: Followed,
}

/// Which way a packet goes.
pub(super) enum Going {
    /// From the guest to the target of this number, which is of the epoch.
    Out(u32),
    /// To the guest.
    In(Sender),
}
