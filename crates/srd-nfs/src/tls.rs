//! Certificates, keys, and what is wrong with them. TLS 1.3 and nothing older.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use rustls::crypto::ring;
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// Bytes that a record of TLS has around what it carries, as rustls counts its limit.
const RECORD_FRAME_BYTES: usize = 5;

/// A certificate with those that lead to its issuer, and its key. Files in PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The certificate first, then the intermediate ones.
    pub certificate: PathBuf,
    /// The key.
    pub key: PathBuf,
}

/// What the half beside the client needs.
///
/// # Errors
/// A file that cannot be read, or holds something else.
pub fn client(ca: &Path, own: Option<&Identity>, cut: Option<usize>) -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13])?;
    let config = config.with_root_certificates(roots(ca)?);
    let mut config = match own {
        None => config.with_no_client_auth(),
        Some(own) => {
            let (chain, key) = identity(own)?;
            config.with_client_auth_cert(chain, key).with_context(|| mismatch(own))?
        }
    };
    config.max_fragment_size = cut.map(|bytes| bytes + RECORD_FRAME_BYTES);
    Ok(Arc::new(config))
}

/// What the half beside the server needs. `client_ca`: issuers of clients' certificates, without
/// which every client is served.
///
/// # Errors
/// As [`client`].
pub fn server(
    own: &Identity,
    client_ca: Option<&Path>,
    cut: Option<usize>,
) -> Result<Arc<ServerConfig>> {
    let provider = Arc::new(ring::default_provider());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let config = config.with_protocol_versions(&[&TLS13])?;
    let config = match client_ca {
        None => config.with_no_client_auth(),
        Some(ca) => {
            let roots = Arc::new(roots(ca)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build()?;
            config.with_client_cert_verifier(verifier)
        }
    };
    let (chain, key) = identity(own)?;
    let mut config = config.with_single_cert(chain, key).with_context(|| mismatch(own))?;
    config.max_fragment_size = cut.map(|bytes| bytes + RECORD_FRAME_BYTES);
    Ok(Arc::new(config))
}

fn mismatch(own: &Identity) -> String {
    let Identity { certificate, key } = own;
    format!("{} and {}: do they belong together?", certificate.display(), key.display())
}

fn roots(file: &Path) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).with_context(|| file.display().to_string())?;
    }
    Ok(roots)
}

fn identity(own: &Identity) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let key = PrivateKeyDer::from_pem_file(&own.key);
    let key =
        key.map_err(|e| anyhow::anyhow!("{}: no private key in PEM: {e}", own.key.display()))?;
    Ok((certificates(&own.certificate)?, key))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let wrong = |e| anyhow::anyhow!("{}: no certificates in PEM: {e}", file.display());
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).map_err(wrong)?.collect();
    let found = found.map_err(wrong)?;
    if found.is_empty() {
        bail!("{}: no certificate in it; expected -----BEGIN CERTIFICATE-----", file.display());
    }
    Ok(found)
}

/// What went wrong in TLS, and what to do.
pub fn explain(error: &rustls::Error) -> String {
    use AlertDescription as Alert;
    use CertificateError as Bad;
    let advice = match error {
        rustls::Error::InvalidCertificate(bad) => match bad {
            Bad::Expired | Bad::ExpiredContext { .. } => {
                "the other side's certificate has expired: renew it there, then send SIGHUP"
            }
            Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
                "the other side's certificate is not valid yet: compare the clocks"
            }
            Bad::UnknownIssuer => {
                "the other side's certificate is not from an issuer in the CA file"
            }
            Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
                "the certificate is for another name: give --server-name, or a certificate with \
                 this name"
            }
            _ => "the other side's certificate is not accepted",
        },
        rustls::Error::AlertReceived(alert) => match alert {
            Alert::CertificateExpired => {
                "the other side says that our certificate has expired: renew it, then send SIGHUP"
            }
            Alert::CertificateRequired => {
                "the other side wants a certificate of ours: give --cert and --key"
            }
            Alert::UnknownCA => "the other side does not know the issuer of our certificate",
            _ => "the other side refused",
        },
        rustls::Error::InvalidMessage(_) => "the other side does not speak TLS on this port",
        rustls::Error::PeerIncompatible(_) => "the other side has no TLS 1.3",
        _ => "TLS failed",
    };
    format!("{advice} ({error})")
}
