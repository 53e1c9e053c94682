//! Serves one connection of the control socket: reads one request and answers it. Watches and
//! captures send data until the client or the daemon ends.
//!
//! Reads and writes have deadlines. So a client that stalls occupies its own thread for a few
//! seconds, and does not disturb other clients.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use srd_enrol::{PodAnswer, PodRequest};

use super::protocol::{
    Answer, FLOWS_MAX, REQUEST_BYTES_MAX, Refusal, RefusalKind, Request, Stats, WATCH_INTERVAL_MS,
};
use super::slots::{STREAMS_MAX, STREAMS_RESERVED, ServeInstances, Shared, Slot};
use super::succession;
use crate::capture::{self, Filter};
use crate::config::{Config, ConfigError, PeerForm, ReloadReport};
use crate::plane::{Change, Detail, PathsOf, PlaneHandle};
use crate::snapshot::{PeerSnapshot, Snapshot};

/// Longest time in which a client must send its whole request.
pub const REQUEST_WAIT_MAX: Duration = Duration::from_secs(5);
/// Longest time in which a client must read one whole answer.
pub const ANSWER_TAKEN_MAX: Duration = Duration::from_secs(10);

/// Refusal of a change of peers.
const PEERS: &str =
    "peers are added and removed by root or the user that started the daemon: use sudo";
/// Refusal of a request about pods.
const PODS: &str = "pods belong to root: use sudo";
/// Refusal of a capture.
const CAPTURES: &str = "a capture contains the packets of all users, so root or the user that \
                        started the daemon begins it: use sudo, or permit it to the group by \
                        `group_captures = true` in [control]";

/// Use of a connection after its request was answered.
pub(super) enum Next {
    /// The connection is closed.
    Over,
    /// Requests about instances follow, which this function serves.
    Instances(ServeInstances),
}

/// Serves a connection to its end, or until requests about instances follow.
pub(super) fn serve(stream: &UnixStream, slot: &Slot) -> Next {
    match read_request(stream) {
        Ok(Some(line)) => match answer(stream, slot, &line) {
            Ok(next) => return next,
            Err(e) => tracing::debug!("a client of the control socket left early: {e}"),
        },
        Ok(None) => {}
        Err(e) => {
            tracing::debug!("control socket: {e}");
            let text = match e.kind() {
                ErrorKind::InvalidData => e.to_string(),
                _ => "the request did not come in time".to_owned(),
            };
            let _ = write_answer::<()>(stream, Err(Refusal::new(RefusalKind::BadRequest, text)));
        }
    }
    Next::Over
}

/// Sends a refusal to a client for which there is no free slot, without waiting.
pub(super) fn refuse_busy(stream: &UnixStream) {
    let text = "too many clients of the control socket at once; try again";
    if stream.set_nonblocking(true).is_ok() {
        let _ = write_answer::<()>(stream, Err(Refusal::new(RefusalKind::Busy, text)));
    }
}

/// Reads one line; `None` if the client closes the connection before a line ends.
fn read_request(mut stream: &UnixStream) -> io::Result<Option<Vec<u8>>> {
    let deadline = Instant::now() + REQUEST_WAIT_MAX;
    let (mut line, mut buffer) = (Vec::new(), [0; 512]);
    loop {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(None),
            Ok(length) => line.extend(&buffer[..length]),
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        }
        if let Some(end) = line.iter().position(|byte| *byte == b'\n') {
            line.truncate(end);
            return Ok(Some(line));
        }
        if line.len() >= REQUEST_BYTES_MAX {
            let text = format!("a request has at most {REQUEST_BYTES_MAX} bytes");
            return Err(io::Error::new(ErrorKind::InvalidData, text));
        }
    }
}

/// Returns the time until a deadline, or an error if the deadline has passed.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn answer(stream: &UnixStream, slot: &Slot, line: &[u8]) -> io::Result<Next> {
    let request: Request = match serde_json::from_slice(line) {
        Ok(request) => request,
        Err(e) => {
            let text = format!("not a request: {e}");
            let refusal = Refusal::new(RefusalKind::BadRequest, text);
            return write_answer::<()>(stream, Err(refusal)).map(|()| Next::Over);
        }
    };
    log(stream, &request);
    if request == Request::Instances {
        return instances(stream, &slot.shared);
    }
    answer_one(stream, slot, request).map(|()| Next::Over)
}

/// Answers the request with which requests about instances begin.
fn instances(stream: &UnixStream, shared: &Shared) -> io::Result<Next> {
    let Some(serve) = &shared.services.instances else {
        let text = "this daemon has no instances: add a table [cloud] to its configuration";
        let refusal = Refusal::new(RefusalKind::Refused, text);
        return write_answer::<()>(stream, Err(refusal)).map(|()| Next::Over);
    };
    write_answer(stream, Ok(()))?;
    stream.set_read_timeout(None)?;
    Ok(Next::Instances(Arc::clone(serve)))
}

