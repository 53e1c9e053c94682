//! Connections that have expired. They count as free where a new connection needs their port or
//! their place, so that no interface is refused because of its own connections that are over. // V8

use alloc::vec::Vec;
use core::ops::Bound::{Excluded, Included, Unbounded};

use srd_proto::time::Instant;
use srd_vpc::id::EniId;

use super::{IDLE, Inside, Nat};

/// Number of entries that each new connection examines in order to remove expired ones.
pub(super) const SWEEP: usize = 4;
/// Number of an interface's connections that are examined at a time if the interface may not have
/// more of them.
const SEARCHED: usize = 64;

impl Nat {
    /// Whether a connection has expired.
    pub(super) fn is_over(&self, now: Instant, inside: &Inside) -> bool {
        self.by_inside.get(inside).is_none_or(|(_, used_at)| *used_at + IDLE <= now)
    }

    /// Examines the next [`SWEEP`] connections, and removes those that have expired.
    pub(super) fn sweep(&mut self, now: Instant) {
        let from = self.swept.map_or(Unbounded, Excluded);
        let next = self.by_inside.range((from, Unbounded)).take(SWEEP);
        let looked: Vec<_> = next.map(|(inside, (_, at))| (*inside, *at)).collect();
        self.swept = looked.last().map(|(inside, _)| *inside);
        for (inside, used_at) in looked {
            if used_at + IDLE <= now {
                self.forget(inside);
            }
        }
    }

    /// Examines the next [`SEARCHED`] connections of an interface, up to the first that has
    /// expired, and removes this one. Returns whether there was one.
    pub(super) fn forget_one_of(&mut self, now: Instant, eni: EniId) -> bool {
        let behind =
            self.searched.after(&eni).map_or(Included(Inside::first(eni)), |at| Excluded(*at));
        let of_eni = self.by_inside.range((behind, Unbounded));
        let own = of_eni.take_while(|(inside, _)| inside.eni == eni).take(SEARCHED);
        let (mut examined, mut last, mut expired) = (0, None, None);
        for (inside, (_, used_at)) in own {
            (examined, last) = (examined + 1, Some(*inside));
            if *used_at + IDLE <= now {
                expired = last;
                break;
            }
        }
        let is_end = expired.is_none() && examined < SEARCHED;
        self.searched.set(&eni, last.filter(|_| !is_end));
        expired.into_iter().for_each(|inside| self.forget(inside));
        expired.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ENTRIES_MAX, ENTRIES_OF_ONE_MAX, NatError, PORT_FIRST, PORTS};
    use super::*;
    use crate::meta::offload::OFFLOAD_BYTES;
    use crate::meta::packet::protocol;
    use crate::testing::{framed, v4};
    use core::net::Ipv4Addr;
    use srd_proto::time::Duration;
    use srd_vpc::id::NatGatewayId;

    const PUBLIC: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 5);

    /// Sends a datagram of an interface through a gateway, to the remote end with this number.
    fn leave(
        nat: &mut Nat,
        seconds: u64,
        eni: u64,
        (address, port): (u8, u16),
        remote: usize,
    ) -> Result<(), NatError> {
        let [_, a, b, c] = u32::try_from(remote).unwrap().to_be_bytes();
        let mut frame = framed(&v4(protocol::UDP, (port, 53), b"query"));
        frame[OFFLOAD_BYTES + 12..][..8].copy_from_slice(&[10, 0, 2, address, 8, a, b, c]);
        let now = Instant::ZERO + Duration::from_secs(seconds);
        nat.leave(now, NatGatewayId(1), PUBLIC, EniId(eni), &mut frame)
    }

    /// V8: a port is free 350 s after its last packet. In an earlier version, an interface that had
    /// used all ports to a destination was refused until a search had found the expired ones.
    #[test]
    fn regression_ports_of_expired_connections_are_free() {
        let mut nat = Nat::default();
        for port in PORT_FIRST..PORT_FIRST + PORTS {
            leave(&mut nat, 0, 1, (10, port), 0).unwrap();
        }
        assert_eq!(leave(&mut nat, 349, 1, (11, PORT_FIRST), 0), Err(NatError::NoPort));
        for port in 20_000..20_100 {
            leave(&mut nat, 351, 1, (11, port), 0).unwrap();
        }
        assert!(nat.len() <= usize::from(PORTS));
    }

    /// In an earlier version, an interface whose connections were all over was refused until a
    /// search had passed the connections of all other interfaces.
    #[test]
    fn regression_expired_connections_of_an_interface_make_room_for_its_own() {
        let mut nat = Nat::default();
        for eni in [2, 1, 3] {
            let seconds = if eni == 2 { 0 } else { 300 };
            for remote in 0..ENTRIES_OF_ONE_MAX {
                leave(&mut nat, seconds, eni, (10, 40_000), remote).unwrap();
            }
        }
        for remote in 0..1000 {
            leave(&mut nat, 351, 2, (11, 40_000), remote).unwrap();
        }
        assert_eq!(nat.of_one.get(&EniId(1)), ENTRIES_OF_ONE_MAX, "they are in use");
    }

    /// The table is full, and all interfaces have equally many connections.
    #[test]
    fn expired_connections_of_an_interface_make_room_in_a_full_table() {
        let mut nat = Nat::default();
        for eni in [2, 1, 3, 4] {
            let seconds = if eni == 2 { 0 } else { 300 };
            for remote in 0..ENTRIES_OF_ONE_MAX {
                leave(&mut nat, seconds, eni, (10, 40_000), remote).unwrap();
            }
        }
        assert_eq!(nat.len(), ENTRIES_MAX);
        // Two interfaces that search by turns: all connections of one are in use.
        for remote in 0..1000 {
            leave(&mut nat, 351, 2, (11, 40_000), remote).unwrap();
            assert_eq!(leave(&mut nat, 351, 1, (11, 40_000), remote), Err(NatError::NoPort));
        }
        assert_eq!(nat.of_one.get(&EniId(1)), ENTRIES_OF_ONE_MAX);
        // The only connection that is over is found after all others were examined.
        for remote in 1..ENTRIES_OF_ONE_MAX {
            leave(&mut nat, 400, 1, (10, 40_000), remote).unwrap();
        }
        let tries = ENTRIES_OF_ONE_MAX.div_ceil(SEARCHED) + 1;
        assert!((0..tries).any(|_| leave(&mut nat, 651, 1, (11, 40_000), 0).is_ok()));
    }
}
