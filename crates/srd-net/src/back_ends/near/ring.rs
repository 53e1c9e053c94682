//! Packets from one process to another through shared memory: one process writes, the other process
//! reads.
//!
//! ```text
//!  0          64         128               192
//!  +----------+----------+-----------------+------------------------------------+
//!  | written  | read     | reader sleeps   | records, each a header of 16 bytes |
//!  +----------+----------+-----------------+------------------------------------+
//! ```
//!
//! `written` and `read` count bytes and wrap. A record is contiguous: if it does not fit before the
//! end of the ring, the writer puts a mark there and the record at the start. The reader checks
//! every value: an impossible count or length ends the ring. If the ring has no free space, the
//! writer drops the packet, as a full queue of a switch does.

use std::sync::atomic::{Ordering, fence};

use srd_proto::time::Instant;
use srd_proto::transmit::Ecn;

use crate::sys::shared::segment::Segment;

/// Bytes of a ring for records. This is enough for the packets that a sender has in flight while
/// the reader's processor core briefly runs another program.
pub(super) const RECORDS_BYTES: u32 = 1 << 20;
/// Bytes of a ring, including the counts before the records.
pub(super) const RING_BYTES: usize = RECORDS_AT + RECORDS_BYTES as usize;

const WRITTEN_AT: usize = 0;
const READ_AT: usize = 64;
const SLEEPS_AT: usize = 128;
const RECORDS_AT: usize = 192;
const HEADER_BYTES: u32 = 16;
/// Mark that the writer puts in place of a record's length: the next record is at the start of the
/// ring.
const AT_THE_START: u32 = u32::MAX;
/// Largest packet in a ring, in bytes: the largest payload of a UDP packet over IPv4.
pub(super) const PACKET_BYTES_MAX: u32 = 65_507;

/// Metadata that travels with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Beside {
    /// Source port that the packet would have as a UDP packet.
    pub(super) port: u16,
    pub(super) ecn: Ecn,
    /// Time when the packet was written, on the clock of the machine.
    pub(super) at: Instant,
}

/// Error: the other process has written a value that a correct writer never writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Broken;

/// The writing end of a ring.
#[derive(Debug)]
pub(super) struct Writer {
    segment: Segment,
    base: usize,
    written: u32,
    /// The reader's count of bytes, when the writer last read it from the memory.
    read: u32,
}

impl Writer {
    /// Returns the writer of the ring at offset `base` of a segment.
    pub(super) fn new(segment: Segment, base: usize) -> Self {
        Self { segment, base, written: 0, read: 0 }
    }

    /// Writes a packet, which the reader can take after [`Writer::publish`]. Returns `false` if
    /// there is too little free space, or if the packet is too long.
    pub(super) fn push(&mut self, beside: Beside, parts: [&[u8]; 2]) -> bool {
        let Ok(bytes) = u32::try_from(parts[0].len() + parts[1].len()) else { return false };
        if bytes > PACKET_BYTES_MAX {
            return false;
        }
        let needed = record_bytes(bytes);
        let to_end = RECORDS_BYTES - self.written % RECORDS_BYTES;
        let skipped = if needed > to_end { to_end } else { 0 };
        if !self.has_room(skipped + needed) {
            return false;
        }
        if skipped > 0 {
            self.segment.write(self.place(self.written), &AT_THE_START.to_ne_bytes());
        }
        let at = self.place(self.written.wrapping_add(skipped));
        let mut header = [0; HEADER_BYTES as usize];
        header[..4].copy_from_slice(&bytes.to_ne_bytes());
        header[4..6].copy_from_slice(&beside.port.to_ne_bytes());
        header[6] = match beside.ecn {
            Ecn::NotEct => 0,
            Ecn::Ect => 1,
            Ecn::Ce => 2,
        };
        header[8..].copy_from_slice(&beside.at.as_nanos().to_ne_bytes());
        self.segment.write(at, &header);
        let at = at + header.len();
        self.segment.write(at, parts[0]);
        self.segment.write(at + parts[0].len(), parts[1]);
        self.written = self.written.wrapping_add(skipped + needed);
        true
    }

    fn has_room(&mut self, bytes: u32) -> bool {
        let fits = |used: u32| used <= RECORDS_BYTES && bytes <= RECORDS_BYTES - used;
        if !fits(self.written.wrapping_sub(self.read)) {
            self.read = self.segment.word(self.base + READ_AT).load(Ordering::Acquire);
        }
        fits(self.written.wrapping_sub(self.read))
    }

