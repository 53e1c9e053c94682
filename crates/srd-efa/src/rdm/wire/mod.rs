//! What messaging layers say to each other: the frames, and what travels beside them in the verbs'
//! SEND.
//!
//! ```text
//! bytes     0    1         2            4            8
//! HELLO    | 1  | version | 0          | session    | features, incarnation
//! ANSWER   | 2  | version | 0          | session    | the same, limit
//! CREDIT   | 3  | 0       | 0          | session    | limit
//! MESSAGE  | 4  | flags   | 0          | message id | tag? data? token? length? bytes
//! LONG     | 5  | flags   | pieces     | message id | tag? data? token, pieces
//! RECEIPT  | 6  | status  | 0          | 0          | token
//! ATOMIC   | 7  | op      | type, form | message id | token, pieces, operands
//! RESULT   | 8  | status  | 0          | 0          | token, bytes
//! PUT      | 9  | flags   | 0          | 0          | data? address, key, bytes
//! NOTE     | 10 | 0       | 0          | 0          | data, length
//! JOINED   | 11 | messages | 0         | message id | MESSAGEs, each behind its length
//! ```
//!
//! Integers are big-endian. More of a MESSAGE travels without a frame: its SEND has an immediate,
//! the message id's low 16 bits above the 16 bits of its offset. `docs/spec/rdm.md` has the rules.

pub(crate) mod batch;

use bytes::{BufMut, BytesMut};

use crate::rdm::iovec::PIECES_MAX;
use crate::rdm::wire::batch as joined;
use crate::rdm::wire::batch::Joined;
use crate::wire::check_of;

/// The version that we speak.
pub(crate) const VERSION: u8 = 1;
/// Bytes before the optional fields of every frame.
pub(crate) const BASE_BYTES: usize = 8;
/// The longest header of a MESSAGE: tag, data, token and length.
pub(crate) const MESSAGE_HEADER_MAX: usize = BASE_BYTES + 8 + 8 + 8 + 4;
/// Bytes of a piece in a LONG.
pub(crate) const LONG_PIECE_BYTES: usize = 16;
/// Bytes of a piece in an ATOMIC.
pub(crate) const ATOMIC_PIECE_BYTES: usize = 20;
/// Bytes before the data of a PUT.
pub(crate) const PUT_HEADER_BYTES: usize = BASE_BYTES + 24;

const TAGGED: u8 = 1;
const DATA: u8 = 2;
const RECEIPT: u8 = 4;
const PARTS: u8 = 8;

/// Status of a RECEIPT or RESULT: all is well.
pub(crate) const STATUS_OK: u8 = 0;
/// The memory that it names may not be used so.
pub(crate) const STATUS_BAD_KEY: u8 = 1;
/// It makes no sense, or could not be finished.
pub(crate) const STATUS_FAILED: u8 = 2;

/// What a MESSAGE and a LONG say of the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Envelope {
    pub id: u32,
    pub tag: Option<u64>,
    pub data: Option<u64>,
    /// What the sender wants to hear when it stands in the receiver's buffer.
    pub token: Option<u64>,
}

/// A piece of a long message: its key, and its bytes. It begins at address zero of its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LongPiece {
    pub rkey: u64,
    pub length: u64,
}

/// A piece of memory in an ATOMIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct AtomicPiece {
    pub addr: u64,
    pub rkey: u64,
    pub bytes: u32,
}

