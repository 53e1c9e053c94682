//! Settings of a card that come from a file: `[cloud]` of `srd.toml`. The file is described in
//! `docs/card.md` and read by [`srd_daemon::config`].

use std::collections::BTreeMap;
use std::path::Path;

pub use srd_card::vpc::workers::WORKERS_MAX;
pub use srd_daemon::config::cloud::{
    CREDITS_S_DEFAULT, HOST_DEFAULT, PROCESSORS_MAX, SocketTaken, add_socket, scale,
};
use srd_daemon::config::{Cloud, Config, ConfigError};

use crate::state::Options;
use crate::traffic::transport::TransportOptions;

/// Keys of [`other_settings`] that the node itself applies at a reload, or reports as effective
/// only after a restart.
pub(crate) const KEYS_OF_NODE: [&str; 4] = [INTERFACE, METRICS, POLL, SOCKET];
const INTERFACE: &str = "interface and peer";
const METRICS: &str = "metrics";
const POLL: &str = "poll";
const SOCKET: &str = "socket";

/// Reads a file. Relative paths in it start at its directory.
///
/// # Errors
/// An error if the file cannot be read; otherwise the first mistake in its text.
pub(crate) fn read(path: &Path) -> Result<Options, ConfigError> {
    Options::of(Config::load(path)?)
}

impl Options {
    /// Returns the settings of a card from those of its host.
    ///
    /// # Errors
    /// The file has no table `[cloud]`.
    pub(crate) fn of(config: Config) -> Result<Self, ConfigError> {
        let has_file = config.has_file();
        let Config { file, interface, metrics, peers, cloud, control, .. } = config;
        let Some(cloud) = cloud else {
            return Err(ConfigError {
                file,
                place: None,
                what: String::from("there is no table [cloud]"),
                remedy: String::from("add it: docs/card.md lists its keys"),
            });
        };
        let (poll, workers) = (interface.poll, interface.workers);
        let hosts = peers.into_iter();
        let hosts = hosts.filter_map(|peer| Some((peer.cloud_host.clone()?, peer)));
        let hosts: BTreeMap<_, _> = hosts.collect();
        let Cloud {
            vpc,
            is_of_controller,
            pods,
            host,
            internet,
            internet_private,
            end_programs,
            scale,
            ..
        } = cloud;
        let Cloud { credits_s, vhost_user, vhost_user_client, processors, .. } = cloud;
        let transport = TransportOptions { host: host.clone(), interface, hosts };
        Ok(Self {
            config: has_file.then_some(file),
            file: vpc,
            is_of_controller,
            pods,
            host,
            scale,
            credits_s,
            internet,
            internet_private,
            transport: (!transport.hosts.is_empty()).then_some(transport),
            socket_named: control.is_named.then(|| control.socket.clone()),
            socket: control.socket,
            vhost_user,
            vhost_user_client,
            poll,
            metrics,
            end_programs,
            processors,
            workers,
        })
    }
}

/// Returns the keys of settings that differ from those of the running card and cannot be changed
/// while that process runs.
pub(crate) fn other_settings(runs: &Options, new: &Options) -> Vec<&'static str> {
    let all = [
        ("host", runs.host == new.host),
        ("pods", runs.pods == new.pods),
        ("scale", runs.scale == new.scale),
        ("credits", runs.credits_s == new.credits_s),
        ("internet", runs.internet == new.internet),
        ("internet_private", runs.internet_private == new.internet_private),
        (POLL, runs.poll == new.poll),
        (INTERFACE, runs.transport == new.transport),
        (METRICS, runs.metrics == new.metrics),
        (SOCKET, runs.socket_named == new.socket_named),
        ("vhost_user", runs.vhost_user == new.vhost_user),
        ("vhost_user_client", runs.vhost_user_client == new.vhost_user_client),
        ("end_programs", runs.end_programs == new.end_programs),
        ("processors", runs.processors == new.processors),
    ];
    all.into_iter().filter(|(_, is_same)| !is_same).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail loudly
    use super::*;

    fn options(text: &str) -> Options {
        let config = Config::parse(text, Path::new("/etc/srd/srd0.toml")).unwrap();
        Options::of(config).unwrap()
    }

    #[test]
    fn every_key_reaches_the_card_and_needs_a_new_process() {
        let text = r#"
            [interface]
            mode = "cloud"
            listen = "0.0.0.0:7471"
            protection = "plain"
            poll = "spin"
            [expert]
            scale = "1/100"
            credits = 600
            [cloud]
            vpc = "cloud.toml"
            host = "alpha"
            internet = true
            internet_private = true
            end_programs = true
            processors = 2
            [cloud.vhost_user]
            web = "/run/web.sock"
            [cloud.vhost_user_client]
            app = "app.sock"
            [[peer]]
            host = "beta"
            endpoint = "192.0.2.2:7471"
            [metrics]
            listen = "127.0.0.1:9472"
            [control]
            socket = "/run/other.sock"
        "#;
        let all = options(text);
        assert_eq!(all.file.as_deref(), Some(Path::new("/etc/srd/cloud.toml")));
        assert_eq!(all.config.as_deref(), Some(Path::new("/etc/srd/srd0.toml")));
        let transport = all.transport.clone().unwrap();
        assert_eq!(transport.hosts["beta"].endpoint.unwrap().port(), 7471);
        assert_eq!(transport.interface.listen.port(), 7471);
        let none = options("[cloud]");
        assert_eq!(
            (none.file.clone(), none.socket.as_path()),
            (None, Path::new("/run/srd/srd0.sock"))
        );
        assert!(none.transport.is_none());
        let differ = [
            "host",
            "scale",
            "credits",
            "internet",
            "internet_private",
            "poll",
            "interface and peer",
            "metrics",
            "socket",
            "vhost_user",
            "vhost_user_client",
            "end_programs",
            "processors",
        ];
        assert_eq!(other_settings(&none, &all), differ);
        assert!(other_settings(&none, &none.clone()).is_empty());
    }

    #[test]
    fn a_file_without_a_cloud_is_refused_and_named() {
        let text = "[interface]\naddress = [\"10.77.0.1/24\"]\nlisten = \"0.0.0.0:7471\"\n\
                    protection = \"plain\"\n";
        let config = Config::parse(text, Path::new("/etc/srd/srd0.toml")).unwrap();
        let error = Options::of(config).unwrap_err().to_string();
        assert!(error.starts_with("/etc/srd/srd0.toml: there is no table [cloud]"), "{error}");
    }
}
