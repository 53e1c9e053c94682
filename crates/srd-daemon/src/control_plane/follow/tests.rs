//! Tests of the thread that follows the controller.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::mpsc;

use super::*;
use crate::control_plane::state::{
    NEXT_KEY, OFFERED_KEY, PENDING_KEY, PRIVATE_KEY, StateDirectory,
};
use crate::fake_plane::FakePlane;
use srd_enrol::{ControllerIdentities, Refusal, frame, tls};

fn peer(name: &str, last: u8) -> Peer {
    Peer {
        name: name.to_owned(),
        public_key: name.to_owned(),
        endpoints: Vec::new(),
        address: [10, 77, 0, last].into(),
    }
}

#[test]
fn a_delta_removes_changes_and_adds_peers() {
    let before = [peer("a", 1), peer("b", 2), peer("c", 3)];
    let after = merge(&before, vec![peer("d", 4), peer("b", 9)], &["a".to_owned()]);
    assert_eq!(after, [peer("b", 9), peer("c", 3), peer("d", 4)]);
    assert_eq!(merge(&after, Vec::new(), &["x".to_owned()]), after);
}

/// Each session reset the pause, so a host connected several times in a second to a controller
/// that ended each session.
#[test]
fn regression_sessions_that_are_short_do_not_shorten_the_pause() {
    let refusal = |reason| End::Link(LinkError::Refused(Refusal::new(reason, "")));
    let broken = || End::Link(LinkError::Broken(String::new()));
    let short = Duration::from_millis(50);
    for end in [broken(), refusal(RefusalKind::Unavailable)] {
        let mut pause = PAUSE_MIN;
        for _ in 0..6 {
            pause = (pause_after(pause, short, &end) * 2).min(PAUSE_MAX);
        }
        assert_eq!(pause, PAUSE_MAX);
        assert_eq!(pause_after(pause, LONG_SESSION + short, &end), PAUSE_MIN);
    }
    assert_eq!(pause_after(PAUSE_MIN, short, &refusal(RefusalKind::OtherKey)), REFUSED_PAUSE);
}

/// A reason was in the log once, and never again.
#[test]
fn regression_the_log_repeats_why_the_host_is_not_connected() {
    let mut log = LogRate::default();
    let begin = Instant::now();
    let mut lines = 0;
    for second in (0..3600).step_by(10) {
        let now = begin + Duration::from_secs(second);
        lines += u32::from(log.is_due("other-controller", false, now));
    }
    assert_eq!(lines, 6);
    assert!(log.is_due("unreachable", false, begin), "another reason");
    assert!(!log.is_due("unreachable", false, begin));
    assert!(log.is_due("unreachable", true, begin), "the end of a connection");
}

#[test]
fn each_end_of_a_connection_has_its_own_word() {
    let refused = |reason| End::Link(LinkError::Refused(Refusal::new(reason, "no")));
    let word = |end: End| end.problem().map(|problem| problem.kind);
    assert_eq!(word(End::Link(LinkError::Broken(String::new()))), Some("unreachable"));
    let other = End::Link(LinkError::OtherController(String::new()));
    assert_eq!(word(other), Some("other-controller"));
    assert_eq!(word(refused(RefusalKind::HostUnknown)), Some("removed"));
    assert_eq!(word(refused(RefusalKind::Superseded)), Some("refused"));
    assert_eq!(word(End::State(String::new())), Some("state-directory"));
    assert_eq!(word(End::Cloud(String::new())), Some("cloud"));
    assert_eq!(word(End::Daemon), None);
    assert_eq!(word(End::NextKey), None);
    // The status contained no remedy.
    let removed = refused(RefusalKind::HostUnknown).problem().unwrap().text;
    assert!(removed.starts_with("no; "), "{removed}");
    assert!(removed.contains("`srd control token create`"), "{removed}");
}

#[test]
fn the_pause_between_attempts_is_at_most_the_bound() {
    for _ in 0..50 {
        let pause = jittered(PAUSE_MAX);
        assert!(pause >= PAUSE_MAX / 2 && pause <= PAUSE_MAX, "{pause:?}");
    }
}

