//! The experiment `video`: sixty video frames a second over UDP, beside TCP traffic.

use crate::experiment::measure::frames::Frames;
use crate::experiment::measure::result::{Figure, Measured, Samples};
use crate::experiment::paths::limit::{FlowLimit, SCALE, flow_mbps};
use crate::experiment::{Case, Experiment, Options, Stage, Variant, describe, load::elephants};
use crate::tcp::sleep_until;
use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::net::sockopt;
use srd_lab::config::FabricConfig;
use srd_lab::id::{Family, HostId};
use srd_lab::priority;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub(super) const FROM: HostId = HostId { leaf: 0, host: 0 };
pub(super) const TO: HostId = HostId { leaf: 1, host: 0 };
/// UDP port of the receiver.
pub(super) const PORT: u16 = 5004;
pub(super) const FRAMES_PER_S: u32 = 60;
/// The video of the cases without a rate limit; each of its frames fills the link for some time.
const WIDE: Shape = Shape {
    name: "",
    frame_bytes: 125_000,
    datagram_bytes: DATAGRAM_BYTES,
    pace_mbps: 200,
    limited: false,
};
/// HD video, which a camera delivers with 3 Gb/s. The rate is divided by the same factor as the
/// rates of the links. The packets of a frame are sent at four fifths of the rate limit of one
/// plain flow, so HD exceeds neither this limit nor that of ENA Express.
pub(super) const HD: Shape = Shape {
    name: "HD ",
    frame_bytes: 31_250,
    datagram_bytes: DATAGRAM_BYTES,
    pace_mbps: 40,
    limited: true,
};
/// 4K video, with four times the bytes of HD: more than one plain flow may send, and less than one
/// flow may send with ENA Express. The pace within a frame is four fifths of Express's limit.
const UHD: Shape = Shape { name: "4K ", frame_bytes: 125_000, pace_mbps: 100, ..HD };
/// Payload of a datagram. It fits the MTU of the overlay and of the fabric, so that all variants
/// send the same datagrams.
const DATAGRAM_BYTES: usize = 8_800;
const RATE_MBPS: u32 = 250;
const QUEUE_BYTES: u32 = 100_000;
/// Real-time priority of the sending and the receiving thread.
const PRIORITY: u8 = 20;
/// Tolerated lateness of a frame, in seconds, before the interval from the previous frame counts as
/// a gap: sleeping threads wake up late.
const ALLOWANCE_S: f64 = 0.5e-3;
/// Time from the start of the TCP elephants (long flows) to the first frame: the elephants fill the
/// queues.
pub(super) const RAMP: Duration = Duration::from_secs(1);
/// Time from the last sent datagram to the end of the reception.
pub(super) const DRAIN: Duration = Duration::from_millis(500);
/// Size of the receiver's socket buffer. It can hold many frames, so that only the network loses
/// datagrams.
const BUFFER_BYTES: usize = 8 << 20;

/// The experiment `video`.
pub(in crate::experiment) const EXPERIMENT: Experiment = Experiment {
    name: "video",
    summary: "How many of 60 frames a second arrive whole and in time beside other traffic?",
    about: "A source sends 60 frames of 125 KB a second as UDP datagrams of 8,800 bytes, paced at \
            200 Mb/s within a frame, over links of 250 Mb/s. A frame is incomplete if a datagram \
            is missing, and late if it is whole more than 16.7 ms after it began to be sent. Gaps \
            count complete frames that come more than 16.7 ms (and half a millisecond) after the \
            last. Beside it 6 long TCP flows between other hosts of the same racks (collisions), \
            4 into the receiver's host (incast), or nothing (idle). The cases of HD and 4K stand \
            for 3 and 12 Gb/s, divided by 200 as the links of 50 Gb/s are: frames of 31 KB paced \
            at 40 Mb/s, and of 125 KB paced at 100 Mb/s. In these one flow may send what an \
            instance's may: 10 Gb/s in a placement group, 25 with ENA Express, here 50 and 125 \
            Mb/s. A packet waits 10 ms at most for that limit.",
    repetitions: 2,
    variants: crate::experiment::variant::USUAL,
    programs: |_| Vec::new(),
    cases,
};

/// Size and pace of the frames of a video with sixty frames per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) name: &'static str,
    pub(super) frame_bytes: usize,
    /// Payload of each datagram of a frame except the last, which may be shorter.
    pub(super) datagram_bytes: usize,
    /// Rate in Mb/s at which the datagrams of one frame are sent.
    pub(super) pace_mbps: u32,
    /// Whether the experiment limits the rate of each flow, as EC2 does.
    pub(super) limited: bool,
}

impl Shape {
    /// Number of datagrams of a frame.
    pub(super) fn packets(self) -> usize {
        self.frame_bytes.div_ceil(self.datagram_bytes)
    }
}

