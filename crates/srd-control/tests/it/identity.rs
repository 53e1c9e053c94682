//! The identity of the controller, which is changed while controllers and hosts run.

use srd_control::control::{Access, Control};
use srd_control::hosts::decide::{Enrolment, TokenOptions};
use srd_enrol::{ControllerIdentities, Fingerprint, Host, Identity, RefusalKind, Token};

use crate::sites::on_each_store;

/// Time of all requests, in seconds since 1970.
const NOW: u64 = 1_000_000;

fn create_token(control: &mut Control) -> Token {
    let options = TokenOptions { lifetime_s: 60, uses: 9 };
    control.decide(|table| table.create_token(options, NOW)).unwrap()
}

/// Enrols a host, and returns its fingerprint.
fn enrol(control: &mut Control, name: &str, number: u8, token: &Token) -> Fingerprint {
    use base64::Engine as _;
    let request = Enrolment {
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
    };
    control.decide(|table| table.enrol(&request, NOW)).unwrap();
    request.identity
}

/// Returns the identities that a controller has after the changes of the other one.
fn identities(control: &mut Control) -> ControllerIdentities {
    control.follow().unwrap();
    control.hosts().table().controller().unwrap()
}

fn without_next(control: &mut Control) -> Vec<String> {
    control.follow().unwrap();
    control.hosts().table().without_next_identity()
}

#[test]
fn the_identity_is_changed_in_steps_that_outlive_their_controllers() {
    on_each_store(&Access::AnyCredentials, |mut site| {
        let begin = |control: &mut Control| {
            control.decide(|table| table.begin(None, "10.77.0.0/16".parse().unwrap())).unwrap();
        };
        begin(site.controller(0));
        let before = identities(site.controller(1));
        assert_eq!(before.next, None);
        let first_token = create_token(site.controller(0));
        let a = enrol(site.controller(0), "a", 1, &first_token);
        let b = enrol(site.controller(1), "b", 2, &first_token);
        for refused in [
            site.controller(0).decide(|table| table.finish_identity(true)),
            site.controller(0).decide(|table| table.cancel_identity()),
        ] {
            assert!(refused.unwrap_err().message.contains("srd control identity rotate"));
        }

        site.controller(0).decide(|table| table.begin_identity()).unwrap();
        let during = identities(site.controller(1));
        assert_eq!(during.present, before.present);
        assert!(during.next.is_some_and(|next| next != during.present));
        // After a crash, the change goes on with the same next identity.
        site.crash();
        site.controller(1).decide(|table| table.begin_identity()).unwrap();
        assert_eq!(identities(site.controller(0)), during);
        begin(site.controller(0));
        assert_eq!(identities(site.controller(1)), during);
        let second_token = create_token(site.controller(1));
        assert_eq!(Some(second_token.controller), during.next);

        let finish = |control: &mut Control, excludes| {
            control.decide(|table| table.finish_identity(excludes))
        };
        let confirm = |control: &mut Control, host, stored| {
            control.decide(|table| table.confirm_identity(host, stored)).unwrap();
        };
        let refusal = finish(site.controller(0), false).unwrap_err();
        assert_eq!(refusal.reason, RefusalKind::Invalid);
        assert!(refusal.message.contains("next identity: a, b. They store it"), "{refusal}");
        // Other identities than those of the change do not count.
        let other = ControllerIdentities { present: a, next: during.next };
        confirm(site.controller(0), a, other);
        confirm(site.controller(0), a, before);
        assert_eq!(without_next(site.controller(1)), ["a", "b"]);
        confirm(site.controller(0), a, during);
        confirm(site.controller(1), a, during);
        assert_eq!(without_next(site.controller(1)), ["b"]);
        let refusal = finish(site.controller(1), false).unwrap_err();
        let said = refusal.message;
        assert!(said.contains("identity: b. They") && said.contains("--force"), "{said}");

        // The change is cancelled: tokens of the next identity are useless.
        let end = site.controller(1).decide(|table| table.cancel_identity()).unwrap();
        assert_eq!((end.present, end.excluded.len()), (before.present, 0));
        assert_eq!(end.tokens, [second_token.id]);
        assert_eq!(identities(site.controller(0)), before);
        assert!(without_next(site.controller(0)).is_empty());

        // Another change ends although a host is away: tokens of the former identity are useless.
        site.controller(1).decide(|table| table.begin_identity()).unwrap();
        let again = identities(site.controller(0));
        assert_ne!(again.next, during.next);
        assert_eq!(without_next(site.controller(0)), ["a", "b"]);
        confirm(site.controller(0), a, again);
        let third_token = create_token(site.controller(0));
        let end = finish(site.controller(1), true).unwrap();
        assert_eq!((Some(end.present), end.excluded), (again.next, vec!["b".to_owned()]));
        assert_eq!(end.tokens, [first_token.id]);
        let after = ControllerIdentities { present: end.present, next: None };
        assert_eq!(identities(site.controller(0)), after);
        site.crash();
        assert_eq!(identities(site.controller(1)), after);
        enrol(site.controller(0), "c", 3, &third_token);
        assert!(site.controller(1).hosts().table().name_of(b).is_some());

        // All hosts have stored the next identity.
        site.controller(0).decide(|table| table.remove("b")).unwrap();
        site.controller(0).decide(|table| table.remove("c")).unwrap();
        site.controller(1).decide(|table| table.begin_identity()).unwrap();
        let last = identities(site.controller(0));
        confirm(site.controller(0), a, last);
        let end = finish(site.controller(1), false).unwrap();
        assert_eq!((Some(end.present), end.excluded.len()), (last.next, 0));
    });
}

#[test]
fn a_controller_without_hosts_has_no_identity_to_change() {
    on_each_store(&Access::AnyCredentials, |mut site| {
        let refusal = site.controller(0).decide(|table| table.begin_identity()).unwrap_err();
        assert!(refusal.message.contains("--hosts"), "{refusal}");
    });
}
