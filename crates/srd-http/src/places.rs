//! A limited number of slots for connections. If all slots are in use, a new connection replaces
//! the oldest connection that may be evicted.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, TcpStream};

/// Connections that occupy a slot, by number; the oldest has the smallest number.
#[derive(Default, Debug)]
pub struct Places {
    taken: BTreeMap<u64, Taken>,
    next: u64,
}

#[derive(Debug)]
struct Taken {
    socket: TcpStream,
    /// Source of the connection, as returned by [`source`].
    from: IpAddr,
    gives_way: bool,
}

impl Places {
    /// Assigns one of `most` slots to a new connection, and evicts another connection if all are in
    /// use. `socket`: a duplicate of its socket, with which it can be ended. `from`: the [`source`]
    /// of the new connection. `gives_way`: whether the new connection may be evicted until
    /// [`Places::keep`] is called. Returns the number of the new connection, and whether another
    /// one was evicted. `None`: no connection may be evicted.
    pub fn take(
        &mut self,
        socket: TcpStream,
        from: IpAddr,
        most: usize,
        gives_way: bool,
    ) -> Option<(u64, bool)> {
        let is_full = self.taken.len() >= most;
        if is_full {
            let oldest = *self.taken.iter().find(|(_, taken)| taken.gives_way)?.0;
            self.end(oldest);
        }
        let number = self.next;
        self.next += 1;
        self.taken.insert(number, Taken { socket, from, gives_way });
        Some((number, is_full))
    }

    /// Frees a slot for a connection from `newcomer` if all of `most` slots are in use and no
    /// connection may be evicted. The source with the most slots loses its oldest connection, if it
    /// has at least two slots more than `newcomer`.
    pub fn share(&mut self, newcomer: IpAddr, most: usize) {
        if self.taken.len() < most || self.taken.values().any(|taken| taken.gives_way) {
            return;
        }
        let mut held: BTreeMap<IpAddr, (usize, u64)> = BTreeMap::new();
        for (number, taken) in &self.taken {
            held.entry(taken.from).or_insert((0, *number)).0 += 1;
        }
        let own = held.get(&newcomer).map_or(0, |(count, _)| *count);
        let Some((count, oldest)) = held.into_values().max_by_key(|(count, _)| *count) else {
            return;
        };
        if count >= own + 2
            && let Some(gone) = self.taken.remove(&oldest)
        {
            let _ = gone.socket.shutdown(Shutdown::Both);
        }
    }

    /// Closes a connection that may be evicted, and frees its slot. Returns false if the
    /// connection may not be evicted, or has no slot.
    pub fn end(&mut self, number: u64) -> bool {
        if !self.taken.get(&number).is_some_and(|taken| taken.gives_way) {
            return false;
        }
        if let Some(gone) = self.taken.remove(&number) {
            // The shutdown ends the thread of the connection.
            let _ = gone.socket.shutdown(Shutdown::Both);
        }
        true
    }

    /// Protects a connection from eviction.
    pub fn keep(&mut self, number: u64) {
        if let Some(taken) = self.taken.get_mut(&number) {
            taken.gives_way = false;
        }
    }

    /// Whether the connection still has its slot.
    pub fn has(&self, number: u64) -> bool {
        self.taken.contains_key(&number)
    }

    /// Frees the slot of a connection, unless the connection was evicted before.
    pub fn give_back(&mut self, number: u64) {
        self.taken.remove(&number);
    }

    /// Shuts down all connections, in the directions that `how` names. They keep their slots.
    pub fn shut(&self, how: Shutdown) {
        for taken in self.taken.values() {
            let _ = taken.socket.shutdown(how);
        }
    }

    /// Returns the number of connections that have a slot.
    pub fn len(&self) -> usize {
        self.taken.len()
    }

    /// Whether no connection has a slot.
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// Returns the number of connections that may not be evicted.
    pub fn kept(&self) -> usize {
        self.taken.values().filter(|taken| !taken.gives_way).count()
    }
}

/// Returns the source of an address, by which connections are counted. An IPv4 address is one
/// source. The addresses of an IPv6 /64 are one source, because usually one host has all of them.
/// All loopback addresses are one source, because each program of this machine can use millions of
/// them.
pub fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        address if address.is_loopback() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a program of this machine could take all slots, each from another loopback
    /// address. Connections of all loopback addresses count together, reset ones included.
    #[test]
    fn regression_loopback_addresses_are_one_source_and_share_as_one() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut places = Places::default();
        for last in 1..=4 {
            let from = source(IpAddr::from([127, 0, 9, last]));
            let (number, _) = places.take(stream.try_clone().unwrap(), from, 4, true).unwrap();
            places.keep(number);
        }
        drop(listener.accept().unwrap());
        places.share(source("::1".parse().unwrap()), 4);
        assert_eq!(places.len(), 4, "the source has its part");
        places.share(source("192.0.2.1".parse().unwrap()), 4);
        assert_eq!(places.len(), 3, "another source has its part, too");
        assert!(!places.has(0), "the oldest");
    }
}
