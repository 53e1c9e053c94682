//! From a queue of captured packets to a pcapng stream, until the capture ends.

use std::io::{self, Write};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::Filter;
use super::pcapng::Writer;
use super::tap::TapReader;

/// Longest wait for a packet; after it, the conditions that end a capture are checked again.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes that are gathered into one write while packets arrive fast.
const BATCH_BYTES: usize = 64 << 10;

/// Writes captured packets as pcapng to `to`. Ends when the count or the time of the filter is
/// reached, when all workers have ended, or when `is_over` returns true.
///
/// # Errors
/// If writing fails.
pub fn stream(
    reader: &mut TapReader,
    interface: &str,
    filter: &Filter,
    to: &mut impl Write,
    is_over: impl Fn() -> bool,
) -> io::Result<()> {
    let time_max = filter.time_ms.map_or(Duration::MAX, Duration::from_millis);
    let count_max = filter.count.unwrap_or(u64::MAX);
    let began = Instant::now();
    let mut writer = Writer::begin(interface, filter.layers, filter.snaplen);
    loop {
        to.write_all(&writer.take())?;
        let left = time_max.saturating_sub(began.elapsed());
        if left.is_zero() || writer.packets() >= count_max || is_over() {
            break;
        }
        match gather(reader, &mut writer, left.min(PAUSE), count_max) {
            Ok(()) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    writer.end(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX), reader.dropped());
    to.write_all(&writer.take())
}

/// Waits for a packet, then takes the packets that are already in the queues, until a batch is full
/// or `count_max` packets are written.
fn gather(
    reader: &mut TapReader,
    writer: &mut Writer,
    wait_max: Duration,
    count_max: u64,
) -> Result<(), RecvTimeoutError> {
    writer.packet(&reader.next(wait_max)?);
    while writer.packets() < count_max && writer.len() < BATCH_BYTES {
        match reader.next(Duration::ZERO) {
            Ok(packet) => writer.packet(&packet),
            Err(RecvTimeoutError::Timeout) => break,
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::copy::{Copied, copy};
    use super::super::tap::{Direction, Taps, tap};
    use super::*;
    use crate::capture::QUEUE_PACKETS_MAX;
    use crate::plane::PeerNumber;

    const NOW: srd_proto::Instant = srd_proto::Instant::ZERO;

    fn run(filter: &Filter, packets: usize) -> Copied {
        let (ends, mut reader) = tap(filter, None, 1);
        let mut taps = Taps::default();
        ends.into_iter().for_each(|tap| taps.add(tap));
        for _ in 0..packets {
            taps.inner(NOW, Direction::In, Some(PeerNumber(1)), &[0x45; 40]);
        }
        let mut bytes = Vec::new();
        stream(&mut reader, "srd0", filter, &mut bytes, || false).unwrap();
        copy(&mut &bytes[..], &mut Vec::new(), || false).unwrap()
    }

    #[test]
    fn a_capture_ends_at_its_count_or_at_its_time() {
        let filter = Filter { count: Some(3), ..Filter::default() };
        assert_eq!(run(&filter, 10), Copied { packets: 3, dropped: 0 });
        let filter = Filter { time_ms: Some(20), ..Filter::default() };
        assert_eq!(run(&filter, 10), Copied { packets: 10, dropped: 0 });
        // The time limit is longer than a busy machine needs to write a full queue.
        let filter = Filter { time_ms: Some(3000), ..Filter::default() };
        let over = run(&filter, QUEUE_PACKETS_MAX + 6);
        assert_eq!(over, Copied { packets: QUEUE_PACKETS_MAX as u64, dropped: 6 });
    }

    #[test]
    fn a_capture_ends_with_the_data_plane_and_with_its_reader() {
        let (taps, mut reader) = tap(&Filter::default(), None, 1);
        drop(taps);
        let mut bytes = Vec::new();
        stream(&mut reader, "srd0", &Filter::default(), &mut bytes, || false).unwrap();
        assert_eq!(copy(&mut &bytes[..], &mut Vec::new(), || false).unwrap(), Copied::default());
        let (_taps, mut reader) = tap(&Filter::default(), None, 1);
        stream(&mut reader, "srd0", &Filter::default(), &mut Vec::new(), || true).unwrap();
    }
}
