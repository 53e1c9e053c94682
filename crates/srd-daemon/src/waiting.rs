//! Threads that are started before their work may begin. The start of a thread may fail, and a
//! process that has taken over from another one must not fail any more. So such a process starts
//! its threads before, and lets them work afterwards.

use std::fmt;
use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

/// A thread that waits for a value, with which its work begins. If this is dropped before, the
/// thread ends without any work.
pub(crate) struct WaitingThread<T> {
    to: SyncSender<T>,
    thread: JoinHandle<()>,
}

impl<T: Send + 'static> WaitingThread<T> {
    /// Starts a thread with this name, which waits.
    ///
    /// # Errors
    /// An error of the operating system, if the thread cannot be started.
    pub(crate) fn start(name: &str, work: impl FnOnce(T) + Send + 'static) -> io::Result<Self> {
        let (to, with) = sync_channel(1);
        let wait = move || {
            if let Ok(with) = with.recv() {
                work(with);
            }
        };
        let thread = Builder::new().name(name.to_owned()).spawn(wait)?;
        Ok(Self { to, thread })
    }

    /// Lets the thread begin its work. Never waits.
    pub(crate) fn begin(self, with: T) -> JoinHandle<()> {
        // The channel has a slot, and the thread waits for this value only.
        let _ = self.to.try_send(with);
        self.thread
    }
}

impl<T> fmt::Debug for WaitingThread<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WaitingThread").field(&self.thread).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_thread_works_with_its_value_and_not_at_all_without_one() {
        let (done, result) = channel();
        let other = done.clone();
        let thread = WaitingThread::start("test", move |with: u32| done.send(with).unwrap());
        thread.unwrap().begin(7).join().unwrap();
        assert_eq!(result.recv().unwrap(), 7);
        drop(WaitingThread::start("test", move |with: u32| other.send(with).unwrap()).unwrap());
        assert!(result.recv().is_err());
    }
}
