//! HTTPS of `srd control up`: options, the names of the server, and texts for clients.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use srd_control::control::Control;
use srd_control::server::{self, Https, Limits};
use srd_control::tls::{Certificates, Source};

use crate::failure::usage;
use crate::output::{tell, write_new};

/// Options of HTTPS.
#[derive(Args, Clone, Debug)]
pub(crate) struct HttpsArgs {
    /// Serve HTTPS at a loopback address as well. At other addresses, the server always does.
    #[arg(long)]
    tls: bool,
    /// Certificate of the server in PEM, followed by the intermediate certificates. Without this
    /// option, the server issues a certificate by an authority of its own. The files of certificate
    /// and key are read again when they change.
    #[arg(long, value_name = "PATH", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Key in PEM of that certificate. Other users must not be able to read the file.
    #[arg(long, value_name = "PATH", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Name or address that clients use for the server; can be repeated. The first one is in the
    /// endpoint of the key file. Default without --tls-cert: the address of --listen, and the name
    /// of this machine.
    #[arg(long, value_name = "NAME")]
    tls_name: Vec<String>,
    /// Write the certificate of the server's own authority to this file, which clients need in
    /// AWS_CA_BUNDLE. `srd control authority rotate` replaces the authority and this file.
    #[arg(long, value_name = "PATH", conflicts_with = "tls_cert")]
    ca_file: Option<PathBuf>,
    /// Serve plain HTTP, which is possible at loopback addresses only.
    #[arg(long, conflicts_with_all = ["tls", "tls_cert", "tls_name", "ca_file"])]
    plain_http: bool,
}

impl HttpsArgs {
    /// Whether the server uses HTTPS.
    ///
    /// # Errors
    /// If plain HTTP is requested for an address that other machines reach.
    pub(crate) fn is_on(&self, listen: SocketAddr) -> Result<bool> {
        let is_local = listen.ip().is_loopback();
        if self.plain_http && !is_local {
            return usage(server::not_loopback(listen));
        }
        let is_given = self.tls || !self.tls_name.is_empty();
        let has_files = self.tls_cert.is_some() || self.ca_file.is_some();
        Ok(is_given || has_files || !is_local)
    }

    /// Returns the names of a server that listens at this address.
    ///
    /// # Errors
    /// If there is no name.
    fn names(&self, address: SocketAddr) -> Result<Vec<String>> {
        if !self.tls_name.is_empty() {
            return Ok(self.tls_name.clone());
        }
        if self.tls_cert.is_some() {
            return usage("--tls-cert needs --tls-name, the name that clients use for the server");
        }
        let ip = address.ip().to_canonical();
        let mut names = Vec::new();
        if !ip.is_unspecified() {
            names.push(ip.to_string());
        }
        if ip.is_loopback() {
            names.push("localhost".to_owned());
        }
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = host.trim();
        // A machine without a name has the name `(none)`, or one that is no name of DNS.
        if !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b))
        {
            names.push(host.to_owned());
        }
        if names.is_empty() {
            return usage("this machine has no name: add --tls-name, the name that clients use");
        }
        Ok(names)
    }

    /// Prepares the certificates of a server that listens at this address. The authority of the
    /// server is a part of the state.
    ///
    /// # Errors
    /// If a file cannot be read or written, or the certificate is not valid for the names.
    pub(crate) fn prepare(&self, address: SocketAddr, control: &mut Control) -> Result<Prepared> {
        let names = self.names(address)?;
        let mut notes = Vec::new();
        let source = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                Source::Files { certificate: certificate.clone(), key: key.clone() }
            }
            _ => {
                let authority = control.authority().map_err(anyhow::Error::msg)?;
                match &self.ca_file {
                    Some(path) => {
                        write_new(path, authority.certificate(), 0o644)
                            .with_context(|| format!("cannot write {}", path.display()))?;
                        notes.push(format!(
                            "clients need AWS_CA_BUNDLE={}, the certificate of this server's \
                             authority",
                            path.display()
                        ));
                    }
                    None => notes.push(
                        "clients need the certificate of this server's authority in \
                         AWS_CA_BUNDLE: --ca-file PATH writes it"
                            .to_owned(),
                    ),
                }
                Source::Authority(authority)
            }
        };
        let host = match names[0].parse::<IpAddr>() {
            Ok(IpAddr::V6(address)) => format!("[{address}]"),
            _ => names[0].clone(),
        };
        let url = format!("https://{host}:{}", address.port());
        let certificates = Certificates::new(source, names).map_err(anyhow::Error::msg)?;
        let report = Box::new(|what: &str| tell!("srd: certificates: {what}"));
        let ca_file = self.ca_file.clone();
        let publish = Box::new(move |certificate: &str| match &ca_file {
            None => Ok(()),
            Some(path) => write_new(path, certificate, 0o644)
                .map_err(|error| format!("cannot write {}: {error}", path.display())),
        });
        let certificates = Arc::new(certificates);
        let https = Https { certificates, report, publish, limits: Limits::default() };
        let bundle = self.ca_file.as_deref().map(absolute);
        Ok(Prepared { https, url, bundle, notes })
    }
}

/// Certificates of a server, and texts for its clients.
pub(crate) struct Prepared {
    pub(crate) https: Https,
    /// Endpoint of the server.
    pub(crate) url: String,
    /// File with the certificate that clients have to trust.
    pub(crate) bundle: Option<PathBuf>,
    /// Notes for the operator.
    pub(crate) notes: Vec<String>,
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        https: HttpsArgs,
    }

    fn args(line: &str) -> HttpsArgs {
        let words = std::iter::once("srd").chain(line.split_whitespace());
        Command::try_parse_from(words).unwrap().https
    }

    #[test]
    fn a_server_uses_plain_http_at_loopback_addresses_only() {
        let is_on = |line: &str, listen: &str| args(line).is_on(listen.parse().unwrap());
        assert!(!is_on("", "127.0.0.1:1").unwrap() && !is_on("", "[::1]:1").unwrap());
        assert!(!is_on("--plain-http", "127.0.0.1:1").unwrap());
        for line in ["--tls", "--tls-name a", "--ca-file a", "--tls-cert a --tls-key b"] {
            assert!(is_on(line, "127.0.0.1:1").unwrap(), "{line}");
        }
        for listen in ["0.0.0.0:1", "10.0.0.1:1", "[::]:1", "[fd00::1]:1"] {
            assert!(is_on("", listen).unwrap(), "{listen}");
            let error = is_on("--plain-http", listen).unwrap_err();
            assert!(error.to_string().contains("no loopback address"), "{error}");
        }
    }

    #[test]
    fn names_of_a_server_are_those_that_clients_use() {
        let names = |line: &str, listen: &str| args(line).names(listen.parse().unwrap());
        assert_eq!(names("--tls-name a --tls-name b", "0.0.0.0:1").unwrap(), ["a", "b"]);
        assert_eq!(names("", "10.0.0.1:1").unwrap()[0], "10.0.0.1");
        assert_eq!(names("", "[fd00::1]:1").unwrap()[0], "fd00::1");
        assert_eq!(names("--tls", "127.0.0.1:1").unwrap()[..2], ["127.0.0.1", "localhost"]);
        let files = "--tls-cert a --tls-key b";
        assert!(names(files, "10.0.0.1:1").unwrap_err().to_string().contains("--tls-name"));
    }
}
