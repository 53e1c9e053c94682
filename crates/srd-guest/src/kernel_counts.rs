//! What the kernel counts at devices in namespaces: packets that found the ring to the card full.
//!
//! The helper reads them: to enter a namespace takes a privilege.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::helper::Helper;
use crate::namespace::NETNS_DIR;
use crate::protocol::{Interface, NamespaceName, Status};

/// The counter's name: that of the driver's `ip -s link`.
const COUNTER: &str = "tx_drops";
/// Namespaces that are asked for at once.
const AT_ONCE: usize = 100;
/// Bytes of a table of devices: root of an instance may make many.
const TABLE_BYTES_MAX: u64 = 1 << 20;
/// The column of dropped packets that a device was to send, behind its name.
const TX_DROP_COLUMN: usize = 11;

/// Adds the counters of all instances in namespaces. What cannot be read is not shown.
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

/// In the helper: the drops of these devices in these namespaces. A thread goes through the
/// namespaces, since a file of `/proc` shows that of the thread which opens it.
pub(crate) fn read(of: &[(NamespaceName, Vec<String>)]) -> Vec<Vec<Option<u64>>> {
    let one = |(namespace, devices): &(NamespaceName, Vec<String>)| {
        let table = table_of(namespace.as_str()).unwrap_or_default();
        devices.iter().map(|device| drops(&table, device)).collect()
    };
    thread::scope(|scope| {
        let read = move || of.iter().map(one).collect();
        let read = thread::Builder::new().name("srd-card-counts".into()).spawn_scoped(scope, read);
        // Without a thread there are no such counters.
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
