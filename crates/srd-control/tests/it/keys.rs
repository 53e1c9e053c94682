//! Access keys that are changed while servers run.

use std::time::{Duration, Instant};

use srd_control::control::{Access, Control, console, keys::KEYS_MAX};
use srd_control::http::HttpRequest;
use srd_control::machines::NoMachines;
use srd_control::sign::{DrawnKey, KeyEntry};
use srd_control::store::{MemoryStore, Store};

use crate::access::signed;
use crate::sites::on_each_store;
use crate::support::{NOW, SharedStore, first, request};

/// Sends a signed request, and returns the code of the error; empty if there is no error.
fn code(control: &mut Control, key: &DrawnKey) -> String {
    let request = signed(key, request("us-east-1", "Action=DescribeVpcs"));
    let answer = control.handle(&request, NOW);
    assert!(!answer.body.contains(&key.secret));
    match answer.status {
        200 => String::new(),
        _ => first(&answer.body, "Code"),
    }
}

/// Returns the status of a request of the console, whose token follows from the key.
fn console_status(control: &mut Control, key: &DrawnKey) -> u16 {
    let request = HttpRequest {
        method: "GET".to_owned(),
        path: "/console/regions".to_owned(),
        query: String::new(),
        headers: vec![
            ("host".to_owned(), "127.0.0.1:4599".to_owned()),
            ("authorization".to_owned(), format!("Bearer {}", console::token(key))),
        ],
        body: Vec::new(),
    };
    control.handle(&request, NOW).status
}

/// Longest wait until a bound of reads permits the next one.
const PATIENCE: Duration = Duration::from_secs(60);

fn listed(control: &mut Control) -> Vec<(String, bool)> {
    let entry = |key: KeyEntry| (key.id, key.is_active);
    control.access_keys().unwrap().into_iter().map(entry).collect()
}

#[test]
fn a_key_is_replaced_without_a_restart_and_the_former_one_is_refused_everywhere() {
    on_each_store(&Access::Local, |mut site| {
        let former = site.controller(0).key().unwrap();
        assert_eq!(code(site.controller(1), &former), "");
        let new = site.controller(0).create_access_key(u64::MAX).unwrap();
        // The other controller has not followed the change yet.
        assert_eq!(code(site.controller(1), &new), "");
        assert_eq!(code(site.controller(0), &former), "");
        let error = site.controller(1).create_access_key(NOW).unwrap_err();
        assert!(error.contains("srd control key delete"), "{error}");
        assert_eq!(listed(site.controller(1)).len(), KEYS_MAX);

        assert_eq!(console_status(site.controller(1), &former), 200);
        site.controller(0).set_access_key(&former.id, false).unwrap();
        assert_eq!(console_status(site.controller(1), &former), 401);
        for controller in [1, 0] {
            assert_eq!(code(site.controller(controller), &former), "AuthFailure");
            assert_eq!(code(site.controller(controller), &new), "");
        }
        let entries = [(former.id.clone(), false), (new.id.clone(), true)];
        assert_eq!(listed(site.controller(1)), entries);
        // Without an active key, the API could not be used.
        let other = site.controller(1);
        for refused in [other.set_access_key(&new.id, false), other.delete_access_key(&new.id)] {
            assert!(refused.unwrap_err().contains("no other access key is active"));
        }
        // The state is the same after a crash.
        site.crash();
        assert_eq!(code(site.controller(1), &former), "AuthFailure");
        assert_eq!(site.controller(1).key().unwrap().id, new.id);
        assert_eq!(listed(site.controller(1)), entries);

        // The former key is taken back, and deleted later.
        site.controller(1).set_access_key(&former.id, true).unwrap();
        assert_eq!(code(site.controller(0), &former), "");
        assert_eq!(site.controller(0).key().unwrap().id, former.id);
        site.controller(0).delete_access_key(&former.id).unwrap();
        assert_eq!(code(site.controller(1), &former), "AuthFailure");
        assert_eq!(listed(site.controller(1)), entries[1..]);
        for id in [former.id.as_str(), "", "hosts/identity"] {
            let other = site.controller(1);
            for refused in [
                other.set_access_key(id, true),
                other.set_access_key(id, false),
                other.delete_access_key(id),
            ] {
                assert!(refused.unwrap_err().contains("srd control key list"), "{id}");
            }
        }
    });
}

/// A state of an earlier build has a key without a time, which is active.
#[test]
fn a_key_of_an_earlier_build_is_active_and_the_oldest() {
    let mut store = SharedStore::default();
    store.load().unwrap();
    let record = "{\"Secret\":\"hidden-secret\",\"Account\":\"123456789012\"}".to_owned();
    store.commit(vec![("access/SRDF".to_owned(), Some(record))]).unwrap();
    let mut control =
        Control::new(Access::Local, 1, Box::new(store), Box::new(NoMachines)).unwrap();
    let key = control.key().unwrap();
    assert_eq!((key.id.as_str(), key.secret.as_str()), ("SRDF", "hidden-secret"));
    control.create_access_key(1).unwrap();
    assert_eq!(control.key().unwrap().id, "SRDF");
    assert_eq!(control.access_keys().unwrap()[0].created_at, 0);
    assert_eq!(code(&mut control, &key), "");
}

/// The time of the machine stands still. After some signatures of unknown keys, a key that another
/// controller had made was never found.
#[test]
fn regression_a_new_key_is_found_after_strangers_while_the_clock_stands_still() {
    on_each_store(&Access::Local, |mut site| {
        let stranger = DrawnKey::draw().unwrap();
        for _ in 0..100 {
            assert_eq!(code(site.controller(1), &stranger), "AuthFailure");
        }
        let new = site.controller(0).create_access_key(NOW).unwrap();
        let until = Instant::now() + PATIENCE;
        while !code(site.controller(1), &new).is_empty() {
            assert!(Instant::now() < until, "the key is not found");
            std::thread::sleep(Duration::from_millis(50));
        }
    });
}

#[test]
fn keys_that_are_no_part_of_the_state_cannot_be_changed() {
    let trial = Access::Trial(DrawnKey::draw().unwrap().only("123456789012"));
    for access in [Access::AnyCredentials, trial] {
        let store = Box::new(MemoryStore::default());
        let mut control = Control::new(access, 1, store, Box::new(NoMachines)).unwrap();
        assert!(control.create_access_key(NOW).unwrap_err().contains("--state"));
        assert!(control.access_keys().unwrap_err().contains("--state"));
    }
}
