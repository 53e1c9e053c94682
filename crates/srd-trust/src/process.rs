//! Another process, by a descriptor that refers to this very process (pidfd). A process id alone
//! may belong to a later process as soon as the parent of the first one has waited for it.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process, which may have ended.
#[derive(Debug)]
pub struct Process(OwnedFd);

impl Process {
    /// Opens the process that has this id at present.
    ///
    /// # Errors
    /// An error of the operating system, if there is no such process or no free descriptor.
    pub fn open(id: u32) -> io::Result<Self> {
        let pid = i32::try_from(id).ok().and_then(Pid::from_raw);
        Ok(Self(pidfd_open(pid.ok_or(Errno::SRCH)?, PidfdFlags::empty())?))
    }

    /// Whether the process ends within this time. A time of zero does not wait.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn ends_within(&self, time: Duration) -> io::Result<bool> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&left)) {
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends a signal to the process, and to no later process with the same id.
    ///
    /// # Errors
    /// An error of the operating system, if the process has ended or may not be signalled.
    pub fn send(&self, signal: Signal) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.0, signal)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_found_signalled_and_seen_to_end() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let process = Process::open(child.id()).unwrap();
        assert!(!process.ends_within(Duration::from_millis(10)).unwrap());
        process.send(Signal::KILL).unwrap();
        assert!(process.ends_within(Duration::from_secs(60)).unwrap());
        child.wait().unwrap();
        // The id is free, and may belong to another process.
        assert!(process.ends_within(Duration::ZERO).unwrap());
        assert!(process.send(Signal::KILL).is_err());
    }

    #[test]
    fn an_id_without_a_process_is_an_error() {
        for id in [0, 4_194_305, u32::MAX] {
            Process::open(id).unwrap_err();
        }
    }
}
