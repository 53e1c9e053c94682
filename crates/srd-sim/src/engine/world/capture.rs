//! Packets of selected ports as a capture file, for Wireshark and similar programs.

use srd_pcapng::{Direction, Writer};

use super::{NS, World, WorldError};
use crate::engine::egress::rule;
use crate::engine::event::{Event, FLAG_CE, FLAG_TRIMMED};
use crate::engine::node::Node;
use crate::engine::wire_image;

/// Ports whose packets are captured, and the largest number of packets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CaptureRules {
    /// Names of the ports, as scenarios use them.
    pub ports: Vec<String>,
    /// Largest number of packets in the file, of all ports together.
    pub packets_max: u64,
}

/// Number of bytes of each packet that the capture file contains.
const SNAP_BYTES: usize = 192;

/// State of a capture that is being written.
pub(super) struct Capture {
    // One entry for each interface of the file: the port, and the numbers of packets that the file
    // contains and does not contain.
    ports: Vec<(u32, u64, u64)>,
    writer: Writer,
    left: u64,
    bytes: Vec<u8>,
}

impl<N: Node> World<N> {
    pub(super) fn begin_capture(&mut self, wanted: &CaptureRules) -> Result<(), WorldError> {
        let mut writer = Writer::begin(concat!("srd sim ", env!("CARGO_PKG_VERSION")));
        let mut ports: Vec<(u32, u64, u64)> = Vec::new();
        for name in &wanted.ports {
            for port in self.topology.select(name).map_err(|e| WorldError(e.0))? {
                if ports.iter().all(|(other, ..)| *other != port) {
                    let snap_bytes = u32::try_from(SNAP_BYTES).unwrap_or(u32::MAX);
                    writer.interface(&self.topology.port_name(port), snap_bytes);
                    ports.push((port, 0, 0));
                    self.ports[port as usize].rules |= rule::CAPTURE;
                }
            }
        }
        let (left, bytes) = (wanted.packets_max, Vec::new());
        self.capture = Some(Capture { ports, writer, left, bytes });
        Ok(())
    }

    /// Records a packet that a port has sent, at the time of its last bit, or a packet that a port
    /// has dropped.
    #[cold]
    pub(super) fn capture(&mut self, port: u32, event: &Event, at_ps: u64, comment: &str) {
        let Some(capture) = &mut self.capture else { return };
        let Some(at) = capture.ports.iter().position(|(other, ..)| *other == port) else { return };
        if capture.left == 0 {
            capture.ports[at].2 += 1;
            return;
        }
        capture.left -= 1;
        capture.ports[at].1 += 1;
        let packet = self.packets.peek(event.packet);
        let marked = event.flags & FLAG_CE != 0;
        let trimmed = (event.flags & FLAG_TRIMMED != 0).then_some(event.bytes);
        capture.bytes.clear();
        let length = wire_image::write(packet, marked, trimmed, SNAP_BYTES, &mut capture.bytes);
        capture.writer.packet(&srd_pcapng::Packet {
            interface: u32::try_from(at).unwrap_or(u32::MAX),
            direction: Direction::Out,
            time_ns: at_ps / NS,
            length,
            bytes: &capture.bytes,
            comment,
        });
    }

    /// Ends the capture and returns the file; `None` if no capture was configured. The file
    /// contains the number of packets that were left out.
    pub fn take_capture(&mut self) -> Option<Vec<u8>> {
        let mut capture = self.capture.take()?;
        for (interface, (_, kept, missed)) in (0..).zip(&capture.ports) {
            capture.writer.statistics(interface, self.now_ps / NS, kept + missed, *missed);
        }
        Some(capture.writer.take())
    }
}
