//! Places of connections, at most so many. If all are taken, the oldest connection that may have to
//! give way gives its place up to a new one.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, TcpStream};

/// The connections that have a place, by number: the oldest first.
#[derive(Default, Debug)]
pub struct Places {
    taken: BTreeMap<u64, Taken>,
    next: u64,
}

#[derive(Debug)]
struct Taken {
    socket: TcpStream,
    /// The source of the connection, as [`source`] gives it.
    from: IpAddr,
    gives_way: bool,
}

impl Places {
    /// A place of `most` for a connection from a [`source`], which `gives_way` to others until it
    /// is kept: its number, and whether another one had to give way. `None`: all of them keep their
    /// places, or the system has no descriptor left.
    pub fn take(
        &mut self,
        stream: &TcpStream,
        from: IpAddr,
        most: usize,
        gives_way: bool,
    ) -> Option<(u64, bool)> {
        let socket = stream.try_clone().ok()?;
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

    /// Makes way for a connection from a source if all of `most` places are kept: the source that
    /// has the most of them gives up its oldest, if it has at least two more than that of the
    /// newcomer.
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
            // Its thread ends: nothing more comes.
            let _ = gone.socket.shutdown(Shutdown::Both);
        }
        true
    }

    /// From now on it keeps its place.
    pub fn keep(&mut self, number: u64) {
        if let Some(taken) = self.taken.get_mut(&number) {
            taken.gives_way = false;
        }
    }

    /// Whether it has its place.
    pub fn has(&self, number: u64) -> bool {
        self.taken.contains_key(&number)
    }

    /// The place is free, if it was not given up before.
    pub fn give_back(&mut self, number: u64) {
        self.taken.remove(&number);
    }

    /// Shuts all connections.
    pub fn shut(&self, how: Shutdown) {
        for taken in self.taken.values() {
            let _ = taken.socket.shutdown(how);
        }
    }

    /// Number of connections.
    pub fn len(&self) -> usize {
        self.taken.len()
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// Number of connections that may not be evicted.
    pub fn kept(&self) -> usize {
        self.taken.values().filter(|taken| !taken.gives_way).count()
    }
}

/// The source that an address counts for. An IPv4 address is a source of its own; the addresses
/// of an IPv6 /64, which one host usually has alone, are one source; so are all loopback
/// addresses, since each program of this machine can use millions of them.
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

    /// A program of this machine takes each place under another address, and a connection that was
    /// reset counts as its source's still.
    #[test]
    fn regression_loopback_addresses_are_one_source_and_share_as_one() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut places = Places::default();
        for last in 1..=4 {
            let from = source(IpAddr::from([127, 0, 9, last]));
            let (number, _) = places.take(&stream, from, 4, true).unwrap();
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
