//! Encoding of the frames of the messaging layer.

use bytes::{BufMut, BytesMut};

use crate::rdm::wire::field::{BASE_BYTES, DATA, PARTS, TAGGED, VERSION, put_base};
use crate::rdm::wire::frame::{AtomicIov, LONG_IOV_BYTES, LongIov, PUT_HEADER_BYTES};
use crate::rdm::wire::message::MessageHeader;

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

pub(crate) fn long(header: &MessageHeader, token: u64, iov: &[LongIov]) -> BytesMut {
    let mut b = BytesMut::with_capacity(BASE_BYTES + 24 + iov.len() * LONG_IOV_BYTES);
    let flags = if header.tag.is_some() { TAGGED } else { 0 }
        | if header.data.is_some() { DATA } else { 0 };
    let count = u16::try_from(iov.len()).unwrap_or(u16::MAX);
    put_base(&mut b, 5, flags, count, header.id);
    for field in [header.tag, header.data, Some(token)].into_iter().flatten() {
        b.put_u64(field);
    }
    for piece in iov {
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

/// Encodes an ATOMIC without its operands. `what`: operation, type and form.
pub(crate) fn atomic(id: u32, what: [u8; 3], token: u64, iov: &[AtomicIov]) -> BytesMut {
    let mut b = BytesMut::with_capacity(256);
    let [op, datatype, form] = what;
    let count = u8::try_from(iov.len()).unwrap_or(u8::MAX) & 15;
    put_base(&mut b, 7, op, u16::from_be_bytes([datatype, form << 4 | count]), id);
    b.put_u64(token);
    for piece in iov {
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

/// Encodes a PUT without its bytes. `more`: other frames belong to the same write.
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
