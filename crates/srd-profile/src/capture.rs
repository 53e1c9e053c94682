//! Capture files: guesses the local address, profiles the packets, and reads the packets again for
//! a replay.
//!
//! A profile reads the file once. Its first packets wait in memory until the local address is
//! known. At most [`GUESS_PACKETS`] packets wait, each with [`HEADERS_BYTES`] and a link header,
//! which takes at most about 40 MB.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Range;
use std::path::Path;

use srd_card::limits::FlowKind;
use srd_card::profile::Profile;
use srd_watch::Prefix;
use srd_watch::file::{self, End, FileError, Read};
use srd_watch::read::{HEADERS_BYTES, Raw};

use crate::analysis::profiler::Profiler;
use crate::needs::TrafficSummary;
use crate::replay::Replay;

/// Number of packets after which the local address is guessed.
pub const GUESS_PACKETS: usize = 100_000;
/// Largest number of addresses whose packets are counted for the guess; if there are more, all
/// counts are reduced by one, and addresses with the count zero are removed.
const GUESS_ADDRESSES: usize = 1024;
/// Bytes that are kept of a waiting packet for its link header and the headers between the link
/// header and IP.
const LINK_BYTES_MAX: usize = 64;
/// Largest number of interfaces of a file that get a profile, because each profile takes memory for
/// flows and connections.
pub const PROFILED_MAX: usize = 32;
/// Interval of progress reports, in packets.
const EVERY: u64 = 1 << 16;

/// Options for reading a file.
#[derive(Clone, Debug)]
pub struct Options {
    /// Required headroom below limits: 0.2 means 20 %.
    pub headroom: f64,
    /// Addresses of the captured machine; if empty, the most frequent address of the file is used.
    pub local: Vec<Prefix>,
    /// Length in bytes above which a packet counts as a super-packet, that is, as several packets
    /// of at most this length; `None` counts each packet as one.
    pub mtu_bytes: Option<u16>,
}

/// Result of reading a file.
#[derive(Debug)]
pub struct Outcome {
    /// Profiles, one for each interface that has packets, up to [`PROFILED_MAX`].
    pub seen: Vec<TrafficSummary>,
    /// Number of packets of interfaces beyond [`PROFILED_MAX`], which are in no profile.
    pub left_out: u64,
    /// The guessed local address, and its share of the packets that were examined for the guess.
    /// `None` if the options contain local addresses, or the file marks directions.
    pub guessed: Option<(IpAddr, f64)>,
    /// Addresses of the captured machine: those of the options, and the guessed address.
    pub local: Vec<Prefix>,
    /// Numbers of all packets and of unsupported packets, and the reason why reading ended early.
    pub end: End,
}

/// Profiles the packets of a file; the name `-` is standard input. From time to time, `progress` is
/// called with the number of bytes that were read from the file.
///
/// # Errors
/// A `FileError`, if the file cannot be opened or is no capture file.
pub fn run(
    path: &Path,
    options: &Options,
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(u64),
) -> Result<Outcome, FileError> {
    let mut profiled = Profiled::new(options);
    let mut early = options.local.is_empty().then(Early::default);
    let mut packets = 0_u64;
    let end = file::packets(path, options.mtu_bytes, stop, &mut |read: &Read<'_>| {
        packets += 1;
        match &mut early {
            Some(waiting) if waiting.packets.len() < GUESS_PACKETS => waiting.push(read),
            _ => {
                if let Some(waiting) = early.take() {
                    profiled.begin(&waiting);
                }
                profiled.see(read);
            }
        }
        if packets.is_multiple_of(EVERY) {
            progress(read.position);
        }
    })?;
    if let Some(waiting) = early.take() {
        profiled.begin(&waiting);
    }
    let Profiled { local, all, guessed, left_out, .. } = profiled;
    let seen = all.into_values().map(Profiler::end).collect();
    Ok(Outcome { seen, left_out, guessed, local, end })
}

/// The profiles of the interfaces of a file.
struct Profiled {
    headroom: f64,
    local: Vec<Prefix>,
    guessed: Option<(IpAddr, f64)>,
    all: BTreeMap<usize, Profiler>,
    left_out: u64,
}

