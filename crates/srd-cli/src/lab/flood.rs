//! `srd lab flood`: sends handshake packets of unknown hosts at a given rate. It has no use except
//! in the experiment `flood`.
//!
//! All packets are generated before the first packet is sent, so that the key exchange of the
//! generator does not limit the rate. [`STRANGERS`] different packets are sent repeatedly, each
//! time from another source: a random address of a prefix, and a random port.

use crate::output::say;
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto};
use srd_daemon::keys::PublicKey;
use srd_proto::crypto::{Drbg, HelloKey, Initiator, generate_private};
use srd_proto::wire::greeting::Greeting;
use srd_proto::wire::handshake::Hello;
use srd_proto::wire::{HEADER_BYTES, Header, Kind};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// Number of different packets that are generated.
const STRANGERS: usize = 512;
/// Number of source addresses that are used in turn.
const SOURCES: u64 = 64;
/// Interval at which the packets that are due are sent.
const TICK: Duration = Duration::from_millis(1);
/// Maximum number of missed ticks whose packets are sent at once. Packets of earlier missed ticks
/// are not sent.
const LATE_TICKS_MAX: u64 = 4;
/// Bytes of the first handshake message (an opening) after its header: MAC, context number, cookie,
/// and the Noise message with its greeting.
const OPENING_BYTES: usize = 16 + 4 + 16 + 96 + 24;
const IP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const TTL: u8 = 64;
const UDP: u8 = 17;

/// Content of the packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Payload {
    /// Valid openings, each with an unknown key.
    Strangers,
    /// One packet from a file, repeatedly.
    Replay,
    /// An opening's header, and random bytes.
    Noise,
}

/// `srd lab flood`.
#[derive(Args, Clone, Debug)]
pub(crate) struct FloodArgs {
    /// Content of the packets.
    #[arg(value_enum)]
    what: Payload,
    /// Address of a daemon.
    #[arg(long, value_name = "ADDR:PORT")]
    to: SocketAddrV4,
    /// The daemon's public key, for strangers.
    #[arg(long, value_name = "KEY", value_parser = PublicKey::parse)]
    public_key: Option<PublicKey>,
    /// The packet to replay: the payload of a UDP datagram.
    #[arg(long, value_name = "FILE")]
    packet: Option<PathBuf>,
    /// The first of 64 source addresses.
    #[arg(long, value_name = "ADDR")]
    from: Ipv4Addr,
    /// Packets a second.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: u64,
    /// Duration.
    #[arg(long, value_name = "TIME", value_parser = crate::units::parse_time)]
    time: Duration,
}

/// Runs `srd lab flood`. Prints the numbers of packets as a line of JSON.
pub(super) fn run(args: &FloodArgs) -> Result<()> {
    let mut rng = Drbg::new(&srd_net::clock::seed().context("cannot draw a seed")?, "flood");
    let payloads = match args.what {
        Payload::Strangers => {
            let key = args.public_key.as_ref();
            strangers(&key.context("name the daemon's key: --public-key KEY")?.0, &mut rng)?
        }
        Payload::Replay => {
            let file = args.packet.as_ref().context("name the packet to replay: --packet FILE")?;
            vec![std::fs::read(file).with_context(|| file.display().to_string())?]
        }
        Payload::Noise => noise(&mut rng),
    };
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW))
        .context("a raw socket needs root (CAP_NET_RAW)")?;
    let packets: Vec<_> = payloads.iter().map(|bytes| datagram(args.to, bytes)).collect();
    let begun = Instant::now();
    let (sent, refused) = send(&socket, args, packets, &mut rng)?;
    let seconds = begun.elapsed().as_secs_f64();
    say(serde_json::json!({ "sent": sent, "refused": refused, "seconds": seconds }))
}

fn header() -> Header {
    let dst_context = 0;
    Header { kind: Kind::Hello, flags: 0, key_phase: 0, rtt_code: 0, dst_context, number: 0 }
}

