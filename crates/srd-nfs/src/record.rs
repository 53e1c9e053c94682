//! Parses records of ONC RPC from a stream of bytes (RFC 5531, section 11).
//!
//! ```text
//!   record     fragment, ..., last fragment
//!   fragment   1 bit last | 31 bits length | bytes
//!   message    xid | 0 call, 1 reply | ...
//! ```
//!
//! A record is forwarded as one fragment, even if it arrived in several. Memory grows with the
//! bytes that arrive, never with a length that is only announced.

use std::fmt;
use std::io::{self, ErrorKind, Read};

use crate::limits::FRAGMENTS_MAX;

/// Bit of a mark that is set in the last fragment of a record.
const LAST: u32 = 1 << 31;
/// Bytes of a fragment's mark.
const MARK_BYTES: usize = 4;
/// Bytes of a message's head: its transaction number and its kind.
const HEAD_BYTES: usize = 8;

/// A record as one fragment: its mark, then the message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record(Vec<u8>);

/// Type of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A message that calls a procedure.
    Call,
    /// A message that replies to a call.
    Reply,
}

impl Record {
    /// Returns a record that holds a message.
    ///
    /// # Errors
    /// [`RecordError::NoMessage`], if the bytes are not a message.
    pub fn of(message: &[u8]) -> Result<Self, RecordError> {
        let mut bytes = vec![0; MARK_BYTES];
        bytes.extend_from_slice(message);
        Self::marked(bytes)
    }

    fn marked(mut bytes: Vec<u8>) -> Result<Self, RecordError> {
        let length = bytes.len() - MARK_BYTES;
        let kind_is_known = matches!(bytes.get(8..12), Some([0, 0, 0, 0 | 1]));
        let mark = u32::try_from(length).ok().filter(|length| *length < LAST && kind_is_known);
        let mark = mark.ok_or(RecordError::NoMessage { bytes: length })?;
        bytes[..MARK_BYTES].copy_from_slice(&(mark | LAST).to_be_bytes());
        Ok(Self(bytes))
    }

    /// Returns the mark and the message.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the message.
    pub fn message(&self) -> &[u8] {
        &self.0[MARK_BYTES..]
    }

    /// Returns the transaction number, which is equal in a call and its reply.
    pub fn xid(&self) -> u32 {
        let xid = self.0[MARK_BYTES..].first_chunk().expect("a record has a head");
        u32::from_be_bytes(*xid)
    }

    /// Returns the kind of the message.
    pub fn kind(&self) -> Kind {
        if self.0[MARK_BYTES + HEAD_BYTES - 1] == 0 { Kind::Call } else { Kind::Reply }
    }
}

/// Finds the end of the first record of a stream, without storing the record.
#[derive(Clone, Default, Debug)]
pub struct FirstRecord {
    /// Bytes of the mark that have arrived.
    mark: [u8; MARK_BYTES],
    mark_bytes: usize,
    /// Bytes of the fragment that have not arrived yet.
    left: u32,
    /// Bytes of the message that have arrived.
    message_bytes: u64,
}

impl FirstRecord {
    /// Accepts the next bytes of the stream. Returns whether they complete the first record, and it
    /// is long enough to be a call.
    pub fn is_whole_with(&mut self, mut bytes: &[u8]) -> bool {
        loop {
            if self.mark_bytes < MARK_BYTES {
                let Some((byte, rest)) = bytes.split_first() else { return false };
                self.mark[self.mark_bytes] = *byte;
                self.mark_bytes += 1;
                bytes = rest;
                self.left = u32::from_be_bytes(self.mark) & !LAST;
                continue;
            }
            let count = bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
            self.left -= u32::try_from(count).expect("no more than is left");
            self.message_bytes += count as u64;
            bytes = &bytes[count..];
            if self.left > 0 {
                return false;
            }
            if u32::from_be_bytes(self.mark) & LAST != 0 {
                return self.message_bytes >= HEAD_BYTES as u64;
            }
            self.mark_bytes = 0;
        }
    }
}

