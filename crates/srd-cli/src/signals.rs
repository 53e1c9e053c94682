//! Termination signals: flags that they set, and functions that run, for commands that end in
//! order.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::failure;

/// Signals by which a user or a service ends a command.
const ENDS: [i32; 2] = [SIGINT, SIGTERM];

/// Returns a flag that SIGINT and SIGTERM set.
///
/// # Errors
/// If a handler cannot be installed.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>> {
    set_by(&ENDS)
}

/// Returns a flag that SIGINT, SIGTERM and SIGHUP set: for commands that another machine's terminal
/// may have started.
///
/// # Errors
/// If a handler cannot be installed.
pub(crate) fn stop_flag_with_hangup() -> Result<Arc<AtomicBool>> {
    set_by(&[SIGINT, SIGTERM, SIGHUP])
}

fn set_by(signals: &[i32]) -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in signals {
        flag::register(*signal, Arc::clone(&stop)).context("signals")?;
    }
    Ok(stop)
}

/// Returns a flag that the first SIGINT or SIGTERM sets. The second one ends the process at once,
/// even while it waits.
///
/// # Errors
/// If a handler cannot be installed.
pub(crate) fn stop_flag_then_end() -> Result<Arc<AtomicBool>> {
    let flags = Flags::default();
    ENDS.iter().try_for_each(|signal| flags.register(*signal))?;
    Ok(flags.stop)
}

/// Target of log lines about the control plane, which `srd control up` prints without `-v`.
const LOG_TARGET: &str = "srd_control";

/// Longest time that the last line of the log may take.
const LOG_WAIT_MAX: Duration = Duration::from_secs(1);

/// Logs the signal that ends this process. If the log does not accept the line in time, the process
/// ends without it.
fn log_end(signal: i32) {
    let (logged, is_logged) = mpsc::channel();
    std::thread::spawn(move || {
        let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
        tracing::info!(target: LOG_TARGET, "ends, by {name}");
        let _ = logged.send(());
    });
    let _ = is_logged.recv_timeout(LOG_WAIT_MAX);
}

/// An action at the end of a server.
type Action = Box<dyn FnOnce() + Send>;

/// Functions that run when a signal ends the process.
#[derive(Clone, Default)]
pub(crate) struct AtEnd(Arc<Mutex<Vec<Action>>>);

impl fmt::Debug for AtEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AtEnd").finish_non_exhaustive()
    }
}

impl AtEnd {
    /// Adds a function, which runs after those that were added before.
    pub(crate) fn add(&self, function: impl FnOnce() + Send + 'static) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(function));
    }

    /// Makes SIGINT and SIGTERM run the functions and end the process with the code 0. With
    /// `hangup`, SIGHUP does so as well; without, it keeps its action, which `nohup` may have set.
    ///
    /// # Errors
    /// If the signals cannot be handled, or no thread can start.
    pub(crate) fn handle_signals(&self, hangup: bool) -> Result<()> {
        let signals = ENDS.into_iter().chain(hangup.then_some(SIGHUP));
        let mut signals = Signals::new(signals).context("signals")?;
        let functions = Arc::clone(&self.0);
        let end = move || {
            if let Some(signal) = signals.forever().next() {
                let functions = &mut *functions.lock().unwrap_or_else(PoisonError::into_inner);
                functions.drain(..).for_each(|function| function());
                log_end(signal);
                std::process::exit(0);
            }
        };
        std::thread::Builder::new().name("srd-signals".into()).spawn(end).context("a thread")?;
        Ok(())
    }
}

#[derive(Default)]
struct Flags {
    /// Set by the first signal.
    stop: Arc<AtomicBool>,
    /// Whether the next signal ends the process.
    again: Arc<AtomicBool>,
}

impl Flags {
    /// Installs the three handlers of a signal, which run in the order of this function.
    fn register(&self, signal: i32) -> Result<()> {
        // The first handler replaces the default action of the signal, so the flag is set from here
        // on.
        flag::register(signal, Arc::clone(&self.stop))
            .and_then(|_| {
                let status = failure::RUN.into();
                flag::register_conditional_shutdown(signal, status, Arc::clone(&self.again))
            })
            .and_then(|_| flag::register(signal, Arc::clone(&self.again)))
            .context("signals")?;
        // A signal that arrived before the last handler was installed has set the first flag only.
        // Blocking signals meanwhile would not help, because another thread could receive it.
        if self.stop.load(Ordering::SeqCst) {
            self.again.store(true, Ordering::SeqCst);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use signal_hook::consts::{SIGUSR1, SIGUSR2, SIGWINCH};
    use signal_hook::low_level::raise;

    #[test]
    fn the_first_signal_sets_the_flag_and_the_next_one_would_end_the_process() {
        let flags = Flags::default();
        flags.register(SIGUSR1).unwrap();
        assert!(!flags.stop.load(Ordering::SeqCst) && !flags.again.load(Ordering::SeqCst));
        raise(SIGUSR1).unwrap();
        assert!(flags.stop.load(Ordering::SeqCst) && flags.again.load(Ordering::SeqCst));
    }

    /// A regression: after a signal that arrived between the registrations of two handlers, the
    /// process survived a second signal while it waited.
    #[test]
    fn regression_a_signal_during_the_installation_counts_as_the_first() {
        let flags = Flags::default();
        flag::register(SIGUSR2, Arc::clone(&flags.stop)).unwrap();
        raise(SIGUSR2).unwrap();
        flags.register(SIGUSR2).unwrap();
        assert!(flags.again.load(Ordering::SeqCst), "the next signal ends the process");
    }

    #[test]
    fn each_signal_of_a_list_sets_the_flag() {
        let stop = set_by(&[SIGWINCH]).unwrap();
        assert!(!stop.load(Ordering::SeqCst));
        raise(SIGWINCH).unwrap();
        assert!(stop.load(Ordering::SeqCst));
    }
}
