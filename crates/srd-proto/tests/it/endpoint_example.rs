//! The example of `Endpoint`: two of them, and the network between them.

use bytes::Bytes;
use srd_proto::*;

/// Passes all packets of the endpoint `from` to the endpoint `to`. Returns the payload that was
/// delivered.
fn deliver(now: Instant, from: &mut Endpoint, at: &str, to: &mut Endpoint) -> Option<Vec<u8>> {
    let mut buffer = TransmitBuf::new(1, 65_507);
    let mut delivered = None;
    while let Some(transmit) = from.poll_transmit(now, &mut buffer) {
        for (head, payload) in buffer.segments() {
            let mut packet = [head, payload].concat();
            let meta = PacketMeta {
                source: at.parse().unwrap(),
                local: 0,
                ecn: transmit.ecn,
                received_at: now,
            };
            let packet = PacketRef::Whole(&mut packet);
            if let Some(delivery) = to.handle_packet(now, meta, packet) {
                delivered = Some(delivery.payload.to_vec());
            }
        }
        buffer.clear();
    }
    delivered
}

#[test]
fn a_datagram_arrives_and_is_acknowledged() {
    let (client_at, server_at) = ("10.0.0.1:7471", "10.0.0.2:7471");
    let mut now = Instant::ZERO;
    let config = Config::default();
    let mut client = Endpoint::new(config.clone(), Epoch(1), [1; 32], now).unwrap();
    let mut server = Endpoint::new(config, Epoch(1), [2; 32], now).unwrap();
    server.open_qp(Qpn(7), ReceiveBuffers::Unlimited);
    client.open_qp(Qpn(7), ReceiveBuffers::Unlimited);

    let peer = client.add_peer(now, PeerConfig::at(server_at.parse().unwrap())).unwrap();
    let datagram = Datagram {
        src_qpn: Qpn(7),
        dst_qpn: Qpn(7),
        imm: 0,
        payload: Bytes::from_static(b"hello"),
        class: Class::Bulk,
        user: 42,
    };
    let id = client.send(now, peer, datagram).unwrap();

    // The packet arrives after 5 us, and its acknowledgement after 10 us.
    let mut received = None;
    for _ in 0..10 {
        received = deliver(now, &mut client, client_at, &mut server).or(received);
        now += Duration::from_micros(5);
        server.handle_timeout(now);
        deliver(now, &mut server, server_at, &mut client);
        now += Duration::from_micros(5);
        client.handle_timeout(now);
    }
    assert_eq!(received.as_deref(), Some(&b"hello"[..]));
    let ended = std::iter::from_fn(|| client.poll_event())
        .find(|event| matches!(event, Event::Completed { .. }));
    assert_eq!(ended, Some(Event::Completed { peer, id, user: 42, status: Status::Ok }));
}
