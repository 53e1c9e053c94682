//! Another identity of the controller, and another key of a host, with real connections of hosts.

use srd_enrol::ControllerIdentities;

use super::stale::SharedStore;
use super::*;
use crate::hosts::admin::{IdentityEnd, IdentityEntry};

fn ask<T: serde::de::DeserializeOwned>(server: &Server, request: Request) -> Result<T, Refusal> {
    let answer = admin::answer(&server.hub, request)?;
    Ok(serde_json::from_value(answer).unwrap())
}

fn entry(server: &Server) -> IdentityEntry {
    ask(server, Request::Identity).unwrap()
}

/// Begins a change of the identity, and returns the identities.
fn rotate(server: &Server) -> ControllerIdentities {
    let _: IdentityEntry = ask(server, Request::RotateIdentity).unwrap();
    server.hub.hosts().table().controller().unwrap()
}

fn finish(server: &Server, excludes: bool) -> Result<IdentityEnd, Refusal> {
    ask(server, Request::FinishIdentity { excludes })
}

/// Connects a host that has stored these identities, and waits for its welcome.
fn follow(server: &Server, node: &Node, stored: ControllerIdentities) -> std::io::Result<Client> {
    let mut client = Client::open(server.at, &node.identity, &stored.accepted(), PATIENCE)?;
    let host = node.host.clone();
    let identities = Some(stored);
    client.send(&FromHost::Follow { version: VERSION, generation: 0, host, identities });
    assert!(matches!(client.receive(), Ok(FromController::Welcome { .. })));
    client.snapshot();
    Ok(client)
}

/// Waits for identities, and acknowledges them.
fn store_identities(client: &mut Client, expected: ControllerIdentities) {
    assert_eq!(client.receive(), Ok(FromController::Identities(expected)));
    client.send(&FromHost::IdentitiesStored(expected));
}

#[test]
fn hosts_store_the_next_identity_and_stay_connected() {
    let server = Server::new("10.77.0.0/16");
    let before = server.hub.hosts().table().controller().unwrap();
    let (a, _) = server.enrol("a", 1);
    let (b, _) = server.enrol("b", 2);
    let (c, _) = server.enrol("c", 3);
    let mut client = follow(&server, &a, before).unwrap();
    client.ping();
    let during = rotate(&server);
    assert_eq!(rotate(&server), during, "a second request continues the change");
    assert_eq!((during.present, during.next.is_some()), (before.present, true));
    assert_eq!(entry(&server).hosts, 3);
    store_identities(&mut client, during);
    wait_until("the record", || entry(&server).without_next == ["b", "c"]);
    // A host that was away recognizes the controller by its present identity. A host that was
    // killed after it has stored the identities sends no acknowledgement.
    store_identities(&mut follow(&server, &b, before).unwrap(), during);
    wait_until("the record", || entry(&server).without_next == ["c"]);
    let mut later = follow(&server, &c, during).unwrap();
    wait_until("the record", || entry(&server).without_next.is_empty());
    later.ping();

    // A host that enrols during the change needs no other token afterwards.
    let token = server.token(1);
    assert_eq!(Some(token.controller), during.next);
    let end = finish(&server, false).unwrap();
    assert_eq!(Some(end.present.clone()), during.next.map(|next| next.to_string()));
    assert!(end.excluded.is_empty(), "{end:?}");
    let after = ControllerIdentities { present: during.next.unwrap(), next: None };
    // Connections go on, and new ones have the next identity.
    store_identities(&mut client, after);
    store_identities(&mut later, after);
    client.ping();
    store_identities(&mut follow(&server, &b, during).unwrap(), after);
    assert!(follow(&server, &b, before).is_err(), "the former identity is gone");
    follow(&server, &b, after).unwrap().ping();
    let d = Node::new("d", 4);
    let mut client = server.connect(&d.identity);
    client.send(&d.enrol(&token));
    assert!(matches!(client.receive(), Ok(FromController::Welcome { .. })));
}

