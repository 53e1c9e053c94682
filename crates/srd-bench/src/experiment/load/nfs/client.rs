//! An NFS client for one file, which keeps several reads or several writes in flight.

use super::xdr;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Number of bytes of one read.
pub(super) const READ_BYTES: u32 = 256 << 10;
/// Number of reads that each connection keeps in flight.
const READS_OPEN: u64 = 16;
/// Longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Size of the writes, and number of writes in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writes {
    /// Number of bytes of one write.
    pub(super) bytes: usize,
    /// Number of writes in flight.
    pub(super) depth: usize,
}

/// A connection to a server, and the handle of the file.
pub(super) struct Client {
    stream: TcpStream,
    handle: Vec<u8>,
    xid: u32,
    reply: Vec<u8>,
}

impl Client {
    /// Connects to a server from the calling thread's namespace, and looks up the file at `path`.
    pub(super) fn connect(server: SocketAddr, path: &[&str]) -> Result<Client> {
        let stream = TcpStream::connect_timeout(&server, ANSWER_MAX)
            .with_context(|| format!("NFS server {server}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        let mut client = Client { stream, handle: Vec::new(), xid: 0, reply: Vec::new() };
        let call = xdr::lookup(client.next_xid(), path);
        client.call(&call)?;
        client.handle = xdr::handle(&client.reply, path.len()).context("lookup")?;
        Ok(client)
    }

    /// Reads the whole file repeatedly until `end`. Returns the number of bytes read after `from`.
    pub(super) fn read_until(
        &mut self,
        file_bytes: u64,
        from: Instant,
        end: Instant,
    ) -> Result<u64> {
        let (mut offset, mut open, mut counted) = (0, 0, 0u64);
        loop {
            let now = Instant::now();
            while open < READS_OPEN && now < end {
                let call = xdr::read(self.next_xid(), &self.handle, offset, READ_BYTES);
                self.stream.write_all(&call).context("a call")?;
                offset = (offset + u64::from(READ_BYTES)) % file_bytes;
                open += 1;
            }
            if open == 0 {
                return Ok(counted);
            }
            self.receive()?;
            open -= 1;
            let bytes = xdr::read_bytes(&self.reply).context("a read")? as u64;
            if bytes != u64::from(READ_BYTES) {
                bail!("a read of {READ_BYTES} bytes brought {bytes}");
            }
            let now = Instant::now();
            if now >= from && now < end {
                counted += bytes;
            }
        }
    }

    /// Writes the first half of the file repeatedly until `end`. Returns the duration of each
    /// write.
    pub(super) fn write_until(
        &mut self,
        writes: Writes,
        file_bytes: u64,
        end: Instant,
    ) -> Result<Vec<Duration>> {
        let data = vec![b'w'; writes.bytes];
        let (mut offset, mut open, mut took) = (0, BTreeMap::new(), Vec::new());
        loop {
            while open.len() < writes.depth && Instant::now() < end {
                let xid = self.next_xid();
                let call = xdr::write(xid, &self.handle, offset, &data);
                open.insert(xid, Instant::now());
                self.stream.write_all(&call).context("a call")?;
                offset = (offset + data.len() as u64) % (file_bytes / 2);
            }
            if open.is_empty() {
                return Ok(took);
            }
            self.receive()?;
            let begun = xdr::xid(&self.reply).and_then(|xid| open.remove(&xid));
            took.push(begun.context("a reply to no call")?.elapsed());
            let written = xdr::written_bytes(&self.reply).context("a write")?;
            if written != data.len() {
                bail!("of {} bytes only {written} were written", data.len());
            }
        }
    }

    fn next_xid(&mut self) -> u32 {
        self.xid = self.xid.wrapping_add(1);
        self.xid
    }

    fn call(&mut self, call: &[u8]) -> Result<()> {
        self.stream.write_all(call).context("a call")?;
        self.receive()
    }

    fn receive(&mut self) -> Result<()> {
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark).context("a reply")?;
        self.reply.resize(xdr::record_bytes(mark)?, 0);
        self.stream.read_exact(&mut self.reply).context("a reply")
    }
}
