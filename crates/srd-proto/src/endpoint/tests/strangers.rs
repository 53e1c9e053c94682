//! Amount of data that forged packets cause an endpoint to send.

use super::*;

/// Sends everything that is due in the next ten seconds. Returns the number of bytes.
fn said(node: &mut Endpoint, from: Instant) -> usize {
    let (mut now, mut bytes) = (from, 0);
    let mut buf = TransmitBuf::new(16, 65_000);
    while now < from + Duration::from_secs(10) {
        node.handle_timeout(now);
        loop {
            buf.clear();
            let Some(t) = node.poll_transmit(now, &mut buf) else { break };
            bytes += t.total_bytes;
        }
        now = node.poll_timeout().unwrap_or(Instant::FAR_FUTURE).max(now);
    }
    bytes
}

/// Regression: the second greeting began a search for the packet size at an address that had
/// answered nothing.
#[test]
fn regression_forged_greetings_draw_no_large_packets() {
    let mut node = Endpoint::new(Config::sockets(), Epoch(1), [1; 32], Instant::ZERO).unwrap();
    let now = Instant::from_nanos(1);
    let mut heard = 0;
    for epoch in [10, 5] {
        let greeting = Greeting { context: 9, epoch, port: PORT, features: 0 };
        heard += introduce_to(&mut node, now, address(1), &greeting);
    }
    let said = said(&mut node, now);
    assert!(said <= 10 * heard, "{said} bytes in answer to {heard}");
}

#[test]
fn a_datagram_to_a_forged_address_draws_no_probes_of_the_packet_size() {
    let mut node = Endpoint::new(Config::sockets(), Epoch(1), [1; 32], Instant::ZERO).unwrap();
    let now = Instant::from_nanos(1);
    let greeting = Greeting { context: 9, epoch: 10, port: PORT, features: 0 };
    introduce_to(&mut node, now, address(1), &greeting);
    let peer = node.peer_at(address(1)).unwrap();
    send(&mut node, now, peer, 100);
    node.handle_timeout(now);
    let mut buf = TransmitBuf::new(16, 65_000);
    while let Some(t) = node.poll_transmit(now, &mut buf) {
        assert!(t.segment_bytes <= 200, "a packet of {} bytes", t.segment_bytes);
        buf.clear();
    }
}
