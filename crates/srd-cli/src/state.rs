//! Locations of the state of `srd control`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Result, bail};
use clap::Args;
use srd_control::store::Store;
use srd_control::store::embedded::EmbeddedStore;
use srd_control::store::etcd::{EtcdStore, Settings, Tls};

use crate::failure::usage;
use crate::output::tell;

/// A location of a state, as the command line names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Location {
    /// A file.
    File(PathBuf),
    /// The addresses of members of an etcd cluster.
    Etcd(Vec<String>),
}

impl FromStr for Location {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_url = |text: &str| text.starts_with("http://") || text.starts_with("https://");
        if !is_url(text) {
            return match text.split(',').find(|part| is_address(part)) {
                Some(part) => Err(format!(
                    "`{part}` looks like a member of etcd: write http://HOST:PORT or \
                     https://HOST:PORT, or `./{text}` for a file of this name"
                )),
                None => Ok(Self::File(PathBuf::from(text))),
            };
        }
        let members: Vec<String> = text.split(',').map(str::to_owned).collect();
        match members.iter().find(|member| !is_url(member)) {
            Some(member) => Err(format!("`{member}` is no address http://HOST:PORT")),
            None => Ok(Self::Etcd(members)),
        }
    }
}

/// Whether a text that is no URL of HTTP has the form `HOST:PORT`, or is a URL with another scheme.
/// It could be the name of a file, but a user means a server by it.
fn is_address(text: &str) -> bool {
    let is_port = |port: &str| !port.is_empty() && port.parse::<u16>().is_ok();
    let has_port =
        text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && is_port(port));
    text.contains("://") || (has_port && !text.contains('/'))
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Etcd(members) => f.write_str(&members.join(",")),
        }
    }
}

/// Arguments of stores in etcd.
#[derive(Args, Clone, Debug)]
pub(crate) struct EtcdArgs {
    /// Prefix of the keys in etcd. It ends with `/`.
    #[arg(long, value_name = "PREFIX", default_value = "/srd/")]
    etcd_prefix: String,
    /// Certificates in PEM of the authorities that may sign the certificates of etcd's members.
    /// This file and those of --etcd-cert and --etcd-key are read again when they change.
    #[arg(long, value_name = "PATH")]
    etcd_ca: Option<PathBuf>,
    /// Certificate in PEM with which this program identifies itself to etcd.
    #[arg(long, value_name = "PATH", requires_all = ["etcd_key", "etcd_ca"])]
    etcd_cert: Option<PathBuf>,
    /// Key in PEM of that certificate. Other users must not be able to read the file.
    #[arg(long, value_name = "PATH", requires = "etcd_cert")]
    etcd_key: Option<PathBuf>,
}

impl EtcdArgs {
    fn settings(&self, members: &[String]) -> Result<Settings> {
        let is_https = members.iter().any(|member| member.starts_with("https://"));
        let tls = match &self.etcd_ca {
            None if is_https => return usage("https needs --etcd-ca"),
            Some(_) if !is_https => return usage("--etcd-ca needs members at https://"),
            None => None,
            Some(path) => {
                let identity = self.etcd_cert.clone().zip(self.etcd_key.clone());
                Some(Tls { authorities: path.clone(), identity })
            }
        };
        let report = |what: &str| tell!("srd: {what}");
        let (members, prefix) = (members.to_vec(), self.etcd_prefix.clone());
        Ok(Settings { members, prefix, tls, report })
    }
}

/// Opens a store. A file is created unless it exists.
///
/// # Errors
/// If the store is used by another controller, or cannot be opened.
pub(crate) fn open(location: &Location, etcd: &EtcdArgs) -> Result<Box<dyn Store>> {
    match location {
        Location::File(path) => {
            Ok(Box::new(EmbeddedStore::open(path).map_err(anyhow::Error::msg)?))
        }
        Location::Etcd(members) => {
            let store = EtcdStore::new(&etcd.settings(members)?);
            Ok(Box::new(store.map_err(anyhow::Error::msg)?))
        }
    }
}

/// Opens a store that exists.
///
/// # Errors
/// As [`open`], and if there is no file.
pub(crate) fn open_existing(location: &Location, etcd: &EtcdArgs) -> Result<Box<dyn Store>> {
    if let Location::File(path) = location
        && !path.exists()
    {
        bail!("{} does not exist", path.display());
    }
    open(location, etcd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_files_or_addresses_of_members() {
        let file = |text: &str| Location::File(PathBuf::from(text));
        assert_eq!("state.db".parse(), Ok(file("state.db")));
        assert_eq!("/a,b".parse(), Ok(file("/a,b")));
        let members = vec!["http://a:1".to_owned(), "https://b:2".to_owned()];
        let location: Location = "http://a:1,https://b:2".parse().unwrap();
        assert_eq!(location, Location::Etcd(members));
        assert_eq!(location.to_string(), "http://a:1,https://b:2");
        assert!("http://a:1,b".parse::<Location>().is_err());
    }

    #[test]
    fn regression_an_address_without_a_scheme_is_no_file() {
        let texts = [
            "10.0.0.1:2379",
            "etcd.example:2379",
            "[::1]:2379",
            "a:1,b:2",
            "a:1,http://b:2",
            "etcd://a:1",
            "etcd://a:1/x",
        ];
        for text in texts {
            let error = text.parse::<Location>().unwrap_err();
            assert!(error.contains("write http://HOST:PORT"), "{text}: {error}");
            assert!(error.contains(&format!("`./{text}`")), "{error}");
        }
        for text in ["./10.0.0.1:2379", "/var/a:1", "a:b", ":1", "a:", "a:99999", "control.db"] {
            assert_eq!(text.parse(), Ok(Location::File(PathBuf::from(text))), "{text}");
        }
    }
}
