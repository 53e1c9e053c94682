//! Capture files: whose they are, their packets, and the same packets once more for a replay.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use srd_card::limits::FlowKind;
use srd_card::profile::Profile;
use srd_watch::Prefix;
use srd_watch::file::{self, FileError, Read};

use crate::needs::Seen;
use crate::profiler::Profiler;
use crate::replay::Replay;

/// Packets that are looked at to find out whose capture it is.
const GUESS_PACKETS: u64 = 100_000;
/// Addresses that are counted for that; when there are more, all counts fall.
const GUESS_ADDRESSES: usize = 1024;
/// Interfaces of a file that get a profile: each takes memory for its flows and connections.
pub const PROFILED_MAX: usize = 32;
/// How often progress is told, in packets.
const EVERY: u64 = 1 << 16;

/// What to do with a file.
#[derive(Clone, Debug)]
pub struct Options {
    /// How much more limits shall carry.
    pub headroom: f64,
    /// Addresses of this side; if there is none, the file's most frequent one.
    pub local: Vec<Prefix>,
    /// Longer packets are super-packets of packets of this length.
    pub mtu_bytes: Option<u16>,
}

/// What a file was found to have.
#[derive(Debug)]
pub struct Outcome {
    /// One for each interface that has packets, up to [`PROFILED_MAX`].
    pub seen: Vec<Seen>,
    /// Packets of further interfaces, which are in no profile.
    pub left_out: u64,
    /// The address that is taken for this side, with its share of the packets that were looked at,
    /// if the file does not say which way packets go.
    pub guessed: Option<(IpAddr, f64)>,
    /// The prefixes of this side.
    pub local: Vec<Prefix>,
    /// Why reading ended before the end of the file.
    pub error: Option<FileError>,
}

/// Reads a file. `progress` gets the bytes that were read.
///
/// # Errors
/// The file cannot be opened, or is no capture file.
pub fn run(
    path: &Path,
    options: &Options,
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(u64),
) -> Result<Outcome, FileError> {
    let guessed = if options.local.is_empty() { guess(path, stop)? } else { None };
    let mut local = options.local.clone();
    local.extend(guessed.and_then(|(address, _)| whole(address)));
    let mut all: BTreeMap<usize, Profiler> = BTreeMap::new();
    let (mut packets, mut left_out) = (0_u64, 0);
    let error = file::packets(path, &local, options.mtu_bytes, stop, &mut |read: &Read<'_>| {
        packets += 1;
        let has_place = all.len() < PROFILED_MAX || all.contains_key(&read.interface);
        if has_place {
            let fresh = || Profiler::new(read.name, options.headroom, read.raw.time);
            all.entry(read.interface).or_insert_with(fresh).see(&read.raw);
        } else {
            left_out += 1;
        }
        if packets.is_multiple_of(EVERY) {
            progress(read.position);
        }
    })?;
    let seen = all.into_values().map(Profiler::end).collect();
    Ok(Outcome { seen, left_out, guessed, local, error })
}

/// Shows the packets of a file to the limits of each type. Returns the counters that moved.
///
/// # Errors
/// As [`run`].
pub fn replay(
    path: &Path,
    (local, mtu_bytes): (&[Prefix], Option<u16>),
    types: &[Profile],
    kind: FlowKind,
    stop: &dyn Fn() -> bool,
) -> Result<Vec<Vec<(&'static str, u64)>>, FileError> {
    let mut replays: Vec<Replay> = Vec::new();
    file::packets(path, local, mtu_bytes, stop, &mut |read: &Read<'_>| {
        // One instance sees what all interfaces of the file have.
        if replays.is_empty() {
            let fresh = |profile: &Profile| Replay::new(profile, kind, read.raw.time);
            replays = types.iter().map(fresh).collect();
        }
        replays.iter_mut().for_each(|replay| replay.see(&read.raw));
    })?;
    Ok(replays.iter().map(Replay::moved).collect())
}

/// The address that most packets come from or go to, if the file does not say which way they go.
fn guess(path: &Path, stop: &dyn Fn() -> bool) -> Result<Option<(IpAddr, f64)>, FileError> {
    let mut counts: BTreeMap<IpAddr, u64> = BTreeMap::new();
    let (packets, marked) = (std::cell::Cell::new(0_u64), std::cell::Cell::new(0_u64));
    let enough = || stop() || packets.get() >= GUESS_PACKETS;
    file::packets(path, &[], None, &enough, &mut |read: &Read<'_>| {
        let Some(arrival) = read.raw.arrival() else { return };
        packets.set(packets.get() + 1);
        marked.set(marked.get() + u64::from(read.is_marked));
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
    })?;
    if marked.get() * 2 > packets.get() {
        return Ok(None);
    }
    // Of two that have all packets, the one that comes first.
    let most = counts.iter().max_by_key(|(address, count)| (**count, std::cmp::Reverse(**address)));
    Ok(most.map(|(address, count)| (*address, *count as f64 / packets.get().max(1) as f64)))
}

fn whole(address: IpAddr) -> Option<Prefix> {
    Prefix::new(address, if address.is_ipv4() { 32 } else { 128 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::udp;
    use srd_pcapng::{Direction, Packet, Writer};
    use srd_watch::Way;

    #[test]
    fn so_many_interfaces_of_a_file_get_a_profile() {
        let mut writer = Writer::begin("test");
        let made = udp(0, Way::Out, (1000, 80), 28);
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
}
