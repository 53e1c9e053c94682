//! Contents of a RoCE packet: the fields of the base transport header that the model uses.

/// Kind of a RoCE packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RoceKind {
    /// A data packet: a part of a message.
    #[default]
    Data,
    /// An acknowledgement: every packet before `psn` has arrived.
    Ack,
    /// A negative acknowledgement: every packet before `psn` has arrived, and a later packet came
    /// too early. The sender goes back to `psn`.
    Nak,
    /// A congestion notification: a packet arrived with an ECN mark.
    Cnp,
}

/// A packet of the RoCE model.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RocePacket {
    /// Number of the flow to which the packet belongs.
    pub flow: u32,
    /// Purpose of the packet.
    pub kind: RoceKind,
    /// Number of a data packet; in a reply, the number of the next expected packet. With 64 bits
    /// the number never wraps.
    pub psn: u64,
    /// Number of payload bytes.
    pub payload_bytes: u32,
    /// Whether the data packet is the first of its message.
    pub is_first: bool,
    /// Whether the data packet is the last of its message.
    pub is_last: bool,
}

/// Length of the base transport header (BTH), in bytes.
pub const BTH_BYTES: usize = 12;
/// Length of the extended header of acknowledgements (AETH), in bytes.
const AETH_BYTES: usize = 4;
/// Length of the invariant CRC at the end of a packet, in bytes.
pub const ICRC_BYTES: usize = 4;

impl RocePacket {
    /// Returns the headers as bytes, for capture files: BTH, and for acknowledgements AETH. The
    /// number of the flow is in the field of the queue pair.
    pub fn headers(&self) -> Vec<u8> {
        let opcode = match (self.kind, self.is_first, self.is_last) {
            (RoceKind::Data, true, true) => 0x04,
            (RoceKind::Data, true, false) => 0x00,
            (RoceKind::Data, false, true) => 0x02,
            (RoceKind::Data, false, false) => 0x01,
            (RoceKind::Ack | RoceKind::Nak, ..) => 0x11,
            (RoceKind::Cnp, ..) => 0x81,
        };
        let [_, _, _, _, _, psn @ ..] = self.psn.to_be_bytes();
        let [_, pair @ ..] = self.flow.to_be_bytes();
        let mut bytes = vec![opcode, 0, 0xff, 0xff, 0];
        bytes.extend(pair);
        bytes.push(if self.is_last { 0x80 } else { 0 });
        bytes.extend(psn);
        let syndrome = match self.kind {
            RoceKind::Ack => 0x1f,
            RoceKind::Nak => 0x60,
            RoceKind::Data | RoceKind::Cnp => return bytes,
        };
        bytes.extend([syndrome, 0, 0, 0]);
        debug_assert_eq!(bytes.len(), BTH_BYTES + AETH_BYTES);
        bytes
    }
}
