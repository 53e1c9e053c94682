//! The side of the daemon that runs in a hand-over.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};

use super::decision::Decision;
use super::instances::HeldInstances;
use super::wire::{DESCRIPTORS_MAX, LineConnection, file_of};
use super::{DONE, GO, READY, VERSION};
use crate::control::protocol::Answer;
use crate::control::socket::SocketState;
use crate::plane::{Command, PlaneHandle, oneshot};

/// Longest time from the request until the other process is ready, and again from `go` to `done`.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Text with which the kernel marks the path of a program that was replaced.
const DELETED: &[u8] = b" (deleted)";

/// Hands the daemon over to the process at the other end of `stream`, which has the number
/// `process` and reads the form `version`. `leaves` is called with true when the other process may
/// accept connections, and with false if the hand-over fails after that. After success, the control
/// thread has stopped all workers and is about to end. After an error, this process goes on.
pub(crate) fn give(
    stream: &UnixStream,
    plane: &PlaneHandle,
    (socket, listener): (SocketState, BorrowedFd<'_>),
    (version, process): (u32, u32),
    leaves: impl Fn(bool),
) -> Result<()> {
    if version != VERSION {
        bail!(
            "it hands its state over in form {VERSION}, and the new process reads form {version}: \
             restart the daemon"
        );
    }
    // The configuration stays as it is while the other process reads it.
    let _alone = plane.alone();
    let frozen = plane.freeze_instances().map_err(|why| anyhow!(why))?;
    let until = Instant::now() + WAIT_MAX;
    let estate = plane.ask(|reply| Command::Describe { reply })?.map_err(|why| anyhow!(why))?;
    let state = serde_json::to_vec(&estate.state)?;
    let file = file_of(&[&state, &serde_json::to_vec(&socket)?])?;
    let (decision, of_other) = Decision::new()?;
    let mut all = vec![file.as_fd(), of_other.as_fd(), listener];
    all.extend(estate.descriptors.iter().map(|descriptor| descriptor.as_fd()));
    if all.len() > DESCRIPTORS_MAX {
        bail!("more than {DESCRIPTORS_MAX} descriptors cannot be handed over");
    }
    let mut line = LineConnection::new(stream.try_clone()?);
    line.limit(until);
    line.say(&serde_json::to_string(&Answer::Ok(all.len()))?)?;
    line.hand(&all)?;
    // The processes of this daemon end when their input is closed, and these descriptors would keep
    // it open. The decision fails after the end of the other process, unless this process has the
    // other end of its socket as well.
    drop(all);
    drop((estate, of_other));
    if line.next_line()? != READY {
        bail!("the other process does not report that it is ready");
    }
    leaves(true);
    let given = hand_over(plane, line, (decision, process));
    match given {
        // Requests to the instances are refused until this process ends.
        Ok(()) => std::mem::forget(frozen),
        Err(_) => leaves(false),
    }
    given
}

/// Lets the control thread hand over, and waits until it has done so, or has failed.
fn hand_over(
    plane: &PlaneHandle,
    line: LineConnection,
    (decision, process): (Decision, u32),
) -> Result<()> {
    let (reply, answer) = oneshot();
    plane.command(Command::HandOver { line, decision, process, reply })?;
    // The control thread waits with a limit of its own.
    let given = answer.recv().unwrap_or_else(|_| Err(String::from("the daemon is ending")));
    given.map_err(|why| anyhow!(why))
}

/// Lets the other process prepare its last steps, while this process moves no packets, and decides
/// that the other process goes on when it is ready. `held`: the instances, which have stopped.
///
/// # Errors
/// The reason why this process goes on. The decision that is then dropped ends the other process.
pub(crate) fn settle(
    line: &mut LineConnection,
    decision: Decision,
    held: Option<&HeldInstances>,
) -> Result<()> {
    line.limit(Instant::now() + WAIT_MAX);
    let mut all = Vec::new();
    if let Some(HeldInstances { state, descriptors, .. }) = held {
        all.push(state.as_fd());
        all.extend(descriptors.iter().map(|descriptor| descriptor.as_fd()));
    }
    if all.len() > DESCRIPTORS_MAX {
        bail!("more than {DESCRIPTORS_MAX} descriptors cannot be handed over");
    }
    line.say(&format!("{GO} {}", all.len()))?;
    line.hand(&all)?;
    let said = line.next_line()?;
    if said != DONE {
        bail!("the other process reports `{said}` instead");
    }
    decision.hand_over().context("the other process does not wait any more")
}

/// Returns the path of this program, at which a package may have put a later build.
pub(crate) fn program() -> io::Result<PathBuf> {
    let path = std::env::current_exe()?.into_os_string();
    let kept = path.as_bytes().strip_suffix(DELETED).unwrap_or(path.as_bytes());
    Ok(PathBuf::from(std::ffi::OsString::from_vec(kept.to_vec())))
}

#[cfg(test)]
mod tests {
    use super::super::decision::AwaitedDecision;
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Calls [`settle`] with a connection, and returns whether it has succeeded, and whether the
    /// other process goes on.
    fn settled(here: UnixStream) -> (bool, bool) {
        let (decision, of_other) = Decision::new().unwrap();
        let is_given = settle(&mut LineConnection::new(here), decision, None).is_ok();
        (is_given, AwaitedDecision::from(of_other).goes_on(LONG))
    }

    #[test]
    fn the_other_process_goes_on_when_it_is_ready() {
        let (here, there) = UnixStream::pair().unwrap();
        let mut there = LineConnection::new(there);
        let other = std::thread::spawn(move || {
            assert_eq!(there.next_line().unwrap(), "go 0");
            there.say(DONE).unwrap();
            there
        });
        assert_eq!(settled(here), (true, true));
        other.join().unwrap();
    }

    /// This process could end both: a line that it could not send did not reach the other process.
    #[test]
    fn regression_a_full_connection_does_not_keep_the_decision_from_the_other_process() {
        let (here, _there) = UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        while io::Write::write(&mut &here, &[b'x'; 4096]).is_ok() {}
        assert_eq!(settled(here), (false, false));
    }

    /// Both processes moved packets, or this one had to end the other one by SIGKILL.
    #[test]
    fn regression_a_process_that_ends_or_sends_something_else_does_not_go_on() {
        let (here, there) = UnixStream::pair().unwrap();
        drop(there);
        assert_eq!(settled(here), (false, false));
        let (here, there) = UnixStream::pair().unwrap();
        let mut there = LineConnection::new(there);
        there.say("another line").unwrap();
        assert_eq!(settled(here), (false, false));
    }
}
