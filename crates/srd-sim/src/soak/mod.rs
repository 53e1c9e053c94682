//! The soak: random worlds with random faults, and oracles that use only what the applications did.
//!
//! A seed makes a [`Plan`]: a small network, an endpoint configuration, a workload and a random
//! subset ("swarm") of faults. It runs in three phases. In the *safety* phase faults happen. Then
//! all faults end, and all flows must finish within a bounded virtual time (*liveness*). Then the
//! network must fall *quiet*. Throughout, the [`ledger`] checks the following, without relying on
//! the code under test. Every datagram is delivered at most once, to its destination, unchanged. It
//! completes once, and with a status that fits its delivery. Packets are conserved. Timers make
//! progress and are few. In three worlds of eight the hosts run a card or the Messaging Layer, and
//! the oracle checks what guests and programs receive ([`Layer`]).
//!
//! A seed always gives the same run, on any machine and with any number of threads.

mod cloud;
mod config;
mod dice;
mod host;
mod layers;
pub mod ledger;
mod node;
mod passed;
mod plan;
mod trial;

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Mutex;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

pub use passed::Passed;
pub use plan::{Layer, Plan};

/// A seed that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// Description of the violation, in one line.
    pub reason: String,
}

thread_local! {
    // Message of a panic of the trial on this thread; `None` outside of trials.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps the panics of trials from the terminal: they become the trial's failure. Panics of other
/// threads are reported as usual.
fn catch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let ours = PANIC.with_borrow_mut(|said| match said {
                Some(text) => {
                    let place = info.location().map(ToString::to_string).unwrap_or_default();
                    let payload = info.payload();
                    let what = payload
                        .downcast_ref::<String>()
                        .map(String::as_str)
                        .or_else(|| payload.downcast_ref::<&str>().copied())
                        .unwrap_or("a panic without words");
                    *text = format!("panic at {place}: {}", what.replace('\n', " "));
                    true
                }
                None => false,
            });
            if !ours {
                others(info);
            }
        }));
    });
}

/// Runs one seed.
///
/// # Errors
/// Describes the first violation or panic.
pub fn run_seed(seed: u64) -> Result<Passed, Failure> {
    catch_panics();
    PANIC.set(Some(String::new()));
    let ended = panic::catch_unwind(AssertUnwindSafe(|| trial::run(&Plan::new(seed))));
    let said = PANIC.take().unwrap_or_default();
    match ended {
        Ok(Ok(passed)) => Ok(passed),
        Ok(Err(reason)) => Err(Failure { seed, reason }),
        Err(_) => Err(Failure { seed, reason: said }),
    }
}

/// Runs `seeds` seeds from `from` on several threads. Calls `each` for every seed as it ends, in no
/// particular order. Returns the failures in the order of their seeds, and a digest of all seeds
/// that passed, which depends only on the seeds.
pub fn run(
    from: u64,
    seeds: u64,
    threads: usize,
    each: &(dyn Fn(u64, &Result<Passed, Failure>) + Sync),
) -> (Vec<Failure>, u64) {
    let next = AtomicU64::new(0);
    let digest = AtomicU64::new(0);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= seeds {
                        return;
                    }
                    let seed = from.wrapping_add(number);
                    let result = run_seed(seed);
                    each(seed, &result);
                    match result {
                        Ok(passed) => {
                            digest.fetch_xor(passed.digest, Ordering::Relaxed);
                        }
                        Err(failure) => {
                            failures.lock().expect("nobody panics with the lock").push(failure);
                        }
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().expect("nobody panicked with the lock");
    failures.sort_by_key(|f| f.seed);
    (failures, digest.into_inner())
}

#[cfg(test)]
mod tests;