    /// Makes all written packets visible to the reader. Returns whether the reader must be woken.
    pub(super) fn publish(&mut self) -> bool {
        self.segment.word(self.base + WRITTEN_AT).store(self.written, Ordering::Release);
        // The reader publishes that it will sleep, then checks for packets. The writer publishes
        // the packet, then checks whether the reader sleeps. So at least one side sees the write of
        // the other side.
        fence(Ordering::SeqCst);
        let sleeps = self.segment.word(self.base + SLEEPS_AT);
        sleeps.load(Ordering::Relaxed) != 0 && sleeps.swap(0, Ordering::Relaxed) != 0
    }

    fn place(&self, count: u32) -> usize {
        self.base + RECORDS_AT + (count % RECORDS_BYTES) as usize
    }
}

/// The reading end of a ring.
#[derive(Debug)]
pub(super) struct Reader {
    segment: Segment,
    base: usize,
    read: u32,
    /// The writer's count of bytes when its process ended; `None` while the process runs.
    end: Option<u32>,
}

impl Reader {
    /// Returns the reader of the ring at offset `base` of a segment.
    pub(super) fn new(segment: Segment, base: usize) -> Self {
        Self { segment, base, read: 0, end: None }
    }

    /// Whether the ring has no packet.
    pub(super) fn is_empty(&self) -> bool {
        self.written() == self.read
    }

    /// Limits reading to packets that were written before this call. Called when the writer's
    /// process has ended.
    pub(super) fn end(&mut self) {
        self.end = Some(self.written());
    }

    fn written(&self) -> u32 {
        let now = || self.segment.word(self.base + WRITTEN_AT).load(Ordering::Acquire);
        self.end.unwrap_or_else(now)
    }

    /// Takes the next packet, into `bytes`; `None` if the ring is empty.
    pub(super) fn pop(&mut self, bytes: &mut Vec<u8>) -> Result<Option<Beside>, Broken> {
        let mut there = self.written().wrapping_sub(self.read);
        if there == 0 {
            return Ok(None);
        }
        if there > RECORDS_BYTES || !there.is_multiple_of(8) {
            return Err(Broken);
        }
        let mut header = self.header();
        if length(&header) == AT_THE_START {
            let to_end = RECORDS_BYTES - self.read % RECORDS_BYTES;
            there = there.checked_sub(to_end).ok_or(Broken)?;
            self.read = self.read.wrapping_add(to_end);
            if there == 0 {
                return Err(Broken);
            }
            header = self.header();
        }
        let length = length(&header);
        let to_end = RECORDS_BYTES - self.read % RECORDS_BYTES;
        if length > PACKET_BYTES_MAX || record_bytes(length) > there.min(to_end) {
            return Err(Broken);
        }
        bytes.resize(length as usize, 0);
        self.segment.read(self.place() + HEADER_BYTES as usize, bytes);
        self.read = self.read.wrapping_add(record_bytes(length));
        let ecn = match header[6] {
            0 => Ecn::NotEct,
            1 => Ecn::Ect,
            2 => Ecn::Ce,
            _ => return Err(Broken),
        };
        let port = u16::from_ne_bytes([header[4], header[5]]);
        let mut at = [0; 8];
        at.copy_from_slice(&header[8..]);
        Ok(Some(Beside { port, ecn, at: Instant::from_nanos(u64::from_ne_bytes(at)) }))
    }

    /// Returns the space of the packets that were taken to the writer.
    pub(super) fn release(&self) {
        self.segment.word(self.base + READ_AT).store(self.read, Ordering::Release);
    }

    /// Sets whether the next packet wakes this end. The caller must check for a packet afterwards:
    /// a packet that was written before this call wakes no thread.
    pub(super) fn sleeps(&self, sleeps: bool) {
        self.segment.word(self.base + SLEEPS_AT).store(sleeps.into(), Ordering::Relaxed);
    }

    fn header(&self) -> [u8; HEADER_BYTES as usize] {
        // Offsets are multiples of eight. The last eight bytes before the end of the ring can hold
        // the mark but not a whole header.
        let mut header = [0; HEADER_BYTES as usize];
        let to_end = (RECORDS_BYTES - self.read % RECORDS_BYTES).min(HEADER_BYTES) as usize;
        self.segment.read(self.place(), &mut header[..to_end]);
        header
    }

    fn place(&self) -> usize {
        self.base + RECORDS_AT + (self.read % RECORDS_BYTES) as usize
    }
}

fn length(header: &[u8; HEADER_BYTES as usize]) -> u32 {
    u32::from_ne_bytes([header[0], header[1], header[2], header[3]])
}

/// Returns the length in bytes of the record for a packet of `packet_bytes` bytes.
fn record_bytes(packet_bytes: u32) -> u32 {
    HEADER_BYTES + packet_bytes.next_multiple_of(8)
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)] // the numbers are small, or random and may be cut
mod tests {
    use super::*;
    use srd_proto::rng::Rng;
    use std::collections::VecDeque;
    use std::os::fd::AsFd;