/// Reason why no record could be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum RecordError {
    /// The record is larger than allowed.
    TooLarge {
        /// Least number of bytes that the record has.
        bytes: u64,
        /// Largest number of bytes that are allowed.
        bytes_max: usize,
    },
    /// The record has more than [`FRAGMENTS_MAX`] fragments.
    TooManyFragments,
    /// The record is not an RPC message.
    NoMessage {
        /// Length of the record in bytes.
        bytes: usize,
    },
    /// The record began, but no further byte arrived for [`crate::limits::RECORD_STALL_MAX`].
    Stalled,
    /// The connection ended within the record.
    Cut,
    /// The connection failed.
    Io(io::Error),
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { bytes, bytes_max } => write!(
                f,
                "a record of {bytes} bytes or more, at most {bytes_max} are taken: if this is NFS \
                 with larger reads or writes, raise --record-bytes"
            ),
            Self::TooManyFragments => write!(f, "a record of more than {FRAGMENTS_MAX} fragments"),
            Self::NoMessage { bytes } => write!(
                f,
                "{bytes} bytes that are no message of RPC: is the other side an NFS client or \
                 server?"
            ),
            Self::Stalled => write!(f, "a record began and did not go on"),
            Self::Cut => write!(f, "the connection ended within a record"),
            Self::Io(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for RecordError {}

impl From<io::Error> for RecordError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Self::Stalled,
            ErrorKind::UnexpectedEof => Self::Cut,
            _ => Self::Io(error),
        }
    }
}

/// Reads the next record; `None` when the stream ends between records. If reads of the stream time
/// out, a timeout between two records has no effect; within a record it counts towards a stall.
///
/// # Errors
/// A [`RecordError`], if the record is invalid or the stream fails. The stream cannot be used
/// afterwards.
pub fn read(from: &mut impl Read, bytes_max: usize) -> Result<Option<Record>, RecordError> {
    let mut bytes = vec![0; MARK_BYTES];
    for fragment in 0..FRAGMENTS_MAX {
        let mut mark = [0; MARK_BYTES];
        if fragment == 0 {
            if !first_byte(from, &mut mark)? {
                return Ok(None);
            }
            from.read_exact(&mut mark[1..])?;
        } else {
            from.read_exact(&mut mark)?;
        }
        let mark = u32::from_be_bytes(mark);
        let length = u64::from(mark & !LAST);
        let total = (bytes.len() - MARK_BYTES) as u64 + length;
        if total > bytes_max as u64 {
            return Err(RecordError::TooLarge { bytes: total, bytes_max });
        }
        let came = from.by_ref().take(length).read_to_end(&mut bytes)?;
        if (came as u64) < length {
            return Err(RecordError::Cut);
        }
        if mark & LAST != 0 {
            return Record::marked(bytes).map(Some);
        }
    }
    Err(RecordError::TooManyFragments)
}