#[test]
fn a_change_that_is_cancelled_leaves_the_former_identity() {
    let server = Server::new("10.77.0.0/16");
    let before = server.hub.hosts().table().controller().unwrap();
    let (a, _) = server.enrol("a", 1);
    let mut client = follow(&server, &a, before).unwrap();
    let during = rotate(&server);
    store_identities(&mut client, during);
    wait_until("the record", || entry(&server).without_next.is_empty());
    let end: IdentityEnd = ask(&server, Request::CancelIdentity).unwrap();
    assert_eq!(end.present, before.present.to_string());
    store_identities(&mut client, before);
    client.ping();
    // A host that was away meanwhile accepts both, and gets in.
    store_identities(&mut follow(&server, &a, during).unwrap(), before);
    let error = finish(&server, true).unwrap_err();
    assert!(error.message.contains("srd control identity rotate"), "{error}");
}

/// Such a host cannot read the message, and would end the connection.
#[test]
fn a_host_of_an_earlier_build_is_connected_as_before_and_named() {
    let server = Server::new("10.77.0.0/16");
    let (a, mut client) = server.enrol("a", 1);
    client.snapshot();
    rotate(&server);
    client.ping();
    let mut client = server.connect(&a.identity);
    client.send(&a.follow(0));
    assert!(matches!(client.receive(), Ok(FromController::Welcome { .. })));
    client.snapshot();
    client.ping();
    let error = finish(&server, false).unwrap_err();
    assert!(error.message.contains("identity: a.") && error.message.contains("--force"), "{error}");
    assert_eq!(finish(&server, true).unwrap().excluded, ["a"]);
    client.ping();
}

/// A host must not lose the next identity because a controller has not read the store for a while.
#[test]
fn a_controller_that_is_late_takes_no_identity_away() {
    let store = SharedStore::default();
    let [first, late] = [(); 2].map(|()| Server::with("10.77.0.0/16", Box::new(store.clone())));
    let before = first.hub.hosts().table().controller().unwrap();
    let (a, _) = first.enrol("a", 1);
    late.hub.decide(|_| Ok((Vec::new(), ()))).unwrap();
    let during = rotate(&first);
    assert_eq!(late.hub.hosts().table().controller(), Some(before));
    // The host has stored the identities, and the first controller has ended before it recorded so.
    let mut client = follow(&late, &a, during).unwrap();
    wait_until("the record", || entry(&first).without_next.is_empty());
    client.ping();
    // Without the store, the late controller serves the host, and sends it nothing.
    let end: IdentityEnd = ask(&first, Request::CancelIdentity).unwrap();
    assert_eq!(end.present, before.present.to_string());
    store.set_away(true);
    let mut client = follow(&late, &a, before).unwrap();
    client.ping();
    store.set_away(false);
    client.send(&FromHost::Ping);
    client.ping();
}

/// The session of a host ended again and again while the state could not be written.
#[test]
fn regression_a_host_is_served_while_its_identities_cannot_be_recorded() {
    let store = SharedStore::default();
    let server = Server::with("10.77.0.0/16", Box::new(store.clone()));
    let before = server.hub.hosts().table().controller().unwrap();
    let (a, _) = server.enrol("a", 1);
    let mut client = follow(&server, &a, before).unwrap();
    let during = rotate(&server);
    store.set_full(true);
    store_identities(&mut client, during);
    (0..5).for_each(|_| client.ping());
    // It connects again.
    let mut client = follow(&server, &a, during).unwrap();
    (0..5).for_each(|_| client.ping());
    // Without the store, too.
    store.set_away(true);
    (0..5).for_each(|_| client.ping());
    assert_eq!(server.refused(RefusalKind::Unavailable), 0);
    store.set_away(false);
    assert_eq!(entry(&server).without_next, ["a"]);
    store.set_full(false);
    wait_until("the record", || {
        client.ping();
        entry(&server).without_next.is_empty()
    });
}

