//! Packets of selected ports as a capture file, for Wireshark and similar programs.

use srd_pcapng::{Direction, Writer};

use super::{NS, World, WorldError};
use crate::engine::egress::rule;
use crate::engine::event::{Event, FLAG_CE, FLAG_TRIMMED};
use crate::engine::node::Node;
use crate::engine::wire_image;

/// Ports to capture, and the limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CaptureRules {
    /// Names of ports.
    pub ports: Vec<String>,
    /// Largest number of packets that are kept, of all ports together.
    pub packets_max: u64,
}

/// Bytes of a packet that are kept.
const SNAP_BYTES: usize = 192;

/// State of a capture.
pub(super) struct Capture {
    // For each interface of the file: the port, and its packets that were kept and not kept.
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

    /// Records a packet at its last bit on a port, or a packet that the port refused.
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

    /// Returns the capture file, if one was configured, with the number of packets that it does not
    /// contain.
    pub fn take_capture(&mut self) -> Option<Vec<u8>> {
        let mut capture = self.capture.take()?;
        for (interface, (_, kept, missed)) in (0..).zip(&capture.ports) {
            capture.writer.statistics(interface, self.now_ps / NS, kept + missed, *missed);
        }
        Some(capture.writer.take())
    }
}