/// Waits for the first byte of a record; false at the end of the stream.
fn first_byte(from: &mut impl Read, mark: &mut [u8; MARK_BYTES]) -> Result<bool, RecordError> {
    loop {
        match from.read(&mut mark[..1]) {
            Ok(count) => return Ok(count == 1),
            Err(error) => match error.kind() {
                ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut => {}
                _ => return Err(error.into()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    fn fragment(last: bool, bytes: &[u8]) -> Vec<u8> {
        let mark = u32::try_from(bytes.len()).unwrap() | if last { LAST } else { 0 };
        [&mark.to_be_bytes(), bytes].concat()
    }

    const CALL: [u8; 12] = [0, 0, 0, 7, 0, 0, 0, 0, 1, 2, 3, 4];

    #[test]
    fn the_first_record_is_whole_with_its_last_byte_however_it_comes() {
        let stream = [fragment(false, &CALL[..5]), fragment(true, &CALL[5..])].concat();
        for step in 1..=stream.len() {
            let mut first = FirstRecord::default();
            let (last, before) = stream.chunks(step).collect::<Vec<_>>().split_last().map_or_else(
                || unreachable!("a stream has bytes"),
                |(last, before)| (*last, before.to_vec()),
            );
            assert!(!before.into_iter().any(|part| first.is_whole_with(part)), "{step}");
            assert!(first.is_whole_with(last), "{step}");
        }
        // A record that is too short for a call, and a record of which only the mark arrived.
        assert!(!FirstRecord::default().is_whole_with(&fragment(true, &CALL[..7])));
        assert!(!FirstRecord::default().is_whole_with(&[0xff; 64]));
    }

    #[test]
    fn fragments_become_one_record_wherever_they_are_cut() {
        for cut in 0..=CALL.len() {
            let stream = [fragment(false, &CALL[..cut]), fragment(true, &CALL[cut..])].concat();
            let mut stream = stream.as_slice();
            let record = read(&mut stream, 12).unwrap().unwrap();
            assert_eq!(record.bytes(), fragment(true, &CALL), "{cut}");
            assert_eq!((record.xid(), record.kind()), (7, Kind::Call));
            assert!(read(&mut stream, 12).unwrap().is_none());
        }
    }

    #[test]
    fn a_record_at_the_limit_is_taken_and_one_byte_more_is_not() {
        let stream = fragment(true, &CALL);
        assert!(read(&mut stream.as_slice(), 12).is_ok());
        let error = read(&mut stream.as_slice(), 11).unwrap_err();
        assert!(matches!(error, RecordError::TooLarge { bytes: 12, bytes_max: 11 }));
        let split = [fragment(false, &CALL[..6]), fragment(true, &CALL[6..])].concat();
        assert!(matches!(read(&mut split.as_slice(), 11), Err(RecordError::TooLarge { .. })));
    }

    #[test]
    fn the_largest_length_is_refused_with_its_number() {
        let stream = u32::MAX.to_be_bytes();
        let error = read(&mut stream.as_slice(), 4 << 20).unwrap_err();
        assert!(error.to_string().contains("2147483647"), "{error}");
    }

    #[test]
    fn empty_fragments_without_end_are_refused() {
        let mut stream = vec![0; 4 * (FRAGMENTS_MAX - 1)];
        stream.extend(fragment(true, &CALL));
        assert!(read(&mut stream.as_slice(), 100).unwrap().is_some(), "the limit itself");
        let stream = vec![0; 4 * (FRAGMENTS_MAX + 1)];
        let error = read(&mut stream.as_slice(), 100).unwrap_err();
        assert!(matches!(error, RecordError::TooManyFragments));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for bytes in [&b""[..], &CALL[..7], b"GET / HTTP/1.1\r\n"] {
            let stream = fragment(true, bytes);
            let error = read(&mut stream.as_slice(), 100).unwrap_err();
            assert!(matches!(error, RecordError::NoMessage { .. }), "{bytes:?}");
        }
    }

    #[test]
    fn a_stream_that_ends_within_a_record_was_cut() {
        let stream = fragment(true, &CALL);
        for cut in 1..stream.len() {
            assert!(matches!(read(&mut &stream[..cut], 100), Err(RecordError::Cut)), "{cut}");
        }
    }

    /// A stream that returns its bytes one by one, and a timeout for each `None`.
    struct Slow(VecDeque<Option<u8>>);

    impl Read for Slow {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            match self.0.pop_front() {
                None => Ok(0),
                Some(None) => Err(ErrorKind::WouldBlock.into()),
                Some(Some(byte)) => {
                    into[0] = byte;
                    Ok(1)
                }
            }
        }
    }

    #[test]
    fn silence_between_records_is_fine_and_within_one_it_is_not() {
        let bytes = fragment(true, &CALL);
        let quiet = [None, None].into_iter().chain(bytes.iter().copied().map(Some));
        assert!(read(&mut Slow(quiet.collect()), 100).unwrap().is_some());
        for at in 1..bytes.len() {
            let mut steps: VecDeque<_> = bytes.iter().copied().map(Some).collect();
            steps.insert(at, None);
            let error = read(&mut Slow(steps), 100).unwrap_err();
            assert!(matches!(error, RecordError::Stalled), "{at}: {error}");
        }
    }
}
