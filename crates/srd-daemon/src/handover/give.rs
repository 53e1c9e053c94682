//! The side of the daemon that runs in a hand-over.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

use super::instances::HeldInstances;
use super::successor::Successor;
use super::wire::{DESCRIPTORS_MAX, LineConnection, file_of};
use super::{BACK, DONE, ENDS, GO, READY, VERSION};
use crate::control::protocol::Answer;
use crate::control::socket::SocketState;
use crate::plane::{Command, PlaneHandle, oneshot};
use srd_trust::process::Process;

/// Longest time from the request until the other process is ready, and again from `go` to `done`.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Longest time in which the other process must take the line that ends it.
const BACK_WAIT_MAX: Duration = Duration::from_secs(1);
/// Text with which the kernel marks the path of a program that was replaced.
const DELETED: &[u8] = b" (deleted)";

/// Hands the daemon over to the process at the other end of `stream`, which has the number
/// `process` and reads the form `version`. `leaves` is called with true when the other process may
/// accept connections, and with false if the hand-over fails after that. After success, the control
/// thread has stopped all workers and is about to end. After an error, this process continues,
/// unless the other process does not end ([`Unsettled::Ends`]).
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
    // The other process answers after it has received the state. If it has ended before, and
    // another process has its id by now, that process sends no answer.
    let successor = Successor::open(process)?;
    let own = Process::own()?;
    // The configuration stays as it is while the other process reads it.
    let _alone = plane.alone();
    let frozen = plane.freeze_instances().map_err(|why| anyhow!(why))?;
    let until = Instant::now() + WAIT_MAX;
    let estate = plane.ask(|reply| Command::Describe { reply })?.map_err(|why| anyhow!(why))?;
    let state = serde_json::to_vec(&estate.state)?;
    let file = file_of(&[&state, &serde_json::to_vec(&socket)?])?;
    let mut all = vec![file.as_fd(), own.as_fd(), listener];
    all.extend(estate.descriptors.iter().map(|descriptor| descriptor.as_fd()));
    if all.len() > DESCRIPTORS_MAX {
        bail!("more than {DESCRIPTORS_MAX} descriptors cannot be handed over");
    }
    let mut line = LineConnection::new(stream.try_clone()?);
    line.limit(until);
    line.say(&serde_json::to_string(&Answer::Ok(all.len()))?)?;
    line.hand(&all)?;
    // The processes of this daemon end when their input is closed, and these descriptors would keep
    // it open.
    drop(all);
    drop(estate);
    if line.next_line()? != READY {
        bail!("the other process does not report that it is ready");
    }
    leaves(true);
    let given = hand_over(plane, line, successor);
    match given {
        // Requests to the instances are refused until this process ends.
        Ok(()) => std::mem::forget(frozen),
        Err(_) => leaves(false),
    }
    given
}

/// Lets the control thread hand over, and waits until it has done so, or has failed.
fn hand_over(plane: &PlaneHandle, line: LineConnection, successor: Successor) -> Result<()> {
    let (reply, answer) = oneshot();
    plane.command(Command::HandOver { line, successor, reply })?;
    // The control thread waits with a limit of its own.
    let given = answer.recv().unwrap_or_else(|_| Err(String::from("the daemon is ending")));
    given.map_err(|why| anyhow!(why))
}

/// Failure of [`settle`].
#[derive(Debug)]
pub(crate) enum Unsettled {
    /// The other process has ended, or moves no packets. This process continues.
    Continues(anyhow::Error),
    /// The other process does not end, and may move packets as soon as this process ends. This
    /// process has to end.
    Ends(anyhow::Error),
}

/// Lets the other process move packets, while this process moves none, and waits until it does.
/// `held`: the instances, which have stopped. If this fails, ends the other process.
pub(crate) fn settle(
    line: &mut LineConnection,
    held: Option<&HeldInstances>,
    successor: &Successor,
) -> Result<(), Unsettled> {
    line.limit(Instant::now() + WAIT_MAX);
    let Err(why) = let_go(line, held) else { return Ok(()) };
    // If the other process has ended, or does not read, this line reaches no process.
    line.limit(Instant::now() + BACK_WAIT_MAX);
    let _ = line.say(BACK);
    let _ = line.stream().shutdown(std::net::Shutdown::Both);
    // The process that takes over from a node moves no packets before the line `ends`.
    match successor.end() || held.is_some() {
        true => Err(Unsettled::Continues(why)),
        false => Err(Unsettled::Ends(why)),
    }
}

fn let_go(line: &mut LineConnection, held: Option<&HeldInstances>) -> Result<()> {
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
    // If the other process has ended since, this fails, and this process continues.
    line.say(ENDS)
}

/// Returns the path of this program, at which a package may have put a later build.
pub(crate) fn program() -> io::Result<PathBuf> {
    let path = std::env::current_exe()?.into_os_string();
    let kept = path.as_bytes().strip_suffix(DELETED).unwrap_or(path.as_bytes());
    Ok(PathBuf::from(std::ffi::OsString::from_vec(kept.to_vec())))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Calls [`settle`] for the process of `command`, whose end of the connection is closed, and
    /// returns whether the process has ended afterwards.
    fn has_ended_after(command: &mut Command) -> bool {
        let mut child = command.spawn().unwrap();
        let successor = Successor::open(child.id()).unwrap();
        let (here, there) = UnixStream::pair().unwrap();
        drop(there);
        let settled = settle(&mut LineConnection::new(here), None, &successor);
        assert!(matches!(settled, Err(Unsettled::Continues(_))), "{settled:?}");
        let has_ended = child.try_wait().unwrap().is_some();
        let _ = child.kill();
        let _ = child.wait();
        has_ended
    }

    /// Both processes moved packets if the line `back` did not reach the other process.
    #[test]
    fn regression_a_process_that_no_line_reaches_is_ended_before_this_process_continues() {
        assert!(has_ended_after(Command::new("sleep").arg("600")));
        assert!(has_ended_after(Command::new("sleep").arg("0.2")));
    }
}
