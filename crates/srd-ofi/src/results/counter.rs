//! Counters: the numbers of completed and of failed operations.

use std::ffi::c_int;

use parking_lot::{Condvar, Mutex};

use crate::abi::errno::{FI_EAVAIL, FI_EINVAL, FI_ETIMEDOUT};
use crate::objects::domain::Slot;
use crate::objects::hosts::Hosts;
use crate::results::queue::{WaitMode, timeout};
use crate::{Errno, Outcome};

/// A counter: the numbers of completed and of failed operations, which wrap around.
#[derive(Debug)]
pub struct Counter {
    /// Slot of the counter, of the limited number of counters in its domain.
    pub slot: Slot,
    /// Endpoints whose operations the counter counts.
    pub hosts: Hosts,
    waiting: WaitMode,
    count: Mutex<Count>,
    changed: Condvar,
}

/// The numbers of a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// Number of operations that completed without an error.
    pub completed: u64,
    /// Number of operations that failed.
    pub failed: u64,
}

impl Counter {
    /// Returns a counter at zero.
    #[must_use]
    pub fn new(slot: Slot, waiting: WaitMode) -> Self {
        Self {
            slot,
            hosts: Hosts::default(),
            waiting,
            count: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Makes progress, which may increase the numbers, and returns the numbers. In the child of a
    /// fork, where no operation is counted, the numbers are zero.
    #[must_use]
    pub fn read(&self) -> Count {
        if self.slot.check().is_err() {
            return Count::default();
        }
        self.hosts.poll();
        *self.count.lock()
    }

    /// Changes the numbers.
    ///
    /// # Errors
    /// `FI_EOPBADSTATE` in the child of a fork.
    pub fn change(&self, change: impl FnOnce(&mut Count)) -> Outcome {
        self.slot.check()?;
        change(&mut self.count.lock());
        self.changed.notify_all();
        Ok(())
    }

    /// Waits until `threshold` operations have completed.
    ///
    /// # Errors
    /// `FI_EAVAIL` as soon as an operation fails; `FI_ETIMEDOUT` after `milliseconds`; `FI_EINVAL`
    /// for a counter that does not support waiting; `FI_EOPBADSTATE` in the child of a fork.
    pub fn wait(&self, threshold: u64, milliseconds: c_int) -> Outcome {
        self.slot.check()?;
        if self.waiting == WaitMode::None {
            return Err(Errno(FI_EINVAL));
        }
        let failed = self.count.lock().failed;
        self.hosts.poll();
        self.hosts.hand_over();
        let mut count = self.count.lock();
        let idle = |count: &mut Count| count.completed < threshold && count.failed == failed;
        match timeout(milliseconds) {
            None => self.changed.wait_while(&mut count, idle),
            Some(timeout) => {
                self.changed.wait_while_for(&mut count, idle, timeout);
            }
        }
        if count.completed >= threshold {
            Ok(())
        } else if count.failed == failed {
            Err(Errno(FI_ETIMEDOUT))
        } else {
            Err(Errno(FI_EAVAIL))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::domain::{Kind, tests::domain};

    fn counter(waiting: WaitMode) -> Counter {
        Counter::new(Slot::take(&domain(), Kind::Counter).unwrap(), waiting)
    }

    #[test]
    fn waiting_ends_at_the_threshold_with_a_failure_or_in_time() {
        let counter = counter(WaitMode::Calls);
        assert_eq!(counter.wait(1, 0), Err(Errno(FI_ETIMEDOUT)));
        counter.change(|count| count.completed += 2).unwrap();
        assert_eq!(counter.wait(2, -1), Ok(()));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| counter.wait(9, 60_000));
            while !waiter.is_finished() {
                counter.change(|count| count.failed += 1).unwrap();
                std::thread::yield_now();
            }
            assert_eq!(waiter.join().unwrap(), Err(Errno(FI_EAVAIL)));
        });
    }

    #[test]
    fn a_counter_without_waiting_says_so() {
        assert_eq!(counter(WaitMode::None).wait(0, 0), Err(Errno(FI_EINVAL)));
    }
}
