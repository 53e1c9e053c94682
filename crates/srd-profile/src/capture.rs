//! Capture files: finding the local address, profiling the packets, and reading them again for a
//! replay.
//!
//! A profile reads the file once. Its first packets wait until the local address is known. At most
//! [`GUESS_PACKETS`] packets wait, each with [`HEADERS_BYTES`] and a link header, which takes at
//! most about 40 MB.

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

/// Number of packets from which the local address is guessed.
pub const GUESS_PACKETS: usize = 100_000;
/// Largest number of addresses that are counted for the guess; if there are more, all counts are
/// reduced.
const GUESS_ADDRESSES: usize = 1024;
/// Bytes of a waiting packet for its link header and the headers between it and IP.
const LINK_BYTES_MAX: usize = 64;
/// Largest number of interfaces of a file that get a profile, because each profile takes memory for
/// flows and connections.
pub const PROFILED_MAX: usize = 32;
/// Interval of progress reports, in packets.
const EVERY: u64 = 1 << 16;

/// Options for reading a file.
#[derive(Clone, Debug)]
pub struct Options {
    /// Required headroom below limits: 0.2 for a fifth.
    pub headroom: f64,
    /// Addresses of this side; if empty, the file's most frequent address.
    pub local: Vec<Prefix>,
    /// Length of the packets of which a longer packet (a super-packet) consists.
    pub mtu_bytes: Option<u16>,
}

/// Result of reading a file.
#[derive(Debug)]
pub struct Outcome {
    /// Profiles, one for each interface that has packets, up to [`PROFILED_MAX`].
    pub seen: Vec<TrafficSummary>,
    /// Number of packets of further interfaces, which are in no profile.
    pub left_out: u64,
    /// The guessed local address, with its share of the examined packets, if the file does not mark
    /// directions.
    pub guessed: Option<(IpAddr, f64)>,
    /// The prefixes of this side.
    pub local: Vec<Prefix>,
    /// The end of the file: unsupported packets, and the reason of an early end.
    pub end: End,
}

/// Reads a file; the name `-` is standard input. `progress` gets the number of bytes that were
/// read.
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

/// The profiles of a file's interfaces.
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

    /// Guesses the local address from the first packets, and adds them to the profiles.
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

/// The first packets of a file, which wait for the guess.
#[derive(Default)]
struct Early {
    /// The names of the interfaces: the display name, and the name in the file.
    names: BTreeMap<usize, (String, Option<String>)>,
    /// Each packet, and the range of its bytes.
    packets: Vec<(PendingPacket, Range<usize>)>,
    bytes: Vec<u8>,
}

/// A packet that waits.
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

    /// Returns the address that most packets come from or go to, with its share of the packets, if
    /// the file does not mark directions.
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

/// Passes the packets of a file through the limits of each type. Returns, for each type, the
/// counters that increased.
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
        // One instance gets the packets of all interfaces of the file.
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

    /// Returns a pcap file of bare IP, which does not mark directions.
    fn pcap(packets: u32) -> Vec<u8> {
        let mut bytes =
            vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        bytes.extend(101_u32.to_le_bytes());
        for n in 0..packets {
            let way = if n % 3 == 0 { PacketDirection::In } else { PacketDirection::Out };
            let mut made = udp(0, way, (1000, 80), 28);
            // One address on this side, many on the other.
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
        // The number of packets that wait, one more, and fewer.
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
                // A second reader would wait for ever: this writes once.
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
