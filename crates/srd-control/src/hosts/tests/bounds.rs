//! Hosts that have enrolled, and load the controller.

use super::*;
use crate::hosts::rate::BURST;

/// Each change cost a transaction of the store and a message to all hosts, without a bound.
#[test]
fn regression_a_host_that_changes_again_and_again_is_refused_for_a_while() {
    let server = Server::new("10.77.0.0/16");
    let (mut a, _client) = server.enrol("a", 1);
    let mut stored = 1;
    let mut follow = |port: u16| {
        a.host.endpoints[0].set_port(port);
        let mut client = server.connect(&a.identity);
        client.send(&a.follow(1));
        client.receive().map(drop)
    };
    for port in 1..100 {
        match follow(port) {
            Ok(()) => stored += 1,
            Err(refusal) => {
                assert_eq!(refusal.reason, RefusalKind::Unavailable);
                assert!(refusal.message.contains("too often"), "{refusal}");
            }
        }
    }
    let generation = server.hub.hosts().table().generation();
    // A slow run of this test takes longer than an interval.
    assert!((u64::from(BURST)..50).contains(&stored), "{stored} changes");
    assert_eq!(generation, stored + 1);
    assert_eq!(server.refused(RefusalKind::Unavailable), 100 - stored);
    // The host connects as it is stored, and other hosts change.
    let port = server.hub.hosts().table().hosts["a"].host.endpoints[0].port();
    follow(port).unwrap();
    server.enrol("b", 2);
}

/// Such a connection ended, but no counter showed it.
#[test]
fn regression_a_host_that_takes_no_message_is_disconnected_and_counted() {
    let server = Server::new("10.77.0.0/16");
    let (_a, mut client) = server.enrol("a", 1);
    // The controller answers each ping, and reads none while it waits for its answer to be taken.
    let wait = Duration::from_secs(1);
    client.stream.sock.set_write_timeout(Some(wait)).unwrap();
    let ping = encode(&FromHost::Ping, HOST_BYTES_MAX).unwrap();
    while client.stream.write_all(&ping).is_ok() {}
    wait_until("the count", || server.listing().unread == 1);
    wait_until("the end", || !server.listing().hosts[0].connected);
    server.enrol("b", 2);
}
