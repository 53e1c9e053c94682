//! Hands SENDs to the transport, past the queue pair's send queue (U1).
//!
//! What a send queue adds, operations have already: a record, a bound, a completion. So messages
//! are encoded as the device's SENDs are, and do not go through its queues.

use bytes::Bytes;
use srd_proto::{Class, Datagram, SendError};

use crate::layer::world::World;
use crate::rdm::send::operation::{Handed, Out};
use crate::rdm::send::operation::{TAG_CONTROL, user_of};
use crate::rdm::state::{QPN, Rdm};
use crate::slots::Key;
use crate::wire::Opaque;

/// Frames up to this size go in the low-latency class (U5).
const SMALL_BYTES: usize = 2048;

impl Rdm {
    /// Passes a datagram to the transport.
    pub(crate) fn hand(&mut self, world: &mut World<'_>, index: u32, out: Out) -> Handed {
        let Some(conn) = self.conns.get_mut(index as usize).and_then(Option::as_deref_mut) else {
            return Handed::Never;
        };
        let Out { check, imm, payload, user } = out;
        let datagram = Datagram {
            src_qpn: QPN,
            dst_qpn: QPN,
            imm: Opaque::Send { check, imm }.encode(),
            class: if payload.len() <= SMALL_BYTES { Class::LowLatency } else { Class::Bulk },
            payload,
            user,
        };
        match world.endpoint.send(world.now, conn.id, datagram) {
            Ok(_) => Handed::Yes,
            Err(SendError::QueueFull) => {
                conn.blocked = true;
                Handed::Full
            }
            Err(SendError::TooLarge { max_bytes }) if max_bytes < conn.payload_bytes_max => {
                // Smaller datagrams at the next pump (G10).
                conn.payload_bytes_max = max_bytes;
                self.wake(index);
                Handed::Full
            }
            Err(_) => Handed::Never,
        }
    }

    /// Passes datagram number `part` of an operation to the transport.
    pub(crate) fn hand_op(
        &mut self,
        world: &mut World<'_>,
        index: u32,
        key: Key,
        part: u16,
        what: (u32, Option<u32>, Bytes),
    ) -> Handed {
        let (check, imm, payload) = what;
        self.hand(world, index, Out { check, imm, payload, user: user_of(key, part) })
    }

    /// Passes a control frame to the transport. Returns false if the frame has to wait for space in
    /// the transport's queue.
    pub(crate) fn hand_control(&mut self, world: &mut World<'_>, key: Key) -> bool {
        let Some(control) = self.controls.get(key) else { return true };
        let index = control.conn;
        let (check, payload) = (control.check, control.bytes.clone());
        let user = key.to_user(TAG_CONTROL);
        match self.hand(world, index, Out { check, imm: None, payload, user }) {
            Handed::Yes => true,
            Handed::Full => false,
            Handed::Never => {
                self.controls.remove(key);
                true
            }
        }
    }
}
