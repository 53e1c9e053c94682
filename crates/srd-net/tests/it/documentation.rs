//! The example in the documentation of the crate.

use bytes::Bytes;
use srd_net::{BindOptions, Endpoint};

#[test]
fn a_datagram_reaches_another_endpoint_and_is_acknowledged()
-> Result<(), Box<dyn std::error::Error>> {
    let loopback = BindOptions::at("127.0.0.1:0".parse()?);
    let (server, client) = (Endpoint::bind(&loopback)?, Endpoint::bind(&loopback)?);

    let peer = client.connect(server.local_address())?;
    peer.send(Bytes::from_static(b"hello"))?;
    assert_eq!(server.recv()?.payload, "hello");
    peer.flush(std::time::Duration::from_secs(5))?; // every datagram is acknowledged
    Ok(())
}
