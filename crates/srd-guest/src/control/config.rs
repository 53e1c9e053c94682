//! `card.toml`: the configuration of `srd card up`. The format is described in `docs/card.md`.

mod transport;

use std::collections::BTreeMap;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Deserialize;
use srd_config::{ConfigError, Source};
use srd_net::PollMode;
use toml::Spanned;

use self::transport::{PeerTable, TransportTable};
use crate::state::{Metrics, Options};

/// Largest size of a configuration file in bytes.
pub const FILE_BYTES_MAX: u64 = 1 << 20;
/// Default path of the configuration.
pub const FILE_DEFAULT: &str = "/etc/srd/card.toml";
/// Largest number by which rates of instance types can be divided.
pub const SCALE_MAX: u32 = 1_000_000;
/// Largest setting of the time for which a full stock of credits lasts at the full rate, in
/// seconds.
pub const CREDITS_S_MAX: u32 = 3600;
/// Default of the time for which a full stock of credits lasts at the full rate, in seconds.
pub const CREDITS_S_DEFAULT: u32 = 300;
/// Maximum number of host names in `[metrics]`.
const HOST_NAMES_MAX: usize = 16;
/// Name of this host if the configuration gives none.
pub const HOST_DEFAULT: &str = "here";

/// Value of a key with its position in the file; `None` if the key is missing.
type Maybe<T> = Option<Spanned<T>>;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Document {
    vpc: Maybe<String>,
    host: Maybe<String>,
    internet: bool,
    internet_private: Maybe<bool>,
    poll: Maybe<String>,
    busy_poll: Maybe<toml::Value>,
    end_programs: bool,
    socket: Maybe<String>,
    expert: ExpertTable,
    transport: Option<TransportTable>,
    peer: Vec<PeerTable>,
    metrics: Option<MetricsTable>,
    vhost_user: BTreeMap<Spanned<String>, Spanned<String>>,
    vhost_user_client: BTreeMap<Spanned<String>, Spanned<String>>,
}

/// Settings of a laboratory, and settings whose defaults are right on almost every network.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ExpertTable {
    paths: Maybe<u16>,
    scale: Maybe<String>,
    credits: Maybe<u32>,
}

/// Keys of [`ExpertTable`].
const EXPERT_KEYS: [&str; 3] = ["paths", "scale", "credits"];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricsTable {
    listen: Spanned<String>,
    #[serde(default)]
    remote: bool,
    #[serde(default)]
    host_names: Vec<Spanned<String>>,
}

/// Reads a file. Relative paths in it start at its directory. `socket`: the socket for requests if
/// the file does not name one.
///
/// # Errors
/// An error if the file cannot be read; otherwise the first mistake in its text.
pub fn read(path: &Path, socket: &Path) -> Result<Options, ConfigError> {
    let source = Source { path, text: "" };
    let failed = |what: String| source.error(None, what, "docs/card.md has an example");
    let io = |error: std::io::Error| failed(format!("cannot be read: {error}"));
    let file = std::fs::File::open(path).map_err(io)?;
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(io)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(failed(format!("has more than {FILE_BYTES_MAX} bytes")));
    }
    parse(&text, path, socket)
}

/// Reads the text of a file; `path` is its name.
///
/// # Errors
/// The first mistake in the text.
pub fn parse(text: &str, path: &Path, socket: &Path) -> Result<Options, ConfigError> {
    let source = Source { path, text };
    let document: Document = toml::from_str(text).map_err(|error| {
        let what = error.message().trim().to_owned();
        let moved = source.moved_to_expert(error.span(), &what, &EXPERT_KEYS);
        moved.unwrap_or_else(|| source.error(error.span(), what, "docs/card.md lists the keys"))
    })?;
    let directory = path.parent().unwrap_or(Path::new(""));
    let place = |text: &Spanned<String>| directory.join(text.get_ref());
    let host = match &document.host {
        Some(name) if name.get_ref().is_empty() => {
            return Err(source.error(Some(name.span()), "a host without a name", "name it"));
        }
        name => name.as_ref().map_or(HOST_DEFAULT, |name| name.get_ref()).to_owned(),
    };
    let mut vhost_user = BTreeMap::new();
    for (name, path) in document.vhost_user.iter().chain(&document.vhost_user_client) {
        match add_socket(&mut vhost_user, name.get_ref(), place(path)) {
            Ok(()) => {}
            Err(SocketTaken::By(other)) => {
                let what = format!("`{other}` has this socket already");
                return Err(source.error(Some(path.span()), what, "give each instance its own"));
            }
            Err(SocketTaken::Second) => {
                let what = format!("`{}` has a socket already", name.get_ref());
                return Err(source.error(Some(name.span()), what, "one end listens: name it once"));
            }
        }
    }
    let internet_private = match &document.internet_private {
        Some(private) if *private.get_ref() && !document.internet => {
            let what = "an internet that carries private addresses, and no internet";
            return Err(source.error(Some(private.span()), what, "add internet = true"));
        }
        private => private.as_ref().is_some_and(|private| *private.get_ref()),
    };
    let peers = &document.peer;
    let ExpertTable { paths, scale, credits } = &document.expert;
    let table = document.transport.as_ref();
    let transport = transport::read(&source, table, paths.as_ref(), peers, &host)?;
    Ok(Options {
        config: Some(path.to_owned()),
        file: document.vpc.as_ref().map(place),
        host,
        scale: scale.as_ref().map_or(Ok(1), |scale| read_scale(&source, scale))?,
        credits_s: credits
            .as_ref()
            .map_or(Ok(CREDITS_S_DEFAULT), |of| read_credits(&source, of))?,
        internet: document.internet,
        internet_private,
        transport,
        socket: document.socket.as_ref().map_or_else(|| socket.to_owned(), place),
        vhost_user,
        vhost_user_client: document
            .vhost_user_client
            .keys()
            .map(|name| name.get_ref().clone())
            .collect(),
        poll: poll(&source, &document)?,
        metrics: document.metrics.as_ref().map(|of| metrics(&source, of)).transpose()?,
        end_programs: document.end_programs,
    })
}

