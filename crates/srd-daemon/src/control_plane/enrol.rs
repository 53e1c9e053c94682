//! The first enrolment of this host, and the change of its key at a start.

use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use srd_enrol::message::VERSION;
use srd_enrol::{Capacity, FromController, FromHost, Host, Token};
use srd_trust::private::{self, Exposed};
use srd_trust::privileges;

use super::link::{Link, LinkError};
use super::state::{Enrolment, NEXT_KEY, PRIVATE_KEY};
use crate::config::{Config, Enrol, Interface};
use crate::control::socket::check_free;
use crate::keys::PublicKey;

/// Longest wait for an answer of the controller.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(20);
/// Largest file with a token, in bytes.
const TOKEN_BYTES_MAX: u64 = 4096;

/// Enrols this host if its configuration names a controller and it has not enrolled yet. If the
/// host has enrolled, puts its next key into use, if there is one. Nothing changes if a daemon with
/// this configuration runs already: the enrolment would use up a token, and the daemon would go on
/// with its key.
///
/// # Errors
/// An error of the configuration, or the reason why the host has not enrolled.
pub fn prepare(path: &Path) -> Result<()> {
    let config = Config::load_without_keys(path)?;
    let Some(enrol) = &config.enrol else { return Ok(()) };
    check_free(&config.control.socket)?;
    if enrol.capacity.is_some() && privileges::own_user().is_none() {
        // The process that reads packets of instances never stays root, and a spare user cannot
        // write the state directory.
        bail!(
            "[enrol.instances] takes root at the start, and the user {0}, which the package \
             creates: adduser --system --group --no-create-home {0}",
            privileges::OWN_ACCOUNT
        );
    }
    let state = &enrol.directory;
    match state.enrolment().map_err(anyhow::Error::msg)? {
        Some(enrolment) if !enrolment.is_removed => {
            if let Err(error) = rotate(&config.interface, enrol, enrolment) {
                tracing::warn!("the next key waits for another start: {error:#}");
            }
            Ok(())
        }
        _ => first(&config.interface, enrol),
    }
}

fn first(interface: &Interface, enrol: &Enrol) -> Result<()> {
    let Some(file) = &enrol.token_file else {
        bail!(
            "this host has not enrolled at {}: write a token of `srd control token create` into a \
             file, and name it by `token_file` in [enrol]",
            enrol.controller
        );
    };
    let token = token(file, privileges::sudo_user())?;
    let state = &enrol.directory;
    state.create().map_err(anyhow::Error::msg)?;
    let identity = state.identity().map_err(anyhow::Error::msg)?;
    let key = state.key(PRIVATE_KEY).map_err(anyhow::Error::msg)?;
    let mut link = Link::open(&enrol.controller, &identity, token.controller, 0).map_err(words)?;
    let endpoints = endpoints(interface, enrol, link.local().map_err(words)?);
    let endpoints = endpoints.ok_or_else(|| {
        anyhow!("the controller is reached through the overlay: name `endpoint` in [enrol]")
    })?;
    let name = enrol.name.clone();
    let host = describe(key.public(), endpoints.clone(), enrol.capacity.clone());
    let Token { id: token, secret, controller } = token;
    let request = FromHost::Enrol { version: VERSION, token, secret, name, host };
    link.send(&request).map_err(words)?;
    let mut enrolment = Enrolment {
        endpoints,
        peers: Vec::new(),
        generation: 0,
        is_removed: false,
        ..welcome(&mut link, controller)?
    };
    if let FromController::Snapshot { generation, peers } = expect(&mut link)? {
        (enrolment.generation, enrolment.peers) = (generation, peers);
    }
    state.store(&enrolment).map_err(anyhow::Error::msg)?;
    tracing::info!(
        "enrolled at {} as {}, with the overlay address {}",
        enrol.controller,
        enrolment.name,
        enrolment.address
    );
    Ok(())
}

/// Puts the next key into use, if there is one: the controller sends it to all peers.
fn rotate(interface: &Interface, enrol: &Enrol, enrolment: Enrolment) -> Result<()> {
    let state = &enrol.directory;
    let next = state.key_if_any(NEXT_KEY).map_err(anyhow::Error::msg)?;
    let Some(next) = next else { return Ok(()) };
    let identity = state.identity().map_err(anyhow::Error::msg)?;
    let controller = enrolment.controller;
    let mut link = Link::open(&enrol.controller, &identity, controller, 0).map_err(words)?;
    let endpoints = endpoints(interface, enrol, link.local().map_err(words)?);
    let endpoints = endpoints.unwrap_or(enrolment.endpoints);
    let host = describe(next.public(), endpoints, enrol.capacity.clone());
    let generation = enrolment.generation;
    link.send(&FromHost::Follow { version: VERSION, generation, host }).map_err(words)?;
    welcome(&mut link, controller)?;
    state.rename(NEXT_KEY, PRIVATE_KEY).map_err(anyhow::Error::msg)?;
    tracing::info!("this host uses its next key from now on");
    Ok(())
}

fn words(error: LinkError) -> anyhow::Error {
    anyhow!("{error}")
}

fn expect(link: &mut Link) -> Result<FromController> {
    link.expect(Instant::now() + ANSWER_WAIT_MAX).map_err(words)
}

