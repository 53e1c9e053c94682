//! `srd up --control`: a host that enrols at a control plane, without a configuration file.
//!
//! The arguments become a configuration file in the state directory of the interface. So later
//! starts and reloads read the same settings as those of a file that a person writes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use srd_daemon::config::socket_default;
use srd_daemon::control::socket::check_free;
use srd_daemon::control_plane::state::StateDirectory;

/// First UDP port at which the host receives packets.
const PORT: u16 = 7471;
/// Interface of the host, which is the default of a configuration.
const INTERFACE: &str = "srd0";
/// State directory of the host.
const DIRECTORY: &str = "/var/lib/srd/srd0";
/// Name of the configuration file.
const FILE: &str = "srd0.toml";

/// Arguments for a host that enrols.
#[derive(Args, Clone, Debug)]
pub(crate) struct EnrolArgs {
    /// Without a configuration: enrol at the controller at ADDRESS, and get the overlay address and
    /// all peers from it. The settings are kept in /var/lib/srd/srd0/srd0.toml.
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["config", "first_try", "check"])]
    control: Option<String>,
    /// File with a token of `srd control token create`, with mode 0600; needed until this host has
    /// enrolled. It belongs to root, to the user who starts this command, also by `sudo`, or to
    /// the user `srd`.
    #[arg(long, value_name = "PATH", requires = "control")]
    token_file: Option<PathBuf>,
    /// Name under which this host enrols. Default: the name of the machine.
    #[arg(long, value_name = "NAME", requires = "control")]
    name: Option<String>,
    /// Address and UDP port at which the other hosts reach this one. Default: the address from
    /// which it reaches the controller, and port 7471.
    #[arg(long, value_name = "ADDRESS:PORT", requires = "control")]
    endpoint: Option<SocketAddr>,
}

impl EnrolArgs {
    /// Writes the configuration file, and returns its path; `None`: the host does not enrol.
    ///
    /// # Errors
    /// If a daemon with this file runs, or the file cannot be written.
    pub(crate) fn configuration(&self) -> Result<Option<PathBuf>> {
        let Some(text) = self.text()? else { return Ok(None) };
        // A daemon that runs would read the new file at a reload.
        check_free(&socket_default(INTERFACE))?;
        let state = StateDirectory::new(PathBuf::from(DIRECTORY));
        state.create().map_err(anyhow::Error::msg)?;
        state.write(FILE, &text).map_err(anyhow::Error::msg)?;
        Ok(Some(state.file(FILE)))
    }

    fn text(&self) -> Result<Option<String>> {
        let Some(control) = &self.control else { return Ok(None) };
        let everywhere = match self.endpoint.map(|at| at.ip()) {
            Some(IpAddr::V6(_)) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
            _ => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        };
        let listen = SocketAddr::new(everywhere, self.endpoint.map_or(PORT, |at| at.port()));
        let mut lines = vec![
            "# Made by `srd up --control`, which writes it anew each time.".to_owned(),
            "[interface]".to_owned(),
            format!("listen = \"{listen}\""),
            "[enrol]".to_owned(),
            line("controller", control),
            line("directory", DIRECTORY),
        ];
        if let Some(file) = &self.token_file {
            let file = std::path::absolute(file)?;
            lines.push(line("token_file", &file.display().to_string()));
        }
        lines.extend(self.name.as_ref().map(|name| line("name", name)));
        lines.extend(self.endpoint.map(|at| line("endpoint", &at.to_string())));
        lines.push(String::new());
        Ok(Some(lines.join("\n")))
    }
}

/// Returns a line of the file: a key and a text in quotes.
fn line(key: &str, text: &str) -> String {
    format!("{key} = {}", toml::Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_become_a_configuration() {
        let args = EnrolArgs {
            control: Some("192.0.2.1:4600".to_owned()),
            token_file: Some("/a \"token\"".into()),
            name: Some("web-1".to_owned()),
            endpoint: Some("[2001:db8::1]:7000".parse().unwrap()),
        };
        let table: toml::Table = args.text().unwrap().unwrap().parse().unwrap();
        assert_eq!(table["interface"]["listen"].as_str(), Some("[::]:7000"));
        let enrol = &table["enrol"];
        for (key, value) in [
            ("controller", "192.0.2.1:4600"),
            ("token_file", "/a \"token\""),
            ("name", "web-1"),
            ("endpoint", "[2001:db8::1]:7000"),
            ("directory", DIRECTORY),
        ] {
            assert_eq!(enrol[key].as_str(), Some(value));
        }
        let none = EnrolArgs { control: None, token_file: None, name: None, endpoint: None };
        assert!(none.text().unwrap().is_none());
    }
}