/// Reason why an instance cannot have a vhost-user socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SocketTaken {
    /// The instance with this name has the socket already.
    By(String),
    /// The instance has another socket already.
    Second,
}

/// Gives an instance a vhost-user socket. Each instance has at most one, and shares it with no
/// other.
///
/// # Errors
/// The socket belongs to another instance, or the instance has another socket.
pub fn add_socket(
    all: &mut BTreeMap<String, PathBuf>,
    name: &str,
    path: PathBuf,
) -> Result<(), SocketTaken> {
    if let Some((other, _)) = all.iter().find(|(_, of)| **of == path) {
        return Err(SocketTaken::By(other.clone()));
    }
    all.insert(name.to_owned(), path).map_or(Ok(()), |_| Err(SocketTaken::Second))
}

/// Parses the divisor of rates, written as `1/100` or as `100`.
///
/// # Errors
/// The text is neither such a fraction nor a number; the error describes the format.
pub fn scale(text: &str) -> Result<u32, String> {
    let number = text.strip_prefix("1/").unwrap_or(text);
    match number.parse() {
        Ok(scale @ 1..=SCALE_MAX) => Ok(scale),
        _ => Err(format!("write 1/N with N from 1 to {SCALE_MAX}, as in 1/100")),
    }
}

fn read_scale(source: &Source<'_>, text: &Spanned<String>) -> Result<u32, ConfigError> {
    let what = || format!("`{}` is no scale", text.get_ref());
    scale(text.get_ref()).map_err(|remedy| source.error(Some(text.span()), what(), remedy))
}

fn poll(source: &Source<'_>, document: &Document) -> Result<PollMode, ConfigError> {
    if let Some(old) = &document.busy_poll {
        let what = "`busy_poll` has become a word of `poll`";
        let remedy = "write poll = \"spin\" for true, and nothing for false";
        return Err(source.error(Some(old.span()), what, remedy));
    }
    let Some(text) = &document.poll else { return Ok(PollMode::Block) };
    text.get_ref().parse().map_err(|_| {
        let what = format!("`poll` cannot be `{}`", text.get_ref());
        let remedy = "write \"block\", \"adaptive\" or \"spin\"";
        source.error(Some(text.span()), what, remedy)
    })
}

fn read_credits(source: &Source<'_>, seconds: &Spanned<u32>) -> Result<u32, ConfigError> {
    match *seconds.get_ref() {
        seconds @ 1..=CREDITS_S_MAX => Ok(seconds),
        other => {
            let what = format!("credits cannot last {other} s");
            let remedy = format!("write 1 to {CREDITS_S_MAX}; EC2 says 300 to 3600");
            Err(source.error(Some(seconds.span()), what, remedy))
        }
    }
}

fn address<T: FromStr>(
    source: &Source<'_>,
    text: &Spanned<String>,
    example: &str,
) -> Result<T, ConfigError> {
    text.get_ref().parse().map_err(|_| {
        let what = format!("`{}` is no address", text.get_ref());
        source.error(Some(text.span()), what, format!("write it as in \"{example}\""))
    })
}

