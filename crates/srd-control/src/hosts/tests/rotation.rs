//! Another identity of the controller, with real connections of hosts.

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
fn store(client: &mut Client, expected: ControllerIdentities) {
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
    store(&mut client, during);
    wait_until("the record", || entry(&server).without_next == ["b", "c"]);
    // A host that was away recognizes the controller by its present identity. A host that was
    // killed after it has stored the identities sends no acknowledgement.
    store(&mut follow(&server, &b, before).unwrap(), during);
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
    store(&mut client, after);
    store(&mut later, after);
    client.ping();
    store(&mut follow(&server, &b, during).unwrap(), after);
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
    store(&mut client, during);
    wait_until("the record", || entry(&server).without_next.is_empty());
    let end: IdentityEnd = ask(&server, Request::CancelIdentity).unwrap();
    assert_eq!(end.present, before.present.to_string());
    store(&mut client, before);
    client.ping();
    // A host that was away meanwhile accepts both, and gets in.
    store(&mut follow(&server, &a, during).unwrap(), before);
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
