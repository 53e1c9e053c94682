//! Copies a pcapng stream into a file. Only whole blocks are written, so that the file is valid at
//! whatever point the copying ends. Packets are counted for the final report.

use std::io::{self, Read, Write};

use srd_pcapng::{
    BLOCK_OVERHEAD_BYTES, PACKET, STATISTICS, STATISTICS_DROPPED, STATISTICS_HEAD_BYTES,
};

/// Largest accepted length of a pcapng block in bytes; a longer block is an error. The block of the
/// largest packet is shorter.
const BLOCK_BYTES_MAX: usize = 1 << 20;
/// Largest number of bytes of one read from the stream.
const READ_BYTES: usize = 64 << 10;

/// Numbers of packets that a capture wrote to the file, and of packets that it lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Copied {
    /// Packets that were written to the file.
    pub packets: u64,
    /// Packets that are missing in the file: the daemon dropped them because its queue was full.
    pub dropped: u64,
}

/// Copies pcapng blocks from `from` to `to` until `from` ends, or until `stop` returns true. `stop`
/// is called before each read.
///
/// A read that times out is not an error: after it, `stop` is called again.
///
/// # Errors
/// If reading or writing fails, or the stream is not pcapng.
pub fn copy(
    from: &mut impl Read,
    to: &mut impl Write,
    stop: impl Fn() -> bool,
) -> io::Result<Copied> {
    let (mut copied, mut waiting) = (Copied::default(), Vec::new());
    let mut buffer = vec![0; READ_BYTES];
    while !stop() {
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => waiting.extend(&buffer[..length]),
            Err(e) if is_pause(&e) => continue,
            Err(e) => return Err(e),
        }
        let whole = count_blocks(&waiting, &mut copied)?;
        to.write_all(&waiting[..whole])?;
        to.flush()?;
        waiting.drain(..whole);
    }
    Ok(copied)
}

fn is_pause(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

/// Counts the packets and drops in the whole blocks at the beginning of `bytes`, and adds them to
/// `copied`. Returns the length of these blocks in bytes; an incomplete block at the end is left.
fn count_blocks(bytes: &[u8], copied: &mut Copied) -> io::Result<usize> {
    let mut at = 0;
    while let Some([kind, length]) = head(&bytes[at..]) {
        let length = length as usize;
        if !(BLOCK_OVERHEAD_BYTES..=BLOCK_BYTES_MAX).contains(&length) || !length.is_multiple_of(4)
        {
            let text = "the daemon sent something that is no capture";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let Some(block) = bytes.get(at..at + length) else { break };
        match kind {
            PACKET => copied.packets += 1,
            STATISTICS => copied.dropped += dropped(block),
            _ => {}
        }
        at += length;
    }
    Ok(at)
}

fn head(bytes: &[u8]) -> Option<[u32; 2]> {
    let (kind, rest) = bytes.split_first_chunk()?;
    Some([u32::from_le_bytes(*kind), u32::from_le_bytes(*rest.first_chunk()?)])
}

/// Returns the number of dropped packets that an interface statistics block contains; 0 if it
/// contains no such option.
fn dropped(block: &[u8]) -> u64 {
    let mut options = block.get(STATISTICS_HEAD_BYTES..).unwrap_or_default();
    while let Some([a, b, c, d]) = options.first_chunk() {
        let (code, length) = (u16::from_le_bytes([*a, *b]), u16::from_le_bytes([*c, *d]));
        let value = options.get(4..).unwrap_or_default();
        if code == STATISTICS_DROPPED {
            return value.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        }
        if code == 0 {
            break;
        }
        options = value.get(usize::from(length).next_multiple_of(4)..).unwrap_or_default();
    }
    0
}

#[cfg(test)]
mod tests {
    use super::super::Layers;
    use super::super::pcapng::Writer;
    use super::super::tap::{Direction, Packet};
    use super::*;

    fn file(packets: u8, dropped: [u64; 2]) -> Vec<u8> {
        let mut writer = Writer::begin("srd0", Layers::Both, 100);
        for n in 0..packets {
            let bytes = vec![n; n.into()];
            let (is_outer, direction, time_ns, length) = (n % 2 == 0, Direction::In, 1, n.into());
            writer.packet(&Packet { is_outer, direction, time_ns, length, bytes });
        }
        writer.end(2, dropped);
        writer.take()
    }

    /// A reader that returns a few bytes at a time, with a time-out between every two reads.
    struct Drip<'a>(&'a [u8], bool);

    impl Read for Drip<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let length = self.0.len().min(7);
            self.0.read(&mut into[..length])
        }
    }

    #[test]
    fn a_stream_arrives_whole_and_its_figures_are_known() {
        let whole = file(20, [3, 4]);
        let mut copy_of = Vec::new();
        let copied = copy(&mut Drip(&whole, false), &mut copy_of, || false).unwrap();
        assert_eq!(copied, Copied { packets: 20, dropped: 7 });
        assert_eq!(copy_of, whole);
    }

    #[test]
    fn a_stream_that_breaks_off_leaves_whole_blocks() {
        let whole = file(20, [0, 0]);
        for cut in (0..whole.len()).step_by(5) {
            let mut copy_of = Vec::new();
            copy(&mut &whole[..cut], &mut copy_of, || false).unwrap();
            let mut copied = Copied::default();
            assert_eq!(count_blocks(&copy_of, &mut copied).unwrap(), copy_of.len());
            assert!(copy_of.len() <= cut);
        }
    }

    #[test]
    fn what_is_no_capture_is_refused_and_stopping_stops() {
        let error = copy(&mut &b"{\"error\":\"no such thing\"}"[..], &mut Vec::new(), || false);
        assert!(error.unwrap_err().to_string().contains("no capture"));
        let copied = copy(&mut &file(3, [0, 0])[..], &mut Vec::new(), || true).unwrap();
        assert_eq!(copied, Copied::default());
    }
}
