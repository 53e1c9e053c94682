//! Hosts to which this machine itself refuses to send: there is no route, the address of a socket
//! was removed, or the machine's own firewall forbids it.

use std::net::IpAddr;

/// Largest number of hosts that are stored; the oldest host is removed first.
const HOSTS_MAX: usize = 64;

/// Error number for each host to which the last packet was refused.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    hosts: Vec<(IpAddr, i32)>,
}

impl Refusals {
    /// Records that a packet to `host` was refused.
    pub(super) fn refused(&mut self, host: IpAddr, errno: i32) {
        self.hosts.retain(|(other, _)| *other != host);
        if self.hosts.len() == HOSTS_MAX {
            self.hosts.remove(0);
        }
        self.hosts.push((host, errno));
    }

    /// Records that a packet to `host` was sent.
    #[inline]
    pub(super) fn left(&mut self, host: IpAddr) {
        if !self.hosts.is_empty() {
            self.hosts.retain(|(other, _)| *other != host);
        }
    }

    /// Returns the reason why the last packet to `host` was refused; `None` if it was sent.
    pub(super) fn last(&self, host: IpAddr) -> Option<i32> {
        self.hosts.iter().find(|(other, _)| *other == host).map(|(_, errno)| *errno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: usize) -> IpAddr {
        IpAddr::from([10, 0, 0, u8::try_from(number).unwrap()])
    }

    #[test]
    fn a_refusal_lasts_until_a_packet_leaves_and_the_oldest_is_forgotten_first() {
        let mut refusals = Refusals::default();
        refusals.refused(host(1), 1);
        refusals.refused(host(1), 2);
        refusals.left(host(2));
        assert_eq!(refusals.last(host(1)), Some(2));
        refusals.left(host(1));
        assert_eq!(refusals.last(host(1)), None);
        for number in 0..=HOSTS_MAX {
            refusals.refused(host(number), 1);
        }
        assert_eq!(refusals.hosts.len(), HOSTS_MAX);
        assert_eq!(refusals.last(host(0)), None);
        assert_eq!(refusals.last(host(HOSTS_MAX)), Some(1));
    }
}
