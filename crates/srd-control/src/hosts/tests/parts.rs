//! The parts of the cloud that hosts receive.

use super::*;
use crate::fleet::Load;
use srd_enrol::{Capacity, CloudTables, CloudUpdate};

fn tables(text: &str) -> Arc<CloudTables> {
    let mut tables = CloudTables::default();
    tables.insert("group.\"g\"".to_owned(), text.to_owned()).unwrap();
    tables.insert("vpc.\"v\"".to_owned(), String::new()).unwrap();
    Arc::new(tables)
}

fn capacity() -> Capacity {
    Capacity { zone: "us-east-1a".to_owned(), vcpus: 8, types: Vec::new(), pods: false }
}

impl Client {
    /// Returns the next section of the host's part, and passes over messages about peers.
    fn section(&mut self) -> CloudUpdate {
        loop {
            match self.receive() {
                Ok(FromController::Cloud(section)) => return section,
                Ok(FromController::Snapshot { .. } | FromController::Delta { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn a_host_gets_its_part_as_a_snapshot_and_then_the_tables_that_change() {
    let parts = Parts::default();
    parts.set("a", tables("first"), Load::default());
    let store = Box::<MemoryStore>::default();
    let server = Server::with_parts("10.77.0.0/16", store, Some(parts.clone()));
    let capacity = capacity();
    let mut node = Node::new("a", 1);
    node.host.capacity = Some(capacity);
    let mut client = server.connect(&node.identity);
    client.send(&node.enrol(&server.token(1)));
    assert!(matches!(client.receive(), Ok(FromController::Welcome { .. })));
    let first = client.section();
    assert!(first.is_snapshot && first.is_last && first.changed.len() == 2, "{first:?}");
    assert!(!parts.is_ready("a"));
    let applied = |generation| FromHost::CloudApplied { generation, error: None };
    client.send(&applied(first.generation));
    wait_until("the acknowledgement", || parts.is_ready("a"));
    let of = server.listing().hosts[0].instances.clone().unwrap();
    assert_eq!((of.vcpus, of.generation, of.applied), (8, first.generation, first.generation));

    parts.set("a", tables("second"), Load::default());
    let second = client.section();
    assert_eq!(second.changed, [("group.\"g\"".to_owned(), "second".to_owned())]);
    assert!(!second.is_snapshot && second.generation > first.generation);
    // A host that connects again gets a snapshot, also if it has the newest part.
    let mut again = server.connect(&node.identity);
    again.send(&node.follow(1));
    assert!(matches!(again.receive(), Ok(FromController::Welcome { .. })));
    let third = again.section();
    assert!(third.is_snapshot && third.changed.len() == 2, "{third:?}");
    assert!(!parts.is_ready("a"), "the new connection has acknowledged nothing");
}

/// The older connection kept its part in memory until it had taken no message for ten seconds.
#[test]
fn regression_an_older_connection_that_takes_no_message_ends_when_a_newer_one_begins() {
    let mut large = CloudTables::default();
    for number in 0..100 {
        large.insert(format!("group.\"{number}\""), "x".repeat(250 << 10)).unwrap();
    }
    let parts = Parts::default();
    parts.set("a", Arc::new(large), Load::default());
    let store = Box::<MemoryStore>::default();
    let server = Server::with_parts("10.77.0.0/16", store, Some(parts));
    let capacity = capacity();
    let mut node = Node::new("a", 1);
    node.host.capacity = Some(capacity);
    let mut older = server.connect(&node.identity);
    older.send(&node.enrol(&server.token(1)));
    assert!(matches!(older.receive(), Ok(FromController::Welcome { .. })));
    assert!(older.section().is_snapshot);
    let mut newer = server.connect(&node.identity);
    newer.send(&node.follow(0));
    assert!(matches!(newer.receive(), Ok(FromController::Welcome { .. })));
    wait_until("the end", || server.refused(RefusalKind::Superseded) == 1);
    assert_eq!(server.listing().unread, 0);
}

/// An earlier version of a host would close the connection at this message.
#[test]
fn a_host_without_instances_gets_no_part() {
    let parts = Parts::default();
    let store = Box::<MemoryStore>::default();
    let server = Server::with_parts("10.77.0.0/16", store, Some(parts.clone()));
    let (_, mut client) = server.enrol("a", 1);
    client.snapshot();
    parts.set("a", tables("x"), Load::default());
    client.send(&FromHost::CloudApplied { generation: 1, error: None });
    client.send(&FromHost::Ping);
    assert_eq!(client.receive(), Ok(FromController::Pong));
    assert!(!parts.is_ready("a"));
}

/// The host took the welcome for a success, and connected again at once.
#[test]
fn regression_a_host_is_refused_before_its_welcome_while_the_store_fails() {
    let shared = stale::SharedStore::default();
    let store = Box::new(shared.clone());
    let server = Server::with_parts("10.77.0.0/16", store, Some(Parts::default()));
    let zone = "us-east-1a".to_owned();
    let mut node = Node::new("a", 1);
    node.host.capacity = Some(Capacity { zone, vcpus: 8, types: Vec::new(), pods: false });
    let mut client = server.connect(&node.identity);
    client.send(&node.enrol(&server.token(1)));
    assert!(matches!(client.receive(), Ok(FromController::Welcome { .. })));
    shared.set_away(true);
    let mut client = server.connect(&node.identity);
    client.send(&node.follow(0));
    assert_eq!(client.receive().unwrap_err().reason, RefusalKind::Unavailable);
    shared.set_away(false);
    let mut client = server.connect(&node.identity);
    client.send(&node.follow(0));
    assert!(matches!(client.receive(), Ok(FromController::Welcome { .. })));
}