fn cases(options: &Options) -> Vec<Case> {
    let beside = [
        ("collisions", elephants::collisions()),
        ("incast", elephants::incast(TO)),
        ("idle", Vec::new()),
    ];
    let each = |shape: Shape| beside.clone().map(|(name, pairs)| (shape, name, pairs));
    let all = [WIDE, HD, UHD].into_iter().flat_map(each);
    let chosen = all.take(options.cases_or(1, usize::MAX));
    chosen.map(|(shape, name, pairs)| case(options, shape, name, pairs)).collect()
}

/// The fabric of the experiments with video: host links and uplinks have the same rate.
pub(super) fn fabric(options: &Options) -> FabricConfig {
    FabricConfig {
        spines: options.spines.unwrap_or(4),
        host_rate_mbps: RATE_MBPS,
        uplink_rate_mbps: RATE_MBPS,
        queue_bytes: QUEUE_BYTES,
        ..FabricConfig::default()
    }
}

fn case(options: &Options, shape: Shape, name: &str, pairs: Vec<(HostId, HostId)>) -> Case {
    let fabric = fabric(options);
    let seconds = options.seconds_or(60, 2);
    let Shape { frame_bytes, pace_mbps, .. } = shape;
    let limit = shape.limited.then(|| {
        format!(
            ", one flow at most {} Mb/s, {} with Express (rates divided by {SCALE})",
            flow_mbps(Variant::Plain),
            flow_mbps(Variant::Express)
        )
    });
    Case {
        name: format!("{}{name}", shape.name),
        setting: format!(
            "{FRAMES_PER_S} frames/s of {} KB paced at {pace_mbps} Mb/s for {seconds} s{}, {} \
             elephants; {}",
            frame_bytes / 1000,
            limit.unwrap_or_default(),
            pairs.len() * elephants::FLOWS_PER_PAIR,
            describe(&fabric)
        ),
        fabric,
        hosts: elephants::with_hosts(&[FROM, TO], &pairs),
        only: None,
        measure: Box::new(move |stage| measure(stage, shape, &pairs, seconds)),
    }
}

fn measure(
    stage: &Stage<'_>,
    shape: Shape,
    pairs: &[(HostId, HostId)],
    seconds: u64,
) -> Result<Measured> {
    let _limit = shape.limited.then(|| FlowLimit::set(stage, FROM)).transpose()?;
    let video = Video::new(stage, shape, SocketAddr::new(stage.address(TO)?, PORT), seconds)?;
    let (frames, elephants_mbps) = elephants::beside(stage, pairs, || {
        thread::sleep(RAMP);
        video.run()
    })?;
    let account = frames.account(ALLOWANCE_S);
    let share = |count: usize| 100.0 * count as f64 / account.sent.max(1) as f64;
    let packets = (account.sent * shape.packets()).max(1);
    let notes = (frames.twice() > 0).then(|| format!("{} datagrams came twice", frames.twice()));
    Ok(Measured {
        figures: vec![
            Figure::new("frames not whole in time", "%", share(account.incomplete + account.late))
                .beside(0.0, "none"),
            Figure::new("incomplete", "frames", account.incomplete as f64),
            Figure::new("late", "frames", account.late as f64),
            Figure::new("gaps", "frames", account.gaps as f64),
            Figure::new("sent", "frames", account.sent as f64),
            Figure::new("datagrams lost", "%", 100.0 * account.lost as f64 / packets as f64),
            Figure::new("elephants", "Mb/s", elephants_mbps),
        ],
        samples: vec![
            Samples { name: "frame delay", unit: "ms", values: account.delay_ms },
            Samples { name: "gap between frames", unit: "ms", values: account.gap_ms },
        ],
        notes: notes.into_iter().collect(),
        ..Measured::default()
    })
}

/// A source of frames in one host, and their receiver in another.
pub(super) struct Video {
    shape: Shape,
    pub(super) source: UdpSocket,
    pub(super) receiver: UdpSocket,
    /// Address to which the source sends the datagrams.
    pub(super) target: SocketAddr,
    frames: usize,
}

impl Video {
    /// Opens the sockets of a source that sends to `target`, and of a receiver.
    pub(super) fn new(
        stage: &Stage<'_>,
        shape: Shape,
        target: SocketAddr,
        seconds: u64,
    ) -> Result<Video> {
        let source_port = stage.first_port().and_then(|port| port.checked_sub(1)).unwrap_or(19_999);
        let source = stage.fabric.udp_socket(FROM, Family::V4, source_port)?;
        let receiver = stage.fabric.udp_socket(TO, Family::V4, PORT)?;
        sockopt::set_socket_recv_buffer_size_force(&receiver, BUFFER_BYTES)
            .context("SO_RCVBUFFORCE")?;
        let frames = usize::try_from(seconds * u64::from(FRAMES_PER_S))?;
        Ok(Video { shape, source, receiver, target, frames })
    }

