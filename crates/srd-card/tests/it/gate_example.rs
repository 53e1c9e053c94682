//! The example in the documentation of `Rules`: the peers behind two prefixes, and a change of the
//! rules.

use std::net::IpAddr;
use std::sync::Arc;

use srd_card::{Config, Express, PeerSettings};
use srd_proto::{Config as CoreConfig, Endpoint, Epoch, Instant, PeerConfig};

#[test]
fn the_longest_prefix_selects_the_peer_until_a_snapshot_replaces_the_rules() {
    let now = Instant::ZERO;
    let mut endpoint = Endpoint::new(CoreConfig::default(), Epoch(1), [1; 32], now).unwrap();
    let mut express = Express::new(Config::default(), &mut endpoint);

    let [near, far] = [("192.0.2.1:7471", "10.0.0.0/8"), ("192.0.2.2:7471", "10.7.0.0/16")].map(
        |(outer, prefix)| {
            let id = endpoint.add_peer(now, PeerConfig::at(outer.parse().unwrap())).unwrap();
            let allowed = vec![prefix.parse().unwrap()];
            express.add_peer(now, PeerSettings { id, allowed, express: true, express_udp: true })
        },
    );
    let [a, b, c]: [IpAddr; 3] = ["10.1.0.1", "10.7.0.1", "11.0.0.1"].map(|a| a.parse().unwrap());
    let peers = |express: &Express| [a, b, c].map(|address| express.peer_of(address));
    assert_eq!(peers(&express), [Some(near), Some(far), None]);

    // A snapshot with several changes: the card applies all of them at once.
    let mut rules = (**express.rules()).clone();
    rules.set_allowed(near, vec!["11.0.0.0/8".parse().unwrap()]);
    rules.remove_peer(far);
    express.set_rules(now, Arc::new(rules));
    assert_eq!(peers(&express), [None, None, Some(near)]);
}