fn answer_one(stream: &UnixStream, slot: &Slot, request: Request) -> io::Result<()> {
    let shared = &slot.shared;
    let plane = &shared.plane;
    let _place = match request.is_stream().then(|| stream_place(stream, shared)) {
        None => None,
        Some(Ok(place)) => Some(place),
        Some(Err(refusal)) => return write_answer::<()>(stream, Err(refusal)),
    };
    match request {
        Request::Status { paths, flows } => {
            let snapshot = plane.snapshot(&detail(paths, flows)).map_err(Refusal::from);
            write_answer(stream, snapshot)
        }
        Request::Stats => write_answer(stream, stats(plane)),
        Request::Paths { peer } => write_answer(stream, paths(plane, &peer)),
        Request::Set(change) => write_answer(stream, set(plane, change)),
        Request::AddPeer(form) => {
            let may = of_owner(stream, shared, PEERS);
            write_answer(stream, may.and_then(|()| add_peer(plane, &form)))
        }
        Request::RemovePeer { peer } => {
            let may = of_owner(stream, shared, PEERS);
            write_answer(stream, may.and_then(|()| remove_peer(plane, &peer)))
        }
        Request::Reload => write_answer(stream, reload(shared)),
        Request::Watch { interval_ms, paths, flows } => {
            watch(stream, shared, interval_ms, &detail(paths, flows))
        }
        Request::Capture(filter) => match may_capture(stream, shared) {
            Ok(()) => run_capture(stream, shared, filter),
            Err(refusal) => write_answer::<()>(stream, Err(refusal)),
        },
        Request::TakeOver { version } => match succession::take_over(stream, shared, version) {
            Ok(()) => Ok(()),
            Err(refusal) => write_answer::<()>(stream, Err(refusal)),
        },
        Request::Succeed => match succession::succeed(stream, shared, serve_successor(shared)) {
            Ok(()) => Ok(()),
            Err(refusal) => write_answer::<()>(stream, Err(refusal)),
        },
        Request::Pod { pod } => {
            let may = of_owner(stream, shared, PODS);
            write_answer(stream, may.and_then(|()| ask_about_pod(shared, pod)))
        }
        Request::Instances => Ok(()),
    }
}

fn ask_about_pod(shared: &Shared, request: PodRequest) -> Result<PodAnswer, Refusal> {
    let pods = shared.services.pods.as_ref().ok_or_else(|| {
        let text = "this daemon accepts no pods: add `pods = true` to [enrol.instances]";
        Refusal::new(RefusalKind::BadRequest, text)
    })?;
    Ok(pods.send(request)?)
}

/// Returns the function that serves the connection of a process that this daemon has started to
/// take over, on a thread of its own.
fn serve_successor(shared: &Arc<Shared>) -> impl FnOnce(UnixStream, u32) -> io::Result<()> {
    let shared = Arc::clone(shared);
    move |stream, process| {
        let serve = move || {
            let Ok(Some(line)) = read_request(&stream) else { return };
            let handed = match serde_json::from_slice(&line) {
                Ok(Request::TakeOver { version }) => {
                    succession::hand_over(&stream, &shared, version, process)
                }
                _ => Err(Refusal::new(RefusalKind::BadRequest, "it requests no take-over")),
            };
            if let Err(refusal) = handed {
                let _ = write_answer::<()>(&stream, Err(refusal));
            }
        };
        thread::Builder::new().name("srd-successor".to_owned()).spawn(serve).map(drop)
    }
}

/// Takes one of the slots for long-lived connections, or refuses if none is free.
fn stream_place(stream: &UnixStream, shared: &Arc<Shared>) -> Result<Slot, Refusal> {
    let max = match shared.is_of_owner(stream) {
        true => STREAMS_MAX,
        false => STREAMS_MAX - STREAMS_RESERVED,
    };
    Slot::take(shared, |shared| &shared.streams, max).ok_or_else(|| {
        let text = format!("{max} watches and captures run already; end one first");
        Refusal::new(RefusalKind::Busy, text)
    })
}

/// Logs a request, and the user who sent it if the request changes something or captures packets.
fn log(stream: &UnixStream, request: &Request) {
    let name = request.name();
    let what = match request {
        Request::Set(change) => change.to_string(),
        Request::AddPeer(PeerForm { name, .. }) => format!("to add the peer {name:?}"),
        Request::RemovePeer { peer } => format!("to remove the peer {peer:?}"),
        Request::Reload => "to read the configuration again".to_owned(),
        Request::Capture(_) => "to capture packets".to_owned(),
        Request::TakeOver { .. } => "to hand over to another process".to_owned(),
        Request::Succeed => "to start a process that takes over".to_owned(),
        Request::Pod { .. } => "about a pod".to_owned(),
        _ => return tracing::debug!("the control socket was asked for {name}"),
    };
    log_asked(stream, &what);
}

