//! Changes of a connection's state by its packets.
//!
//! ```text
//!  TCP   Opening ---- both ends seen, the first again ----> Established
//!           ^                                                 | FIN
//!           |  RST: both ends have to be seen again           v
//!        Closed <---- FIN of the other end ---------------- Closing
//!
//!  UDP   Single ---- request, response, request, response ----> Stream
//! ```
//!
//! Sequence numbers are not read: the state only decides how long an idle entry is kept, never
//! whether a packet passes.

use crate::meta::packet::{Packet, protocol};
use crate::store::{stored, stored_values};
use crate::track::key::ConnectionDirection;

/// Flags of a TCP header.
mod flag {
    pub(super) const FIN: u8 = 1;
    pub(super) const SYN: u8 = 2;
    pub(super) const RST: u8 = 4;
    pub(super) const ACK: u8 = 16;
}

/// The state of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum State {
    /// TCP before the handshake is complete.
    Opening,
    /// TCP after the handshake.
    Established,
    /// TCP of which one end has sent FIN.
    Closing,
    /// TCP of which both ends have sent FIN, or one end has sent RST.
    Closed,
    /// UDP in one direction, or with a single exchange; ICMP; any other protocol.
    Single,
    /// UDP with more than one request and response.
    Stream,
}

impl State {
    /// Name of the state, for users.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Established => "established",
            Self::Closing => "closing",
            Self::Closed => "closed",
            Self::Single => "single",
            Self::Stream => "stream",
        }
    }
}

/// Properties of a packet that tracking depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketKind {
    /// A TCP segment with these flags.
    Tcp(u8),
    /// A UDP datagram.
    Udp,
    /// Any other packet.
    Other,
}

impl PacketKind {
    /// Reads a packet; `bytes` is the packet from its IP header on. A fragmented datagram counts
    /// once: its first fragment is a packet of its protocol, and later fragments are other packets.
    pub fn of(packet: &Packet, bytes: &[u8]) -> Self {
        let has_ports =
            || packet.ports.is_some() || packet.fragment && packet.ports_in_sight(bytes).is_some();
        match packet.protocol {
            protocol::TCP if has_ports() => {
                Self::Tcp(bytes.get(packet.transport_at + 13).copied().unwrap_or_default())
            }
            protocol::UDP if has_ports() => Self::Udp,
            _ => Self::Other,
        }
    }

    /// Whether the packet opens a TCP connection.
    pub(crate) fn opens(self) -> bool {
        matches!(self, Self::Tcp(flags) if flags & (flag::SYN | flag::ACK | flag::RST) == flag::SYN)
    }
}

/// State of a connection with its history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Progress {
    pub(super) state: State,
    /// For TCP, the ends that have sent a packet since the last reset: bit 0 is set for the end
    /// that opened the connection, bit 1 for the other end. For UDP, the number of packets in
    /// alternating directions, up to four.
    seen: u8,
    /// For TCP, the ends that have sent FIN; the bits have the same meaning as in `seen`.
    finished: u8,
}

impl Progress {
    /// Returns the state after the first packet.
    pub(super) fn first(seen: PacketKind) -> Self {
        let state = if matches!(seen, PacketKind::Tcp(_)) { State::Opening } else { State::Single };
        let mut progress = Self { state, seen: 0, finished: 0 };
        progress.packet(seen, ConnectionDirection::Forward);
        progress
    }

    /// Updates the state for a further packet of the connection (T2).
    pub(super) fn packet(&mut self, seen: PacketKind, way: ConnectionDirection) {
        match seen {
            PacketKind::Tcp(flags) => self.tcp(flags, way),
            PacketKind::Udp => self.udp(way),
            PacketKind::Other => (),
        }
    }

    fn tcp(&mut self, flags: u8, way: ConnectionDirection) {
        let end = if way == ConnectionDirection::Forward { 1 } else { 2 };
        if flags & flag::RST != 0 {
            (self.state, self.seen, self.finished) = (State::Closed, 0, 0);
            return;
        }
        // The handshake is complete when one more segment without SYN arrives after both ends have
        // sent a segment.
        let again = self.seen == 3 && flags & flag::SYN == 0;
        if again && self.finished == 0 {
            self.state = State::Established;
        }
        self.seen |= end;
        if flags & flag::FIN != 0 {
            self.finished |= end;
            self.state = if self.finished == 3 { State::Closed } else { State::Closing };
        }
    }

