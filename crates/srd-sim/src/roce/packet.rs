//! What a RoCE packet carries: the fields of the base transport header that the model uses.

/// What a packet is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RoceKind {
    /// A part of a message.
    #[default]
    Data,
    /// Every packet before `psn` has arrived.
    Ack,
    /// The same, and one after it came too early: go back to `psn`.
    Nak,
    /// Congestion notification: a packet was marked.
    Cnp,
}

/// A packet of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RocePacket {
    /// The flow.
    pub flow: u32,
    /// What it is for.
    pub kind: RoceKind,
    /// The packet's number, or the next one that is expected. It is 64 bits wide: nothing wraps.
    pub psn: u64,
    /// Payload bytes.
    pub payload_bytes: u32,
    /// Whether the message begins with it.
    pub is_first: bool,
    /// Whether the message ends with it.
    pub is_last: bool,
}

/// Bytes of the base transport header.
pub const BTH_BYTES: usize = 12;
/// Bytes of the extended header of acknowledgements.
const AETH_BYTES: usize = 4;
/// The invariant CRC at the end.
pub const ICRC_BYTES: usize = 4;

impl RocePacket {
    /// The headers as bytes, for capture files: BTH, and AETH of acknowledgements. The flow's
    /// number stands for the queue pair.
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