/// Starts a controller with these identities. `answer` returns the messages that answer a message
/// of the host; `None` ends the connection. Returns the address.
fn controller(
    identities: Vec<Identity>,
    answer: impl Fn(FromHost) -> Option<Vec<FromController>> + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let settings = tls::of_controller(move || identities.clone()).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = rustls::ServerConnection::new(Arc::clone(&settings)).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, stream.unwrap());
            let mut inbox = frame::Inbox::new(frame::HOST_BYTES_MAX);
            let mut bytes = [0; 4096];
            'connection: while let Ok(count @ 1..) = stream.read(&mut bytes) {
                inbox.push(&bytes[..count]);
                while let Some(message) = inbox.take().unwrap() {
                    let Some(answers) = answer(message) else { break 'connection };
                    for answer in answers {
                        let bytes = frame::encode(&answer, frame::CONTROLLER_BYTES_MAX).unwrap();
                        stream.write_all(&bytes).and_then(|()| stream.flush()).unwrap();
                    }
                }
            }
        }
    });
    at
}

fn welcome() -> FromController {
    FromController::Welcome { name: "a".to_owned(), address: "10.77.0.1/16".parse().unwrap() }
}

/// Makes the state directory of a host that has enrolled at a controller.
fn enrolled(directory: &Path, controller: &Identity) -> StateDirectory {
    let state = StateDirectory::new(directory.join("state"));
    state.create().unwrap();
    state.key(PRIVATE_KEY).unwrap();
    let enrolment = Enrolment {
        controller: controller.fingerprint(),
        next_controller: None,
        name: "a".to_owned(),
        address: "10.77.0.1/16".parse().unwrap(),
        endpoints: vec!["127.0.0.1:7471".parse().unwrap()],
        generation: 1,
        peers: Vec::new(),
        is_removed: false,
    };
    state.store(&enrolment).unwrap();
    state
}

/// Returns the follower of the host with this directory, as a start makes it.
fn follower(directory: &Path, at: SocketAddr, plane: &FakePlane) -> Follower {
    let file = directory.join("srd0.toml");
    let text = format!(
        "[interface]\nlisten = \"127.0.0.1:7471\"\n[enrol]\ncontroller = \"{at}\"\n\
         name = \"a\"\ndirectory = \"state\"\n"
    );
    std::fs::write(&file, text).unwrap();
    let config = Config::load(&file).unwrap();
    let enrol = config.enrol.clone().unwrap();
    let state = &enrol.directory;
    Follower {
        session: SharedSession::default(),
        page: Arc::default(),
        applied: Vec::new(),
        key: config.interface.protection.private_key().unwrap().public(),
        next: state.next_key().unwrap(),
        identity: state.identity().unwrap(),
        enrolment: state.enrolment().unwrap().unwrap(),
        interface: config.interface.clone(),
        plane: plane.handle.clone(),
        cloud: CloudPart::default(),
        first_address: 0,
        enrol,
    }
}

/// Runs a session, and returns the kind of the problem with which it ends.
fn end_of_session(follower: &mut Follower) -> &'static str {
    match follower.session(&mut None) {
        Ok(never) => match never {},
        Err(end) => end.problem().unwrap().kind,
    }
}

/// The file of the key had its former name until the answer of the controller. So a host that was
/// killed before started with the former key, which its peers refused.
#[test]
fn regression_a_next_key_is_marked_before_the_controller_has_it() {
    let (directory, plane) = (tempfile::tempdir().unwrap(), FakePlane::start());
    let own = Identity::draw().unwrap();
    let state = enrolled(directory.path(), &own);
    let [former, next] = [PRIVATE_KEY, NEXT_KEY].map(|name| state.key(name).unwrap());
    let (sender, offers) = mpsc::channel();
    let looks = state.clone();
    let at = controller(vec![own.clone()], move |message| match message {
        FromHost::Follow { host, .. } => {
            let is_marked = looks.key_if_any(OFFERED_KEY).unwrap().is_some();
            sender.send((host.public_key, is_marked)).unwrap();
            None
        }
        other => panic!("{other:?}"),
    });
    let mut host = follower(directory.path(), at, &plane);
    assert_eq!(end_of_session(&mut host), "unreachable");
    assert_eq!(offers.recv().unwrap(), (next.public().to_string(), true));
    // The host is killed now, and its next start does not reach the controller.
    assert_eq!(state.use_offered_key(), Ok(true));
    assert_eq!(state.key(PRIVATE_KEY), Ok(next.clone()));
    // The next session has the key of the start. The controller sends it to the peers.
    let at = controller(vec![own], move |message| match message {
        FromHost::Follow { host, .. } if host.public_key == next.public().to_string() => {
            Some(vec![welcome()])
        }
        FromHost::Applied { .. } => None,
        other => panic!("{other:?}"),
    });
    let mut host = follower(directory.path(), at, &plane);
    assert_eq!(end_of_session(&mut host), "unreachable");
    assert!(!host.has_next_key() && host.key != former.public());
}

