//! The soak: a test with random worlds and random faults. Its oracles use only the actions and
//! observations of applications.
//!
//! A seed determines a [`Plan`]: a small network, an endpoint configuration, a workload and a
//! random subset ("swarm") of faults. A run has three phases. In the *safety* phase faults happen.
//! Then all faults end, and all flows must finish within a bounded virtual time (*liveness*). In
//! the last phase the network must fall *quiet*.
//!
//! In all phases, the [`ledger`] checks the following, without relying on the code under test.
//! Every datagram is delivered at most once, to its destination, unchanged. It has one completion,
//! with a status that fits its delivery. Packets are conserved. Timers make progress and do not
//! fire too often. In three worlds of eight the hosts run a card or the Messaging Layer, and the
//! oracle checks the data that guests and programs receive ([`Layer`]).
//!
//! A seed gives the same run on any machine and with any number of threads.

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

/// A seed whose run failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The seed from which the run can be repeated.
    pub seed: u64,
    /// Description of the violation, in one line.
    pub reason: String,
}

thread_local! {
    // Message of a panic in a run on this thread; `None` while the thread executes no run.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Installs a panic hook once. A panic in the run of a seed becomes the failure of that seed and is
/// not printed. Panics of other threads are printed as usual.
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

/// Runs the plan of one seed.
///
/// # Errors
/// A description of the first violation or panic.
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

/// Runs the seeds `from` to `from + seeds - 1` on several threads. Calls `each` for every seed when
/// its run ends, in no particular order. Returns the failures in the order of their seeds, and a
/// digest of all seeds that passed. The digest depends only on the seeds.
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