    fn ring() -> (Writer, Reader, Segment) {
        let (segment, file) = Segment::create(RING_BYTES + 64).unwrap();
        let again = || Segment::open(file.as_fd(), RING_BYTES + 64).unwrap();
        (Writer::new(again(), 64), Reader::new(again(), 64), segment)
    }

    fn beside(n: u64) -> Beside {
        let ecn = [Ecn::NotEct, Ecn::Ect, Ecn::Ce][(n % 3) as usize];
        Beside { port: n as u16, ecn, at: Instant::from_nanos(n) }
    }

    #[test]
    fn packets_of_all_sizes_arrive_in_their_order_and_unchanged() {
        let (mut writer, mut reader, _) = ring();
        let mut rng = Rng::new(1);
        let (mut waiting, mut bytes) = (VecDeque::new(), Vec::new());
        let (mut sent, mut refused, mut arrived) = (0, 0, 0);
        for n in 0..60_000_u64 {
            let length = match rng.next_u64() % 4 {
                0 => rng.next_u64() % 64,
                1 => rng.next_u64() % 9000,
                2 => rng.next_u64() % 1500,
                _ => rng.next_u64() % (u64::from(PACKET_BYTES_MAX) + 1),
            };
            let packet = vec![n as u8; length as usize];
            let cut = (rng.next_u64() % (length + 1)) as usize;
            if writer.push(beside(n), [&packet[..cut], &packet[cut..]]) {
                sent += 1;
                waiting.push_back((beside(n), packet));
            } else {
                refused += 1;
            }
            if !rng.next_u64().is_multiple_of(3) {
                writer.publish();
            }
            for _ in 0..rng.next_u64() % 3 {
                let Some(beside) = reader.pop(&mut bytes).unwrap() else { break };
                let (wanted, packet) = waiting.pop_front().unwrap();
                assert!(beside == wanted && bytes == packet, "packet {n}");
                arrived += 1;
                reader.release();
            }
        }
        assert!(arrived > 10_000 && refused > 100, "{sent} {refused} {arrived}");
    }

    #[test]
    fn a_full_ring_refuses_and_has_room_again_once_packets_were_taken() {
        let (mut writer, mut reader, _) = ring();
        let packet = vec![0; 9000];
        let held = (0..).take_while(|n| writer.push(beside(*n), [&packet, &[]])).count();
        assert_eq!(held, RECORDS_BYTES as usize / 9016);
        writer.publish();
        let mut bytes = Vec::new();
        assert!(reader.pop(&mut bytes).unwrap().is_some());
        assert!(!writer.push(beside(0), [&packet, &[]]), "the room is not given back yet");
        reader.release();
        while reader.pop(&mut bytes).unwrap().is_some() {}
        reader.release();
        assert!(writer.push(beside(0), [&packet, &[]]));
        assert!(!writer.push(beside(0), [&vec![0; 65_508], &[]]), "longer than a datagram");
    }

    #[test]
    fn a_reader_that_sleeps_is_woken_once() {
        let (mut writer, reader, _) = ring();
        assert!(!writer.publish());
        reader.sleeps(true);
        assert!(reader.is_empty());
        assert!(writer.push(beside(0), [b"x", &[]]));
        assert!(writer.publish());
        assert!(!writer.publish());
        assert!(!reader.is_empty());
    }

    /// Neither end panics or loops forever if the other process writes arbitrary bytes at arbitrary
    /// offsets.
    #[test]
    fn no_bytes_in_the_memory_make_either_end_panic_or_read_on_for_ever() {
        let mut broken = 0;
        for seed in 0..300 {
            let (mut writer, mut reader, segment) = ring();
            let mut rng = Rng::new(seed);
            let mut bytes = Vec::new();
            for n in 0..200 {
                writer.push(beside(n), [&vec![1; (rng.next_u64() % 3000) as usize], &[]]);
                writer.publish();
                let near = [0, 4, 64, 128, 192, 196, 200, 4096][(rng.next_u64() % 8) as usize];
                let value = match rng.next_u64() % 3 {
                    0 => AT_THE_START,
                    1 => (rng.next_u64() % 4096) as u32,
                    _ => rng.next_u64() as u32,
                };
                segment.write(64 + near, &value.to_ne_bytes());
                for _ in 0..RECORDS_BYTES {
                    match reader.pop(&mut bytes) {
                        Ok(None) => break,
                        Ok(Some(_)) => assert!(bytes.len() <= PACKET_BYTES_MAX as usize),
                        Err(Broken) => {
                            broken += 1;
                            break;
                        }
                    }
                    reader.release();
                }
            }
        }
        assert!(broken > 300, "{broken}");
    }
}
