//! Completion queues: they report the ends of operations to the application.
//!
//! Failures are in the same queue as successes, in order: completions before a failure are read
//! first, then the failure must be read with a separate call, then the later completions.

use std::ffi::{CString, c_int};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::abi::cq::{
    FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_DATA, FI_CQ_FORMAT_MSG, FI_CQ_FORMAT_TAGGED,
    FI_CQ_FORMAT_UNSPEC,
};
use crate::abi::errno::{FI_EAGAIN, FI_EAVAIL, FI_ECANCELED, FI_EINVAL, FI_ENOSYS};
use crate::objects::domain::Slot;
use crate::objects::hosts::Hosts;
use crate::results::queue::{Queue, WaitMode, Waited};
use crate::{Errno, Outcome};

/// Time for which a waiting call polls before it sleeps.
const SPIN: Duration = Duration::from_micros(20);
/// Largest number of completions that a queue can be created for.
pub const COMPLETIONS_MAX: usize = 1 << 20;

/// Completion of an operation.
#[derive(Clone, Debug, Default)]
pub struct Completion {
    /// The application's context of the operation: an address that the provider only returns.
    pub context: usize,
    /// Kind of the operation, and bits that mark further valid fields.
    pub flags: u64,
    /// Number of bytes received; for other operations, number of bytes of the request.
    pub length: usize,
    /// Address of the received bytes, which the provider only returns.
    pub buffer: usize,
    /// The sender's immediate data; zero without data.
    pub data: u64,
    /// The sender's tag; zero without a tag.
    pub tag: u64,
    /// The sender's number in the address vector; `FI_ADDR_NOTAVAIL` if it is unknown.
    pub source: u64,
    /// Reason of the failure, if the operation failed.
    pub failure: Option<Box<Failure>>,
}

/// Reason why an operation failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// libfabric's number of the error.
    pub error: c_int,
    /// This provider's number of the error.
    pub provider_error: c_int,
    /// Bytes of the message that did not fit into the buffer.
    pub overflow: usize,
    /// The peer and the reason, as text for the user.
    pub text: String,
}

/// Format of completions that the application reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Only the context of the operation.
    Context,
    /// Context, flags and length.
    Message,
    /// Context, flags, length, buffer and data.
    Data,
    /// Context, flags, length, buffer, data and tag.
    Tagged,
}

impl Format {
    /// Converts a number of `enum fi_cq_format`.
    ///
    /// # Errors
    /// `FI_ENOSYS` for a format of a later release.
    pub fn from_number(number: c_int) -> Outcome<Self> {
        match number {
            FI_CQ_FORMAT_UNSPEC | FI_CQ_FORMAT_CONTEXT => Ok(Self::Context),
            FI_CQ_FORMAT_MSG => Ok(Self::Message),
            FI_CQ_FORMAT_DATA => Ok(Self::Data),
            FI_CQ_FORMAT_TAGGED => Ok(Self::Tagged),
            _ => Err(Errno(FI_ENOSYS)),
        }
    }

    /// Returns the number of bytes of an entry of this format.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::Context => 8,
            Self::Message => 24,
            Self::Data => 40,
            Self::Tagged => 48,
        }
    }
}

/// A completion queue.
#[derive(Debug)]
pub struct CompletionQueue {
    /// Slot of the queue, of the limited number of completion queues in its domain.
    pub slot: Slot,
    /// Format of the queue's entries.
    pub format: Format,
    /// Endpoints whose operations complete in this queue.
    pub hosts: Hosts,
    queue: Queue<Completion>,
    /// The text of the failure that was read last, which the application may still point to.
    text: Mutex<CString>,
}

impl CompletionQueue {
    /// Returns an empty queue. `size` is the size that the application requests; zero for the
    /// default.
    ///
    /// # Errors
    /// `FI_EINVAL` beyond [`COMPLETIONS_MAX`]; the errors of [`Queue::new`].
    pub fn new(slot: Slot, size: usize, format: Format, waiting: WaitMode) -> Outcome<Self> {
        let size = if size == 0 { slot.domain().fabric.settings.completions } else { size };
        if size > COMPLETIONS_MAX {
            return Err(Errno(FI_EINVAL));
        }
        let queue = Queue::new(size, waiting)?;
        Ok(Self { slot, format, hosts: Hosts::default(), queue, text: Mutex::default() })
    }

    /// Returns the underlying queue, to wait on.
    #[must_use]
    pub fn queue(&self) -> &Queue<Completion> {
        &self.queue
    }