/// A frame that has arrived.
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
    /// `length` is that of the whole message, if more of it comes.
    Message {
        envelope: Envelope,
        length: Option<u32>,
        bytes: &'a [u8],
    },
    Long {
        envelope: Envelope,
        pieces: [LongPiece; PIECES_MAX],
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
        pieces: [AtomicPiece; PIECES_MAX],
        count: usize,
        operands: &'a [u8],
    },
    Result {
        token: u64,
        status: u8,
        bytes: &'a [u8],
    },
    /// `more`: other frames belong to the same write.
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
    Joined(Joined<'a>),
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn u64(&mut self) -> Option<u64> {
        let (head, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*head))
    }

    fn u32(&mut self) -> Option<u32> {
        let (head, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*head))
    }

    fn u64_if(&mut self, there: bool) -> Option<Option<u64>> {
        if there { self.u64().map(Some) } else { Some(None) }
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

impl<'a> Frame<'a> {
    /// What a peer has written; `None` for what no sender writes.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (base, rest) = bytes.split_first_chunk::<BASE_BYTES>()?;
        let [kind, second, third, fourth, number @ ..] = *base;
        let (number, halves) = (u32::from_be_bytes(number), u16::from_be_bytes([third, fourth]));
        let mut reader = Reader(rest);
        let plain = halves == 0;
        let frame = match kind {
            1 | 2 => return Self::greeting(kind, second, number, reader),
            3 if plain && second == 0 => Self::Credit { session: number, limit: reader.u64()? },
            4 if plain && second < 16 => return Self::message(second, number, reader),
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
            joined::KIND if plain => return Joined::decode(second, number, rest).map(Self::Joined),
            _ => return None,
        };
        reader.end()?;
        Some(frame)
    }

    /// Later versions may say more, behind what all of them begin with.
    fn greeting(kind: u8, version: u8, session: u32, mut reader: Reader<'a>) -> Option<Self> {
        let (_features, incarnation) = (reader.u64()?, reader.u64()?);
        if kind == 1 {
            return Some(Self::Hello { version, session, incarnation });
        }
        Some(Self::Answer { version, session, incarnation, limit: reader.u64()? })
    }

    fn message(flags: u8, id: u32, mut reader: Reader<'a>) -> Option<Self> {
        let tag = reader.u64_if(flags & TAGGED != 0)?;
        let data = reader.u64_if(flags & DATA != 0)?;
        let token = reader.u64_if(flags & RECEIPT != 0)?;
        let length = if flags & PARTS != 0 { Some(reader.u32()?) } else { None };
        let bytes = reader.0;
        if length.is_some_and(|length| bytes.len() >= length as usize) {
            return None;
        }
        Some(Self::Message { envelope: Envelope { id, tag, data, token }, length, bytes })
    }

    fn long(flags: u8, count: u16, id: u32, mut reader: Reader<'a>) -> Option<Self> {
        let tag = reader.u64_if(flags & TAGGED != 0)?;
        let data = reader.u64_if(flags & DATA != 0)?;
        let token = Some(reader.u64()?);
        let count = usize::from(count);
        if count == 0 || count > PIECES_MAX {
            return None;
        }
        let mut pieces = [LongPiece::default(); PIECES_MAX];
        let mut whole = 0u64;
        for piece in &mut pieces[..count] {
            *piece = LongPiece { rkey: reader.u64()?, length: reader.u64()? };
            whole = whole.checked_add(piece.length)?;
        }
        reader.end()?;
        Some(Self::Long { envelope: Envelope { id, tag, data, token }, pieces, count })
    }

    fn atomic(op: u8, datatype: u8, form: u8, id: u32, mut reader: Reader<'a>) -> Option<Self> {
        let (count, form) = (usize::from(form & 15), form >> 4);
        if count == 0 || count > PIECES_MAX || form > 2 {
            return None;
        }
        let token = reader.u64()?;
        let mut pieces = [AtomicPiece::default(); PIECES_MAX];
        for piece in &mut pieces[..count] {
            let (addr, rkey, bytes) = (reader.u64()?, reader.u64()?, reader.u32()?);
            *piece = AtomicPiece { addr, rkey, bytes };
        }
        let operands = reader.0;
        Some(Self::Atomic { id, op, datatype, form, token, pieces, count, operands })
    }
}

pub(crate) fn put_base(into: &mut BytesMut, kind: u8, second: u8, halves: u16, number: u32) {
    into.put_u8(kind);
    into.put_u8(second);
    into.put_u16(halves);
    into.put_u32(number);
}

pub(crate) fn hello(session: u32, incarnation: u64) -> BytesMut {
    let mut b = BytesMut::with_capacity(24);
    put_base(&mut b, 1, VERSION, 0, session);
    b.put_u64(0);
    b.put_u64(incarnation);
    b
}

pub(crate) fn answer(session: u32, incarnation: u64, limit: u64) -> BytesMut {
    let mut b = BytesMut::with_capacity(32);
    put_base(&mut b, 2, VERSION, 0, session);
    b.put_u64(0);
    b.put_u64(incarnation);
    b.put_u64(limit);
    b
}

pub(crate) fn credit(session: u32, limit: u64) -> BytesMut {
    let mut b = BytesMut::with_capacity(16);
    put_base(&mut b, 3, 0, 0, session);
    b.put_u64(limit);
    b
}

/// A MESSAGE up to its data, with room for `bytes` of them.
pub(crate) fn message(envelope: &Envelope, length: Option<u32>, bytes: usize) -> BytesMut {
    let mut b = BytesMut::with_capacity(MESSAGE_HEADER_MAX + bytes);
    put_message(&mut b, envelope, length);
    b
}