/// Waits until the controller has admitted this host. The result has no peers.
fn welcome(link: &mut Link, controller: srd_enrol::Fingerprint) -> Result<Enrolment> {
    match expect(link)? {
        FromController::Welcome { name, address } => Ok(Enrolment {
            controller,
            name,
            address,
            endpoints: Vec::new(),
            generation: 0,
            peers: Vec::new(),
            is_removed: false,
        }),
        _ => bail!("the controller has sent another message than a welcome"),
    }
}

/// Reads an enrolment token from its file, which only its owner may read. The owner is root, the
/// user of this process, the user `srd`, or the user who has started this process by `sudo`
/// (`sudo`): this user's shell has created the file.
fn token(path: &Path, sudo: Option<u32>) -> Result<Token> {
    let shown = path.display().to_string();
    let file = private::open(path).with_context(|| format!("the enrolment token {shown}"))?;
    let file = file.ok_or_else(|| anyhow!("{shown} is no regular file"))?;
    let checked = private::check(&file, privileges::own_user()).with_context(|| shown.clone())?;
    match checked {
        Err(Exposed::Owner(owner)) if Some(owner) == sudo => {}
        checked => checked.map_err(|exposed| exposed.fault(path))?,
    }
    let mut text = String::new();
    file.take(TOKEN_BYTES_MAX).read_to_string(&mut text).with_context(|| shown.clone())?;
    Token::parse(&text).map_err(|error| anyhow!("{shown}: {error}"))
}

/// Returns the addresses at which peers reach this host: those of the configuration, or the
/// addresses at which it listens. If it listens at all addresses, this is the address from which it
/// reaches the controller, which is `local`; `None` if this is an overlay address.
pub(super) fn endpoints(
    interface: &Interface,
    enrol: &Enrol,
    local: IpAddr,
) -> Option<Vec<SocketAddr>> {
    if !enrol.endpoints.is_empty() {
        return Some(enrol.endpoints.clone());
    }
    if !interface.listen.ip().is_unspecified() {
        return Some(interface.listens().collect());
    }
    (!interface.is_inside(local)).then(|| vec![SocketAddr::new(local, interface.listen.port())])
}

/// Returns the number of processors of this machine.
pub(crate) fn processors() -> u32 {
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Returns the description of this host.
pub(super) fn describe(
    public_key: PublicKey,
    endpoints: Vec<SocketAddr>,
    capacity: Option<Capacity>,
) -> Host {
    Host {
        public_key: public_key.to_string(),
        endpoints,
        processors: processors(),
        memory_bytes: memory_bytes(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default()),
        capacity,
    }
}

/// Returns the size of the memory from the text of `/proc/meminfo`; 0 if it is not known.
fn memory_bytes(meminfo: &str) -> u64 {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.map_or(0, |kib| kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_size_of_the_memory_is_read_in_bytes() {
        assert_eq!(memory_bytes("MemTotal:       16318 kB\nMemFree: 1 kB\n"), 16318 * 1024);
        assert_eq!(memory_bytes(""), 0);
    }

    /// The token was used up, and only then the start failed.
    #[test]
    fn regression_a_daemon_that_runs_is_noticed_before_the_enrolment() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("srd0.sock");
        let file = directory.path().join("srd0.toml");
        let text = format!(
            "[interface]\nlisten = \"127.0.0.1:7471\"\n[enrol]\ncontroller = \"127.0.0.1:1\"\n\
             token_file = \"token\"\ndirectory = \"state\"\n[control]\nsocket = \"{}\"\n",
            socket.display()
        );
        std::fs::write(&file, text).unwrap();
        let daemon = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let error = format!("{:#}", prepare(&file).unwrap_err());
        assert!(error.contains("serves") && error.contains("already"), "{error}");
        drop(daemon);
        let error = format!("{:#}", prepare(&file).unwrap_err());
        assert!(error.contains("the enrolment token"), "{error}");
    }

    #[test]
    fn a_file_of_a_token_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        assert!(format!("{:#}", token(&path, None).unwrap_err()).contains("the enrolment token"));
        let drawn = Token::draw(srd_enrol::Identity::draw().unwrap().fingerprint()).unwrap();
        std::fs::write(&path, drawn.expose()).unwrap();
        let mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        mode(0o644);
        assert!(token(&path, None).unwrap_err().to_string().contains("chmod 600"));
        mode(0o600);
        assert_eq!(token(&path, None).unwrap(), drawn);
        std::fs::write(&path, "hidden").unwrap();
        let error = token(&path, None).unwrap_err().to_string();
        assert!(error.contains("srd1.ID.SECRET.FINGERPRINT"), "{error}");
    }

    /// A regression: a user with `sudo` who followed the documented steps had a file of their own,
    /// which `srd up` refused.
    #[test]
    fn regression_a_file_of_a_token_may_belong_to_the_user_of_sudo() {
        const USER: u32 = 4711;
        if !rustix::process::geteuid().is_root() {
            println!("skipped: it needs root");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let drawn = Token::draw(srd_enrol::Identity::draw().unwrap().fingerprint()).unwrap();
        std::fs::write(&path, drawn.expose()).unwrap();
        let mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        mode(0o600);
        std::os::unix::fs::chown(&path, Some(USER), None).unwrap();
        for other in [None, Some(USER + 1)] {
            assert!(token(&path, other).unwrap_err().to_string().contains("belongs to user 4711"));
        }
        assert_eq!(token(&path, Some(USER)).unwrap(), drawn);
        mode(0o640);
        assert!(token(&path, Some(USER)).unwrap_err().to_string().contains("chmod 600"));
    }
}
