//! Hosts that enrol at controllers beside each other, with one store.

use srd_control::control::{Access, Control};
use srd_control::hosts::decide::{Enrolment, TokenOptions};
use srd_control::machines::NoMachines;
use srd_enrol::{FromController, Host, Identity, RefusalKind, Token};

use crate::support::SharedStore;

/// Time of all requests, in seconds since 1970.
const NOW: u64 = 1_000_000;

fn open(store: &SharedStore) -> Control {
    let store = Box::new(store.clone());
    let control = Control::new(Access::AnyCredentials, 1, store, Box::new(NoMachines));
    let mut control = control.unwrap();
    control.decide(|table| table.begin(None, "10.77.0.0/16".parse().unwrap())).unwrap();
    control
}

fn request(name: &str, number: u8, token: &Token) -> Enrolment {
    use base64::Engine as _;
    Enrolment {
        identity: Identity::draw().unwrap().fingerprint(),
        token: token.id.clone(),
        secret: token.secret.clone(),
        name: name.to_owned(),
        host: Host {
            public_key: base64::engine::general_purpose::STANDARD.encode([number; 32]),
            endpoints: vec![([192, 0, 2, number], 7471).into()],
            processors: 1,
            memory_bytes: 1,
            capacity: None,
        },
    }
}

#[test]
fn controllers_beside_each_other_have_the_same_hosts() {
    let store = SharedStore::default();
    let (mut a, mut b) = (open(&store), open(&store));
    let fingerprint = a.hosts().table().fingerprint();
    assert!(fingerprint.is_some());
    assert_eq!(b.hosts().table().fingerprint(), fingerprint);
    let options = TokenOptions { lifetime_s: 60, uses: 2 };
    let token = a.decide(|table| table.create_token(options, NOW)).unwrap();
    let first = b.decide(|table| table.enrol(&request("x", 1, &token), NOW)).unwrap();
    // The other controller has the name, the address and the use of the token.
    let taken = a.decide(|table| table.enrol(&request("x", 2, &token), NOW)).unwrap_err();
    assert_eq!(taken.reason, RefusalKind::NameTaken);
    let second = a.decide(|table| table.enrol(&request("y", 2, &token), NOW)).unwrap();
    assert_ne!(first.address, second.address);
    let used = b.decide(|table| table.enrol(&request("z", 3, &token), NOW)).unwrap_err();
    assert_eq!(used.reason, RefusalKind::TokenUsed);
    let generation = a.hosts().table().generation();
    assert_eq!(b.hosts().table().generation(), generation);
    // A removal arrives as a change, and wakes the sessions of the other controller.
    let changes = b.hosts().changes();
    a.decide(|table| table.remove("x")).unwrap();
    assert!(!changes.has_changed().unwrap());
    b.follow().unwrap();
    assert!(changes.has_changed().unwrap());
    for control in [&a, &b] {
        let removed = vec!["x".to_owned()];
        let delta = FromController::Delta { generation: generation + 1, changed: vec![], removed };
        let since = control.hosts().table().since(generation, "y");
        assert_eq!(since, Some((generation + 1, delta)));
    }
    // A controller that starts later gets the same hosts.
    let hosts = open(&store).hosts();
    let all = |table: &srd_control::hosts::table::Table| table.since(0, "");
    assert_eq!(all(&hosts.table()), all(&b.hosts().table()));
}