/// Appends a MESSAGE up to its data.
pub(crate) fn put_message(b: &mut BytesMut, envelope: &Envelope, length: Option<u32>) {
    let flag = |there: bool, flag| if there { flag } else { 0 };
    let flags = flag(envelope.tag.is_some(), TAGGED)
        | flag(envelope.data.is_some(), DATA)
        | flag(envelope.token.is_some(), RECEIPT)
        | flag(length.is_some(), PARTS);
    put_base(b, 4, flags, 0, envelope.id);
    for field in [envelope.tag, envelope.data, envelope.token].into_iter().flatten() {
        b.put_u64(field);
    }
    if let Some(length) = length {
        b.put_u32(length);
    }
}

/// Bytes that [`message`] writes.
pub(crate) fn message_header_bytes(envelope: &Envelope, parts: bool) -> usize {
    let fields = [envelope.tag, envelope.data, envelope.token];
    let there = fields.iter().flatten().count();
    BASE_BYTES + 8 * there + if parts { 4 } else { 0 }
}

pub(crate) fn long(envelope: &Envelope, token: u64, pieces: &[LongPiece]) -> BytesMut {
    let mut b = BytesMut::with_capacity(BASE_BYTES + 24 + pieces.len() * LONG_PIECE_BYTES);
    let flags = if envelope.tag.is_some() { TAGGED } else { 0 }
        | if envelope.data.is_some() { DATA } else { 0 };
    let count = u16::try_from(pieces.len()).unwrap_or(u16::MAX);
    put_base(&mut b, 5, flags, count, envelope.id);
    for field in [envelope.tag, envelope.data, Some(token)].into_iter().flatten() {
        b.put_u64(field);
    }
    for piece in pieces {
        b.put_u64(piece.rkey);
        b.put_u64(piece.length);
    }
    b
}

pub(crate) fn receipt(token: u64, status: u8) -> BytesMut {
    let mut b = BytesMut::with_capacity(16);
    put_base(&mut b, 6, status, 0, 0);
    b.put_u64(token);
    b
}

/// An ATOMIC up to its operands. `what`: operation, type and form.
pub(crate) fn atomic(id: u32, what: [u8; 3], token: u64, pieces: &[AtomicPiece]) -> BytesMut {
    let mut b = BytesMut::with_capacity(256);
    let [op, datatype, form] = what;
    let count = u8::try_from(pieces.len()).unwrap_or(u8::MAX) & 15;
    put_base(&mut b, 7, op, u16::from_be_bytes([datatype, form << 4 | count]), id);
    b.put_u64(token);
    for piece in pieces {
        b.put_u64(piece.addr);
        b.put_u64(piece.rkey);
        b.put_u32(piece.bytes);
    }
    b
}

pub(crate) fn result(token: u64, status: u8, bytes: &[u8]) -> BytesMut {
    let mut b = BytesMut::with_capacity(16 + bytes.len());
    put_base(&mut b, 8, status, 0, 0);
    b.put_u64(token);
    b.extend_from_slice(bytes);
    b
}

/// A PUT up to its bytes. `more`: other frames belong to the same write.
pub(crate) fn put(data: Option<u64>, more: bool, addr: u64, rkey: u64, bytes: usize) -> BytesMut {
    let mut b = BytesMut::with_capacity(PUT_HEADER_BYTES + bytes);
    let flags = if data.is_some() { DATA } else { 0 } | if more { PARTS } else { 0 };
    put_base(&mut b, 9, flags, 0, 0);
    if let Some(data) = data {
        b.put_u64(data);
    }
    b.put_u64(addr);
    b.put_u64(rkey);
    b
}

pub(crate) fn note(data: u64, length: u64) -> BytesMut {
    let mut b = BytesMut::with_capacity(24);
    put_base(&mut b, 10, 0, 0, 0);
    b.put_u64(data);
    b.put_u64(length);
    b
}

/// The immediate of more of a message.
#[allow(clippy::cast_possible_truncation)] // the low half of the id
pub(crate) fn part(id: u32, offset: u16) -> u32 {
    u32::from(id as u16) << 16 | u32::from(offset)
}

/// The Q key of an endpoint's run.
#[allow(clippy::cast_possible_truncation)] // the halves of the number
pub(crate) fn qkey_of(incarnation: u64) -> u32 {
    (incarnation.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// What travels of it in frames that belong to no session.
pub(crate) fn run_check(incarnation: u64) -> u32 {
    check_of(qkey_of(incarnation))
}

/// What travels of it in messages of a session.
pub(crate) fn session_check(incarnation: u64, session: u32) -> u32 {
    check_of(qkey_of(incarnation) ^ session.wrapping_mul(0x85eb_ca6b))
}
