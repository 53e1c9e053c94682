//! A TCP segment as the simulator carries it: fields, no bytes.

/// One segment. Its size must stay at 72 bytes or less, so that a packet slot fills two cache
/// lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpSegment {
    /// Offset of the first payload byte in the stream.
    pub seq: u64,
    /// Every byte before this offset has arrived.
    pub ack: u64,
    /// Selective acknowledgements, as (start, end) offsets relative to `ack`.
    pub sack: [(u32, u32); 4],
    /// How many of them are set.
    pub sack_blocks: u8,
    /// Flags (SYN, FIN, ACK, ECE, CWR) as the model defines them.
    pub flags: u8,
    /// Payload length.
    pub payload_bytes: u32,
    /// The sender's clock, in nanoseconds.
    pub timestamp_ns: u64,
    /// The peer's clock, echoed.
    pub timestamp_echo_ns: u64,
}
