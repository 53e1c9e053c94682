//! Signals that end a process, turned into orderly removal.
//!
//! A handler only writes two bytes into a pipe; a thread reads them. While children run in the
//! foreground, the first signal goes to them and they decide; otherwise, or the second time, the
//! registered cleanups run in reverse order and the process dies of that same signal. The former
//! handlers are back in place as soon as nothing is registered any more.

use crate::sys::{self, SavedHandlers, SignalPipe};
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

/// Names a registered cleanup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CleanupId(u64);

struct Child {
    pid: Pid,
    /// In a session of its own the terminal's Ctrl-C does not reach it.
    own_session: bool,
}

#[derive(Default)]
struct Registry {
    next_id: u64,
    cleanups: Vec<(CleanupId, Box<dyn FnOnce() + Send>)>,
    children: Vec<Child>,
    saved: Option<SavedHandlers>,
    /// A signal was already left to the children.
    forwarded: bool,
    /// The process is about to die; nothing more is registered or forgotten.
    dying: bool,
}

static REGISTRY: OnceLock<Mutex<Registry>> = OnceLock::new();

/// Runs `cleanup` when a signal ends the process, until [`forget`].
pub(crate) fn on_termination(cleanup: impl FnOnce() + Send + 'static) -> Result<CleanupId> {
    let mut registry = registry();
    install(&mut registry)?;
    registry.next_id += 1;
    let id = CleanupId(registry.next_id);
    registry.cleanups.push((id, Box::new(cleanup)));
    Ok(id)
}

/// Unregisters a cleanup: the caller does it itself. Does not return if it is already running,
/// for then the process is about to die and must not exit before the cleanup is through.
pub(crate) fn forget(id: CleanupId) {
    let mut registry = registry();
    if registry.dying {
        drop(registry);
        loop {
            thread::park();
        }
    }
    registry.cleanups.retain(|(other, _)| *other != id);
    uninstall_if_idle(&mut registry);
}

/// Forwards signals to a child until [`forget_child`].
pub(crate) fn forward_to(pid: Pid, own_session: bool) -> Result<()> {
    let mut registry = registry();
    install(&mut registry)?;
    registry.children.push(Child { pid, own_session });
    Ok(())
}

/// Must be called before the child is reaped: after that its id may be somebody else's.
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
            // One that panics must not keep the others from running.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(cleanup));
        }
        sys::die_of(number);
    }
}

fn forward(children: &[Child], number: i32, from_terminal: bool) {
    let Some(signal) = Signal::from_named_raw(number) else { return };
    for child in children.iter().filter(|child| child.own_session || !from_terminal) {
        // It may have ended by itself.
        let _ = rustix::process::kill_process(child.pid, signal);
    }
}