fn metrics(source: &Source<'_>, of: &MetricsTable) -> Result<Metrics, ConfigError> {
    let listen: SocketAddr = address(source, &of.listen, "127.0.0.1:9472")?;
    if !listen.ip().is_loopback() && !of.remote {
        let what = format!("others than this machine may ask at {listen}");
        let remedy =
            format!("write \"127.0.0.1:{}\", or remote = true if they shall", listen.port());
        return Err(source.error(Some(of.listen.span()), what, remedy));
    }
    if let Some(name) = of.host_names.get(HOST_NAMES_MAX) {
        let what = format!("there are more than {HOST_NAMES_MAX} names");
        return Err(source.error(Some(name.span()), what, "take some out"));
    }
    let name = |name: &Spanned<String>| {
        srd_http::host_name(name.get_ref()).ok_or_else(|| {
            let what = format!("`{}` is no name of a host", name.get_ref());
            let remedy = "write a whole name without a port, as in \"node7.rack.example\"";
            source.error(Some(name.span()), what, remedy)
        })
    };
    let host_names = of.host_names.iter().map(name).collect::<Result<_, _>>()?;
    Ok(Metrics { listen, allow_remote: of.remote, host_names })
}

/// Returns the keys of settings that differ from those of the running card and cannot be changed
/// while that process runs.
pub(crate) fn other_settings(runs: &Options, new: &Options) -> Vec<&'static str> {
    let all = [
        ("host", runs.host == new.host),
        ("scale", runs.scale == new.scale),
        ("credits", runs.credits_s == new.credits_s),
        ("internet", runs.internet == new.internet),
        ("internet_private", runs.internet_private == new.internet_private),
        ("poll", runs.poll == new.poll),
        ("socket", runs.socket == new.socket),
        ("transport and peer", runs.transport == new.transport),
        ("metrics", runs.metrics == new.metrics),
        ("vhost_user", runs.vhost_user == new.vhost_user),
        ("vhost_user_client", runs.vhost_user_client == new.vhost_user_client),
        ("end_programs", runs.end_programs == new.end_programs),
    ];
    all.into_iter().filter(|(_, is_same)| !is_same).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail loudly
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use super::*;
    use crate::traffic::transport::Protection;

    fn read_text(text: &str) -> Result<Options, String> {
        let options = parse(text, Path::new("/etc/srd/card.toml"), Path::new("/run/s.sock"));
        options.map_err(|error| error.to_string())
    }

    #[test]
    fn each_key_is_read() {
        let text = r#"
            vpc = "cloud.toml"
            host = "alpha"
            internet = true
            internet_private = true
            poll = "spin"
            end_programs = true
            socket = "/run/other.sock"
            [expert]
            paths = 8
            scale = "1/100"
            credits = 600
            [transport]
            listen = "0.0.0.0:7535"
            protection = "plain"
            link_rate_mbps = 10000
            dscp = 46
            [[peer]]
            name = "beta"
            endpoint = "192.0.2.2:7535"
            [metrics]
            listen = "0.0.0.0:9472"
            remote = true
            host_names = ["Card.rack.example"]
            [vhost_user]
            web = "/run/web.sock"
            [vhost_user_client]
            app = "app.sock"
        "#;
        let options = read_text(text).unwrap();
        assert_eq!(options.file, Some(PathBuf::from("/etc/srd/cloud.toml")));
        assert_eq!((options.scale, options.credits_s), (100, 600));
        assert_eq!(options.socket, Path::new("/run/other.sock"));
        assert!(options.internet && options.internet_private);
        assert!(options.poll == PollMode::Spin && options.end_programs);
        let transport = options.transport.clone().unwrap();
        assert_eq!(transport.protection, Protection::Plain);
        assert_eq!((transport.paths, transport.dscp), (8, 46));
        assert_eq!(transport.link_rate_bps, Some(10_000_000_000));
        assert_eq!(transport.hosts["beta"].endpoint.to_string(), "192.0.2.2:7535");
        let metrics = options.metrics.clone().unwrap();
        assert_eq!(metrics.listen.port(), 9472);
        assert_eq!(metrics.host_names, ["card.rack.example"]);
        assert_eq!(options.vhost_user["web"], Path::new("/run/web.sock"));
        assert_eq!(options.vhost_user["app"], Path::new("/etc/srd/app.sock"));
        assert_eq!(options.vhost_user_client, BTreeSet::from([String::from("app")]));
        let none = read_text("").unwrap();
        assert_eq!((none.host.as_str(), none.scale, none.credits_s), ("here", 1, 300));
        assert_eq!((none.file.clone(), none.socket.as_path()), (None, Path::new("/run/s.sock")));
        let differ = [
            "host",
            "scale",
            "credits",
            "internet",
            "internet_private",
            "poll",
            "socket",
            "transport and peer",
            "metrics",
            "vhost_user",
            "vhost_user_client",
            "end_programs",
        ];
        assert_eq!(other_settings(&none, &options), differ);
        assert!(other_settings(&none, &none.clone()).is_empty());
    }

    #[test]
    fn errors_say_where_and_what_to_do() {
        const PLAIN: &str = "[transport]\nlisten = \"10.0.0.1:7535\"\nprotection = \"plain\"\n";
        const B: &str = "[[peer]]\nname = \"b\"\nendpoint = \"10.0.0.2:1\"\n";
        for (text, line, said) in [
            ("hosts = 1", 1, "unknown field `hosts`"),
            ("\nhost = \"\"", 2, "a host without a name"),
            ("\nbusy_poll = true", 2, "remedy: write poll = \"spin\" for true"),
            ("poll = \"often\"", 1, "remedy: write \"block\", \"adaptive\" or \"spin\""),
            ("[expert]\nscale = \"1/0\"", 2, "remedy: write 1/N with N from 1 to 1000000"),
            ("\ninternet_private = true", 2, "remedy: add internet = true"),
            ("[expert]\n\ncredits = 4000", 3, "remedy: write 1 to 3600"),
            ("[transport]\nlisten = \"10.0.0.0/8\"\nprotection = \"plain\"", 2, "is no address"),
            ("[transport]\nlisten = \"10.0.0.1:7535\"", 2, "a host without a key"),
            (&format!("{PLAIN}[expert]\npaths = 0"), 5, "remedy: write 1 to 256"),
            ("[expert]\npaths = 257", 2, "remedy: write 1 to 256"),
            (&format!("{PLAIN}paths = 8"), 4, "`paths` is a key of the table [expert]"),
            ("scale = \"1/100\"", 1, "`scale` is a key of the table [expert]"),
            ("\ncredits = 600", 2, "remedy: take it out here, and write `credits` under a line"),
            (&format!("{PLAIN}private_key_file = \"k\""), 4, "a key that nothing uses"),
            (
                &format!("{PLAIN}private_key_file = \"k\""),
                4,
                "remedy: take it out, or take protection = \"plain\" out",
            ),
            (&format!("{PLAIN}[[peer]]\nname = \"here\"\nendpoint = \"[::1]:1\""), 5, "this host"),
            (&format!("{PLAIN}[[peer]]\nname = \"b\"\nendpoint = \"10.0.0.2\""), 6, "no address"),
            (&format!("{PLAIN}[[peer]]\nname = \"b\"\nendpoint = \"10.0.0.2:0\""), 6, "no address"),
            (&format!("{PLAIN}{B}{B}"), 8, "named twice"),
            (&format!("{PLAIN}{B}[[peer]]\nname = \"c\"\nendpoint = \"10.0.0.2:1\""), 9, "of b"),
            (B, 2, "remedy: add [transport]"),
            (
                "[metrics]\nlisten = \"0.0.0.0:1\"",
                2,
                "remedy: write \"127.0.0.1:1\", or remote = true",
            ),
            (
                "[metrics]\nlisten = \"127.0.0.1:1\"\nhost_names = [\"*.example\"]",
                3,
                "remedy: write a whole name",
            ),
            ("[vhost_user]\na = \"s\"\nb = \"s\"", 3, "`a` has this socket already"),
            (
                "[vhost_user]\na = \"s\"\n[vhost_user_client]\na = \"t\"",
                4,
                "`a` has a socket already",
            ),
        ] {
            let error = read_text(text).unwrap_err();
            assert!(error.starts_with(&format!("/etc/srd/card.toml:{line}:")), "{error}");
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn a_private_key_in_the_place_of_a_public_one_is_recognised() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let key = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";
        std::fs::write(&path, key).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .unwrap();
        let text = format!(
            "[transport]\nlisten = \"10.0.0.1:7535\"\nprivate_key_file = \"{}\"\n[[peer]]\n\
             name = \"b\"\nendpoint = \"10.0.0.2:1\"\npublic_key = \"{key}\"\n",
            path.display()
        );
        let error = read_text(&text).unwrap_err();
        assert!(error.starts_with("/etc/srd/card.toml:7:"), "{error}");
        assert!(error.contains("the private key of this host"), "{error}");
    }

    #[test]
    fn a_file_that_is_too_long_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("card.toml");
        let bytes = usize::try_from(FILE_BYTES_MAX).unwrap();
        std::fs::write(&path, "#".repeat(bytes)).unwrap();
        assert!(read(&path, Path::new("s")).is_ok());
        std::fs::write(&path, "#".repeat(bytes + 1)).unwrap();
        assert!(read(&path, Path::new("s")).unwrap_err().to_string().contains("more than"));
        let missing = read(&directory.path().join("none"), Path::new("s")).unwrap_err();
        assert!(missing.to_string().contains("cannot be read"));
    }
}
