//! Processes of a daemon that go on when another process takes over: the process that has to end
//! each, and the pipes to and from it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::{Arc, Weak};

/// The parent of a child process of a daemon, which has to wait for the end of the child process.
/// The child process ends when its input ends.
#[derive(Debug)]
pub(crate) enum Owner {
    /// This process, whose child it is.
    Parent(Child),
    /// This process, which has taken it over from its parent. Only the parent can wait for a
    /// process; this process waits for the end of its output.
    Heir,
    /// Another process, from which this process has not taken it over yet.
    Other,
}

/// The pipes to and from a process. They keep the input of the process open only while its owner
/// does, so that the process ends when its owner closes the input.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pipes(Option<(Weak<File>, Arc<OwnedFd>)>);

impl Pipes {
    /// The pipes of a process with this input and this output.
    ///
    /// # Errors
    /// An error of the operating system, if there is no free descriptor.
    pub(crate) fn of(to: &Arc<File>, from: &File) -> io::Result<Self> {
        Ok(Self(Some((Arc::downgrade(to), Arc::new(from.try_clone()?.into())))))
    }

    /// Returns descriptors of both pipes, for another process; `None` if there is no process.
    ///
    /// # Errors
    /// An error of the operating system, if there is no free descriptor.
    pub(crate) fn descriptors(&self) -> io::Result<Option<[Arc<OwnedFd>; 2]>> {
        let Some((to, from)) = &self.0 else { return Ok(None) };
        let Some(to) = to.upgrade() else { return Ok(None) };
        Ok(Some([Arc::new(to.try_clone()?.into()), Arc::clone(from)]))
    }
}
