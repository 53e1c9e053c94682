//! `srd up --try`: an encrypted tunnel between two machines, without a configuration file.
//!
//! ```text
//!   A: srd up --try B                    makes a key, and prints what to type on B
//!   B: srd up --try A --key KEY-OF-A     runs, and prints what to type on A
//!   A: srd up --try B --key KEY-OF-B     runs
//! ```
//!
//! Each side must be given the public key of the other side, as in a configuration file, so that no
//! machine between them can impersonate one of them. The private key is stored in `/run`, and each
//! try uses it until the machine reboots. The side with the smaller public key gets the first of
//! the two inner addresses, so that the sides agree without a message.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Error, Result};
use srd_daemon::config::{HostPort, TRY_INTERFACE};
use srd_daemon::keys::{PublicKey, SecretKey};
use srd_net::{Link, read_key_file};
use srd_trust::place;

use crate::failure::{Missing, Usage};

/// Default of the first UDP port of `srd up --try`.
pub(super) const PORT_DEFAULT: u16 = 7471;
/// Directory of the private key and the configuration; it belongs to root. It is not the directory
/// of the control sockets, because that directory may belong to the user `srd`, who could store a
/// key in it.
const DIRECTORY: &str = "/run/srd-try";
/// Name of the tunnel interface. [`INNER`] has its two inner addresses.
const INTERFACE: &str = TRY_INTERFACE;
const INNER: [&str; 2] = ["10.77.77.1", "10.77.77.2"];
const PREFIX_BITS: u8 = 30;
/// Number of paths of the tunnel. One worker uses them, so that each machine needs this number of
/// open ports, whatever its number of cores.
const PATHS: u16 = 64;

/// One side of a tunnel of `srd up --try`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Try {
    /// Outer address of this machine; `peer` is the outer address of the other machine.
    pub(super) own: IpAddr,
    pub(super) peer: IpAddr,
    /// Public key of this machine.
    pub(super) ours: PublicKey,
    /// Public key of the other machine; `None` if the user has not given it yet.
    pub(super) theirs: Option<PublicKey>,
    /// First UDP port, which is the same on both machines.
    pub(super) port: u16,
}

impl Try {
    /// Collects the data of a try. Generates the private key of this machine if it does not exist.
    pub(super) fn prepare(peer: &str, key: Option<&str>, port: u16) -> Result<Self> {
        if port.checked_add(PATHS - 1).is_none() || port == 0 {
            let last = u16::MAX - (PATHS - 1);
            return Err(Usage(format!("--port: {PATHS} ports follow; take 1 to {last}")).into());
        }
        let peer = address(peer)?;
        let link = Link::towards(SocketAddr::new(peer, port));
        let own = link.with_context(|| format!("there is no way to {peer}"))?.local;
        if own == peer {
            let text = format!("{peer} is this machine: name the other one");
            return Err(Usage(text).into());
        }
        inner_are_free()?;
        let ours = load_or_draw(Path::new(DIRECTORY))?.public();
        let parse = |text| PublicKey::parse(text).map_err(|e| Usage(format!("--key: {e}")));
        let theirs = key.map(parse).transpose()?;
        if theirs == Some(ours) {
            return Err(Usage("--key is this machine's own: give the other's".into()).into());
        }
        Ok(Self { own, peer, ours, theirs, port })
    }

    /// Returns two inner addresses of the tunnel: that of this machine, and that of the other
    /// machine.
    fn inner(&self) -> [&'static str; 2] {
        let [first, second] = INNER;
        if self.theirs.is_some_and(|theirs| self.ours.0 < theirs.0) {
            [first, second]
        } else {
            [second, first]
        }
    }

    /// Returns the command to type on the other machine.
    pub(super) fn command(&self) -> String {
        let port = if self.port == PORT_DEFAULT {
            String::new()
        } else {
            format!(" --port {}", self.port)
        };
        format!("sudo srd up --try {} --key {}{port}", self.own, self.ours)
    }

    /// Returns the instructions for the user while the other machine's key is missing.
    pub(super) fn first_words(&self) -> String {
        format!(
            "On {peer} type\n\n    {command}\n\nand then here what it prints there. Firewalls must \
             let UDP to port {port} in on both, from source ports {port} to {last}.",
            peer = self.peer,
            command = self.command(),
            port = self.port,
            last = self.port + (PATHS - 1),
        )
    }

    /// Returns the instructions for the user once the tunnel runs on this machine.
    pub(super) fn words(&self) -> String {
        let [here, there] = self.inner();
        format!(
            "{INTERFACE}: {here} here, {there} on {peer}. Unless it runs there already, type \
             there\n\n    {command}\n\nThen try `ping {there}`, `srd status -i {INTERFACE}`, and \
             `iperf3 -c {there}` while `iperf3 -s` runs on {peer}. Ctrl-C ends it. Until the \
             machine is started anew {DIRECTORY} stays, with the private key that the next try \
             uses and the configuration of this one.",
            peer = self.peer,
            command = self.command(),
        )
    }

