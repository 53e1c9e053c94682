//! A bad wire between two hosts: loss, paths of unequal delay, and so packets that overtake.
//!
//! The cables of the fabric have queues but no propagation delay, and a kernel without `netem`
//! cannot add one. Here a process is the wire. Each of the two hosts gets a TUN device with a route
//! to the other host. The process reads each packet from the sending host's device, holds it for
//! the delay of its path, and writes it into the other host's device, or drops it. All traffic
//! between the two hosts uses this wire; the fabric and its other hosts are not affected. When the
//! process ends for any reason, the kernel removes the devices and their routes, and the cables are
//! in use again.
//!
//! | module | contents |
//! |---|---|
//! | `path` | choice of a packet's path: pure |
//! | `wire` | loss and departure time of packets in one direction: pure, repeatable by seed |
//! | `carry` | reads, waits and writes: a thread for each direction |
//!
//! Limit: [`Impairment::queue_packets_max`] packets under way in each direction; further packets
//! are dropped and counted. If the reader is too slow, the device drops packets, which are counted
//! as well.

mod carry;
mod path;
mod wire;

use crate::build::address::EXTRA_ADDRESSES_MAX;
use crate::build::config::{ConfigError, check};
use crate::build::fabric::Fabric;
use crate::build::id::{Family, HostId};
use crate::{build::address, programs::command, programs::namespace, sys};
use anyhow::{Context, Result};
use carry::Carrier;
use rustix::fd::OwnedFd;
use serde::Serialize;
use std::ffi::OsString;
use std::fs;
use std::process::Command;
pub use wire::Carried;
use wire::Wire;

/// Largest number of paths of a wire.
pub const PATHS_MAX: u16 = 1024;
/// Longest delay and longest jitter in nanoseconds: one second.
pub const DELAY_NS_MAX: u64 = 1_000_000_000;
/// Largest number of packets under way in one direction.
pub const QUEUE_PACKETS_MAX: u32 = 65_536;
/// Largest loss in parts per million: all packets.
const MILLION: u32 = 1_000_000;
/// Queue limit of a device in packets: some milliseconds of traffic at full speed.
const DEVICE_PACKETS_MAX: u32 = 4096;

/// Impairment of packets on a wire; equal in both directions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Impairment {
    /// Lost packets per million.
    pub loss_ppm: u32,
    /// Number of paths. The addresses and ports of a packet choose one, and consecutive source
    /// ports take consecutive paths. So a range with as many ports as there are paths uses all
    /// paths.
    pub paths: u16,
    /// Delay of the shortest path, in nanoseconds.
    pub delay_min_ns: u64,
    /// Delay of the longest path in nanoseconds; the delays of the other paths lie between, in
    /// equal steps.
    pub delay_max_ns: u64,
    /// Largest additional delay of a packet in nanoseconds, drawn separately for each packet.
    /// Without it, packets of one path do not overtake each other.
    pub jitter_ns: u64,
    /// Seed of losses, of jitter, and of the path of the first source port.
    pub seed: u64,
    /// Largest number of packets under way in one direction.
    pub queue_packets_max: u32,
}

impl Default for Impairment {
    fn default() -> Impairment {
        Impairment {
            loss_ppm: 0,
            paths: 64,
            delay_min_ns: 50_000,
            delay_max_ns: 500_000,
            jitter_ns: 0,
            seed: 1,
            queue_packets_max: 8192,
        }
    }
}

impl Impairment {
    /// Checks every field.
    ///
    /// # Errors
    /// A [`ConfigError`] about the first field that is out of its range, with its value and the
    /// permitted range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check("loss_ppm", self.loss_ppm.into(), 0..=MILLION.into())?;
        check("paths", self.paths.into(), 1..=PATHS_MAX.into())?;
        check("delay_max_ns", self.delay_max_ns, 0..=DELAY_NS_MAX)?;
        check("delay_min_ns", self.delay_min_ns, 0..=self.delay_max_ns)?;
        check("jitter_ns", self.jitter_ns, 0..=DELAY_NS_MAX)?;
        check("queue_packets_max", self.queue_packets_max.into(), 1..=QUEUE_PACKETS_MAX.into())
    }
}

/// Counters of one direction of a wire.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Direction {
    /// The host that sends in this direction.
    pub from: HostId,
    /// The host that receives in this direction.
    pub to: HostId,
    /// Counters of the packets that the wire received.
    #[serde(flatten)]
    pub carried: Carried,
    /// Packets that the sending host's device dropped because the wire did not read fast enough.
    pub device_dropped: u64,
}

/// An impaired wire between two hosts. It is in operation until this value is stopped or dropped.
#[derive(Debug)]
pub struct Impaired {
    ends: [End; 2],
    carriers: [Carrier; 2],
}

/// A host's end of a wire.
#[derive(Clone, Debug)]
struct End {
    host: HostId,
    namespace: String,
    device: String,
}

impl Fabric {
    /// Puts an impaired wire between two hosts: from now on, all traffic between them uses it.
    ///
    /// # Errors
    /// A text with the reason, if the impairment or a host is invalid, the privilege is missing, or
    /// there is already a wire between the hosts.
    pub fn impair(&self, hosts: [HostId; 2], impairment: &Impairment) -> Result<Impaired> {
        impairment.validate()?;
        let ends = [self.end(hosts[0], hosts[1])?, self.end(hosts[1], hosts[0])?];
        let [a, b] = [self.plug(&ends[0], hosts[1])?, self.plug(&ends[1], hosts[0])?];
        let [a_again, b_again] = [a.try_clone()?, b.try_clone()?];
        let mtu = self.config().mtu;
        let there = Wire::new(impairment, impairment.seed);
        let back = Wire::new(impairment, !impairment.seed);
        let carriers =
            [Carrier::start(a, b_again, there, mtu)?, Carrier::start(b, a_again, back, mtu)?];
        Ok(Impaired { ends, carriers })
    }