    /// Updates the state for a UDP datagram. A datagram in the direction opposite to the previous
    /// datagram counts as an answer, or as the next request.
    fn udp(&mut self, way: ConnectionDirection) {
        let expected = if self.seen.is_multiple_of(2) {
            ConnectionDirection::Forward
        } else {
            ConnectionDirection::Back
        };
        if way == expected && self.seen < 4 {
            self.seen += 1;
        }
        if self.seen == 4 {
            self.state = State::Stream;
        }
    }
}

stored!(Progress { state, seen, finished });
stored_values!(State:
    [State::Opening], [State::Established], [State::Closing], [State::Closed], [State::Single],
    [State::Stream],
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::v4;
    use ConnectionDirection::*;
    use State::*;

    const SYN: u8 = flag::SYN;
    const SYN_ACK: u8 = flag::SYN | flag::ACK;
    const ACK: u8 = flag::ACK;
    const FIN: u8 = flag::FIN | flag::ACK;
    const RST: u8 = flag::RST;

    fn tcp(first: u8, steps: &[(ConnectionDirection, u8, State)]) {
        let mut progress = Progress::first(PacketKind::Tcp(first));
        for (n, (way, flags, state)) in steps.iter().enumerate() {
            progress.packet(PacketKind::Tcp(*flags), *way);
            assert_eq!(progress.state, *state, "step {n}");
        }
    }

    #[test]
    fn the_first_fragment_of_a_datagram_counts_and_later_ones_do_not() {
        for (protocol, kind) in [
            (protocol::UDP, PacketKind::Udp),
            (protocol::TCP, PacketKind::Tcp(0x18)),
            (protocol::ICMP, PacketKind::Other),
        ] {
            let mut bytes = v4(protocol, (1, 2), b"payload");
            let of = |bytes: &[u8]| PacketKind::of(&Packet::read(bytes).unwrap(), bytes);
            assert_eq!(of(&bytes), kind, "the whole packet");
            bytes[6] = 0x20;
            assert_eq!(of(&bytes), kind, "the first fragment");
            bytes[7] = 3;
            assert_eq!(of(&bytes), PacketKind::Other, "a later fragment");
        }
    }

    #[test]
    fn a_connection_opens_and_closes() {
        tcp(
            SYN,
            &[
                (Forward, SYN, Opening),
                (Back, SYN_ACK, Opening),
                (Forward, ACK, Established),
                (Back, ACK, Established),
                (Back, FIN, Closing),
                (Forward, ACK, Closing),
                (Forward, FIN, Closed),
                (Back, ACK, Closed),
            ],
        );
    }

    #[test]
    fn a_flood_of_opening_segments_stays_half_open() {
        tcp(SYN, &[(Forward, SYN, Opening), (Forward, ACK, Opening), (Forward, ACK, Opening)]);
    }

    #[test]
    fn a_connection_joined_in_its_middle_is_established_when_both_ends_were_seen() {
        tcp(ACK, &[(Forward, ACK, Opening), (Back, ACK, Opening), (Forward, ACK, Established)]);
    }

    /// A reset may be forged. A late segment of one end alone does not make the connection active
    /// again.
    #[test]
    fn after_a_reset_both_ends_have_to_be_seen_again() {
        tcp(
            SYN,
            &[
                (Back, SYN_ACK, Opening),
                (Forward, ACK, Established),
                (Back, RST, Closed),
                (Forward, ACK, Closed),
                (Forward, ACK, Closed),
                (Back, ACK, Closed),
                (Forward, ACK, Established),
            ],
        );
        tcp(SYN, &[(Back, RST, Closed), (Back, RST, Closed)]);
    }

    #[test]
    fn datagrams_are_a_stream_from_the_second_exchange_on() {
        let mut progress = Progress::first(PacketKind::Udp);
        for (way, state) in
            [(Forward, Single), (Back, Single), (Back, Single), (Forward, Single), (Back, Stream)]
        {
            progress.packet(PacketKind::Udp, way);
            assert_eq!(progress.state, state);
        }
        let mut one_way = Progress::first(PacketKind::Udp);
        (0..100).for_each(|_| one_way.packet(PacketKind::Udp, Forward));
        assert_eq!(one_way.state, Single);
    }
}