/// Generates openings that are complete and valid, each with an unknown key.
fn strangers(public: &[u8; 32], rng: &mut Drbg) -> Result<Vec<Vec<u8>>> {
    let key = HelloKey::of(public);
    let opening = |_| {
        let context = u32::from_be_bytes(rng.array()).max(1);
        let greeting = Greeting { context, epoch: rng.next_u64(), port: 7471, features: 0 };
        let mut hello = Vec::new();
        greeting.encode(&mut hello);
        hello.extend_from_slice(&rng.array::<8>()); // number of the opening in its run
        let private = generate_private(rng);
        let (_, noise) = Initiator::start(&private, public, &[0; 32], &hello, rng)?;
        let mut packet = Vec::new();
        header().encode(&mut packet);
        let mut hello = Hello { mac: [0; 16], context, cookie: [0; 16], noise: &noise };
        let mut rest = Vec::new();
        hello.encode_rest(&mut rest);
        hello.mac = key.mac(&rest);
        hello.encode(&mut packet);
        Ok(packet)
    };
    (0..STRANGERS).map(opening).collect()
}

/// Generates packets that are as long as an opening, and random after the header.
fn noise(rng: &mut Drbg) -> Vec<Vec<u8>> {
    let packet = |_| {
        let mut packet = Vec::new();
        header().encode(&mut packet);
        packet.resize(HEADER_BYTES + OPENING_BYTES, 0);
        rng.fill(&mut packet[HEADER_BYTES..]);
        packet
    };
    (0..STRANGERS).map(packet).collect()
}

/// Returns a packet that contains a UDP payload, with its IP and UDP headers. The kernel sets the
/// lengths and the checksum of the IP header; the UDP header has no checksum.
fn datagram(to: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; IP_BYTES + UDP_BYTES];
    packet[0] = 0x45;
    packet[8..10].copy_from_slice(&[TTL, UDP]);
    packet[16..20].copy_from_slice(&to.ip().octets());
    packet[22..24].copy_from_slice(&to.port().to_be_bytes());
    let udp_bytes = u16::try_from(UDP_BYTES + payload.len()).unwrap_or(u16::MAX);
    packet[24..26].copy_from_slice(&udp_bytes.to_be_bytes());
    packet.extend_from_slice(payload);
    packet
}

/// Sends the packets at the requested rate. Returns the number of packets that were sent, and the
/// number that the local interface refused.
fn send(
    socket: &OwnedFd,
    args: &FloodArgs,
    mut packets: Vec<Vec<u8>>,
    rng: &mut Drbg,
) -> Result<(u64, u64)> {
    let (begun, mut ticks, mut counts) = (Instant::now(), 0u64, (0, 0));
    let per_tick = args.rate.div_ceil(1000);
    let first = u64::from(u32::from(args.from));
    let mut next = 0;
    while begun.elapsed() < args.time {
        let due = u64::try_from(begun.elapsed().as_millis())? + 1;
        ticks = ticks.max(due.saturating_sub(LATE_TICKS_MAX));
        for _ in 0..(due - ticks) * per_tick {
            let packet = &mut packets[next];
            let random = rng.next_u64();
            let source = u32::try_from(first + random % SOURCES)?;
            packet[12..16].copy_from_slice(&source.to_be_bytes());
            packet[20..22].copy_from_slice(&random.to_be_bytes()[..2]);
            match rustix::net::sendto(socket, packet, SendFlags::empty(), &args.to) {
                Ok(_) => counts.0 += 1,
                Err(rustix::io::Errno::NOBUFS | rustix::io::Errno::AGAIN) => counts.1 += 1,
                Err(error) => bail!("cannot send: {error}"),
            }
            next = (next + 1) % packets.len();
        }
        ticks = due;
        let next_tick = begun + TICK * u32::try_from(ticks)?;
        thread::sleep(next_tick.saturating_duration_since(Instant::now()));
    }
    Ok(counts)
}
