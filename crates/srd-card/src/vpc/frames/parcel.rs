//! A packet that passes the limits of its instance.

use alloc::vec::Vec;

use crate::vpc::port::PortId;
use crate::vpc::records::trace::Followed;
use crate::vpc::tables::flow::Sender;

/// A packet that waits for the limits of its instance, or has passed them.
pub(in crate::vpc) struct Parcel {
    pub(in crate::vpc) frame: Vec<u8>,
    pub(in crate::vpc) port: PortId,
    /// Number of the last change of rules before the rules evaluated the packet.
    pub(in crate::vpc) epoch: u64,
    pub(in crate::vpc) going: Going,
    pub(in crate::vpc) followed: Followed,
}

/// Direction of a packet, with its receiver or sender.
pub(in crate::vpc) enum Going {
    /// From the guest to the target (interface, gateway or service) with this number in the table
    /// of targets. The number is valid as long as the verdict about the packet.
    Out(u32),
    /// To the guest, from this sender.
    In(Sender),
}
