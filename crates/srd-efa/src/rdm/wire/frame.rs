//! Decoding of the frames of the messaging layer.

use crate::rdm::iovec::IOV_COUNT_MAX;
use crate::rdm::wire::batch::Batch;
use crate::rdm::wire::field::{BASE_BYTES, DATA, PARTS, Reader, TAGGED};
use crate::rdm::wire::message::{MESSAGE_COST, MessageFrame, MessageHeader};
use crate::rdm::wire::{batch, message};

/// Number of bytes that describe a piece of memory in a LONG frame.
pub(crate) const LONG_IOV_BYTES: usize = 16;
/// Number of bytes that describe a piece of memory in an ATOMIC frame.
pub(crate) const ATOMIC_IOV_BYTES: usize = 20;
/// Number of bytes before the payload of a PUT frame that has data for the peer.
pub(crate) const PUT_HEADER_BYTES: usize = BASE_BYTES + 24;

/// A piece of a long message: its key, and its length in bytes. The piece begins at address zero of
/// its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LongIov {
    pub rkey: u64,
    pub length: u64,
}

/// A piece of memory in an ATOMIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct AtomicIov {
    pub addr: u64,
    pub rkey: u64,
    pub bytes: u32,
}

/// A received frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Frame<'a> {
    Hello {
        version: u8,
        session: u32,
        incarnation: u64,
    },
    Answer {
        version: u8,
        session: u32,
        incarnation: u64,
        limit: u64,
    },
    Credit {
        session: u32,
        limit: u64,
    },
    Message(MessageFrame<'a>),
    Long {
        header: MessageHeader,
        iov: [LongIov; IOV_COUNT_MAX],
        count: usize,
    },
    Receipt {
        token: u64,
        status: u8,
    },
    Atomic {
        id: u32,
        op: u8,
        datatype: u8,
        form: u8,
        token: u64,
        iov: [AtomicIov; IOV_COUNT_MAX],
        count: usize,
        operands: &'a [u8],
    },
    Result {
        token: u64,
        status: u8,
        bytes: &'a [u8],
    },
    /// A write of bytes. `more`: other frames belong to the same write.
    Put {
        data: Option<u64>,
        more: bool,
        addr: u64,
        rkey: u64,
        bytes: &'a [u8],
    },
    Note {
        data: u64,
        length: u64,
    },
    Batch(Batch<'a>),
}

impl<'a> Frame<'a> {
    /// Decodes a peer's frame; `None` for a frame that no correct sender writes.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (base, rest) = bytes.split_first_chunk::<BASE_BYTES>()?;
        let [kind, second, third, fourth, number @ ..] = *base;
        let (number, halves) = (u32::from_be_bytes(number), u16::from_be_bytes([third, fourth]));
        let mut reader = Reader(rest);
        let plain = halves == 0;
        let frame = match kind {
            1 | 2 => return Self::hello_or_answer(kind, second, number, reader),
            3 if plain && second == 0 => Self::Credit { session: number, limit: reader.u64()? },
            message::KIND if plain && second < 16 => {
                return MessageFrame::decode(second, number, reader).map(Self::Message);
            }
            5 if second < 4 => return Self::long(second, halves, number, reader),
            6 if plain && number == 0 => Self::Receipt { token: reader.u64()?, status: second },
            7 => return Self::atomic(second, third, fourth, number, reader),
            8 if plain && number == 0 => {
                return Some(Self::Result {
                    token: reader.u64()?,
                    status: second,
                    bytes: reader.0,
                });
            }
            9 if plain && number == 0 && second & !(DATA | PARTS) == 0 => {
                let data = reader.u64_if(second & DATA != 0)?;
                let (addr, rkey, more) = (reader.u64()?, reader.u64()?, second & PARTS != 0);
                return Some(Self::Put { data, more, addr, rkey, bytes: reader.0 });
            }
            10 if plain && number == 0 && second == 0 => {
                Self::Note { data: reader.u64()?, length: reader.u64()? }
            }
            batch::KIND if plain => return Batch::decode(second, number, rest).map(Self::Batch),
            _ => return None,
        };
        reader.end()?;
        Some(frame)
    }

    /// Decodes a HELLO or an ANSWER. Later versions may append fields.
    fn hello_or_answer(
        kind: u8,
        version: u8,
        session: u32,
        mut reader: Reader<'a>,
    ) -> Option<Self> {
        let (_features, incarnation) = (reader.u64()?, reader.u64()?);
        if kind == 1 {
            return Some(Self::Hello { version, session, incarnation });
        }
        Some(Self::Answer { version, session, incarnation, limit: reader.u64()? })
    }

    fn long(flags: u8, count: u16, id: u32, mut reader: Reader<'a>) -> Option<Self> {
        let tag = reader.u64_if(flags & TAGGED != 0)?;
        let data = reader.u64_if(flags & DATA != 0)?;
        let token = Some(reader.u64()?);
        let count = usize::from(count);
        if count == 0 || count > IOV_COUNT_MAX {
            return None;
        }
        let mut iov = [LongIov::default(); IOV_COUNT_MAX];
        let mut whole = 0u64;
        for piece in &mut iov[..count] {
            *piece = LongIov { rkey: reader.u64()?, length: reader.u64()? };
            whole = whole.checked_add(piece.length)?;
        }
        reader.end()?;
        Some(Self::Long { header: MessageHeader { id, tag, data, token }, iov, count })
    }

    fn atomic(op: u8, datatype: u8, form: u8, id: u32, mut reader: Reader<'a>) -> Option<Self> {
        let (count, form) = (usize::from(form & 15), form >> 4);
        if count == 0 || count > IOV_COUNT_MAX || form > 2 {
            return None;
        }
        let token = reader.u64()?;
        let mut iov = [AtomicIov::default(); IOV_COUNT_MAX];
        for piece in &mut iov[..count] {
            let (addr, rkey, bytes) = (reader.u64()?, reader.u64()?, reader.u32()?);
            *piece = AtomicIov { addr, rkey, bytes };
        }
        let operands = reader.0;
        Some(Self::Atomic { id, op, datatype, form, token, iov, count, operands })
    }
}

impl Frame<'_> {
    /// Returns the message id, if the frame belongs to the ordered messages.
    pub(crate) fn message_id(&self) -> Option<u32> {
        match self {
            Self::Message(message) => Some(message.header.id),
            Self::Long { header, .. } => Some(header.id),
            Self::Atomic { id, .. } => Some(*id),
            Self::Batch(batch) => Some(batch.first),
            _ => None,
        }
    }

    /// Returns the number of message ids that the frame uses.
    pub(crate) fn span(&self) -> u32 {
        if let Self::Batch(batch) = self { batch.count } else { 1 }
    }

    /// Returns the bytes of its sender's credit that the frame uses.
    pub(crate) fn charge(&self) -> u64 {
        match self {
            Self::Message(message) => message.charge(),
            Self::Batch(batch) => batch.charge,
            _ => MESSAGE_COST,
        }
    }
}
