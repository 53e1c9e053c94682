use super::*;
use crate::capture::copy::copy;
use crate::capture::{Filter, Layers};
use crate::config::{Config, ConfigError, Control, ReloadReport, UdpOrdering};
use crate::fake_plane::FakePlane;
use crate::plane::{Change, PlaneHandle};
use crate::snapshot::{PeerSnapshot, Snapshot};
use std::cell::RefCell;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Upper bound for each step of these tests.
const LONG: Duration = Duration::from_secs(60);

struct Daemon {
    _directory: tempfile::TempDir,
    path: PathBuf,
    plane: FakePlane,
    _server: Server,
}

fn config() -> Result<Config, ConfigError> {
    let text = "[interface]\nmode = \"transparent\"\nlisten = \"0.0.0.0:7471\"\n\
                protection = \"plain\"\n[[peer]]\nname = \"d\"\n\
                endpoint = \"192.0.2.2:7471\"\nallowed = [\"192.0.2.2\"]\n";
    Config::parse(text, Path::new("srd.toml"))
}

fn start_with(loader: Loader, plane: &PlaneHandle) -> (tempfile::TempDir, PathBuf, Server) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run/srd0.sock");
    let socket = Socket::bind(&Control::at(path.clone())).unwrap();
    let server = Server::start(socket, plane.clone(), loader, Services::default()).unwrap();
    (directory, path, server)
}

fn daemon() -> Daemon {
    let plane = FakePlane::start();
    let (directory, path, server) = start_with(Arc::new(config), &plane.handle);
    Daemon { _directory: directory, path, plane, _server: server }
}

impl Daemon {
    fn ask<T: serde::de::DeserializeOwned>(&self, request: &Request) -> Result<T, ClientError> {
        Client::connect(&self.path)?.ask(request)
    }

    /// Sends raw bytes to the daemon. Returns its answer as text.
    fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(&self.path).unwrap();
        stream.write_all(bytes).unwrap();
        let mut text = String::new();
        // The server may close the connection before it has read all bytes.
        let _ = stream.read_to_string(&mut text);
        text
    }
}

#[test]
fn a_daemon_that_accepts_no_pods_says_so() {
    let pod = srd_enrol::PodRequest::Terminate { instance: "i-1".to_owned() };
    let refused = refusal(daemon().ask::<srd_enrol::PodAnswer>(&Request::Pod { pod }));
    assert_eq!(refused.kind, RefusalKind::BadRequest);
    assert!(refused.text.contains("pods = true"), "{refused}");
}

#[test]
fn requests_about_instances_follow_on_the_connection_if_the_node_has_any() {
    let refused = refusal(daemon().ask::<()>(&Request::Instances));
    assert!(refused.text.contains("add a table [cloud]"), "{refused}");

    let plane = FakePlane::start();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run/srd0.sock");
    let socket = Socket::bind(&Control::at(path.clone())).unwrap();
    // It repeats what it reads, until the client closes the connection.
    let echo = |mut stream: UnixStream| {
        let mut bytes = [0; 64];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            let _ = stream.write_all(&bytes[..count]);
        }
    };
    let loader: Loader = Arc::new(config);
    let services = Services { instances: Some(Arc::new(echo)), pods: None };
    let _server = Server::start(socket, plane.handle.clone(), loader, services).unwrap();
    // More connections than the socket has slots for other requests.
    let begin = |n: usize| {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"{\"request\":\"instances\"}\n").unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"{\"ok\":null}\n", "connection {n}");
        stream
    };
    let mut all: Vec<UnixStream> = (0..2 * CONNECTIONS_MAX).map(begin).collect();
    for (n, stream) in all.iter_mut().enumerate() {
        stream.write_all(&[u8::try_from(n).unwrap()]).unwrap();
        let mut byte = [0; 1];
        stream.read_exact(&mut byte).unwrap();
        assert_eq!(usize::from(byte[0]), n);
    }
    let status: Snapshot = Client::connect(&path).unwrap().ask(&STATUS).unwrap();
    assert_eq!(status.interface, "srd0");
}

