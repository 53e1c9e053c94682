//! What the kernel counts at devices in namespaces: packets that found the ring to the card full.
//!
//! A thread of its own goes through the namespaces, since a file of `/proc` shows that of the
//! thread which opens it; packets are moved meanwhile.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::namespace::NETNS_DIR;
use crate::protocol::Status;

/// The counter's name: that of the driver's `ip -s link`.
const COUNTER: &str = "tx_drops";
/// The column of dropped packets that a device was to send, behind its name.
const TX_DROP_COLUMN: usize = 11;

/// Adds the counters of all instances in namespaces. What cannot be read is not shown.
pub(crate) fn add(status: &mut Status) {
    let instances = status.instances.iter_mut();
    let all = instances.filter_map(|of| Some((of.namespace.clone()?, &mut of.interfaces)));
    let all: Vec<_> = all.collect();
    if all.is_empty() {
        return;
    }
    thread::scope(|scope| {
        let read = move || {
            for (namespace, interfaces) in all {
                let Some(table) = table_of(namespace.as_str()) else { continue };
                for interface in interfaces {
                    if let Some(drops) = drops(&table, &interface.device) {
                        let after = |(name, _): &(String, u64)| name.starts_with("queue_");
                        let place = interface.counters.iter().position(after);
                        let place = place.unwrap_or(interface.counters.len());
                        interface.counters.insert(place, (COUNTER.to_owned(), drops));
                    }
                }
            }
        };
        // Without a thread there are no such counters.
        let _ = thread::Builder::new().name("srd-card-counts".into()).spawn_scoped(scope, read);
    });
}

fn table_of(namespace: &str) -> Option<String> {
    let file = File::open(Path::new(NETNS_DIR).join(namespace)).ok()?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).ok()?;
    fs::read_to_string("/proc/thread-self/net/dev").ok()
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