/// A controller that refuses the offered key does not have it, for example because its state was
/// replaced by a backup: a start must not use the key.
#[test]
fn a_key_that_the_controller_has_refused_is_not_used_by_a_start() {
    let (directory, plane) = (tempfile::tempdir().unwrap(), FakePlane::start());
    let own = Identity::draw().unwrap();
    let state = enrolled(directory.path(), &own);
    let [former, next] = [PRIVATE_KEY, NEXT_KEY].map(|name| state.key(name).unwrap());
    let public = former.public().to_string();
    let at = controller(vec![own], move |message| match message {
        FromHost::Follow { host, .. } if host.public_key == public => Some(vec![welcome()]),
        FromHost::Follow { .. } => {
            let refusal = Refusal::new(RefusalKind::OtherKey, "another key");
            Some(vec![FromController::Refused(refusal)])
        }
        FromHost::NextKey { .. } => None,
        _ => Some(Vec::new()),
    });
    let mut host = follower(directory.path(), at, &plane);
    assert_eq!(end_of_session(&mut host), "refused");
    host.turn_key();
    assert_eq!(state.use_offered_key(), Ok(false));
    // The session with the former key offers the next one anew.
    assert_eq!(end_of_session(&mut host), "unreachable");
    assert_eq!(state.key(PRIVATE_KEY), Ok(former));
    assert_eq!(state.key_if_any(PENDING_KEY), Ok(Some(next)));
}

/// Answers of a controller that sends these identities after its welcome. The connection ends with
/// the acknowledgement, which `sender` gets with the identities that the host has stored before.
fn sends(
    identities: ControllerIdentities,
    state: StateDirectory,
    sender: mpsc::Sender<(ControllerIdentities, ControllerIdentities)>,
) -> impl Fn(FromHost) -> Option<Vec<FromController>> + Send + 'static {
    move |message| match message {
        FromHost::Follow { .. } => Some(vec![welcome(), FromController::Identities(identities)]),
        FromHost::IdentitiesStored(acknowledged) => {
            let stored = state.enrolment().unwrap().unwrap().identities();
            sender.send((acknowledged, stored)).unwrap();
            None
        }
        _ => Some(Vec::new()),
    }
}

#[test]
fn a_host_accepts_both_identities_of_its_controller_until_the_change_is_over() {
    let (directory, plane) = (tempfile::tempdir().unwrap(), FakePlane::start());
    let [present, next] = [(); 2].map(|()| Identity::draw().unwrap());
    let state = enrolled(directory.path(), &present);
    let during =
        ControllerIdentities { present: present.fingerprint(), next: Some(next.fingerprint()) };
    let after = ControllerIdentities { present: next.fingerprint(), next: None };
    let (sender, stored) = mpsc::channel();
    // Identity that the controller shows, identities that it sends, and the end of the session.
    for (own, sent, ends) in [
        (&next, during, "other-controller"),
        (&present, during, "unreachable"),
        (&present, during, "unreachable"),
        (&next, during, "unreachable"),
        (&next, after, "unreachable"),
        (&present, during, "other-controller"),
    ] {
        let at = controller(vec![own.clone()], sends(sent, state.clone(), sender.clone()));
        // Each session is one of another process, as after a kill.
        let mut host = follower(directory.path(), at, &plane);
        assert_eq!(end_of_session(&mut host), ends);
        if ends == "unreachable" {
            assert_eq!(stored.recv().unwrap(), (sent, sent));
        }
    }
    assert_eq!(state.enrolment().unwrap().unwrap().identities(), after);
}
