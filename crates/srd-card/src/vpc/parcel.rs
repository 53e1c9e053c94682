//! A packet that passes the limits of its instance.

use alloc::vec::Vec;

use super::flow::Sender;
use super::port::PortId;
use super::trace::Followed;

/// A packet before, in, or behind the limits.
pub(super) struct Parcel {
    pub(super) frame: Vec<u8>,
    pub(super) port: PortId,
    /// Number of the last change of rules before the packet was judged.
    pub(super) epoch: u64,
    pub(super) going: Going,
    pub(super) followed: Followed,
}

/// Direction of a packet.
pub(super) enum Going {
    /// From the guest to the target with this number, while the packet's verdict is valid.
    Out(u32),
    /// To the guest.
    In(Sender),
}