/// Logs a request, such as `to capture packets`, and the user and the process that sent it.
pub fn log_asked(stream: &UnixStream, what: &str) {
    tracing::info!("asked {what} ({})", srd_trust::peer::in_words(stream));
}

/// Logs that a request, such as `to add an instance`, was refused. Only a daemon shows this line:
/// the card of an `srd run` shares its standard error with the client, which prints the reason.
pub fn log_refused(what: &str, why: &str) {
    tracing::info!("refused {what}: {why}");
}

/// Checks that the client is root or the user that started the daemon. A user to which the daemon
/// has changed since is refused, because this user has fewer rights. The group of the socket may
/// read the state and change settings. Other actions need this check:
///
/// - A peer decides where the machine's packets go, and its preshared key is read from a file.
/// - A capture contains the packets of all users, unless the configuration permits captures to the
///   group.
///
/// `refusal` is the text of the error.
fn of_owner(stream: &UnixStream, shared: &Shared, refusal: &str) -> Result<(), Refusal> {
    if shared.is_of_owner(stream) {
        return Ok(());
    }
    Err(Refusal::new(RefusalKind::NotPermitted, refusal.to_owned()))
}

fn may_capture(stream: &UnixStream, shared: &Shared) -> Result<(), Refusal> {
    if shared.group_captures { Ok(()) } else { of_owner(stream, shared, CAPTURES) }
}

fn detail(paths: bool, flows: usize) -> Detail {
    let paths = if paths { PathsOf::Everybody } else { PathsOf::Nobody };
    Detail { paths, flows_max: flows.min(FLOWS_MAX) }
}

fn stats(plane: &PlaneHandle) -> Result<Stats, Refusal> {
    let Snapshot { interface, counters, drops, .. } = plane.snapshot(&Detail::default())?;
    Ok(Stats { interface, counters, drops })
}

fn paths(plane: &PlaneHandle, peer: &str) -> Result<PeerSnapshot, Refusal> {
    let paths = PathsOf::Peer(peer.to_owned());
    let snapshot = plane.snapshot(&Detail { paths, flows_max: 0 })?;
    find(&snapshot, peer).cloned()
}

fn find<'a>(snapshot: &'a Snapshot, peer: &str) -> Result<&'a PeerSnapshot, Refusal> {
    snapshot.peer(peer).ok_or_else(|| unknown(snapshot, peer))
}

fn unknown(snapshot: &Snapshot, peer: &str) -> Refusal {
    let names: Vec<&str> = snapshot.peers.iter().map(|p| p.name.as_str()).take(20).collect();
    let text = format!("there is no peer `{peer}`; there are: {}", names.join(", "));
    Refusal::new(RefusalKind::UnknownPeer, text)
}

/// Returns the full name of a peer that a request names by its name or the beginning of its key.
fn resolve(plane: &PlaneHandle, peer: Option<String>) -> Result<Option<String>, Refusal> {
    let Some(peer) = peer else { return Ok(None) };
    let snapshot = plane.snapshot(&Detail::default())?;
    find(&snapshot, &peer).map(|found| Some(found.name.clone()))
}

fn set(plane: &PlaneHandle, change: Change) -> Result<(), Refusal> {
    let bad = |text: &str| Err(Refusal::new(RefusalKind::BadRequest, text));
    let Change { express, udp, tunnels, udp_ordering, .. } = change;
    if express.is_none() && udp.is_none() && tunnels.is_none() && udp_ordering.is_none() {
        return bad("nothing to set: name express, udp, tunnels or udp_ordering");
    }
    if tunnels.is_some() && change.peer.is_some() {
        return bad("tunnels are of the whole interface: leave the peer out");
    }
    if udp_ordering.is_some() && change.peer.is_some() {
        return bad("udp_ordering is of the whole interface: leave the peer out");
    }
    let change = Change { peer: resolve(plane, change.peer)?, ..change };
    plane.set(change)?.map_err(|text| Refusal::new(RefusalKind::Refused, text))
}

fn reload(shared: &Shared) -> Result<ReloadReport, Refusal> {
    logged(shared.plane.reload(|| (shared.loader)().map_err(unchanged))?)
}

fn add_peer(plane: &PlaneHandle, form: &PeerForm) -> Result<ReloadReport, Refusal> {
    change(plane, |running| running.with_peer(form).map_err(unchanged))
}