    /// Sends all frames, and returns the record of the frames that arrived.
    pub(super) fn run(&self) -> Result<Frames> {
        let packets = u16::try_from(self.shape.packets())?;
        let frame_s = 1.0 / f64::from(FRAMES_PER_S);
        let frames = Mutex::new(Frames::new(self.frames, packets, frame_s));
        let over = AtomicBool::new(false);
        let start = Instant::now();
        thread::scope(|scope| {
            let receiver = scope.spawn(|| self.receive(&frames, start, &over));
            let source = scope.spawn(|| self.send(&frames, start));
            let sent = source.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            thread::sleep(DRAIN);
            over.store(true, Ordering::Release);
            let received = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            sent.context("source").and(received.context("receiver"))
        })?;
        frames.into_inner().map_err(|_| anyhow::anyhow!("a thread panicked"))
    }

    /// Sends the frames in real time. Each datagram carries the number of its frame and its
    /// position in the frame; the last datagram of a frame is shorter than the other datagrams.
    fn send(&self, frames: &Mutex<Frames>, start: Instant) -> Result<()> {
        let _fifo = priority::fifo(PRIORITY)?;
        let frame_time = Duration::from_secs(1) / FRAMES_PER_S;
        let datagram_bytes = self.shape.datagram_bytes;
        let bits = (datagram_bytes * 8) as f64;
        let spacing = Duration::from_secs_f64(bits / (f64::from(self.shape.pace_mbps) * 1e6));
        let mut datagram = vec![0u8; datagram_bytes];
        for (number, frame) in (0u32..).zip(0..self.frames) {
            let due = start + frame_time * number;
            sleep_until(due);
            frames.lock().map_err(poisoned)?.sent(frame, start.elapsed().as_secs_f64());
            for (packet, place) in (0u16..).zip(0..self.shape.packets()) {
                sleep_until(due + spacing * u32::from(packet));
                datagram[..4].copy_from_slice(&number.to_be_bytes());
                datagram[4..6].copy_from_slice(&packet.to_be_bytes());
                let bytes = datagram_bytes.min(self.shape.frame_bytes - place * datagram_bytes);
                match self.source.send_to(&datagram[..bytes], self.target) {
                    Ok(_) => {}
                    // The queue of the host's own interface is full: the datagram counts as lost,
                    // as if it was lost in the network.
                    Err(error) if Errno::from_io_error(&error) == Some(Errno::NOBUFS) => {}
                    Err(error) => return Err(error).context("send"),
                }
            }
        }
        Ok(())
    }

    fn receive(&self, frames: &Mutex<Frames>, start: Instant, over: &AtomicBool) -> Result<()> {
        let _fifo = priority::fifo(PRIORITY)?;
        self.receiver.set_read_timeout(Some(DRAIN / 5))?;
        let mut buffer = vec![0u8; self.shape.datagram_bytes + 1];
        while !over.load(Ordering::Acquire) {
            let bytes = match self.receiver.recv(&mut buffer) {
                Ok(bytes) => bytes,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    continue;
                }
                Err(error) => return Err(error).context("receive"),
            };
            let at_s = start.elapsed().as_secs_f64();
            let [a, b, c, d, e, f, ..] = buffer[..bytes] else { continue };
            let frame = usize::try_from(u32::from_be_bytes([a, b, c, d]))?;
            let packet = u16::from_be_bytes([e, f]);
            frames.lock().map_err(poisoned)?.arrived(frame, packet, at_s);
        }
        Ok(())
    }
}

fn poisoned<T>(_: std::sync::PoisonError<T>) -> anyhow::Error {
    anyhow::anyhow!("a thread panicked")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::measure::frames::PACKETS_MAX;

    #[test]
    fn four_k_is_four_times_hd_and_only_express_may_send_it_in_one_flow() {
        assert_eq!(UHD.frame_bytes, 4 * HD.frame_bytes);
        let mbps = |shape: Shape| shape.frame_bytes as f64 * 8.0 * f64::from(FRAMES_PER_S) / 1e6;
        let (plain, express) = (flow_mbps(Variant::Plain), flow_mbps(Variant::Express));
        // The camera delivers 3 and 12 Gb/s.
        let camera = |shape: Shape| mbps(shape) * f64::from(SCALE) / 1e3;
        assert!((camera(HD) - 3.0).abs() < 0.01 && (camera(UHD) - 12.0).abs() < 0.01);
        assert!(mbps(UHD) > f64::from(plain));
        assert!(HD.pace_mbps < plain && UHD.pace_mbps < express);
        for shape in [WIDE, HD, UHD] {
            assert!(shape.packets() <= PACKETS_MAX.into());
            // The last datagram is sent long before the frame would be late.
            let frame_ms = shape.frame_bytes as f64 * 8.0 / f64::from(shape.pace_mbps) / 1e3;
            assert!(frame_ms < 12.0, "{shape:?}: {frame_ms}");
        }
    }
}
