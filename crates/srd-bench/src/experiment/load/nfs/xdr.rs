//! The calls and replies of NFS 4.0 (RFC 7530) that are necessary to read and write one file, in
//! the format of ONC RPC (RFC 5531).
//!
//! ```text
//!   record   1 bit last | 31 bits length
//!   call     xid | 0 call | 2 | program 100003 | version 4 | 1 COMPOUND | AUTH_SYS | AUTH_NONE
//!            tag | minor version 0 | operations: code, arguments
//!   reply    xid | 1 reply | 0 accepted | verifier | 0 success
//!            status | tag | results: code, status, results
//! ```
//!
//! All fields are multiples of four bytes, big-endian. Data is read and written with the anonymous
//! state id (all zeros), for which a client need neither register nor open the file.

use anyhow::{Context, Result, bail};

/// Largest number of bytes of a reply that is accepted.
const RECORD_BYTES_MAX: usize = 8 << 20;
const LAST_FRAGMENT: u32 = 1 << 31;
const PROGRAM: u32 = 100_003;
const OP_GETFH: u32 = 10;
const OP_LOOKUP: u32 = 15;
const OP_PUTFH: u32 = 22;
const OP_PUTROOTFH: u32 = 24;
const OP_READ: u32 = 25;
const OP_WRITE: u32 = 38;
/// Value of `stable_how`: the server writes the data to stable storage before it answers.
const FILE_SYNC: u32 = 2;

/// A call that is being built. The length at its beginning is filled in last.
struct Call {
    bytes: Vec<u8>,
}

impl Call {
    fn new(xid: u32, operations: u32) -> Call {
        let mut call = Call { bytes: vec![0; 4] };
        for word in [xid, 0, 2, PROGRAM, 4, 1] {
            call.word(word);
        }
        // Credentials of type AUTH_SYS: stamp, machine name, user, group, and no further groups.
        for word in [1, 20, 0, 0, 0, 0, 0] {
            call.word(word);
        }
        // Verifier of type AUTH_NONE, an empty tag, the minor version, and the number of
        // operations.
        for word in [0, 0, 0, 0, operations] {
            call.word(word);
        }
        call
    }

    fn word(&mut self, word: u32) {
        self.bytes.extend_from_slice(&word.to_be_bytes());
    }

    fn long(&mut self, long: u64) {
        self.bytes.extend_from_slice(&long.to_be_bytes());
    }

    fn opaque(&mut self, data: &[u8]) {
        self.word(u32::try_from(data.len()).expect("data of one call is small"));
        self.bytes.extend_from_slice(data);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn anonymous_state(&mut self) {
        (0..4).for_each(|_| self.word(0));
    }

    fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len() - 4).expect("a call is small");
        self.bytes[..4].copy_from_slice(&(length | LAST_FRAGMENT).to_be_bytes());
        self.bytes
    }
}

/// Returns a call that requests the handle of a file; `path` leads to it from the root.
pub(super) fn lookup(xid: u32, path: &[&str]) -> Vec<u8> {
    let names = u32::try_from(path.len()).expect("a short path");
    let mut call = Call::new(xid, names + 2);
    call.word(OP_PUTROOTFH);
    for name in path {
        call.word(OP_LOOKUP);
        call.opaque(name.as_bytes());
    }
    call.word(OP_GETFH);
    call.finish()
}

/// Returns a call that reads `count` bytes of a file.
pub(super) fn read(xid: u32, handle: &[u8], offset: u64, count: u32) -> Vec<u8> {
    let mut call = Call::new(xid, 2);
    call.word(OP_PUTFH);
    call.opaque(handle);
    call.word(OP_READ);
    call.anonymous_state();
    call.long(offset);
    call.word(count);
    call.finish()
}

/// Returns a call that writes data into a file, and to stable storage.
pub(super) fn write(xid: u32, handle: &[u8], offset: u64, data: &[u8]) -> Vec<u8> {
    let mut call = Call::new(xid, 2);
    call.word(OP_PUTFH);
    call.opaque(handle);
    call.word(OP_WRITE);
    call.anonymous_state();
    call.long(offset);
    call.word(FILE_SYNC);
    call.opaque(data);
    call.finish()
}

/// Returns the length of a reply from the four bytes before it. A reply in several fragments is an
/// error.
pub(super) fn record_bytes(mark: [u8; 4]) -> Result<usize> {
    let mark = u32::from_be_bytes(mark);
    let bytes = usize::try_from(mark & !LAST_FRAGMENT)?;
    if mark & LAST_FRAGMENT == 0 || bytes > RECORD_BYTES_MAX {
        bail!("a reply in fragments, or of {bytes} bytes");
    }
    Ok(bytes)
}

/// The part of a reply that has not been read yet.
struct Reply<'a>(&'a [u8]);

