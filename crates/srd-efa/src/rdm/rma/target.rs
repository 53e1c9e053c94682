//! Target side of reads and writes: places PUTs, and reports peers' transfers (A2).

use crate::device::Note;
use crate::layer::completion::{Kind, OperationCompletion, Outcome};
use crate::layer::world::Peer;
use crate::memory::Memory;
use crate::mr::{Purpose, Range};
use crate::rdm::receive::inbound::Refusal;
use crate::rdm::state::Rdm;
use crate::rdm::wire::frame::Frame;

impl Rdm {
    /// Handles a PUT, which is a small write, or a NOTE, which carries the data of a finished
    /// write.
    pub(crate) fn on_write(
        &mut self,
        index: u32,
        frame: &Frame<'_>,
        memory: &mut dyn Memory,
    ) -> Result<(), Refusal> {
        if self.is_full() {
            return Err(Refusal::Rnr);
        }
        match *frame {
            Frame::Put { data, more, addr, rkey, bytes } => {
                let length = bytes.len() as u64;
                let range = Range { addr, length, key: rkey };
                let to = self.device.target(self.pd, range, Purpose::RemoteWrite);
                let to = to.ok_or(Refusal::BadAddress)?;
                if !bytes.is_empty() {
                    memory.write(to.region, to.offset, bytes);
                }
                if data.is_some() || self.config.report_remote && !more {
                    self.report_remote(index, Kind::RemoteWrite, length, data);
                }
            }
            Frame::Note { data, length } => {
                self.report_remote(index, Kind::RemoteWrite, length, Some(data));
            }
            _ => return Err(Refusal::Malformed),
        }
        Ok(())
    }

    /// Reports a peer's read or write of this endpoint's memory as a completion.
    pub(crate) fn report_remote(&mut self, index: u32, kind: Kind, length: u64, data: Option<u64>) {
        let source = self.conn(index).and_then(|conn| conn.source);
        self.done.push_back(OperationCompletion {
            kind,
            outcome: Outcome::Ok,
            context: 0,
            tagged: false,
            signaled: data.is_some(),
            peer: source.map(Peer),
            length,
            offset: 0,
            tag: 0,
            data,
            released: false,
        });
    }

    /// Takes the device's notes of peers' transfers.
    pub(crate) fn take_notes(&mut self) {
        while let Some(Note { peer, read, length, lkey, whole, part }) = self.device.note() {
            if let Some(key) = self.shared_by.get(&lkey).copied() {
                self.given_back(key);
                continue;
            }
            let told = whole && !part && self.config.report_remote;
            let Some(index) = self.conn_of(peer).filter(|_| told) else {
                continue;
            };
            let kind = if read { Kind::RemoteRead } else { Kind::RemoteWrite };
            self.report_remote(index, kind, u64::from(length), None);
        }
    }
}
