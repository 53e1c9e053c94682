//! Handling of signals that end a process: cleanups run before the process ends.
//!
//! A handler only writes two bytes into a pipe; a thread reads them. While children run in the
//! foreground, the first signal is only forwarded to them. Without children, or at the second
//! signal, the registered cleanups run in reverse order and the process ends by that signal. The
//! former handlers are restored when no cleanup and no child is registered any more.

use crate::sys::{self, SavedHandlers, SignalPipe};
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal};
use std::process::{self, Command};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

/// Identifier of a registered cleanup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CleanupId(u64);

struct Child {
    pid: Pid,
    /// Whether the child runs in a new session, in which the terminal's Ctrl-C does not reach it.
    own_session: bool,
}

#[derive(Default)]
struct Registry {
    next_id: u64,
    cleanups: Vec<(CleanupId, Box<dyn FnOnce() + Send>)>,
    children: Vec<Child>,
    saved: Option<SavedHandlers>,
    /// Whether a signal was already forwarded to the children.
    forwarded: bool,
    /// Whether the process is about to end; then no cleanup is registered or removed any more.
    dying: bool,
}

static REGISTRY: OnceLock<Mutex<Registry>> = OnceLock::new();

/// Runs `cleanup` when a signal ends the process, until [`forget`].
pub(crate) fn on_termination(cleanup: impl FnOnce() + Send + 'static) -> Result<CleanupId> {
    let mut registry = living(registry());
    install(&mut registry)?;
    registry.next_id += 1;
    let id = CleanupId(registry.next_id);
    registry.cleanups.push((id, Box::new(cleanup)));
    Ok(id)
}

/// Unregisters a cleanup that the caller performs. If the cleanups are already running, this
/// function does not return: the process must not exit before they are complete.
pub(crate) fn forget(id: CleanupId) {
    let mut registry = living(registry());
    registry.cleanups.retain(|(other, _)| *other != id);
    uninstall_if_idle(&mut registry);
}

/// Starts a child and forwards signals to it until [`forget_child`]. A signal that arrives during
/// the start waits until the child is registered.
pub(crate) fn spawn(command: &mut Command, own_session: bool) -> Result<process::Child> {
    let mut registry = living(registry());
    install(&mut registry)?;
    let child = command.spawn().inspect_err(|_| uninstall_if_idle(&mut registry))?;
    registry.children.push(Child { pid: Pid::from_child(&child), own_session });
    Ok(child)
}

/// Stops forwarding signals to a child. This must happen before the child is reaped, because its id
/// may then belong to another process.
pub(crate) fn forget_child(pid: Pid) {
    let mut registry = registry();
    registry.children.retain(|child| child.pid != pid);
    registry.forwarded &= !registry.children.is_empty();
    uninstall_if_idle(&mut registry);
}

fn registry() -> MutexGuard<'static, Registry> {
    let lock = REGISTRY.get_or_init(Mutex::default);
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the registry of a process that is not ending. If the process is ending, this does not
/// return, because nothing would remove an object that is made now.
fn living(registry: MutexGuard<'static, Registry>) -> MutexGuard<'static, Registry> {
    if registry.dying {
        drop(registry);
        loop {
            thread::park();
        }
    }
    registry
}

fn install(registry: &mut Registry) -> Result<()> {
    static READER: OnceLock<()> = OnceLock::new();
    if registry.saved.is_some() {
        return Ok(());
    }
    let pipe = sys::signal_pipe().context("cannot make the signal pipe")?;
    if READER.get().is_none() {
        thread::Builder::new()
            .name("signals".into())
            .spawn(move || listen(pipe))
            .context("cannot start the signal thread")?;
        let _ = READER.set(());
    }
    registry.saved = Some(sys::install_handlers().context("cannot install signal handlers")?);
    Ok(())
}

fn uninstall_if_idle(registry: &mut Registry) {
    let idle = registry.cleanups.is_empty() && registry.children.is_empty();
    if let Some(saved) = registry.saved.take_if(|_| idle) {
        sys::restore_handlers(&saved);
    }
}

fn listen(pipe: &'static SignalPipe) {
    while let Some((number, from_terminal)) = pipe.read() {
        let mut registry = registry();
        if !registry.children.is_empty() && !registry.forwarded {
            registry.forwarded = true;
            forward(&registry.children, number, from_terminal);
            continue;
        }
        registry.dying = true;
        let cleanups = std::mem::take(&mut registry.cleanups);
        forward(&registry.children, number, from_terminal);
        drop(registry);
        for (_, cleanup) in cleanups.into_iter().rev() {
            // A cleanup that panics must not keep the other cleanups from running.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(cleanup));
        }
        sys::die_of(number);
    }
}

fn forward(children: &[Child], number: i32, from_terminal: bool) {
    let Some(signal) = Signal::from_named_raw(number) else { return };
    for child in children.iter().filter(|child| child.own_session || !from_terminal) {
        // The child may have ended already.
        let _ = rustix::process::kill_process(child.pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::{CommandExt, ExitStatusExt};

    const INNER: &str = "SRD_LAB_TEST_SIGNAL";

    /// Regression: a signal that arrived between the start of a program and its registration ended
    /// this process, and the program kept running.
    #[test]
    #[allow(unsafe_code)]
    fn regression_a_signal_while_a_program_starts_goes_to_the_program() {
        if std::env::var_os(INNER).is_some() {
            let mut command = Command::new("sleep");
            command.arg("60");
            // SAFETY: both calls may be made between fork and exec.
            unsafe {
                command.pre_exec(|| {
                    let parent = rustix::process::getppid().ok_or(std::io::ErrorKind::NotFound)?;
                    Ok(rustix::process::kill_process(parent, Signal::TERM)?)
                });
            }
            std::process::exit(crate::programs::exec::to_end(&mut command, false).unwrap());
        }
        let test = "regression_a_signal_while_a_program_starts_goes_to_the_program";
        let (_, module) = module_path!().split_once("::").unwrap();
        let name = &format!("{module}::{test}");
        let mut command = Command::new(std::env::current_exe().unwrap());
        let status = command.args(["--exact", name]).env(INNER, "1").status().unwrap();
        assert_eq!((status.code(), status.signal()), (Some(128 + 15), None));
    }
}