    /// Returns the text of the configuration file; `None` if the other machine's key is missing.
    pub(super) fn configuration(&self) -> Option<String> {
        let (theirs, [here, there]) = (self.theirs?, self.inner());
        // The daemon listens at every address of the family, because this machine's address may
        // change.
        let everywhere: IpAddr = match self.peer {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let [listen, endpoint] =
            [everywhere, self.peer].map(|ip| SocketAddr::new(ip, self.port).to_string());
        Some(format!(
            "# Made by `srd up --try`, which writes it anew each time. For a tunnel that stays, \
             copy\n\
             # it to /etc/srd, and make a private key for it there: `srd genkey`. The other side\n\
             # gets the public key that belongs to it: `srd pubkey`.\n\
             [interface]\nname = \"{INTERFACE}\"\naddress = [\"{here}/{PREFIX_BITS}\"]\n\
             private_key_file = \"try.key\"\n\
             # At every address of this machine, so that it may get another one meanwhile.\n\
             listen = \"{listen}\"\nworkers = 1\n\n\
             [expert]\npaths = {PATHS}\n\n\
             [[peer]]\nname = \"{name}\"\npublic_key = \"{theirs}\"\n\
             endpoint = \"{endpoint}\"\nallowed = [\"{there}/32\"]\n",
            name = self.peer,
        ))
    }

    /// Writes the configuration file of the try, which `srd reload` also reads. Returns its path.
    pub(super) fn write(text: &str) -> Result<PathBuf> {
        // A daemon of an earlier try that still runs would read the new file at a reload.
        let socket = srd_daemon::config::socket_default(INTERFACE);
        if std::os::unix::net::UnixStream::connect(&socket).is_ok() {
            return Err(Usage(format!(
                "a try runs already: end it with Ctrl-C where it was started (its socket is {})",
                socket.display()
            ))
            .into());
        }
        write_in(Path::new(DIRECTORY), text)
    }
}

/// Adds the remedy to the error of a start whose port another program uses.
pub(super) fn or_other_port(error: Error) -> Error {
    let is_taken = |cause: &std::io::Error| {
        cause.kind() == ErrorKind::AddrInUse && cause.to_string().starts_with("cannot bind")
    };
    if error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>()).any(is_taken) {
        return error.context("choose another first port by --port, the same on both machines");
    }
    error
}

/// Writes the configuration file of the try. A link at its path is replaced, not followed.
fn write_in(directory: &Path, text: &str) -> Result<PathBuf> {
    let path = directory.join(INTERFACE).with_extension("toml");
    let written = match fs::remove_file(&path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => File::options()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(&path)
            .and_then(|mut file| file.write_all(text.as_bytes())),
    };
    written.with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Refuses a try if another interface has one of the inner addresses.
fn inner_are_free() -> Result<()> {
    let known = srd_net::link::local_addresses().context("asking for this machine's addresses")?;
    let is_taken = |a: &&srd_net::link::LocalAddress| {
        a.interface != INTERFACE && INNER.contains(&a.ip.to_string().as_str())
    };
    match known.iter().find(is_taken) {
        None => Ok(()),
        Some(taken) => Err(Usage(format!(
            "{} has {}, which a try needs for itself: write a configuration with other addresses \
             (man srd.toml)",
            taken.interface, taken.ip
        ))
        .into()),
    }
}

/// Returns the address of the other machine, from an address or a host name.
fn address(text: &str) -> Result<IpAddr> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let host = HostPort { host: text.to_owned(), port: 1 };
    let found = host.resolve(false).map_err(|e| Usage(format!("--try {text}: {e}")))?;
    found.first().map(SocketAddr::ip).ok_or_else(|| Usage(format!("--try {text}")).into())
}

/// Returns the private key that this machine uses for tries, and generates it if it does not exist.
fn load_or_draw(directory: &Path) -> Result<SecretKey> {
    let missing = |what: &str, e: std::io::Error| -> anyhow::Error {
        let text = format!("cannot {what} in {}: {e}", directory.display());
        match e.kind() {
            ErrorKind::PermissionDenied => Missing(format!("{text}: run it as root")).into(),
            _ => anyhow::anyhow!(text),
        }
    };
    place::make_directory(directory, 0o700).map_err(|e| match place::exposed(&e) {
        Some(exposed) => anyhow::anyhow!("no key is kept in {}: {exposed}", directory.display()),
        None => missing("keep a key", e),
    })?;
    let path = directory.join("try.key");
    match File::options().write(true).create_new(true).mode(0o600).open(&path) {
        Ok(mut file) => {
            let key = SecretKey::draw_private().context("no random numbers from the kernel")?;
            writeln!(file, "{}", key.expose()).map_err(|e| missing("keep a key", e))?;
            Ok(key)
        }
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            let key = read_own(&path);
            key.map_err(|e| Usage(format!("{e}; or remove it: a new one is made")).into())
        }
        Err(e) => Err(missing("keep a key", e)),
    }
}