impl<'a> Reply<'a> {
    fn word(&mut self) -> Result<u32> {
        let (word, rest) = self.0.split_first_chunk().context("a reply ends too early")?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*word))
    }

    fn opaque(&mut self) -> Result<&'a [u8]> {
        let length = usize::try_from(self.word()?)?;
        let padded = length.checked_next_multiple_of(4).context("a length is too large")?;
        if padded > self.0.len() {
            bail!("a reply ends too early");
        }
        let (data, rest) = self.0.split_at(padded);
        self.0 = rest;
        Ok(&data[..length])
    }

    fn expect(&mut self, wanted: u32, what: &str) -> Result<()> {
        let word = self.word()?;
        if word != wanted {
            bail!("{what} is {word}, not {wanted}");
        }
        Ok(())
    }

    /// Reads the fields before the results of the operations. Returns an error if the call failed.
    fn open(bytes: &'a [u8]) -> Result<Reply<'a>> {
        let mut reply = Reply(bytes);
        reply.word()?; // xid: replies of one file need not be told apart
        reply.expect(1, "the kind of a message")?;
        reply.expect(0, "the acceptance of a call")?;
        reply.word()?;
        reply.opaque()?;
        reply.expect(0, "the success of a call")?;
        reply.expect(0, "the status of NFS")?;
        reply.opaque()?;
        reply.word()?;
        Ok(reply)
    }

    fn result(&mut self, operation: u32) -> Result<()> {
        self.expect(operation, "the operation of a result")?;
        self.expect(0, "the status of an operation")
    }
}

/// Returns the transaction number at the beginning of a reply; `None` if the reply is too short.
pub(super) fn xid(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|xid| u32::from_be_bytes(*xid))
}

/// Returns the file handle in the reply to a call of [`lookup`] with a path of `names` names.
pub(super) fn handle(bytes: &[u8], names: usize) -> Result<Vec<u8>> {
    let mut reply = Reply::open(bytes)?;
    reply.result(OP_PUTROOTFH)?;
    (0..names).try_for_each(|_| reply.result(OP_LOOKUP))?;
    reply.result(OP_GETFH)?;
    reply.opaque().map(<[u8]>::to_vec)
}

/// Returns the number of bytes that the reply to a call of [`read`] contains.
pub(super) fn read_bytes(bytes: &[u8]) -> Result<usize> {
    let mut reply = Reply::open(bytes)?;
    reply.result(OP_PUTFH)?;
    reply.result(OP_READ)?;
    reply.word()?; // end of file
    reply.opaque().map(<[u8]>::len)
}

/// Returns the number of written bytes, from the reply to a call of `write`.
pub(super) fn written_bytes(bytes: &[u8]) -> Result<usize> {
    let mut reply = Reply::open(bytes)?;
    reply.result(OP_PUTFH)?;
    reply.result(OP_WRITE)?;
    Ok(usize::try_from(reply.word()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    /// A reply up to the first result: xid, reply, accepted, empty verifier, success, status, empty
    /// tag, two results, PUTFH.
    const OPENED: [u32; 11] = [7, 1, 0, 0, 0, 0, 0, 0, 2, OP_PUTFH, 0];

    #[test]
    fn a_call_says_its_length_and_is_padded() {
        let call = read(9, b"handle!", 4096, 512);
        let length = record_bytes(call[..4].try_into().unwrap()).unwrap();
        assert_eq!(length, call.len() - 4);
        assert_eq!(call.len() % 4, 0);
        assert_eq!(call[4..8], 9u32.to_be_bytes());
        // The operation PUTFH has a handle of seven bytes and one byte of padding; the operation
        // READ follows.
        let handle = call.windows(7).position(|bytes| bytes == b"handle!").unwrap();
        assert_eq!(call[handle + 8..handle + 12], OP_READ.to_be_bytes());
        assert_eq!(call[call.len() - 4..], 512u32.to_be_bytes());
    }

    #[test]
    fn data_of_a_read_is_counted_without_its_padding() {
        let reply = [words(&OPENED), words(&[OP_READ, 0, 1, 5]), b"helloxxx".to_vec()].concat();
        assert_eq!(read_bytes(&reply).unwrap(), 5);
        for cut in 0..reply.len() {
            assert!(read_bytes(&reply[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn results_are_read_in_their_order() {
        let reply = [words(&OPENED), words(&[OP_WRITE, 0, 1024, 2, 0, 0])].concat();
        assert_eq!(written_bytes(&reply).unwrap(), 1024);
        assert!(read_bytes(&reply).is_err(), "not a read");
        let found = [7, 1, 0, 0, 0, 0, 0, 0, 3, OP_PUTROOTFH, 0, OP_LOOKUP, 0, OP_GETFH, 0, 4];
        let reply = [words(&found), b"abcd".to_vec()].concat();
        assert_eq!(handle(&reply, 1).unwrap(), b"abcd");
    }

    #[test]
    fn errors_and_nonsense_are_errors() {
        let refused = [7, 1, 0, 0, 0, 0, 13];
        let error = read_bytes(&words(&refused)).expect_err("refused").to_string();
        assert_eq!(error, "the status of NFS is 13, not 0");
        let huge = [7, 1, 0, 0, u32::MAX];
        assert!(read_bytes(&words(&huge)).is_err());
        assert!(record_bytes([0, 0, 0, 8]).is_err(), "a fragment");
        assert!(record_bytes([255; 4]).is_err(), "too large");
    }
}