/// The session of a host ended if the state could not be written or read at the moment in which the
/// host offered its next key.
#[test]
fn regression_a_host_is_served_while_its_next_key_cannot_be_stored() {
    let store = SharedStore::default();
    let server = Server::with("10.77.0.0/16", Box::new(store.clone()));
    let (_a, mut client) = server.enrol("a", 1);
    client.snapshot();
    server.hub.decide(|table| table.rotate("a")).unwrap();
    assert_eq!(client.receive(), Ok(FromController::Rotate));
    store.set_full(true);
    client.send(&FromHost::NextKey { public_key: key(7) });
    (0..5).for_each(|_| client.ping());
    store.set_away(true);
    // A host may offer its key twice.
    client.send(&FromHost::NextKey { public_key: key(7) });
    (0..5).for_each(|_| client.ping());
    assert_eq!(server.refused(RefusalKind::Unavailable), 0);
    store.set_away(false);
    assert_eq!(server.listing().hosts[0].rotation.as_deref(), Some("requested"));
    store.set_full(false);
    wait_until("the answer", || {
        client.send(&FromHost::Ping);
        client.receive().unwrap() == FromController::KeyStored { public_key: key(7) }
    });
    assert_eq!(server.listing().hosts[0].rotation.as_deref(), Some("not in use yet"));
}

/// The host got no answer to its pings while the store did not answer, and so it connected again
/// and again.
#[test]
fn regression_a_host_is_served_while_the_store_of_its_next_key_does_not_answer() {
    let store = SharedStore::default();
    let server = Server::with("10.77.0.0/16", Box::new(store.clone()));
    let (_a, mut client) = server.enrol("a", 1);
    client.snapshot();
    let held = store.hold();
    client.send(&FromHost::NextKey { public_key: key(7) });
    (0..5).for_each(|_| client.ping());
    drop(held);
    assert_eq!(client.receive(), Ok(FromController::KeyStored { public_key: key(7) }));
}

/// A host that had enrolled with a token of the next identity, and had not connected since, counted
/// as one without the next identity. After a change that was cancelled, it was not named.
#[test]
fn regression_a_host_that_only_has_the_next_identity_is_known_as_such() {
    let server = Server::new("10.77.0.0/16");
    let enrol = |name: &str, number: u8| {
        let node = Node::new(name, number);
        let request = node.request(&server.token(1));
        server.hub.decide(|table| table.enrol(&request, now_s())).unwrap();
        node
    };
    let before = server.hub.hosts().table().controller().unwrap();
    enrol("former", 1);
    let during = rotate(&server);
    let [a, _] = [("a", 2), ("b", 3)].map(|(name, number)| enrol(name, number));
    assert_eq!(entry(&server).without_next, ["former"]);
    // As soon as a host has connected, it has both.
    let only_next = ControllerIdentities { present: during.next.unwrap(), next: None };
    let mut client = follow(&server, &a, only_next).unwrap();
    store_identities(&mut client, during);
    client.ping();
    let is_only = |name: &str| server.hub.hosts().table().hosts[name].has_only_next;
    wait_until("the record", || !is_only("a"));
    assert!(is_only("b") && !is_only("former"));
    let end: IdentityEnd = ask(&server, Request::CancelIdentity).unwrap();
    assert_eq!((end.present, end.excluded), (before.present.to_string(), vec!["b".to_owned()]));

    // The host of a change that was cancelled is one without the next identity of another change.
    rotate(&server);
    enrol("c", 4);
    assert_eq!(entry(&server).without_next, ["a", "b", "former"]);
    let end = finish(&server, true).unwrap();
    assert_eq!(end.excluded, ["a", "b", "former"]);
    // The host with the identity that is now the present one is not excluded by later changes.
    rotate(&server);
    let end: IdentityEnd = ask(&server, Request::CancelIdentity).unwrap();
    assert!(end.excluded.is_empty(), "{end:?}");
}
