//! The experiment `video-srt`: video frames over a path with losses, as plain UDP, as plain UDP
//! over ENA Express, and by the protocols SRT and RIST between two gateways.
//!
//! SRT (Secure Reliable Transport) and RIST (Reliable Internet Stream Transport) carry video
//! reliably without Express. An application has to use them by name: here a gateway in the sender's
//! host takes the datagrams of the source and sends them by such a protocol, and a gateway in the
//! receiver's host gives them to the receiver. The gateways are programs of Debian.

use super::video::{DRAIN, FRAMES_PER_S, FROM, HD, PORT, RAMP, Shape, TO, Video, fabric};
use crate::experiment::load::elephants;
use crate::experiment::measure::frames::{Account, Frames};
use crate::experiment::measure::programs::{self, Program};
use crate::experiment::measure::result::{Figure, Measured, Samples};
use crate::experiment::{Case, Experiment, Options, Stage, Variant, describe};
use anyhow::{Context, Result, bail};
use srd_lab::id::{HostId, Network};
use srd_lab::running::Running;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

/// Program of both gateways of SRT.
const SRT: Program = Program { name: "srt-live-transmit", package: "srt-tools" };
/// Programs of the gateways of RIST, beside the source and beside the receiver.
const RIST: [Program; 2] = [
    Program { name: "ristsender", package: "rist-tools" },
    Program { name: "ristreceiver", package: "rist-tools" },
];
/// UDP port at which the gateway beside the source takes datagrams.
const TAKEN_PORT: u16 = 5006;
/// UDP port of the protocol at the gateway beside the receiver.
const GATEWAY_PORT: u16 = 5008;
/// Default latency of SRT in milliseconds, also set for RIST, whose default is a second: the time
/// from the arrival of a packet at the first gateway until the second one gives it away. Lost
/// packets are sent again within this time.
const LATENCY_MS: u32 = 120;
/// Payload of a datagram: the largest that a live stream of SRT carries by default.
const DATAGRAM_BYTES: usize = 1_316;
/// Number of lost packets per thousand at every spine, in the cases with loss.
const LOSS_PERMILLE: u16 = 10;
/// Longest wait until the first datagram has passed both gateways.
const OPEN_MAX: Duration = Duration::from_secs(30);
/// Time between two datagrams that test whether the path is open.
const PROBE: Duration = Duration::from_millis(50);
/// Number of a frame in a datagram that tests the path. No frame of a run has this number.
const NO_FRAME: u32 = u32::MAX;
/// Frames of HD video without a limit of the flow's rate.
const SMALL_HD: Shape = Shape { name: "", datagram_bytes: DATAGRAM_BYTES, limited: false, ..HD };

/// The experiment `video-srt`.
pub(in crate::experiment) const EXPERIMENT: Experiment = Experiment {
    name: "video-srt",
    summary: "Does plain UDP over ENA Express carry video as completely as SRT and RIST do?",
    about: "A source sends 60 frames of 31 KB a second as UDP datagrams of 1,316 bytes, paced at \
            40 Mb/s within a frame, over links of 250 Mb/s: with 1 % of the packets lost at every \
            spine, or beside 6 long TCP flows between other hosts of the same racks (collisions). \
            In the cases of SRT and RIST the source sends to a gateway of its own host \
            (srt-live-transmit, ristsender), which sends to another one beside the receiver by \
            that protocol with a latency of 120 ms, the default of SRT. A frame misses its turn \
            if it is incomplete, or complete more than 16.7 ms after the least delay of all \
            frames of the run: a player that waits for the usual delay has to show the next frame \
            by then.",
    repetitions: 2,
    variants: crate::experiment::variant::USUAL,
    programs: |_| [&[SRT][..], &RIST].concat(),
    cases,
};

/// Cause of losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Loss,
    Collisions,
}

/// Protocol of the gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gateway {
    Srt,
    Rist,
}