const STATUS: Request = Request::Status { paths: false, flows: 0 };

fn refusal<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> Refusal {
    match answer {
        Err(ClientError::Refused(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn every_request_has_its_answer() {
    let daemon = daemon();
    let status: Snapshot = daemon.ask(&STATUS).unwrap();
    assert_eq!((status.interface.as_str(), status.peers.len()), ("srd0", 2));
    assert!(status.flows.is_empty() && status.peers[0].path_reports.is_empty());
    let status: Snapshot = daemon.ask(&Request::Status { paths: true, flows: 5 }).unwrap();
    assert_eq!((status.flows.len(), status.peers[1].path_reports.len()), (1, 16));
    let stats: Stats = daemon.ask(&Request::Stats).unwrap();
    assert_eq!((stats.counters.ena_srd_mode, stats.drops["malformed"]), (3, 2));
    let peer: PeerSnapshot = daemon.ask(&Request::Paths { peer: "b".into() }).unwrap();
    assert_eq!(peer.path_reports.len(), 16);
    let report: ReloadReport = daemon.ask(&Request::Reload).unwrap();
    assert_eq!(report.added, ["d"]);
}

#[test]
fn a_change_reaches_the_plane_under_the_peers_name() {
    let daemon = daemon();
    let peer = Some("bbbbkey0".to_owned());
    let change = Change { peer, express: Some(false), ..Change::default() };
    daemon.ask::<()>(&Request::Set(change.clone())).unwrap();
    let named = Change { peer: Some("b".into()), ..change };
    assert_eq!(daemon.plane.changes(), [named]);
}

#[test]
fn what_cannot_be_is_refused_with_kind_and_words() {
    let daemon = daemon();
    let unknown = refusal(daemon.ask::<PeerSnapshot>(&Request::Paths { peer: "x".into() }));
    assert_eq!(unknown.kind, RefusalKind::UnknownPeer);
    assert!(unknown.text.contains("there are: b, c"), "{unknown}");
    let set = |change: Change| refusal(daemon.ask::<()>(&Request::Set(change)));
    assert_eq!(set(Change::default()).kind, RefusalKind::BadRequest);
    let change = Change {
        peer: Some("b".into()),
        udp_ordering: Some(UdpOrdering::Bypass),
        ..Change::default()
    };
    assert!(set(change).text.contains("whole interface"));
    let refused = set(Change { express: Some(false), ..Change::default() });
    assert_eq!(refused, Refusal::new(RefusalKind::Refused, "not while it rains"));
    let watch = Request::Watch { interval_ms: 1, paths: false, flows: 0 };
    assert!(refusal(daemon.ask::<()>(&watch)).text.contains("between 100 and 60000"));
    assert!(daemon.raw(b"hello\n").contains(r#""kind":"bad-request""#));
    assert!(daemon.raw(b"\xff\xfe\n").contains("bad-request"));
    assert!(daemon.raw(&vec![b'x'; protocol::REQUEST_BYTES_MAX]).contains("at most 4096 bytes"));
}

#[test]
fn a_configuration_that_is_wrong_changes_nothing_and_says_where() {
    let plane = FakePlane::start();
    let loader = || Config::parse("[interfaces]\n", Path::new("srd.toml"));
    let (_directory, path, _server) = start_with(Arc::new(loader), &plane.handle);
    let answer = Client::connect(&path).unwrap().ask::<ReloadReport>(&Request::Reload);
    let refusal = refusal(answer);
    assert_eq!(refusal.kind, RefusalKind::BadConfig);
    assert!(refusal.text.contains("srd.toml:1:2"), "{refusal}");
}

#[test]
fn a_watch_goes_on_until_either_side_leaves() {
    let daemon = daemon();
    let interval = Duration::from_millis(100);
    let request = Request::Watch { interval_ms: 100, paths: true, flows: 1 };
    for _ in 0..STREAMS_MAX * 2 {
        // The loop starts more watches than may run at once, so the server must notice the end of
        // each.
        let deadline = Instant::now() + LONG;
        let mut watch = loop {
            let mut watch = Client::connect(&daemon.path).unwrap().watch(&request, interval);
            match watch.as_mut().unwrap().wait::<Snapshot>() {
                Ok(Some(_)) => break watch.unwrap(),
                _ => assert!(Instant::now() < deadline, "places are not given back"),
            }
        };
        let next: Snapshot = watch.wait().unwrap().unwrap();
        assert_eq!(next.peers[0].path_reports.len(), 16);
    }
}

#[test]
fn lasting_connections_leave_room_for_short_ones() {
    let daemon = daemon();
    let request = Request::Watch { interval_ms: 60_000, paths: false, flows: 0 };
    let watch = || {
        let client = Client::connect(&daemon.path).unwrap();
        let mut watch = client.watch(&request, Duration::from_secs(60)).unwrap();
        watch.wait::<Snapshot>().map(|_| watch)
    };
    let watches: Vec<_> = (0..STREAMS_MAX).map(|_| watch().unwrap()).collect();
    assert_eq!(refusal(watch()).kind, RefusalKind::Busy);
    daemon.ask::<Snapshot>(&STATUS).unwrap();
    drop(watches);
}

#[test]
fn regression_a_watch_does_not_keep_the_file_of_the_socket() {
    let plane = FakePlane::start();
    let (_directory, path, server) = start_with(Arc::new(config), &plane.handle);
    let request = Request::Watch { interval_ms: 60_000, paths: false, flows: 0 };
    let client = Client::connect(&path).unwrap();
    let mut watch = client.watch(&request, Duration::from_secs(60)).unwrap();
    watch.wait::<Snapshot>().unwrap();
    drop(server);
    assert!(!path.exists());
}

#[test]
fn clients_that_say_nothing_block_nobody_until_there_is_no_place_left() {
    let daemon = daemon();
    let mut silent = Vec::new();
    for _ in 0..CONNECTIONS_MAX - 1 {
        silent.push(UnixStream::connect(&daemon.path).unwrap());
    }
    daemon.ask::<Snapshot>(&STATUS).unwrap();
    // The daemon has disconnected no silent client to answer this request.
    silent[0].set_nonblocking(true).unwrap();
    assert_eq!(silent[0].read(&mut [0; 1]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    silent[0].set_nonblocking(false).unwrap();
    // The daemon frees the slot of a request only after its answer, so a few more requests may
    // succeed.
    let mut answered = 0;
    loop {
        silent.push(UnixStream::connect(&daemon.path).unwrap());
        match daemon.ask::<Snapshot>(&STATUS) {
            Ok(_) => assert!(answered < 100, "places have no bound"),
            Err(ClientError::Refused(refusal)) => {
                assert_eq!(refusal.kind, RefusalKind::Busy);
                break;
            }
            Err(e) => panic!("{e}"),
        }
        answered += 1;
        std::thread::sleep(Duration::from_millis(10));
    }
    // The daemon disconnects silent clients after a while, which frees their slots.
    let deadline = Instant::now() + LONG;
    while let Err(e) = daemon.ask::<Snapshot>(&STATUS) {
        assert!(Instant::now() < deadline, "{e}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut text = String::new();
    silent[0].read_to_string(&mut text).unwrap();
    assert!(text.contains("in time"), "{text}");
}

#[test]
fn a_capture_is_copied_and_counted() {
    let daemon = daemon();
    let filter = Filter { count: Some(5), peer: Some("b".into()), ..Filter::default() };
    let client = Client::connect(&daemon.path).unwrap();
    let pause = Duration::from_secs(1);
    let mut stream = client.capture(&Request::Capture(filter), pause).unwrap();
    let mut file = Vec::new();
    let copied = copy(&mut stream, &mut file, || false).unwrap();
    assert_eq!((copied.packets, copied.dropped), (5, 0));
    let filter = Filter { peer: Some("x".into()), ..Filter::default() };
    let client = Client::connect(&daemon.path).unwrap();
    let refused = client.capture(&Request::Capture(filter), pause).map(|_| ());
    assert_eq!(refusal(refused).kind, RefusalKind::UnknownPeer);
}

/// A file in memory that can be read while it is being written.
struct Shared<'a>(&'a RefCell<Vec<u8>>);

impl Write for Shared<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_capture_that_is_stopped_still_brings_its_figures() {
    let daemon = daemon();
    let client = Client::connect(&daemon.path).unwrap();
    let request = Request::Capture(Filter::default());
    let mut stream = client.capture(&request, Duration::from_millis(20)).unwrap();
    let stopper = stream.stopper().unwrap();
    // The fake daemon captures a packet every few milliseconds. Beyond 1024 bytes the file contains
    // more than its head.
    let file = RefCell::new(Vec::new());
    let stop = || {
        if file.borrow().len() > 1024 {
            stopper.stop();
        }
        false
    };
    let copied = copy(&mut stream, &mut Shared(&file), stop).unwrap();
    let file = file.into_inner();
    assert!(copied.packets > 0);
    // The last block holds the statistics of the second interface.
    assert_eq!(file[file.len() - 52..][..4], 5_u32.to_le_bytes());
}

#[test]
fn an_idle_capture_ends_when_its_client_leaves() {
    let daemon = daemon();
    for _ in 0..crate::capture::TAPS_MAX * 2 {
        let filter = Filter { layers: Layers::Outer, ..Filter::default() };
        let deadline = Instant::now() + LONG;
        let request = Request::Capture(filter);
        loop {
            let client = Client::connect(&daemon.path).unwrap();
            match client.capture(&request, Duration::from_secs(1)) {
                Ok(stream) => break drop(stream),
                Err(e) => assert!(Instant::now() < deadline, "{e}"),
            }
        }
    }
}

#[test]
fn a_plane_that_is_gone_is_said_to_be() {
    let daemon = daemon();
    let Daemon { path, plane, .. } = &daemon;
    plane.handle.command(crate::plane::Command::Stop).unwrap();
    let deadline = Instant::now() + LONG;
    loop {
        match Client::connect(path).unwrap().ask::<Snapshot>(&STATUS) {
            Err(ClientError::Refused(refusal)) => break assert!(refusal.text.contains("ending")),
            _ => assert!(Instant::now() < deadline),
        }
    }
}

#[test]
fn a_server_that_is_dropped_leaves_no_socket() {
    let plane = FakePlane::start();
    let (_directory, path, server) = start_with(Arc::new(config), &plane.handle);
    drop(server);
    assert!(!path.exists());
    let error = Client::connect(&path).unwrap_err();
    assert!(matches!(error, ClientError::NotRunning(_)), "{error}");
}

/// Makes this thread, and the threads that it starts, run as a user that other programs share.
fn become_nobody() {
    let nobody = rustix::process::Uid::from_raw(65_534);
    rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
}

/// A daemon that root has started, and that has changed to a user that other programs share. Every
/// user may connect to it, as if all users were members of the socket's group.
fn open_to_all(control: impl FnOnce(PathBuf) -> Control) -> Daemon {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run/srd0.sock");
    let socket = Socket::bind(&control(path.clone())).unwrap();
    for (place, mode) in
        [(directory.path(), 0o755), (path.parent().unwrap(), 0o755), (&path, 0o666)]
    {
        std::fs::set_permissions(place, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let plane = FakePlane::start();
    let handle = plane.handle.clone();
    let serve = std::thread::spawn(move || {
        become_nobody();
        Server::start(socket, handle, Arc::new(config), Services::default()).unwrap()
    });
    Daemon { _directory: directory, path, plane, _server: serve.join().unwrap() }
}

/// Sends a request, and returns the first line of the answer.
fn ask_at(path: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    // The server may have refused the connection already.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stream), &mut answer).unwrap();
    answer
}

/// Sends a request as a user that has not started the daemon, and returns the first line of the
/// answer.
fn ask_as_nobody(path: &Path, request: &'static str) -> String {
    as_nobody(path, move |path| ask_at(path, request))
}

/// Calls a function with a path as a user that has not started the daemon.
fn as_nobody<T: Send + 'static>(path: &Path, work: impl FnOnce(&Path) -> T + Send + 'static) -> T {
    let path = path.to_owned();
    let work = move || {
        become_nobody();
        work(&path)
    };
    std::thread::spawn(work).join().unwrap()
}

/// Members of the socket's group took all slots, so that root could not even read the status.
#[test]
fn regression_other_users_leave_slots_to_root() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can change to another user");
        return;
    }
    let daemon = open_to_all(Control::at);
    let status = "{\"request\":\"status\"}\n";
    let mut silent = Vec::new();
    // The daemon disconnects silent clients after a while, so a few more may be needed.
    while !ask_as_nobody(&daemon.path, status).contains("\"busy\"") {
        silent.push(as_nobody(&daemon.path, |path| UnixStream::connect(path).unwrap()));
        assert!(silent.len() < 100, "places have no bound");
    }
    let answer = ask_at(&daemon.path, status);
    assert!(answer.starts_with("{\"ok\""), "{answer}");
}

#[test]
fn lasting_connections_of_other_users_leave_room_for_those_of_root() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can change to another user");
        return;
    }
    let daemon = open_to_all(Control::at);
    // The stream is kept, so that the watch goes on.
    let watch = |path: &Path| {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.write_all(b"{\"request\":\"watch\",\"interval_ms\":60000}\n").unwrap();
        let mut answer = String::new();
        let mut lines = std::io::BufReader::new(stream);
        std::io::BufRead::read_line(&mut lines, &mut answer).unwrap();
        (lines, answer)
    };
    let others = STREAMS_MAX - STREAMS_RESERVED;
    let mut watches: Vec<_> = (0..others).map(|_| as_nobody(&daemon.path, watch)).collect();
    let (_, refused) = as_nobody(&daemon.path, watch);
    assert!(refused.contains(&format!("{others} watches and captures")), "{refused}");
    watches.extend((others..STREAMS_MAX).map(|_| watch(&daemon.path)));
    for (_, answer) in &watches {
        assert!(answer.starts_with("{\"ok\""), "{answer}");
    }
    let (_, refused) = watch(&daemon.path);
    assert!(refused.contains(&format!("{STREAMS_MAX} watches and captures")), "{refused}");
}

#[test]
fn regression_a_user_that_the_daemon_has_changed_to_does_not_rule_the_peers() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let daemon = open_to_all(Control::at);
    let request = "{\"request\":\"remove-peer\",\"peer\":\"b\"}\n";
    let answer = ask_as_nobody(&daemon.path, request);
    assert!(answer.contains("not-permitted"), "{answer}");
    let answer = ask_at(&daemon.path, request);
    assert!(answer.starts_with("{\"ok\""), "{answer}");
}

#[test]
fn regression_the_group_of_the_socket_captures_packets_only_if_the_file_permits_it() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let request = "{\"request\":\"capture\",\"count\":1}\n";
    let daemon = open_to_all(Control::at);
    let answer = ask_as_nobody(&daemon.path, request);
    assert!(answer.contains("not-permitted") && answer.contains("group_captures"), "{answer}");
    let status = ask_as_nobody(&daemon.path, "{\"request\":\"status\"}\n");
    assert!(status.starts_with("{\"ok\""), "{status}");
    assert!(ask_at(&daemon.path, request).starts_with("{\"ok\""), "root may");
    let daemon = open_to_all(|path| Control { group_captures: true, ..Control::at(path) });
    let answer = ask_as_nobody(&daemon.path, request);
    assert!(answer.starts_with("{\"ok\""), "{answer}");
}