/// Reads a private key from a file that belongs to root or to this user.
fn read_own(path: &Path) -> Result<SecretKey, String> {
    let text = read_key_file(path, "srd genkey").map_err(|e| e.to_string())?;
    SecretKey::parse(&text).map_err(|e| format!("{} holds no key: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt as _, chown};

    use srd_daemon::config::Config;

    #[test]
    fn two_sides_agree_on_addresses_and_each_configuration_is_right() {
        let directory = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| {
            let path = directory.path().join(name);
            let key = load_or_draw(&path).unwrap();
            assert_eq!(load_or_draw(&path).unwrap(), key, "it is kept");
            (path, key.public())
        });
        let [ip_a, ip_b]: [IpAddr; 2] = ["192.0.2.1", "192.0.2.2"].map(|ip| ip.parse().unwrap());
        let port = PORT_DEFAULT;
        let side_a = Try { own: ip_a, peer: ip_b, ours: a.1, theirs: Some(b.1), port };
        let side_b = Try { own: ip_b, peer: ip_a, ours: b.1, theirs: Some(a.1), port };
        let read = |side: &Try, path: &Path| {
            let text = side.configuration().unwrap();
            Config::parse(&text, &path.join("try.toml")).unwrap_or_else(|e| panic!("{e}"))
        };
        let (at_a, at_b) = (read(&side_a, &a.0), read(&side_b, &b.0));
        assert_eq!(at_a.peers[0].allowed[0].addr(), at_b.interface.address[0].addr());
        assert_eq!(at_b.peers[0].allowed[0].addr(), at_a.interface.address[0].addr());
        assert_eq!(at_a.peers[0].endpoint.unwrap().ip(), ip_b);
        assert_eq!(at_a.peers[0].endpoint.unwrap().port(), at_b.interface.listen.port());
        // The configuration stays valid when the machine's address changes.
        assert!(at_a.interface.listen.ip().is_unspecified());
        // One worker uses only the printed ports, even on a machine with many cores.
        assert!(side_a.configuration().unwrap().contains("\nworkers = 1\n"));
        let last = at_a.interface.last_port().to_string();
        assert!(side_a.first_words().contains(&last), "{last}");
        let typed = format!("sudo srd up --try 192.0.2.1 --key {}", a.1);
        assert_eq!(side_a.command(), typed);
        assert!(side_a.words().contains(&typed) && side_a.first_words().contains(&typed));
        let unknown = Try { theirs: None, ..side_a };
        assert!(unknown.configuration().is_none());
        assert!(Try { port: 9000, ..unknown }.command().ends_with("--port 9000"));
    }

    /// Regression: a key of another user was accepted. For example, the user `srd` may have stored
    /// the key, and could then use it.
    #[test]
    fn regression_a_key_or_a_directory_of_another_user_is_not_taken_over() {
        let directory = tempfile::tempdir().unwrap();
        if fs::metadata(directory.path()).unwrap().uid() != 0 {
            println!("skipped: only root gives files away");
            return;
        }
        let at = directory.path().join("try");
        load_or_draw(&at).unwrap();
        let users = fs::read_to_string("/etc/passwd").unwrap();
        let of_srd = users.lines().find_map(|line| line.strip_prefix("srd:x:"));
        let user = of_srd.map_or(65_534, |rest| rest.split(':').next().unwrap().parse().unwrap());
        chown(at.join("try.key"), Some(user), None).unwrap();
        let said = load_or_draw(&at).unwrap_err().to_string();
        assert!(said.contains(&format!("belongs to user {user}")) && said.contains("remove it"));
        fs::remove_file(at.join("try.key")).unwrap();
        load_or_draw(&at).unwrap();
        chown(&at, Some(user), None).unwrap();
        let said = load_or_draw(&at).unwrap_err().to_string();
        assert!(said.contains("others than root may change"), "{said}");
    }

    #[test]
    fn regression_a_link_in_place_of_the_configuration_overwrites_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (path, victim) = (directory.path().join("srdtry0.toml"), directory.path().join("v"));
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        for text in ["one", "two"] {
            assert_eq!(write_in(directory.path(), text).unwrap(), path);
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    }

    /// The error advised to choose another base port, and named no option.
    #[test]
    fn regression_a_port_that_another_program_uses_leads_to_the_option() {
        let io = |kind, text: &str| std::io::Error::new(kind, text.to_owned());
        let taken = io(ErrorKind::AddrInUse, "cannot bind 0.0.0.0:7471 (path 0): in use");
        let other = io(ErrorKind::AddrInUse, "a daemon serves /run/srd/srd0.sock already");
        for (cause, is_of_port) in [(taken, true), (other, false)] {
            let error = or_other_port(Error::from(cause).context("cannot listen"));
            assert_eq!(format!("{error:#}").contains("--port"), is_of_port, "{error:#}");
        }
    }

    #[test]
    fn a_peer_that_cannot_be_is_refused() {
        assert!(address("no-such-host.invalid").is_err());
        assert!(Try::prepare("192.0.2.1", None, 0).is_err());
        assert!(Try::prepare("192.0.2.1", None, u16::MAX).is_err());
    }
}