impl Gateway {
    fn name(self) -> &'static str {
        match self {
            Self::Srt => "SRT",
            Self::Rist => "RIST",
        }
    }

    /// Programs of the gateways beside the source and beside the receiver.
    fn programs(self) -> [Program; 2] {
        match self {
            Self::Srt => [SRT; 2],
            Self::Rist => RIST,
        }
    }

    /// Arguments of the programs, if the gateway beside the receiver has the address `to`.
    fn arguments(self, to: IpAddr) -> [Vec<String>; 2] {
        match self {
            Self::Srt => {
                let of = |from: String, to: String| {
                    let chunk = format!("-chunk:{DATAGRAM_BYTES}");
                    vec![chunk, "-loglevel:error".into(), from, to]
                };
                let latency = format!("latency={LATENCY_MS}");
                let calls = format!("srt://{to}:{GATEWAY_PORT}?mode=caller&{latency}");
                let listens = format!("srt://:{GATEWAY_PORT}?mode=listener&{latency}");
                [
                    of(format!("udp://:{TAKEN_PORT}"), calls),
                    of(listens, format!("udp://127.0.0.1:{PORT}")),
                ]
            }
            Self::Rist => {
                // Messages are warnings and errors; there are no statistics.
                let of = |from: String, to: String| {
                    let words = ["-S", "0", "-v", "4", "-i", &from, "-o", &to];
                    words.map(String::from).to_vec()
                };
                let at = |host: &str| format!("rist://{host}:{GATEWAY_PORT}?buffer={LATENCY_MS}");
                [
                    of(format!("udp://@127.0.0.1:{TAKEN_PORT}"), at(&to.to_string())),
                    of(at("@0.0.0.0"), format!("udp://127.0.0.1:{PORT}")),
                ]
            }
        }
    }
}

fn cases(options: &Options) -> Vec<Case> {
    let ways = [None, Some(Gateway::Srt), Some(Gateway::Rist)];
    let each = |trouble| ways.map(|gateway| case(options, trouble, gateway));
    let all = [Trouble::Loss, Trouble::Collisions].into_iter().flat_map(each);
    all.take(options.cases_or(ways.len(), usize::MAX)).collect()
}

fn case(options: &Options, trouble: Trouble, gateway: Option<Gateway>) -> Case {
    let fabric = fabric(options);
    let seconds = options.seconds_or(60, 2);
    let (name, what, pairs) = match trouble {
        Trouble::Loss => ("1 % loss", "1 % of the packets lost at every spine", Vec::new()),
        Trouble::Collisions => ("collisions", "6 elephants", elephants::collisions()),
    };
    let Shape { frame_bytes, pace_mbps, .. } = SMALL_HD;
    let protocol = gateway.map(Gateway::name);
    let by = protocol.map(|one| format!(", by {one} between two gateways")).unwrap_or_default();
    Case {
        name: match protocol {
            Some(protocol) => format!("{name}, {protocol}"),
            None => name.into(),
        },
        setting: format!(
            "{FRAMES_PER_S} frames/s of {} KB paced at {pace_mbps} Mb/s for {seconds} s{by}, \
             {what}; {}",
            frame_bytes / 1000,
            describe(&fabric)
        ),
        fabric,
        hosts: elephants::with_hosts(&[FROM, TO], &pairs),
        only: gateway.map(|_| Variant::Plain),
        measure: Box::new(move |stage| measure(stage, trouble, gateway, &pairs, seconds)),
    }
}

fn measure(
    stage: &Stage<'_>,
    trouble: Trouble,
    gateway: Option<Gateway>,
    pairs: &[(HostId, HostId)],
    seconds: u64,
) -> Result<Measured> {
    let _gateways = gateway.map(|gateway| gateways(stage, gateway)).transpose()?;
    let target = match gateway {
        Some(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, TAKEN_PORT)),
        None => SocketAddr::new(stage.address(TO)?, PORT),
    };
    let video = Video::new(stage, SMALL_HD, target, seconds)?;
    wait_until_open(&video).with_context(|| {
        let ends = [FROM, TO].into_iter().zip(gateway.into_iter().flat_map(Gateway::programs));
        let said = ends.map(|(host, program)| programs::complaint(stage, host, program.name));
        format!("gateways: {}", said.collect::<Vec<_>>().join("; "))
    })?;
    let (frames, elephants_mbps) = match trouble {
        Trouble::Loss => (with_loss(stage, || video.run())?, 0.0),
        Trouble::Collisions => elephants::beside(stage, pairs, || {
            thread::sleep(RAMP);
            video.run()
        })?,
    };
    Ok(measured(&frames, elephants_mbps))
}

/// Calls `work` while every spine loses packets.
fn with_loss<T>(stage: &Stage<'_>, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let every = |permille| {
        (0..stage.fabric.config().spines).try_for_each(|spine| stage.fabric.loss(spine, permille))
    };
    every(LOSS_PERMILLE)?;
    let done = work();
    every(0)?;
    done
}

