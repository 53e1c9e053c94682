//! The side of the daemon that runs in a hand-over.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

use super::instances::HeldInstances;
use super::wire::{DESCRIPTORS_MAX, LineConnection, file_of};
use super::{BACK, DONE, ENDS, GO, READY, VERSION};
use crate::control::protocol::Answer;
use crate::control::socket::SocketState;
use crate::plane::{Command, PlaneHandle, oneshot};

/// Longest time from the request until the other process is ready, and again from `go` to `done`.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Longest time in which the other process must take the line that ends it.
const BACK_WAIT_MAX: Duration = Duration::from_secs(1);
/// Text with which the kernel marks the path of a program that was replaced.
const DELETED: &[u8] = b" (deleted)";

/// Hands the daemon over to the process at the other end of `stream`, which has the number
/// `process` and reads the form `version`. `leaves` is called with true when the other process may
/// accept connections, and with false if the hand-over fails after that. After success, the control
/// thread has stopped all workers and is about to end.
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
    let until = Instant::now() + WAIT_MAX;
    let estate = plane.ask(|reply| Command::Describe { reply })?.map_err(|why| anyhow!(why))?;
    let state = serde_json::to_vec(&estate.state)?;
    let file = file_of(&[&state, &serde_json::to_vec(&socket)?])?;
    let mut all = vec![file.as_fd(), listener];
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
    let given = hand_over(plane, line, process);
    if given.is_err() {
        leaves(false);
    }
    given
}

/// Lets the control thread hand over, and waits until it has done so, or has failed.
fn hand_over(plane: &PlaneHandle, line: LineConnection, process: u32) -> Result<()> {
    let (reply, answer) = oneshot();
    plane.command(Command::HandOver { line, process, reply })?;
    // The control thread waits with a limit of its own.
    let given = answer.recv().unwrap_or_else(|_| Err(String::from("the daemon is ending")));
    given.map_err(|why| anyhow!(why))
}

/// Lets the other process move packets, while this process moves none, and waits until it does.
/// `held`: the instances, which have stopped. If this fails, the other process has to end.
pub(crate) fn settle(line: &mut LineConnection, held: Option<&HeldInstances>) -> Result<()> {
    line.limit(Instant::now() + WAIT_MAX);
    let settled = let_go(line, held);
    if settled.is_err() {
        // If the other process has ended, this line reaches no process.
        line.limit(Instant::now() + BACK_WAIT_MAX);
        let _ = line.say(BACK);
        let _ = line.stream().shutdown(std::net::Shutdown::Both);
    }
    settled
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