impl Profiled {
    fn new(options: &Options) -> Self {
        let (headroom, local) = (options.headroom, options.local.clone());
        Self { headroom, local, guessed: None, all: BTreeMap::new(), left_out: 0 }
    }

    /// Guesses the local address from the file's first packets, and adds these packets to the
    /// profiles.
    fn begin(&mut self, early: &Early) {
        self.guessed = early.guess();
        self.local.extend(self.guessed.and_then(|(address, _)| whole(address)));
        early.each(|read| self.see(read));
    }

    fn see(&mut self, read: &Read<'_>) {
        if self.all.len() >= PROFILED_MAX && !self.all.contains_key(&read.interface) {
            self.left_out += 1;
            return;
        }
        let fresh = || Profiler::new(read.name, self.headroom, read.raw.time).of_file(read.device);
        let profiler = self.all.entry(read.interface).or_insert_with(fresh);
        profiler.see(&read.directed(&self.local));
    }
}

/// The first packets of a file, which wait until the local address is guessed.
#[derive(Default)]
struct Early {
    /// For each interface with packets, the display name, and the name that the file gives it.
    names: BTreeMap<usize, (String, Option<String>)>,
    /// Each waiting packet, and the range of its bytes in `bytes`.
    packets: Vec<(PendingPacket, Range<usize>)>,
    bytes: Vec<u8>,
}

/// A packet that waits until the local address is guessed.
struct PendingPacket {
    interface: usize,
    raw: Raw<'static>,
    is_marked: bool,
    position: u64,
}

impl Early {
    fn push(&mut self, read: &Read<'_>) {
        let names = || (read.name.to_owned(), read.device.map(str::to_owned));
        self.names.entry(read.interface).or_insert_with(names);
        let begin = self.bytes.len();
        let kept = read.raw.bytes.len().min(LINK_BYTES_MAX + HEADERS_BYTES as usize);
        self.bytes.extend(&read.raw.bytes[..kept]);
        let raw = Raw { bytes: &[], ..read.raw };
        let &Read { interface, is_marked, position, .. } = read;
        let waiting = PendingPacket { interface, raw, is_marked, position };
        self.packets.push((waiting, begin..self.bytes.len()));
    }

    fn each(&self, mut see: impl FnMut(&Read<'_>)) {
        for (waiting, bytes) in &self.packets {
            let &PendingPacket { interface, raw, is_marked, position } = waiting;
            let Some((name, device)) = self.names.get(&interface) else { continue };
            let device = device.as_deref();
            let raw = Raw { bytes: &self.bytes[bytes.clone()], ..raw };
            see(&Read { interface, name, device, raw, is_marked, position });
        }
    }

    /// Returns the address from or to which most packets go, and its share of the packets. `None`
    /// if the file marks the directions of more than half of the packets.
    fn guess(&self) -> Option<(IpAddr, f64)> {
        let mut counts: BTreeMap<IpAddr, u64> = BTreeMap::new();
        let (mut packets, mut marked) = (0_u64, 0_u64);
        self.each(|read| {
            let Some(arrival) = read.raw.arrival() else { return };
            packets += 1;
            marked += u64::from(read.is_marked);
            let outer = &arrival.flow.outer;
            for address in [outer.source, outer.destination] {
                *counts.entry(address).or_default() += 1;
            }
            if counts.len() > GUESS_ADDRESSES {
                counts.retain(|_, count| {
                    *count -= 1;
                    *count > 0
                });
            }
        });
        if marked * 2 > packets {
            return None;
        }
        // Of two addresses with the same count, the smaller one is chosen.
        let rank = |(address, count): &(&IpAddr, &u64)| (**count, std::cmp::Reverse(**address));
        let most = counts.iter().max_by_key(rank);
        most.map(|(address, count)| (*address, *count as f64 / packets.max(1) as f64))
    }
}

/// Passes the packets of a file through the limits of each instance type. Returns, for each type,
/// the counters that increased.
///
/// # Errors
/// The errors of [`run`].
pub fn replay(
    path: &Path,
    (local, mtu_bytes): (&[Prefix], Option<u16>),
    types: &[Profile],
    kind: FlowKind,
    stop: &dyn Fn() -> bool,
) -> Result<Vec<Vec<(&'static str, u64)>>, FileError> {
    let mut replays: Vec<Replay> = Vec::new();
    file::packets(path, mtu_bytes, stop, &mut |read: &Read<'_>| {
        // One simulated instance gets the packets of all interfaces of the file.
        if replays.is_empty() {
            let fresh = |profile: &Profile| Replay::new(profile, kind, read.raw.time);
            replays = types.iter().map(fresh).collect();
        }
        let raw = read.directed(local);
        replays.iter_mut().for_each(|replay| replay.see(&raw));
    })?;
    Ok(replays.iter().map(Replay::moved).collect())
}

