//! Counters of the kernel at devices in namespaces: packets dropped because the ring to the card
//! was full.
//!
//! The helper reads the counters, because entering a namespace needs a privilege.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::control::protocol::{Interface, NamespaceName, Status};
use crate::helper::Helper;
use crate::machine::namespace::NETNS_DIR;

/// Name of the counter. The driver of an ENA adapter counts such drops under this name in
/// `ip -s link`.
const COUNTER: &str = "tx_drops";
/// Maximum number of namespaces in one request to the helper.
const AT_ONCE: usize = 100;
/// Maximum number of bytes that are read of a namespace's table of devices. Root of an instance may
/// create many devices.
const TABLE_BYTES_MAX: u64 = 1 << 20;
/// Column of dropped outgoing packets in `/proc/net/dev`. The first column after the device's name
/// has the number 0.
const TX_DROP_COLUMN: usize = 11;

/// Adds the kernel's counters to the interfaces of all instances in namespaces. Counters that
/// cannot be read are omitted.
pub(crate) fn add(status: &mut Status, helper: &Helper) {
    let instances = status.instances.iter_mut();
    let all = instances.filter_map(|of| Some((of.namespace.clone()?, &mut of.interfaces)));
    let mut all: Vec<_> = all.collect();
    for some in all.chunks_mut(AT_ONCE) {
        let named = |all: &[Interface]| all.iter().map(|of| of.device.clone()).collect();
        let of = some.iter().map(|(name, all)| (name.clone(), named(all))).collect();
        let drops = match helper.drops(of) {
            Ok(drops) => drops,
            Err(error) => return tracing::debug!("{COUNTER}: {error:#}"),
        };
        for ((_, interfaces), drops) in some.iter_mut().zip(drops) {
            for (interface, drops) in interfaces.iter_mut().zip(drops) {
                let Some(drops) = drops else { continue };
                let after = |(name, _): &(String, u64)| name.starts_with("queue_");
                let place = interface.counters.iter().position(after);
                let place = place.unwrap_or(interface.counters.len());
                interface.counters.insert(place, (COUNTER.to_owned(), drops));
            }
        }
    }
}

/// Returns the numbers of dropped packets of these devices in these namespaces. The helper calls
/// this function. A separate thread enters the namespaces, because a file of `/proc` shows the
/// namespace of the thread that opens it.
pub(crate) fn read(of: &[(NamespaceName, Vec<String>)]) -> Vec<Vec<Option<u64>>> {
    let one = |(namespace, devices): &(NamespaceName, Vec<String>)| {
        let table = table_of(namespace.as_str()).unwrap_or_default();
        devices.iter().map(|device| drops(&table, device)).collect()
    };
    thread::scope(|scope| {
        let read = move || of.iter().map(one).collect();
        let read = thread::Builder::new().name("srd-card-counts".into()).spawn_scoped(scope, read);
        // If the thread cannot be started, these counters are missing.
        read.map(|read| read.join().unwrap_or_default()).unwrap_or_default()
    })
}

fn table_of(namespace: &str) -> Option<String> {
    let file = File::open(Path::new(NETNS_DIR).join(namespace)).ok()?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).ok()?;
    let mut table = String::new();
    let file = File::open("/proc/thread-self/net/dev").ok()?;
    file.take(TABLE_BYTES_MAX).read_to_string(&mut table).ok()?;
    Some(table)
}

fn drops(table: &str, device: &str) -> Option<u64> {
    let mut lines = table.lines();
    let columns = lines.find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'));
    columns?.split_whitespace().nth(TX_DROP_COLUMN)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drops_of_a_device_are_in_the_twelfth_column() {
        let table = "Inter-|   Receive                 |  Transmit\n \
                     face |bytes packets errs drop fifo frame compressed multicast|bytes ...\n  \
                     ens55: 1 2 3 4 5 6 7 8 9 10 11 99 13 14 15 16\n  \
                     ens5: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
        assert_eq!(drops(table, "ens5"), Some(12));
        assert_eq!(drops(table, "ens6"), None);
        assert_eq!(drops("ens5: 1 2", "ens5"), None);
    }
}
