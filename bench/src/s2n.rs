//! Server and client with streams of the library s2n-quic.

use crate::session::{self, Report, Stream};
use crate::{Common, Identity, Mode, SERVER_NAME, SOCKET_BUFFER_BYTES, WINDOW_BYTES};
use anyhow::{Context, Result};
use bytes::Bytes;
use s2n_quic::client::Connect;
use s2n_quic::provider::event::{ConnectionInfo, ConnectionMeta, Subscriber, events};
use s2n_quic::provider::io::tokio::Provider;
use s2n_quic::provider::limits::Limits;
use s2n_quic::stream::BidirectionalStream;
use s2n_quic::{Client, Server};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

impl Stream for BidirectionalStream {
    async fn send(&mut self, bytes: Bytes) -> Result<()> {
        Ok(BidirectionalStream::send(self, bytes).await?)
    }

    async fn finish(&mut self) -> Result<()> {
        Ok(BidirectionalStream::finish(self)?)
    }

    async fn receive(&mut self) -> Result<Option<Bytes>> {
        Ok(BidirectionalStream::receive(self).await?)
    }
}

/// Stores the name of the cipher that the handshake negotiated.
#[derive(Clone, Default)]
struct Cipher(Arc<Mutex<Option<String>>>);

impl Subscriber for Cipher {
    type ConnectionContext = ();

    fn create_connection_context(&mut self, _: &ConnectionMeta, _: &ConnectionInfo) {}

    fn on_key_update(&mut self, (): &mut (), _: &ConnectionMeta, event: &events::KeyUpdate) {
        if let Ok(mut cipher) = self.0.lock() {
            let name = format!("{:?}", event.cipher_suite);
            *cipher = Some(name.trim_end_matches([' ', '{', '}']).to_string());
        }
    }
}

pub(crate) async fn server(common: &Common, identity: &Identity) -> Result<()> {
    let tls = s2n_quic::provider::tls::default::Server::builder()
        .with_certificate(identity.certificate.as_str(), identity.key.as_str())?
        .build()?;
    let mut server = Server::builder()
        .with_tls(tls)?
        .with_io(io(common, common.address)?)?
        .with_limits(limits()?)?
        .start()?;
    while let Some(mut connection) = server.accept().await {
        while let Ok(Some(mut stream)) = connection.accept_bidirectional_stream().await {
            if let Err(error) = session::serve(&mut stream).await {
                eprintln!("{error:#}");
            }
        }
    }
    Ok(())
}

pub(crate) async fn client(
    common: &Common,
    certificate: &str,
    mode: Mode,
    time: Duration,
) -> Result<Report> {
    let tls = s2n_quic::provider::tls::default::Client::builder()
        .with_certificate(certificate)?
        .build()?;
    let here: IpAddr = match common.address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let cipher = Cipher::default();
    let client = Client::builder()
        .with_tls(tls)?
        .with_io(io(common, SocketAddr::new(here, 0))?)?
        .with_limits(limits()?)?
        .with_event(cipher.clone())?
        .start()?;
    let connect = Connect::new(common.address).with_server_name(SERVER_NAME);
    let mut connection = client.connect(connect).await.context("no connection")?;
    let mut stream = connection.open_bidirectional_stream().await?;
    let mut report = session::client(&mut stream, mode, time).await?;
    report.cipher = cipher.0.lock().ok().and_then(|name| name.clone());
    Ok(report)
}

fn io(common: &Common, here: SocketAddr) -> Result<Provider> {
    Ok(Provider::builder()
        .with_receive_address(here)?
        .with_max_mtu(common.mtu)?
        .with_initial_mtu(common.mtu)?
        .with_send_buffer_size(SOCKET_BUFFER_BYTES)?
        .with_recv_buffer_size(SOCKET_BUFFER_BYTES)?
        .with_internal_send_buffer_size(SOCKET_BUFFER_BYTES)?
        .with_internal_recv_buffer_size(SOCKET_BUFFER_BYTES)?
        .build()?)
}

fn limits() -> Result<Limits> {
    let window = u64::from(WINDOW_BYTES);
    Ok(Limits::new()
        .with_data_window(window)?
        .with_bidirectional_local_data_window(window)?
        .with_bidirectional_remote_data_window(window)?
        .with_max_send_buffer_size(WINDOW_BYTES)?)
}
