//! Requests by which another process takes over from this daemon ([`crate::handover`]).
//!
//! A daemon that is a unit of systemd hands over only to a child of its own: the unit contains the
//! child, with the confinement of the unit, and would end without the child.

use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;

use super::protocol::{Refusal, RefusalKind};
use super::slots::{Shared, Successor};
use crate::handover::give;
use crate::notify::Notify;

/// Interval at which the daemon checks whether the process that it has started has ended.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// Hands over to the process at the other end. After success this process is about to end. After an
/// error it continues as before.
pub(super) fn take_over(
    stream: &UnixStream,
    shared: &Arc<Shared>,
    version: u32,
) -> Result<(), Refusal> {
    check_user(stream, shared)?;
    let process = process_of(stream)?;
    let is_child = shared.successor().as_ref().is_some_and(|child| child.process == process);
    if Notify::is_expected() && !is_child {
        let text = "this daemon is a unit of systemd, and hands over to a process of its own only";
        return Err(Refusal::new(RefusalKind::OfUnit, text));
    }
    let socket = shared.socket();
    let leaves = |is: bool| shared.is_leaving.store(is, Ordering::Relaxed);
    let given = give::give(stream, &shared.plane, socket.state(), (version, process), leaves);
    given.map_err(|error| {
        let text = format!("the daemon continues as before: {error:#}");
        tracing::warn!("no other process has taken over: {error:#}");
        Refusal::new(RefusalKind::Refused, text)
    })
}

/// Starts a process that takes over, and waits until this daemon, or that process, ends.
pub(super) fn succeed(stream: &UnixStream, shared: &Arc<Shared>) -> Result<(), Refusal> {
    check_user(stream, shared)?;
    let failed = |what: &dyn std::fmt::Display| {
        let text = format!("the daemon continues as before: {what}");
        Refusal::new(RefusalKind::Refused, text)
    };
    let mut child = {
        // The child may connect only after its number is stored.
        let mut successor = shared.successor();
        if successor.is_some() {
            let text = "another process is taking over already";
            return Err(Refusal::new(RefusalKind::Busy, text));
        }
        let client = stream.try_clone().map_err(|error| failed(&error))?;
        let config = (shared.loader)().map_err(|error| failed(&error))?;
        srd_net::raw::keep_descriptors_from_children().map_err(|error| failed(&error))?;
        let mut command = Command::new(give::program().map_err(|error| failed(&error))?);
        command.arg("up").arg("-c").arg(&config.file).arg("--take-over");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().map_err(|error| failed(&error))?;
        *successor = Some(Successor { process: child.id(), client });
        child
    };
    let ended = loop {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(LOOK_PAUSE),
            Ok(Some(status)) => break status.to_string(),
            Err(error) => break error.to_string(),
        }
    };
    *shared.successor() = None;
    Err(failed(&format!(
        "the process that was to take over has failed ({ended}): the log of the unit has the reason"
    )))
}

/// Checks that the client is root, the user that started the daemon, or the present user of the
/// daemon.
fn check_user(stream: &UnixStream, shared: &Shared) -> Result<(), Refusal> {
    let checked = srd_trust::peer::check(stream);
    let checked = checked.or_else(|_| srd_trust::peer::check_one(stream, shared.owner));
    checked.map_err(|_| {
        let text = "root or the user of the daemon requests a take-over: use sudo";
        Refusal::new(RefusalKind::NotPermitted, text)
    })
}

fn process_of(stream: &UnixStream) -> Result<u32, Refusal> {
    let by = socket_peercred(stream).map(|by| by.pid.as_raw_nonzero().get());
    let process = by.ok().and_then(|pid| u32::try_from(pid).ok());
    let text = "the process at the other end has no number in this namespace of processes";
    process.ok_or_else(|| Refusal::new(RefusalKind::Refused, text))
}