    /// Runs a program to its end while an impaired wire is between two hosts. The program runs
    /// outside of all hosts. Signals are forwarded to it, as in [`Fabric::exec`]. Returns its exit
    /// code, and the counters of the wire.
    ///
    /// # Errors
    /// The errors of [`Fabric::impair`]; an error of the operating system, if the program cannot be
    /// started.
    pub fn run_impaired(
        &self,
        hosts: [HostId; 2],
        impairment: &Impairment,
        argv: &[OsString],
    ) -> Result<(i32, [Direction; 2])> {
        let (name, arguments) = argv.split_first().context("no program to run")?;
        let wire = self.impair(hosts, impairment)?;
        let code = crate::programs::exec::to_end(Command::new(name).args(arguments), false)
            .with_context(|| name.display().to_string())?;
        Ok((code, wire.stop()?))
    }

    fn end(&self, host: HostId, peer: HostId) -> Result<End> {
        let namespace = self.host_namespace(host)?;
        if host == peer {
            let permitted = "two different hosts".to_owned();
            let value = host.to_string();
            return Err(ConfigError { field: "the other end of the wire", value, permitted }.into());
        }
        Ok(End { host, namespace, device: format!("to-{peer}") })
    }

    /// Creates a host's device, and routes all traffic to its peer through it.
    fn plug(&self, end: &End, peer: HostId) -> Result<OwnedFd> {
        let device = &end.device;
        let tun = namespace::within(&end.namespace, || sys::tun::open(device))?;
        let tun = tun.with_context(|| {
            format!("TUN device {device} in {}: is there a wire already?", end.host)
        })?;
        let mtu = self.config().mtu;
        // The device has only the host's address, so that the kernel sends no packets of its own
        // into the wire.
        let mut batch = format!(
            "link set dev {device} mtu {mtu} txqueuelen {DEVICE_PACKETS_MAX} addrgenmode none up\n"
        );
        let own = |family| address::host(end.host, family);
        // MPTCP's additional addresses may be added while the wire is in operation.
        for extra in 0..=EXTRA_ADDRESSES_MAX {
            let (other, own) = (address::host_v4(peer, extra), own(Family::V4));
            batch += &format!("route add {other} dev {device} src {own}\n");
        }
        let (other, own) = (address::host(peer, Family::V6), own(Family::V6));
        batch += &format!("route add {other} dev {device} src {own}\n");
        command::ip_batch_in(&end.namespace, &batch)?;
        Ok(tun)
    }
}

impl Impaired {
    /// Removes the wire. Packets under way are lost and counted.
    ///
    /// # Errors
    /// The reason as text, if a direction had failed.
    pub fn stop(self) -> Result<[Direction; 2]> {
        let [there, back] = self.ends;
        let dropped = [device_dropped(&there)?, device_dropped(&back)?];
        let [first, second] = self.carriers;
        let (first, second) = (first.stop(), second.stop());
        Ok([
            direction([&there, &back], first?, dropped[0]),
            direction([&back, &there], second?, dropped[1]),
        ])
    }
}

fn direction([from, to]: [&End; 2], carried: Carried, device_dropped: u64) -> Direction {
    Direction { from: from.host, to: to.host, carried, device_dropped }
}

/// Returns the number of packets that a device dropped before its reader read them.
fn device_dropped(end: &End) -> Result<u64> {
    // Reads the thread's `net` directory: `/proc/net` belongs to the process's main thread, which
    // is in another namespace.
    let read = || fs::read_to_string("/proc/thread-self/net/dev");
    let text = namespace::within(&end.namespace, read)?.context("/proc/thread-self/net/dev")?;
    transmit_dropped(&text, &end.device)
        .with_context(|| format!("{} has lost its device {}", end.host, end.device))
}

/// Returns the dropped packets of a device in `/proc/net/dev`: eight columns count received
/// packets, and the fourth column of sent packets counts drops.
fn transmit_dropped(text: &str, device: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'))?;
    line.split_whitespace().nth(8 + 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_out_of_range_are_named() {
        let error = |change: fn(&mut Impairment)| {
            let mut impairment = Impairment::default();
            change(&mut impairment);
            impairment.validate().expect_err("must be refused").to_string()
        };
        assert_eq!(Impairment::default().validate(), Ok(()));
        assert_eq!(error(|i| i.loss_ppm = 1_000_001), "loss_ppm = 1000001: must be 0 to 1000000");
        assert_eq!(error(|i| i.paths = 0), "paths = 0: must be 1 to 1024");
        assert_eq!(
            error(|i| i.delay_min_ns = 500_001),
            "delay_min_ns = 500001: must be 0 to 500000"
        );
        assert!(error(|i| i.delay_max_ns = DELAY_NS_MAX + 1).starts_with("delay_max_ns"));
        assert!(error(|i| i.jitter_ns = DELAY_NS_MAX + 1).starts_with("jitter_ns"));
        assert!(error(|i| i.queue_packets_max = 0).starts_with("queue_packets_max"));
    }

    #[test]
    fn drops_of_a_device_are_read_from_its_line() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes    packets\n    \
            lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\
            to-h1.0: 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36\n";
        assert_eq!(transmit_dropped(text, "to-h1.0"), Some(32));
        assert_eq!(transmit_dropped(text, "lo"), Some(12));
        assert_eq!(transmit_dropped(text, "to-h1.1"), None);
        assert_eq!(transmit_dropped("to-h1.0: 1 2", "to-h1.0"), None);
    }
}
