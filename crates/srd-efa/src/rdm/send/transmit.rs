//! Hands SENDs to the transport, without the queue pair's send queue (U1).
//!
//! Operations of this layer already have a record, a bound and a completion, so they do not need a
//! send queue. Messages are encoded as the device's SENDs.

use bytes::Bytes;
use srd_proto::{Class, Datagram, SendError};

use crate::layer::world::World;
use crate::rdm::send::operation::{Handed, Out};
use crate::rdm::send::operation::{TAG_CONTROL, user_of};
use crate::rdm::state::{QPN, Rdm};
use crate::slots::Key;
use crate::wire::Opaque;

/// Largest frame in the low-latency class (U5), in bytes.
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
                // The next pump uses smaller datagrams (G10).
                conn.payload_bytes_max = max_bytes;
                self.wake(index);
                Handed::Full
            }
            Err(_) => Handed::Never,
        }
    }

    /// Hands over a datagram of an operation. `part`: index of the datagram.
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

    /// Hands over a control frame. Returns false if the frame has to wait.
    pub(crate) fn hand_control(&mut self, world: &mut World<'_>, key: Key) -> bool {
        let Some(control) = self.controls.get(key) else { return true };
        let index = control.conn;
        let (check, payload) = (control.check, control.bytes.clone());
        let user = key.to_user(TAG_CONTROL);
        match self.hand(world, index, Out { check, imm: None, payload, user }) {
            Handed::Yes => true,
            Handed::Full => false,
            Handed::Never => {
                self.remove_control(key);
                true
            }
        }
    }
}
