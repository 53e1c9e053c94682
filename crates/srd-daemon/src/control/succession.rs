//! Requests by which another process takes over from this daemon ([`crate::handover`]).
//!
//! A daemon that is a unit of systemd hands over only to a child of its own: the unit contains the
//! child, with the confinement of the unit, and would end without the child.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;

use super::protocol::{Refusal, RefusalKind};
use super::slots::{Shared, Successor};
use crate::handover::give;
use crate::notify::Notify;

/// Interval at which the daemon checks whether the process that it has started has ended.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// Longest time in which the process that the daemon has started must request the hand-over.
const START_WAIT_MAX: Duration = Duration::from_secs(20);

/// Hands over to the process at the other end. After success this process is about to end. After an
/// error it continues as before.
pub(super) fn take_over(
    stream: &UnixStream,
    shared: &Arc<Shared>,
    version: u32,
) -> Result<(), Refusal> {
    let process = process_of(stream)?;
    check_user(stream, shared)?;
    if Notify::is_expected() {
        let text = "this daemon is a unit of systemd, and hands over to a process of its own only";
        return Err(Refusal::new(RefusalKind::OfUnit, text));
    }
    hand_over(stream, shared, version, process)
}

/// Hands over to the process with this number, which is at the other end and may take over.
pub(super) fn hand_over(
    stream: &UnixStream,
    shared: &Arc<Shared>,
    version: u32,
    process: u32,
) -> Result<(), Refusal> {
    let socket = shared.socket();
    let leaves = |is: bool| shared.is_leaving.store(is, Ordering::Relaxed);
    let given = give::give(stream, &shared.plane, socket.state(), (version, process), leaves);
    given.map_err(|error| {
        let text = format!("the daemon continues as before: {error:#}");
        tracing::warn!("no other process has taken over: {error:#}");
        Refusal::new(RefusalKind::Refused, text)
    })
}

/// Starts a process that takes over, and waits until this daemon, or that process, ends. `serve`
/// serves the connection of the process with this number, on another thread. The process gets the
/// connection as its standard input, because its user may have no right to connect to the socket:
/// that of the daemon, which has fewer rights than the user that has started the daemon.
pub(super) fn succeed(
    stream: &UnixStream,
    shared: &Arc<Shared>,
    serve: impl FnOnce(UnixStream, u32) -> io::Result<()>,
) -> Result<(), Refusal> {
    check_user(stream, shared)?;
    let failed = |what: &dyn std::fmt::Display| {
        let text = format!("the daemon continues as before: {what}");
        Refusal::new(RefusalKind::Refused, text)
    };
    let (mut child, of_child) = {
        let mut successor = shared.successor();
        if successor.is_some() {
            let text = "another process is taking over already";
            return Err(Refusal::new(RefusalKind::Busy, text));
        }
        let client = stream.try_clone().map_err(|error| failed(&error))?;
        let (ours, theirs) = UnixStream::pair().map_err(|error| failed(&error))?;
        let config = (shared.loader)().map_err(|error| failed(&error))?;
        srd_net::raw::keep_descriptors_from_children().map_err(|error| failed(&error))?;
        let mut command = Command::new(give::program().map_err(|error| failed(&error))?);
        command.arg("up").arg("-c").arg(&config.file).args(["--take-over", "--by-input"]);
        if config.control.is_chosen {
            command.arg("--socket").arg(&config.control.socket);
        }
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
        let child = command.spawn().map_err(|error| failed(&error))?;
        *successor = Some(Successor { process: child.id(), client });
        (child, ours)
    };
    // Without a thread, the child does not take over in time.
    if let Err(error) = serve(of_child, child.id()) {
        tracing::warn!("no thread for the process that takes over: {error}");
    }
    let ended = wait(&mut child, shared, Instant::now() + START_WAIT_MAX);
    Err(failed(&format!(
        "the process that was to take over has failed ({ended}): the log of the unit has the reason"
    )))
}

