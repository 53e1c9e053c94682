//! Recorded packets, and a peer that presents extreme numbers, do no lasting harm.

use crate::support::scene::{HELLO, at, datagram, keyed, met, modes, recorded};
use srd_proto::{Config, Duration, Endpoint, Epoch, Instant, PeerConfig, TransmitBuf};

#[test]
fn regression_a_recorded_opening_locks_no_run_out_whose_clock_was_set_back() {
    for config in modes() {
        for again in [false, true] {
            let config = Config { peer_timeout: Duration::from_secs(2), ..config.clone() };
            let mut pair = met(config, 60);
            pair.restart_b_with(1_000_000_000);
            recorded(&mut pair, false);
            pair.send_back(1, 200);
            pair.run_for(Duration::from_millis(100));
            assert_eq!(pair.delivered_back(), 1);
            let mut hellos = recorded(&mut pair, false);
            hellos.retain(|packet| packet.kind() == HELLO);
            // A restarts and has nothing to send; b restarts with a smaller epoch than the recorded
            // one.
            pair.restart_a();
            pair.restart_b_with(0);
            pair.inject(&hellos[0], hellos[0].source);
            let mut waited = 0;
            while pair.delivered_back() < 2 {
                if again {
                    pair.inject(&hellos[0], hellos[0].source);
                }
                pair.send_back(1, 200);
                pair.run_for(Duration::from_millis(500));
                waited += 1;
                assert!(waited < 20, "still refused after {waited} half seconds");
            }
        }
    }
}

#[test]
fn regression_the_largest_epoch_is_no_end_of_the_world() {
    for config in [Config::default()].into_iter().chain([keyed()]) {
        let epoch = Epoch(u64::MAX);
        let mut endpoint = Endpoint::new(config, epoch, [1; 32], Instant::ZERO).unwrap();
        let key = Some(srd_proto::crypto::public_key(&[5; 32]));
        for _ in 0..3 {
            // Each peer that is added after a removal has a larger epoch.
            let peer = PeerConfig::at(at(2)).with_key(key);
            let peer = endpoint.add_peer(Instant::ZERO, peer).unwrap();
            endpoint.send(Instant::ZERO, peer, datagram()).unwrap();
            let mut buf = TransmitBuf::new(1, 65_000);
            assert!(endpoint.poll_transmit(Instant::ZERO, &mut buf).is_some());
            endpoint.remove_peer(Instant::ZERO, peer);
        }
    }
}