fn whole(address: IpAddr) -> Option<Prefix> {
    Prefix::new(address, if address.is_ipv4() { 32 } else { 128 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::udp;
    use srd_pcapng::{Direction, Packet, Writer};
    use srd_watch::PacketDirection;

    #[test]
    fn so_many_interfaces_of_a_file_get_a_profile() {
        let mut writer = Writer::begin("test");
        let made = udp(0, PacketDirection::Out, (1000, 80), 28);
        for number in 0..PROFILED_MAX + 3 {
            writer.interface(&format!("if{number}"), 1500);
        }
        for number in 0..PROFILED_MAX + 3 {
            writer.packet(&Packet {
                interface: u32::try_from(number).unwrap(),
                direction: Direction::Out,
                time_ns: 1_000_000_000,
                length: 28,
                bytes: &made.bytes,
                comment: "",
            });
        }
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("many.pcapng");
        std::fs::write(&file, writer.take()).unwrap();
        let options = Options { headroom: 0.2, local: Vec::new(), mtu_bytes: None };
        let outcome = run(&file, &options, &|| false, &mut |_| {}).unwrap();
        assert_eq!((outcome.seen.len(), outcome.left_out), (PROFILED_MAX, 3));
    }

    /// Returns a pcap file of IP packets without link headers. It does not mark directions.
    fn pcap(packets: u32) -> Vec<u8> {
        let mut bytes =
            vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        bytes.extend(101_u32.to_le_bytes());
        for n in 0..packets {
            let way = if n % 3 == 0 { PacketDirection::In } else { PacketDirection::Out };
            let mut made = udp(0, way, (1000, 80), 28);
            // One address on the local side, and many on the other side.
            let other = if way == PacketDirection::Out { 19 } else { 15 };
            made.bytes[other] = u8::try_from(n % 200).unwrap() + 20;
            [n / 1000, n % 1000 * 1000, 28, 28]
                .iter()
                .for_each(|of| bytes.extend(of.to_le_bytes()));
            bytes.extend(made.bytes);
        }
        bytes
    }

    #[test]
    fn a_stream_is_read_once_and_still_known_whose_it_is() {
        // As many packets as may wait for the guess, one more, and fewer.
        let most = u32::try_from(GUESS_PACKETS).unwrap();
        for packets in [1_000, most, most + 1] {
            let bytes = pcap(packets);
            let directory = tempfile::tempdir().unwrap();
            let fifo = directory.path().join("fifo");
            let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
            let kind = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, mode, 0).unwrap();
            let options = Options { headroom: 0.2, local: Vec::new(), mtu_bytes: None };
            let outcome = std::thread::scope(|scope| {
                // A second reader of the FIFO would wait for ever, because the bytes are written
                // only once.
                scope.spawn(|| std::fs::write(&fifo, &bytes).unwrap());
                run(&fifo, &options, &|| false, &mut |_| {}).unwrap()
            });
            let (address, share) = outcome.guessed.expect("the file does not say");
            assert_eq!((address.to_string(), share), ("10.0.0.1".to_owned(), 1.0), "{packets}");
            let seen = &outcome.seen[0];
            assert_eq!(seen.packets, u64::from(packets));
            assert_eq!(seen.bytes.r#in, f64::from(packets.div_ceil(3) * 28), "{packets}");
        }
    }
}
