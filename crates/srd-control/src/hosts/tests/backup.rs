//! Controllers whose state was replaced by a backup.

use super::*;
use crate::hosts::record::{HOST, META};

/// Enrols hosts, each of which is a change.
fn enrol_all(server: &Server, first: u8, count: u8) {
    (first..first + count).for_each(|number| drop(server.enrol(&format!("h{number}"), number)));
}

/// The host kept peers that the state did not have any more, and never got others.
#[test]
fn regression_a_generation_from_before_a_backup_leads_to_a_snapshot() {
    let lost = Server::new("10.77.0.0/16");
    let (a, mut client) = lost.enrol("a", 1);
    client.snapshot();
    let backup = lost.hub.hosts().records();
    enrol_all(&lost, 2, 2);
    let generation = lost.hub.hosts().table().generation();
    let mut store = Box::<MemoryStore>::default();
    store.commit(backup.into_iter().map(|(key, value)| (key, Some(value))).collect()).unwrap();
    let server = Server::with("10.77.0.0/16", store);
    for newer in [false, true] {
        if newer {
            enrol_all(&server, 4, 4);
        }
        let present = server.hub.hosts().table().generation();
        assert_eq!(present > generation, newer);
        let mut client = server.connect(&a.identity);
        client.send(&a.follow(generation));
        assert!(matches!(client.receive(), Ok(FromController::Welcome { .. })));
        let (at, peers) = client.snapshot();
        assert_eq!((at, peers.len()), (present, if newer { 4 } else { 0 }));
        // From now on, the host gets changes.
        client.ping();
        let mut client = server.connect(&a.identity);
        client.send(&a.follow(present));
        assert!(matches!(client.receive(), Ok(FromController::Welcome { .. })));
        client.ping();
        drop(client);
        wait_until("the end", || !server.listing().hosts[0].connected);
    }
}

/// The store is replaced while the controller runs.
#[test]
fn a_generation_that_goes_back_leads_to_snapshots() {
    let server = Server::new("10.77.0.0/16");
    let (a, mut client) = server.enrol("a", 1);
    client.snapshot();
    let records = server.hub.hosts().records();
    let meta = records.into_iter().find(|(key, _)| key == META).unwrap().1;
    enrol_all(&server, 2, 2);
    let generation = server.hub.hosts().table().generation();
    while client.delta().0 < generation {}
    client.ping();
    drop(client);
    wait_until("the end", || !server.listing().hosts[0].connected);
    for name in ["h2", "h3"] {
        server.hub.hosts().read(&format!("{HOST}{name}"), None).unwrap();
    }
    server.hub.hosts().read(META, Some(&meta)).unwrap();
    enrol_all(&server, 4, 4);
    let mut client = server.connect(&a.identity);
    client.send(&a.follow(generation));
    assert!(matches!(client.receive(), Ok(FromController::Welcome { .. })));
    let names: Vec<String> = client.snapshot().1.into_iter().map(|peer| peer.name).collect();
    assert_eq!(names, ["h4", "h5", "h6", "h7"]);
    // A host that is connected gets a snapshot, too.
    server.hub.hosts().read(META, Some(&meta)).unwrap();
    client.snapshot();
}
