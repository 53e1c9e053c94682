//! A packet that passes the limits of its instance.

use alloc::vec::Vec;

use crate::vpc::port::PortId;
use crate::vpc::records::trace::Followed;
use crate::vpc::tables::flow::Sender;

/// A packet before, in, or behind the limits.
pub(in crate::vpc) struct Parcel {
    pub(in crate::vpc) frame: Vec<u8>,
    pub(in crate::vpc) port: PortId,
    /// Number of the last change of rules before the packet was judged.
    pub(in crate::vpc) epoch: u64,
    pub(in crate::vpc) going: Going,
    pub(in crate::vpc) followed: Followed,
}

/// Direction of a packet.
pub(in crate::vpc) enum Going {
    /// From the guest to the target with this number, while the packet's verdict is valid.
    Out(u32),
    /// To the guest.
    In(Sender),
}
