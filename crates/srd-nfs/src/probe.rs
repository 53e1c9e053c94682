//! One NULL call (RFC 5531, section 12), which checks whether an NFS server answers at a target.

use std::io::BufReader;
use std::net::Shutdown;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::dial::Dialer;
use crate::limits::HANDSHAKE_WAIT_MAX;
use crate::record::{self, Record, RecordError};

/// RPC program number of NFS.
const NFS: u32 = 100_003;
/// Largest number of bytes of a reply; a reply to NULL is shorter.
const REPLY_BYTES_MAX: usize = 4096;
/// Transaction number of the call; any number would do.
const XID: u32 = 0x7372_6400;

/// Sends a NULL call, in version 4. The whole answer must arrive within [`HANDSHAKE_WAIT_MAX`].
///
/// # Errors
/// A text for the user, if there is no connection, no answer in time, or an answer that is not of
/// an NFS server.
pub fn null_call(dialer: &Dialer) -> Result<()> {
    null_call_within(dialer, HANDSHAKE_WAIT_MAX)
}

/// Sends a NULL call as [`null_call`] does, with another time limit for the answer.
///
/// # Errors
/// The errors of [`null_call`].
pub fn null_call_within(dialer: &Dialer, wait: Duration) -> Result<()> {
    let link = dialer.connect()?;
    let socket = link.socket()?;
    socket.set_read_timeout(Some(wait))?;
    let (done, waits) = mpsc::channel::<()>();
    thread::Builder::new().name("srd-nfs-probe".to_owned()).spawn(move || {
        // The time limit covers the whole answer: a server that sends one byte at a time would
        // otherwise delay the end without limit.
        if waits.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    })?;
    let (from, mut to) = link.split();
    // Fields: xid, call, RPC version, program, version, NULL, no credentials, no verifier.
    let call = [XID, 0, 2, NFS, 4, 0, 0, 0, 0, 0];
    let call: Vec<u8> = call.into_iter().flat_map(u32::to_be_bytes).collect();
    to.send(Record::of(&call).expect("a call is a message").bytes())?;
    let target = &dialer.target;
    let reply = match record::read(&mut Once(BufReader::new(from)), REPLY_BYTES_MAX) {
        Ok(reply) => reply.with_context(|| {
            format!("{target} ended the connection: is an NFS server running behind it?")
        })?,
        Err(RecordError::Stalled | RecordError::Cut) => {
            bail!("{target} does not answer: is an NFS server running behind it?")
        }
        Err(error) => return Err(error).with_context(|| target.to_string()),
    };
    to.finish();
    drop(done);
    // Fields: xid, reply, accepted, an empty verifier, success.
    let accepted = [XID, 1, 0, 0, 0, 0];
    let accepted: Vec<u8> = accepted.into_iter().flat_map(u32::to_be_bytes).collect();
    if reply.message() != accepted {
        bail!("{target} is no server of NFS version 4");
    }
    Ok(())
}

/// A stream that turns a read timeout or a reset into the error `UnexpectedEof`. Without it, the
/// reader of records would continue to wait after a timeout before the first byte of a record.
struct Once<R>(R);

impl<R: std::io::Read> std::io::Read for Once<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        use std::io::ErrorKind::{
            BrokenPipe, ConnectionReset, TimedOut, UnexpectedEof, WouldBlock,
        };
        self.0.read(into).map_err(|error| match error.kind() {
            WouldBlock | TimedOut | ConnectionReset | BrokenPipe => UnexpectedEof.into(),
            _ => error,
        })
    }
}
