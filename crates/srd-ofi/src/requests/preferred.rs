//! The one interface that is offered to applications that name no interface.
//!
//! A machine also has interfaces that do not reach its peers: loopback, and bridges of virtual
//! machines and containers, which have the same address on every host. Open MPI spreads the ranks
//! of a machine over all interfaces with equal attributes, and then one rank cannot reach another
//! rank. So an application is offered other interfaces only if it names one: by `FI_SRD_IFACE`, a
//! domain, or a local or remote address.

use std::net::SocketAddr;

use crate::requests::hints::{Hints, Places};
use crate::requests::offers::Offer;

/// Addresses that no host has: packets to them use the default route, if there is one.
const ELSEWHERE: [&str; 2] = ["203.0.113.1:9", "[2001:db8::1]:9"];

/// Whether a call names an interface.
#[must_use]
pub fn is_named(hints: Option<&Hints>, places: &Places) -> bool {
    let hinted = |hints: &Hints| {
        hints.domain_name.is_some() || hints.source.is_some() || hints.destination.is_some()
    };
    !places.source.is_empty() || !places.destination.is_empty() || hints.is_some_and(hinted)
}

/// Selects the offers of the interface with the default route, which `interface_to` finds;
/// without such a route, the offers of the first interface. Loopback comes last in `offers`, so
/// it is selected only if there is no other interface.
#[must_use]
pub fn preferred(
    mut offers: Vec<Offer>,
    interface_to: impl Fn(SocketAddr) -> Option<String>,
) -> Vec<Offer> {
    let default = ELSEWHERE
        .iter()
        .filter_map(|elsewhere| interface_to(elsewhere.parse().ok()?))
        .find(|name| offers.iter().any(|offer| offer.domain_name == *name));
    let first = || offers.first().map(|offer| offer.domain_name.clone());
    let Some(chosen) = default.or_else(first) else { return offers };
    offers.retain(|offer| offer.domain_name == chosen);
    offers
}

#[cfg(test)]
mod tests {
    use srd_net::LocalAddress;

    use super::*;
    use crate::requests::service::Service;
    use crate::settings::tests::nothing_set;

    fn machine(addresses: &[(&str, &str)]) -> Vec<Offer> {
        let address = |(interface, ip): &(&str, &str)| LocalAddress {
            interface: (*interface).into(),
            ip: ip.parse().unwrap(),
            loopback: *interface == "lo",
        };
        let addresses: Vec<_> = addresses.iter().map(address).collect();
        crate::requests::offers::offers(&addresses, &nothing_set(), |_| Some(8952))
    }

    const SERVER: [(&str, &str); 5] = [
        ("lo", "127.0.0.1"),
        ("docker0", "172.17.0.1"),
        ("eth0", "10.0.0.1"),
        ("eth0", "2001:db8:1::1"),
        ("eth1", "10.1.0.1"),
    ];

    fn left(offers: Vec<Offer>, routes: [Option<&str>; 2]) -> Vec<String> {
        let way = |to: SocketAddr| routes[usize::from(to.is_ipv6())].map(str::to_string);
        let messages = |offer: &&Offer| offer.service == Service::Messages;
        let left = preferred(offers, way);
        left.iter().filter(messages).map(|offer| offer.source.ip.to_string()).collect()
    }

    #[test]
    fn the_default_route_chooses_one_interface_with_all_its_addresses() {
        let expected = ["10.0.0.1", "2001:db8:1::1"];
        assert_eq!(left(machine(&SERVER), [Some("eth0"), None]), expected);
        assert_eq!(left(machine(&SERVER), [None, Some("eth0")]), expected);
        assert_eq!(left(machine(&SERVER), [Some("eth1"), Some("eth0")]), ["10.1.0.1"]);
    }

    #[test]
    fn without_a_route_that_is_offered_the_first_is_chosen() {
        assert_eq!(left(machine(&SERVER), [None, None]), ["172.17.0.1"]);
        assert_eq!(left(machine(&SERVER), [Some("wg0"), None]), ["172.17.0.1"]);
    }

    #[test]
    fn loopback_is_for_machines_that_have_nothing_else() {
        assert_eq!(left(machine(&SERVER[..2]), [None, None]), ["172.17.0.1"]);
        assert_eq!(left(machine(&SERVER[..1]), [Some("eth0"), None]), ["127.0.0.1"]);
        assert!(left(Vec::new(), [Some("eth0"), None]).is_empty());
    }

    #[test]
    fn a_domain_and_an_address_here_or_there_name_an_interface() {
        let at = || crate::requests::address::Address::anyone("10.0.0.1:0".parse().unwrap());
        let (hints, places) = (Hints::default, Places::default);
        assert!(!is_named(None, &places()));
        assert!(!is_named(Some(&hints()), &places()));
        assert!(is_named(Some(&Hints { domain_name: Some("lo".into()), ..hints() }), &places()));
        assert!(is_named(Some(&Hints { source: Some(at()), ..hints() }), &places()));
        assert!(is_named(Some(&Hints { destination: Some(at()), ..hints() }), &places()));
        assert!(is_named(None, &Places { source: vec![at()], ..places() }));
        assert!(is_named(None, &Places { destination: vec![at()], ..places() }));
    }
}