/// Starts the gateways, the one beside the receiver first.
fn gateways(stage: &Stage<'_>, gateway: Gateway) -> Result<[Running; 2]> {
    let to = stage.fabric.address_in(TO, Network::V4)?;
    let start = |host, program: Program, arguments: Vec<String>| {
        let mut command = programs::command(stage, program)?;
        programs::start(stage, host, program.name, command.args(arguments))
    };
    let [source, receiver] = gateway.programs();
    let [of_source, of_receiver] = gateway.arguments(to);
    let receiver = start(TO, receiver, of_receiver)?;
    Ok([start(FROM, source, of_source)?, receiver])
}

/// Sends datagrams until one arrives at the receiver.
fn wait_until_open(video: &Video) -> Result<()> {
    let deadline = Instant::now() + OPEN_MAX;
    let mut probe = [0; 6];
    probe[..4].copy_from_slice(&NO_FRAME.to_be_bytes());
    video.receiver.set_read_timeout(Some(PROBE))?;
    while Instant::now() < deadline {
        video.source.send_to(&probe, video.target).context("send")?;
        match video.receiver.recv(&mut [0; 6]) {
            Ok(_) => {
                thread::sleep(DRAIN);
                return Ok(());
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error).context("receive"),
        }
    }
    bail!("no datagram arrived within {OPEN_MAX:?}")
}

/// Number of frames that missed their turn: incomplete frames, and frames whose delay exceeds the
/// least delay of all frames by more than the time of a frame.
fn missed(account: &Account) -> usize {
    let least_ms = account.delay_ms.iter().copied().fold(f64::INFINITY, f64::min);
    let frame_ms = 1e3 / f64::from(FRAMES_PER_S);
    let behind = account.delay_ms.iter().filter(|delay_ms| **delay_ms > least_ms + frame_ms);
    account.incomplete + behind.count()
}

fn measured(frames: &Frames, elephants_mbps: f64) -> Measured {
    let account = frames.account(0.0);
    let share = |count: usize| 100.0 * count as f64 / account.sent.max(1) as f64;
    Measured {
        figures: vec![
            Figure::new("frames that missed their turn", "%", share(missed(&account)))
                .beside(0.0, "none"),
            Figure::new("incomplete", "frames", account.incomplete as f64),
            Figure::new("sent", "frames", account.sent as f64),
            Figure::new("datagrams lost", "", account.lost as f64),
            Figure::new("elephants", "Mb/s", elephants_mbps),
        ],
        samples: vec![Samples { name: "frame delay", unit: "ms", values: account.delay_ms }],
        ..Measured::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_delay_is_no_miss_and_a_frame_that_is_late_by_a_frame_is() {
        let mut frames = Frames::new(4, 1, 1.0 / f64::from(FRAMES_PER_S));
        for (frame, delay_s) in [(0, 0.120), (1, 0.125), (2, 0.140)] {
            frames.sent(frame, 1.0);
            frames.arrived(frame, 0, 1.0 + delay_s);
        }
        frames.sent(3, 1.0);
        assert_eq!(missed(&frames.account(0.0)), 2, "the third is late, the fourth incomplete");
    }

    #[test]
    fn only_plain_is_carried_by_gateways() {
        let quick = Options { quick: true, ..crate::experiment::tests::options() };
        let only = |case: &Case| (case.name.clone(), case.only);
        let cases: Vec<_> = cases(&quick).iter().map(only).collect();
        let by = |protocol| (format!("1 % loss, {protocol}"), Some(Variant::Plain));
        assert_eq!(cases, [("1 % loss".to_owned(), None), by("SRT"), by("RIST")]);
    }

    #[test]
    fn gateways_of_each_protocol_meet_at_one_port_with_one_latency() {
        let to = IpAddr::from([10, 0, 0, 7]);
        let words = |gateway: Gateway| gateway.arguments(to).map(|words| words.join(" "));
        assert_eq!(
            words(Gateway::Srt),
            [
                "-chunk:1316 -loglevel:error udp://:5006 \
                 srt://10.0.0.7:5008?mode=caller&latency=120",
                "-chunk:1316 -loglevel:error srt://:5008?mode=listener&latency=120 \
                 udp://127.0.0.1:5004",
            ]
        );
        assert_eq!(
            words(Gateway::Rist),
            [
                "-S 0 -v 4 -i udp://@127.0.0.1:5006 -o rist://10.0.0.7:5008?buffer=120",
                "-S 0 -v 4 -i rist://@0.0.0.0:5008?buffer=120 -o udp://127.0.0.1:5004",
            ]
        );
    }
}
