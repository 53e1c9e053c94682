//! The local queue pairs, and their receive buffers. A received datagram is delivered if its queue
//! pair exists and has a buffer. Otherwise it is refused with a verdict (D8), or dropped if it is
//! an unreliable datagram (D15).

use alloc::vec::Vec;

use crate::event::Status;
use crate::ids::Qpn;

/// Accounting of a queue pair's receive buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceiveBuffers {
    /// Every datagram is accepted.
    Unlimited,
    /// Number of buffers left. Each datagram uses one; without a buffer it is refused (RNR).
    Counted(u32),
}

/// Table of queue pairs, by number. Bound: 65,536 entries, one for each possible number.
#[derive(Debug, Default)]
pub(crate) struct QueuePairs {
    open: Vec<Option<ReceiveBuffers>>,
}

impl QueuePairs {
    pub(crate) fn open(&mut self, qpn: Qpn, buffers: ReceiveBuffers) {
        let index = usize::from(qpn.0);
        if self.open.len() <= index {
            self.open.resize(index + 1, None);
        }
        self.open[index] = Some(buffers);
    }

    pub(crate) fn post(&mut self, qpn: Qpn, n: u32) {
        if let Some(Some(ReceiveBuffers::Counted(count))) = self.open.get_mut(usize::from(qpn.0)) {
            *count = count.saturating_add(n);
        }
    }

    pub(crate) fn close(&mut self, qpn: Qpn) {
        if let Some(entry) = self.open.get_mut(usize::from(qpn.0)) {
            *entry = None;
        }
    }

    /// Uses one buffer, or returns the reason for the refusal.
    pub(crate) fn take_buffer(&mut self, qpn: Qpn) -> Status {
        // D8: A refusal fails one datagram
        match self.open.get_mut(usize::from(qpn.0)) {
            Some(Some(ReceiveBuffers::Unlimited)) => Status::Ok,
            Some(Some(ReceiveBuffers::Counted(0))) => Status::RemoteRnr,
            Some(Some(ReceiveBuffers::Counted(count))) => {
                *count -= 1;
                Status::Ok
            }
            Some(None) | None => Status::BadDestQpn,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_run_out_and_come_back() {
        let mut table = QueuePairs::default();
        assert_eq!(table.take_buffer(Qpn(5)), Status::BadDestQpn);
        table.open(Qpn(5), ReceiveBuffers::Counted(1));
        assert_eq!(table.take_buffer(Qpn(5)), Status::Ok);
        assert_eq!(table.take_buffer(Qpn(5)), Status::RemoteRnr);
        table.post(Qpn(5), 1);
        assert_eq!(table.take_buffer(Qpn(5)), Status::Ok);
        table.close(Qpn(5));
        assert_eq!(table.take_buffer(Qpn(5)), Status::BadDestQpn);
    }
}