    /// Takes up to `most` completions and passes each to `each`, with its index from zero. If the
    /// queue is empty, makes progress first. Returns the number of completions.
    ///
    /// # Errors
    /// `FI_EAGAIN` if the queue is still empty; `FI_EAVAIL` if a failure is next; `FI_EOPBADSTATE`
    /// in a process that was forked after the queue was opened.
    pub fn read(&self, most: usize, mut each: impl FnMut(usize, &Completion)) -> Outcome<usize> {
        self.slot.check()?;
        match self.take(most, &mut each) {
            Err(Errno(FI_EAGAIN)) => {}
            taken => return taken,
        }
        self.hosts.poll();
        self.take(most, &mut each)
    }

    fn take(&self, most: usize, each: &mut impl FnMut(usize, &Completion)) -> Outcome<usize> {
        self.queue.with(|entries| {
            let mut count = 0;
            while count < most {
                match entries.front() {
                    Some(entry) if entry.failure.is_none() => each(count, entry),
                    _ => break,
                }
                entries.pop_front();
                count += 1;
            }
            match entries.front() {
                _ if count > 0 => Ok(count),
                None => Err(Errno(FI_EAGAIN)),
                Some(entry) if entry.failure.is_some() => Err(Errno(FI_EAVAIL)),
                Some(_) => Ok(0),
            }
        })
    }

    /// Works like [`CompletionQueue::read`], but waits up to `milliseconds` for the first
    /// completion; a negative value means no limit.
    ///
    /// # Errors
    /// The errors of [`CompletionQueue::read`]; `FI_EAGAIN` also after the timeout; `FI_ECANCELED`
    /// if [`Queue::signal`] ended the wait.
    pub fn wait_read(
        &self,
        most: usize,
        milliseconds: c_int,
        mut each: impl FnMut(usize, &Completion),
    ) -> Outcome<usize> {
        let begin = Instant::now();
        loop {
            match self.read(most, &mut each) {
                Err(Errno(FI_EAGAIN)) => {}
                read => return read,
            }
            // Most answers arrive soon: to sleep at once would cost more time than the answers
            // take.
            if milliseconds == 0 || begin.elapsed() > SPIN {
                break;
            }
        }
        self.hosts.hand_over();
        let left = crate::results::queue::timeout(milliseconds)
            .map(|all| all.saturating_sub(begin.elapsed()));
        match self.queue.wait(left)? {
            Waited::Ready => self.read(most, each),
            Waited::Signalled => Err(Errno(FI_ECANCELED)),
            Waited::TimedOut => Err(Errno(FI_EAGAIN)),
        }
    }

    /// Makes progress, and lets the progress threads make it from now on, so that a completion
    /// makes the descriptor of the queue readable. Returns whether the queue has no entries.
    ///
    /// # Errors
    /// `FI_EOPBADSTATE` in the child of a fork.
    pub fn is_idle(&self) -> Outcome<bool> {
        self.slot.check()?;
        self.hosts.poll();
        self.hosts.hand_over();
        Ok(self.queue.is_empty())
    }

    /// Ends the current wait for completions, or, if no thread waits, the next wait.
    ///
    /// # Errors
    /// `FI_EOPBADSTATE` in the child of a fork.
    pub fn signal(&self) -> Outcome {
        self.slot.check()?;
        self.queue.signal();
        Ok(())
    }

    /// Keeps the text of a failure until the next failure is read. Returns its address and length.
    pub fn keep_text(&self, text: &str) -> (*const std::ffi::c_char, usize) {
        let mut kept = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = CString::new(text).unwrap_or_default();
        (kept.as_ptr(), kept.as_bytes_with_nul().len())
    }

    /// Takes the next entry of the queue, which must be a failure.
    ///
    /// # Errors
    /// `FI_EAGAIN` if the next entry is no failure; `FI_EOPBADSTATE` in the child of a fork.
    pub fn read_failure(&self) -> Outcome<(Completion, Failure)> {
        self.slot.check()?;
        self.queue.with(|entries| {
            let failure = entries.front_mut().and_then(|entry| entry.failure.take());
            let failure = failure.ok_or(Errno(FI_EAGAIN))?;
            let entry = entries.pop_front().ok_or(Errno(FI_EAGAIN))?;
            Ok((entry, *failure))
        })
    }
}

#[cfg(test)]
#[path = "completion_tests.rs"]
mod tests;
