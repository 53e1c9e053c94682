//! Server and client with streams of the library quinn.

use crate::session::{self, Report, Stream};
use crate::{Common, Identity, Mode, SERVER_NAME, SOCKET_BUFFER_BYTES, WINDOW_BYTES};
use anyhow::{Context, Result};
use bytes::Bytes;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{Endpoint, EndpointConfig, MtuDiscoveryConfig, TokioRuntime, TransportConfig};
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::quic::Suite;
use rustls::version::TLS13;
use rustls::{CipherSuite, ClientConfig, RootCertStore, ServerConfig};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

const ALPN: &[u8] = b"peer-bench";
/// Largest number of bytes that are taken from a stream at a time.
const READ_BYTES: usize = 1 << 20;
/// Largest UDP payload that quinn can use. Quinn passes ten segments to the kernel at a time, and
/// the kernel accepts at most 65,507 bytes at a time; quinn counts refused segments as lost. With a
/// payload of 8,972 bytes nearly all segments would be lost.
const PAYLOAD_BYTES_MAX: u16 = 6500;
/// Size of the IPv6 and UDP headers, in bytes.
const HEADER_BYTES: u16 = 48;

/// The sending and the receiving half of a quinn stream.
struct Halves(quinn::SendStream, quinn::RecvStream);

impl Stream for Halves {
    async fn send(&mut self, bytes: Bytes) -> Result<()> {
        Ok(self.0.write_chunk(bytes).await?)
    }

    async fn finish(&mut self) -> Result<()> {
        Ok(self.0.finish()?)
    }

    async fn receive(&mut self) -> Result<Option<Bytes>> {
        Ok(self.1.read_chunk(READ_BYTES, true).await?.map(|chunk| chunk.bytes))
    }
}

pub(crate) async fn server(common: &Common, identity: &Identity) -> Result<()> {
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
    let mut tls = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let crypto = QuicServerConfig::with_initial(Arc::new(tls), initial())?;
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(Arc::new(transport(common)));
    let endpoint = endpoint(common, Some(config), common.address)?;
    while let Some(incoming) = endpoint.accept().await {
        let Ok(connection) = incoming.await else { continue };
        while let Ok((send, receive)) = connection.accept_bi().await {
            if let Err(error) = session::serve(&mut Halves(send, receive)).await {
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
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(certificate.as_bytes())?)?;
    let mut tls = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let mut config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::with_initial(
        Arc::new(tls),
        initial(),
    )?));
    config.transport_config(Arc::new(transport(common)));
    let here: IpAddr = match common.address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let mut endpoint = endpoint(common, None, SocketAddr::new(here, 0))?;
    endpoint.set_default_client_config(config);
    let connection =
        endpoint.connect(common.address, SERVER_NAME)?.await.context("no connection")?;
    let (send, receive) = connection.open_bi().await?;
    let mut report = session::client(&mut Halves(send, receive), mode, time).await?;
    report.cipher = Some("TLS_AES_256_GCM_SHA384".into());
    connection.close(0u32.into(), b"");
    endpoint.wait_idle().await;
    Ok(report)
}

/// Returns rustls's provider of ring, restricted to AES-256-GCM, which SRD uses.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    provider.cipher_suites.retain(|s| s.suite() == CipherSuite::TLS13_AES_256_GCM_SHA384);
    Arc::new(provider)
}

/// Returns the cipher suite that QUIC prescribes for Initial packets, before the negotiation.
fn initial() -> Suite {
    let suite = TLS13_AES_128_GCM_SHA256.tls13().and_then(|suite| suite.quic_suite());
    suite.expect("ring has it")
}

fn payload_bytes(common: &Common) -> u16 {
    common.mtu.saturating_sub(HEADER_BYTES).clamp(1200, PAYLOAD_BYTES_MAX)
}

fn transport(common: &Common) -> TransportConfig {
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(payload_bytes(common));
    let mut config = TransportConfig::default();
    config
        .initial_mtu(payload_bytes(common))
        .mtu_discovery_config(Some(discovery))
        .stream_receive_window(WINDOW_BYTES.into())
        .receive_window(WINDOW_BYTES.into())
        .send_window(WINDOW_BYTES.into());
    config
}

fn endpoint(
    common: &Common,
    server: Option<quinn::ServerConfig>,
    here: SocketAddr,
) -> Result<Endpoint> {
    let socket = UdpSocket::bind(here).with_context(|| format!("cannot listen at {here}"))?;
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER_BYTES)?;
    rustix::net::sockopt::set_socket_send_buffer_size(&socket, SOCKET_BUFFER_BYTES)?;
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(payload_bytes(common))?;
    Ok(Endpoint::new(config, server, socket, Arc::new(TokioRuntime))?)
}
