//! State of a measurement that the server runs: whether the measurement must stop, and whether data
//! still arrives.
//!
//! A client that announced a measurement and then sent nothing would block all other clients. So a
//! measurement ends if no data has arrived for [`IDLE_MAX`].

use super::control::{self, Message};
use anyhow::{Context, Result, bail};
use std::io::ErrorKind;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Maximum time without data, after which a measurement ends.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(10);
/// Interval at which the wait for the client's last message is interrupted to check whether data
/// arrives.
const LOOK: Duration = Duration::from_millis(500);
/// Maximum time in which the client's last message must arrive after its first byte.
const FINISH_MAX: Duration = Duration::from_secs(5);

/// Flags that the threads of one measurement share.
#[derive(Debug, Default)]
pub(super) struct Running {
    stop: AtomicBool,
    arrived: AtomicBool,
}

impl Running {
    /// Whether the measurement has ended, because the client has finished, or because of an error.
    pub(super) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Marks the measurement as ended.
    pub(super) fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Records that data has arrived.
    pub(super) fn arrived(&self) {
        self.arrived.store(true, Ordering::Relaxed);
    }

    /// Waits until `deadline` for the client's last message. It is an error if no data arrives for
    /// `idle_max`. When this function returns, the measurement is marked as ended.
    pub(super) fn watch(
        &self,
        control: &mut TcpStream,
        deadline: Instant,
        idle_max: Duration,
    ) -> Result<Message> {
        let message = self.last_message(control, deadline, idle_max);
        self.end();
        message
    }

    fn last_message(
        &self,
        control: &mut TcpStream,
        deadline: Instant,
        idle_max: Duration,
    ) -> Result<Message> {
        let mut last = Instant::now();
        control.set_read_timeout(Some(LOOK.min(idle_max)))?;
        loop {
            match control.peek(&mut [0]) {
                Ok(0) => bail!("the client is gone"),
                Ok(_) => return control::receive_by(control, Instant::now() + FINISH_MAX),
                Err(error) if is_idle(error.kind()) => {}
                Err(error) => return Err(error).context("the client is gone"),
            }
            let now = Instant::now();
            if self.arrived.swap(false, Ordering::Relaxed) {
                last = now;
            }
            if now >= deadline {
                bail!("the measurement took longer than it was to take");
            }
            if now - last >= idle_max {
                bail!("no data for {} s: the measurement ends", idle_max.as_secs());
            }
        }
    }
}

fn is_idle(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::control::tests::pair;

    #[test]
    fn a_measurement_without_data_ends() {
        let (_near, mut far) = pair();
        let running = Running::default();
        let began = Instant::now();
        let idle_max = Duration::from_millis(50);
        let day = began + Duration::from_secs(86_400);
        let ended = running.watch(&mut far, day, idle_max).unwrap_err();
        assert!(ended.to_string().contains("no data for"), "{ended}");
        assert!(running.is_over() && began.elapsed() >= idle_max);
    }

    #[test]
    fn a_measurement_ends_at_its_deadline_and_at_the_last_message() {
        let (mut near, mut far) = pair();
        let ended = Running::default().watch(&mut far, Instant::now(), IDLE_MAX).unwrap_err();
        assert!(ended.to_string().contains("longer than"), "{ended}");
        control::send(&mut near, &Message::Finish).unwrap();
        let deadline = Instant::now() + Duration::from_secs(600);
        let last = Running::default().watch(&mut far, deadline, IDLE_MAX).unwrap();
        assert_eq!(last, Message::Finish);
    }
}