fn remove_peer(plane: &PlaneHandle, wanted: &str) -> Result<ReloadReport, Refusal> {
    let snapshot = plane.snapshot(&Detail::default())?;
    change(plane, |running| match running.without_peer(wanted) {
        Some(config) => Ok(config),
        None => Err(unknown(&snapshot, wanted)),
    })
}

/// Applies a new configuration, which `make` derives from the running one, and logs the result.
fn change(
    plane: &PlaneHandle,
    make: impl FnOnce(&Config) -> Result<Config, Refusal>,
) -> Result<ReloadReport, Refusal> {
    logged(plane.change(make)?)
}

/// Logs the result of a change, and returns it.
fn logged(report: Result<ReloadReport, Refusal>) -> Result<ReloadReport, Refusal> {
    match &report {
        Ok(report) => tracing::info!("{report}"),
        Err(refusal) => tracing::warn!("{refusal}"),
    }
    report
}

fn unchanged(error: ConfigError) -> Refusal {
    Refusal::new(RefusalKind::BadConfig, format!("nothing was changed: {error}"))
}

fn watch(
    mut stream: &UnixStream,
    shared: &Shared,
    interval_ms: u64,
    detail: &Detail,
) -> io::Result<()> {
    if !WATCH_INTERVAL_MS.contains(&interval_ms) {
        let (least, most) = (WATCH_INTERVAL_MS.start(), WATCH_INTERVAL_MS.end());
        let text = format!("interval_ms must be between {least} and {most}");
        return write_answer::<()>(stream, Err(Refusal::new(RefusalKind::BadRequest, text)));
    }
    let interval = Duration::from_millis(interval_ms);
    let mut next = Instant::now();
    while !shared.is_ending.load(Ordering::Relaxed) {
        let snapshot = shared.plane.snapshot(detail).map_err(Refusal::from);
        let is_over = snapshot.is_err();
        write_answer(stream, snapshot)?;
        if is_over {
            break;
        }
        next = (next + interval).max(Instant::now());
        // The pause is a read with a time-out, so that a client that closes the connection is
        // noticed at once.
        let Ok(pause) = left(next) else { continue };
        stream.set_read_timeout(Some(pause))?;
        match stream.read(&mut [0; 64]) {
            Ok(0) => break,
            // Bytes that the client sends are ignored, and must not shorten the pause.
            Ok(_) => std::thread::sleep(left(next).unwrap_or_default()),
            Err(e) if is_pause(&e) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn run_capture(stream: &UnixStream, shared: &Shared, filter: Filter) -> io::Result<()> {
    let begun = begin_capture(&shared.plane, filter);
    let (mut reader, filter, interface) = match begun {
        Ok(begun) => begun,
        Err(refusal) => return write_answer::<()>(stream, Err(refusal)),
    };
    write_answer(stream, Ok(()))?;
    stream.set_read_timeout(Some(Duration::from_millis(1)))?;
    let has_left = |mut stream: &UnixStream| match stream.read(&mut [0; 64]) {
        Ok(length) => length == 0,
        Err(e) => !is_pause(&e),
    };
    let is_over = || shared.is_ending.load(Ordering::Relaxed) || has_left(stream);
    capture::stream(&mut reader, &interface, &filter, &mut Timely(stream), is_over)
}

fn begin_capture(
    plane: &PlaneHandle,
    filter: Filter,
) -> Result<(capture::TapReader, Filter, String), Refusal> {
    let peer = resolve(plane, filter.peer.clone())?;
    let filter = Filter { peer, ..filter };
    let interface = plane.snapshot(&Detail::default())?.interface;
    let reader = plane.capture(filter.clone())?;
    let reader = reader.map_err(|text| Refusal::new(RefusalKind::Busy, text))?;
    Ok((reader, filter, interface))
}

/// Answers the client that has requested a process to take over.
pub(super) fn answer_successor(client: &UnixStream, process: u32) {
    // The client may have ended.
    let _ = write_answer(client, Ok(process));
}

fn write_answer<T: Serialize>(stream: &UnixStream, answer: Result<T, Refusal>) -> io::Result<()> {
    let answer = match answer {
        Ok(value) => Answer::Ok(value),
        Err(refusal) => Answer::Error(refusal),
    };
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    Timely(stream).write_all(&line)
}

/// A stream on which each `write_all` has a deadline.
struct Timely<'a>(&'a UnixStream);

impl Write for Timely<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let deadline = Instant::now() + ANSWER_TAKEN_MAX;
        while !bytes.is_empty() {
            self.0.set_write_timeout(Some(left(deadline)?))?;
            match self.0.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(length) => bytes = &bytes[length..],
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