/// Waits until the child has ended, and forgets it. At `until`, ends a child that has not taken
/// over. Returns the reason of the end.
fn wait(child: &mut Child, shared: &Shared, until: Instant) -> String {
    let mut late = "";
    loop {
        if late.is_empty() && Instant::now() >= until && kill(child, shared) {
            late = "it did not request the hand-over in time, and was ended: ";
        }
        // A later process may get the number of the child as soon as this process has waited for
        // the child. So the number is forgotten under the lock of this wait.
        let mut successor = shared.successor();
        let ended = match child.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(status.to_string()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(ended) = ended {
            *successor = None;
            return format!("{late}{ended}");
        }
        drop(successor);
        std::thread::sleep(LOOK_PAUSE);
    }
}

/// Sends SIGKILL to the child unless it has taken over. If a hand-over is in progress, waits for
/// its result. Returns whether the child has got the signal.
fn kill(child: &mut Child, shared: &Shared) -> bool {
    // A hand-over holds this lock from its beginning to its end. After success, the daemon stays in
    // the state in which it leaves.
    let _alone = shared.plane.alone();
    !shared.is_leaving.load(Ordering::Relaxed) && child.kill().is_ok()
}

/// Checks that the client is root or the user that started the daemon. A user to which the daemon
/// has changed since has fewer rights, which a take-over would extend to captures and peers.
fn check_user(stream: &UnixStream, shared: &Shared) -> Result<(), Refusal> {
    let checked = srd_trust::peer::check_one(stream, shared.owner);
    checked.map_err(|_| {
        let text = "root or the user that started the daemon requests a take-over: use sudo";
        Refusal::new(RefusalKind::NotPermitted, text)
    })
}

fn process_of(stream: &UnixStream) -> Result<u32, Refusal> {
    let by = socket_peercred(stream).map(|by| by.pid.as_raw_nonzero().get());
    let process = by.ok().and_then(|pid| u32::try_from(pid).ok());
    let text = "the process at the other end has no number in this namespace of processes";
    process.ok_or_else(|| Refusal::new(RefusalKind::Refused, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Services;
    use std::path::Path;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    use crate::config::{Config, Control};
    use crate::control::socket::Socket;
    use crate::fake_plane::FakePlane;

    /// Starts a child that requests nothing, and returns the reason of its end. `is_leaving`: the
    /// daemon has handed over to it.
    fn ended(seconds: &str, is_leaving: bool) -> String {
        let plane = FakePlane::start();
        let directory = tempfile::tempdir().unwrap();
        let socket = Socket::bind(&Control::at(directory.path().join("run/a.sock"))).unwrap();
        let mut child = Command::new("sleep").arg(seconds).spawn().unwrap();
        let (client, _) = UnixStream::pair().unwrap();
        let shared = Shared {
            plane: plane.handle.clone(),
            socket: Arc::new(Mutex::new(Arc::new(socket))),
            loader: Arc::new(|| Config::parse("", Path::new("a.toml"))),
            owner: 0,
            group_captures: false,
            services: Services::default(),
            connections: AtomicUsize::new(0),
            streams: AtomicUsize::new(0),
            is_ending: AtomicBool::new(false),
            is_leaving: AtomicBool::new(is_leaving),
            successor: Mutex::new(Some(Successor { process: child.id(), client })),
        };
        let ended = wait(&mut child, &shared, Instant::now());
        assert!(shared.successor().is_none());
        ended
    }

    #[test]
    fn regression_a_process_that_never_requests_the_hand_over_is_ended_and_forgotten() {
        let ended = ended("600", false);
        assert!(ended.contains("did not request the hand-over in time"), "{ended}");
    }

    #[test]
    fn a_process_that_has_taken_over_is_not_ended() {
        assert_eq!(ended("0.2", true), "exit status: 0");
    }
}
