//! The next hop of packets to a destination over the interface of this back end, with its hardware
//! address.
//!
//! The next hop follows from the kernel's routes and neighbours, which are queried again after a
//! change, and every second. If the kernel has no hardware address, or another interface leads to
//! the destination, packets are sent by the UDP socket, which makes the kernel resolve the address.
//! While a neighbour is not confirmed, the UDP socket also sends one batch each second: the kernel
//! does not see packets of an AF_XDP socket, and checks a neighbour only when it sends there
//! itself. So a changed hardware address of a neighbour is detected as early as by the kernel.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};

use srd_proto::time::{Duration, Instant};

use super::headers::Mac;
use super::netlink::{Interface, Netlink};

/// Time for which an answer of the kernel is used, if the kernel reports no change.
const REFRESH: Duration = Duration::from_secs(1);
/// Time for which the answer "unknown" is used: the neighbour's answer will arrive soon.
const UNKNOWN_REFRESH: Duration = Duration::from_millis(2);
/// Interval of checks for changes. Between two checks each hop is queried at most once.
const CHANGES_LOOK: Duration = Duration::from_millis(10);
/// Largest number of destinations that are cached. Beyond that, the cache is cleared, and
/// destinations are queried again.
const NEXT_HOPS_MAX: usize = 4096;

/// The source of the packets for which next hops are queried: interface, address and mark.
#[derive(Clone, Copy, Debug)]
pub(super) struct From {
    pub(super) interface: u32,
    pub(super) address: IpAddr,
    pub(super) mark: Option<u32>,
}

/// The two hardware addresses of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hop {
    pub(super) to: Mac,
    pub(super) from: Mac,
}

#[derive(Clone, Copy, Debug)]
struct Cached {
    hop: Option<Hop>,
    asked_at: Instant,
}

/// The next hops of packets from one address over its interface.
#[derive(Debug)]
pub(super) struct NextHops {
    from: From,
    netlink: Netlink,
    interface: Option<Interface>,
    cached: HashMap<IpAddr, Cached>,
    looked_at: Instant,
    changed_at: Instant,
}

impl NextHops {
    pub(super) fn new(from: From, now: Instant) -> io::Result<Self> {
        let mut netlink = Netlink::open()?;
        let interface = netlink.interface(from.interface)?;
        let cached = HashMap::new();
        Ok(Self { from, netlink, interface, cached, looked_at: now, changed_at: now })
    }

    /// Returns the bytes of the largest IP packet that the interface sends; zero while the
    /// interface is down.
    pub(super) fn mtu(&self) -> usize {
        self.interface.filter(|i| i.up).map_or(0, |i| i.mtu as usize)
    }

    /// Returns the hardware addresses for packets to a destination, if they are known. Also returns
    /// whether the kernel should send a packet there now, because it has no hardware address of the
    /// next hop or has not confirmed it recently.
    pub(super) fn towards(&mut self, destination: SocketAddr, now: Instant) -> (Option<Hop>, bool) {
        let ip = destination.ip();
        if let Some(entry) = self.cached.get(&ip)
            && entry.is_fresh(now, self.changed_at)
        {
            return (entry.hop, entry.hop.is_none());
        }
        // If the query fails, the kernel sends the packet.
        let found = self.ask(ip).unwrap_or(None);
        let (hop, confirmed) = found.map_or((None, true), |(hop, sure)| (Some(hop), sure));
        if self.cached.len() >= NEXT_HOPS_MAX {
            self.cached.clear();
        }
        self.cached.insert(ip, Cached { hop, asked_at: now });
        (hop, hop.is_none() || !confirmed)
    }

    /// Checks whether the kernel's interfaces, routes or neighbours have changed, if
    /// [`CHANGES_LOOK`] has passed since the last check.
    pub(super) fn look(&mut self, now: Instant) {
        if now.since(self.looked_at) < CHANGES_LOOK {
            return;
        }
        self.looked_at = now;
        if self.netlink.has_changed() {
            self.changed_at = now;
            self.interface = self.netlink.interface(self.from.interface).unwrap_or(None);
        }
    }

    /// Queries the kernel for the hardware addresses of packets to a destination, and whether the
    /// neighbour is confirmed.
    fn ask(&mut self, to: IpAddr) -> io::Result<Option<(Hop, bool)>> {
        let Some(interface) = self.interface.filter(|interface| interface.up) else {
            return Ok(None);
        };
        let index = self.from.interface;
        let scope = is_link_local(to).then_some(index);
        let route = self.netlink.route(self.from.address, to, self.from.mark, scope)?;
        let Some(route) = route.filter(|route| route.interface == index) else { return Ok(None) };
        let neighbour = self.netlink.neighbour(index, route.next_hop)?;
        Ok(neighbour.map(|n| (Hop { to: n.mac, from: interface.mac }, n.confirmed)))
    }
}

impl Cached {
    fn is_fresh(&self, now: Instant, changed_at: Instant) -> bool {
        let lifetime = if self.hop.is_some() { REFRESH } else { UNKNOWN_REFRESH };
        self.asked_at >= changed_at && now.since(self.asked_at) < lifetime
    }
}

/// Whether an address is valid on one link only.
pub(super) fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_hops_are_left_to_the_kernel_and_the_table_is_bounded() {
        let from = From { interface: 1, address: [127, 0, 0, 1].into(), mark: None };
        let mut now = Instant::from_nanos(1_000_000_000);
        let mut hops = NextHops::new(from, now).unwrap();
        assert!(hops.mtu() >= 1280);
        let last = u32::try_from(NEXT_HOPS_MAX).unwrap() + 10;
        for i in 0..last {
            let ip = IpAddr::from((0x7f00_0001 + i).to_be_bytes());
            assert_eq!(hops.towards(SocketAddr::new(ip, 9), now), (None, true));
            assert!(hops.cached.len() <= NEXT_HOPS_MAX);
        }
        now += CHANGES_LOOK;
        hops.look(now);
        assert_eq!(hops.looked_at, now);
    }

    #[test]
    fn a_way_is_asked_for_again_after_its_time_and_after_a_change() {
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let hop = Some(Hop { to: [1; 6], from: [2; 6] });
        let known = Cached { hop, asked_at: at(100) };
        assert!(known.is_fresh(at(1099), at(100)) && !known.is_fresh(at(1100), at(100)));
        assert!(!known.is_fresh(at(101), at(101)), "something has changed since");
        let unknown = Cached { hop: None, ..known };
        assert!(unknown.is_fresh(at(101), at(0)) && !unknown.is_fresh(at(102), at(0)));
    }
}
