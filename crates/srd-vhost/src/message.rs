//! Requests of a front end, and answers to them (QEMU's documentation, *Vhost-user Protocol*).
//!
//! ```text
//!  0               4               8               12
//! +---------------+---------------+---------------+--------------- - -
//! | request       | flags         | bytes of body | body
//! +---------------+---------------+---------------+--------------- - -
//!                   0..1 version 1, 2 is an answer, 3 requests one
//! ```
//!
//! Numbers have the byte order of the machine, on which both ends run. Descriptors are sent as
//! ancillary data of the header.

use crate::kind::AcceptedDescriptor;

/// Length of the header in bytes.
pub const HEADER_BYTES: usize = 12;
/// Limit of a body in bytes. The longest body, a memory table of eight regions, has 264.
pub const BODY_BYTES_MAX: usize = 512;
/// Largest number of descriptors of one request: one for each region of a table.
pub const DESCRIPTORS_MAX: usize = 8;

const VERSION: u32 = 1;
const VERSION_BITS: u32 = 3;
const IS_ANSWER: u32 = 4;
const WANTS_ANSWER: u32 = 8;

/// Requests of a front end, by their numbers.
#[allow(missing_docs)] // the names of the specification
pub mod request {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const RESET_OWNER: u32 = 4;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_VRING_ERR: u32 = 14;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const GET_QUEUE_NUM: u32 = 17;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const GET_MAX_MEM_SLOTS: u32 = 36;
    pub const ADD_MEM_REG: u32 = 37;
    pub const REM_MEM_REG: u32 = 38;
}

/// A request without its body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Number of the request.
    pub request: u32,
    /// Whether the front end requests an answer to a request that is normally not answered.
    pub wants_answer: bool,
    /// Length of the body in bytes.
    pub body_bytes: usize,
}

impl Header {
    /// Parses a header; `None` if the bytes are no header of a request in this version, or if the
    /// body is too long.
    pub fn read(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let word = |at| u32_at(bytes, at);
        let (flags, body_bytes) = (word(4)?, usize::try_from(word(8)?).ok()?);
        let good = flags & VERSION_BITS == VERSION && flags & IS_ANSWER == 0;
        let wants_answer = flags & WANTS_ANSWER != 0;
        let header = Self { request: word(0)?, wants_answer, body_bytes };
        (good && body_bytes <= BODY_BYTES_MAX).then_some(header)
    }

    /// Returns the bytes of the header, as a front end sends them.
    pub fn write(&self) -> [u8; HEADER_BYTES] {
        let wants = if self.wants_answer { WANTS_ANSWER } else { 0 };
        let bytes = u32::try_from(self.body_bytes).unwrap_or(u32::MAX);
        head(self.request, VERSION | wants, bytes)
    }
}

/// A request with its body and its descriptors.
#[derive(Debug)]
pub(crate) struct Request {
    /// Header of the request.
    pub(crate) header: Header,
    /// Body of the request.
    pub(crate) body: Vec<u8>,
    /// Descriptors of the kinds on which no call blocks.
    pub(crate) descriptors: Vec<AcceptedDescriptor>,
    /// Name of a descriptor of another kind, if one came with the request.
    pub(crate) foreign: Option<String>,
}

/// Returns the bytes of an answer to a request.
pub fn answer(request: u32, body: &[u8]) -> Vec<u8> {
    let bytes = u32::try_from(body.len()).unwrap_or(u32::MAX);
    [&head(request, VERSION | IS_ANSWER, bytes), body].concat()
}

fn head(request: u32, flags: u32, bytes: u32) -> [u8; HEADER_BYTES] {
    let mut out = [0; HEADER_BYTES];
    for (to, word) in out.chunks_exact_mut(4).zip([request, flags, bytes]) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    out
}

/// Returns the four-byte number at this offset.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

/// Returns the eight-byte number at this offset.
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|word| u64::from_ne_bytes(*word))
}

/// A region of the front end's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// Guest address of the region.
    pub guest: u64,
    /// Size of the region in bytes.
    pub bytes: u64,
    /// Address of the region in the front end.
    pub user: u64,
    /// Offset of the region in its file.
    pub offset: u64,
}

/// Parses a memory table: the number of regions, four unused bytes, and 32 bytes for each region.
pub fn regions(body: &[u8]) -> Option<Vec<Region>> {
    let count = usize::try_from(u32_at(body, 0)?).ok()?;
    let parts = body.get(8..)?.chunks_exact(32);
    if count > DESCRIPTORS_MAX || parts.len() != count || !parts.remainder().is_empty() {
        return None;
    }
    parts.map(region).collect()
}

/// Parses a request with one region: eight unused bytes, and 32 bytes for the region.
pub fn single_region(body: &[u8]) -> Option<Region> {
    region(body.get(8..).filter(|part| part.len() == 32)?)
}

fn region(part: &[u8]) -> Option<Region> {
    let [guest, bytes, user, offset] = [0, 8, 16, 24].map(|at| u64_at(part, at));
    Some(Region { guest: guest?, bytes: bytes?, user: user?, offset: offset? })
}
