//! The first enrolment of this host, and the choice of its key at a start.

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use srd_enrol::message::VERSION;
use srd_enrol::{Capacity, FromController, FromHost, Host, Token};
use srd_trust::private::{self, Exposed};
use srd_trust::privileges;

use super::link::{Link, LinkError};
use super::state::{Enrolment, PRIVATE_KEY, failed};
use crate::config::{Config, Enrol, Interface};
use crate::control::socket::check_free;
use crate::keys::PublicKey;

/// Longest wait for an answer of the controller.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(20);
/// Text for an answer that is no welcome.
const NO_WELCOME: &str = "the controller has sent another message than a welcome";
/// Largest file with a token, in bytes.
const TOKEN_BYTES_MAX: u64 = 4096;

/// Enrols this host if its configuration names a controller and it has not enrolled yet. If an
/// earlier process has offered the next key of this host to the controller, makes it the key of
/// this host: the peers have it if the controller has taken it, and otherwise they get it as soon
/// as this host reaches the controller. Nothing changes if a daemon with this configuration runs
/// already: the enrolment would use up a token, and the daemon would go on with its key.
///
/// # Errors
/// An error of the configuration, or the reason why the host has not enrolled.
pub fn prepare(path: &Path) -> Result<()> {
    let config = Config::load_without_keys(path)?;
    let Some(enrol) = &config.enrol else { return Ok(()) };
    check_free(&config.control.socket)?;
    check_account(enrol, privileges::own_user().is_some())?;
    let state = &enrol.directory;
    if state.use_offered_key().map_err(anyhow::Error::msg)? {
        tracing::info!("this host uses the next key, which it has offered to the controller");
    }
    match state.enrolment().map_err(anyhow::Error::msg)? {
        Some(former) if former.is_removed => {
            let token = token_of(enrol, Former::Removed)?;
            tracing::warn!("the control plane has removed this host, which enrols again");
            let enrolled = first(&config.interface, enrol, token);
            enrolled.context("this host was removed from the control plane, and is not back")
        }
        Some(_) => Ok(()),
        None => first(&config.interface, enrol, token_of(enrol, Former::Stranger)?),
    }
}

/// Refuses a host with instances whose start does not become the user `srd`. `has_account`: whether
/// it does.
fn check_account(enrol: &Enrol, has_account: bool) -> Result<()> {
    if enrol.capacity.is_some() && !has_account {
        // The process that reads packets of instances never stays root, and a spare user cannot
        // write the state directory.
        bail!(
            "[enrol.instances] takes root at the start, and the user {0}, which the package \
             creates: adduser --system --group --no-create-home {0}",
            privileges::OWN_ACCOUNT
        );
    }
    Ok(())
}

/// Checks the configuration of a host that has to enrol at its next start, and its token. Returns
/// the configuration, whose address and keys are not those of the host; `None` if the host does not
/// have to enrol.
///
/// # Errors
/// An error of the configuration, or of the file of the token; the user `srd` is missing, and a
/// start needs it.
pub fn check(path: &Path) -> Result<Option<Config>> {
    let config = Config::load_without_keys(path)?;
    let Some(enrol) = &config.enrol else { return Ok(None) };
    // A check needs no root.
    check_account(enrol, privileges::has_own_account())?;
    let former = match enrol.directory.enrolment().map_err(anyhow::Error::msg)? {
        None => Former::Stranger,
        Some(former) if former.is_removed => Former::Removed,
        Some(_) => return Ok(None),
    };
    token_of(enrol, former)?;
    Ok(Some(config))
}

/// A host that has to enrol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Former {
    /// A host without a former enrolment.
    Stranger,
    /// A host that the control plane has removed.
    Removed,
}

/// Reads the token of a host.
fn token_of(enrol: &Enrol, former: Former) -> Result<Token> {
    if let Some(file) = &enrol.token_file {
        return token(file, privileges::sudo_user());
    }
    let why = match former {
        Former::Stranger => "has not enrolled at",
        Former::Removed => "was removed from the control plane at",
    };
    bail!(
        "this host {why} {}: write a token of `srd control token create` into a file, and name it \
         by `token_file` in [enrol], or by --token-file of `srd up --control`",
        enrol.controller
    )
}

fn first(interface: &Interface, enrol: &Enrol, token: Token) -> Result<()> {
    let state = &enrol.directory;
    state.create().map_err(anyhow::Error::msg)?;
    let identity = state.identity().map_err(anyhow::Error::msg)?;
    let key = state.key(PRIVATE_KEY).map_err(anyhow::Error::msg)?;
    let accepted = [token.controller];
    let mut link = Link::open(&enrol.controller, &identity, &accepted, 0).map_err(words)?;
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
    if let Some(file) = &enrol.token_file {
        tracing::info!("this host needs {} no longer: delete it", file.display());
    }
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
            next_controller: None,
            name,
            address,
            endpoints: Vec::new(),
            generation: 0,
            peers: Vec::new(),
            is_removed: false,
        }),
        _ => bail!(NO_WELCOME),
    }
}

/// Reads an enrolment token from its file, which only its owner may read. The owner is root, the
/// user of this process, the user `srd`, or the user who has started this process by `sudo`
/// (`sudo`): this user's shell has created the file.
fn token(path: &Path, sudo: Option<u32>) -> Result<Token> {
    let shown = path.display().to_string();
    let file = private::open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow!(
            "the enrolment token {shown} is missing: make one on the controller by \
             `(umask 077; srd control token create > token)`, and copy it here by `scp -p`"
        ),
        _ => anyhow!("the enrolment token {}", failed(path, &error)),
    })?;
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
    use crate::control_plane::state::{NEXT_KEY, StateDirectory};
    use srd_enrol::Identity;
    use std::os::unix::fs::PermissionsExt;

    fn enrolment() -> Enrolment {
        Enrolment {
            controller: Identity::draw().unwrap().fingerprint(),
            next_controller: None,
            name: "a".to_owned(),
            address: "10.77.0.1/16".parse().unwrap(),
            endpoints: vec!["127.0.0.1:7471".parse().unwrap()],
            generation: 1,
            peers: Vec::new(),
            is_removed: false,
        }
    }

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

    /// `srd up --check` accepted a file that `srd up` refuses.
    #[test]
    fn regression_a_host_with_instances_needs_the_user_of_the_package() {
        let text = |instances: &str| {
            format!(
                "[interface]\nlisten = \"127.0.0.1:7471\"\n[enrol]\nname = \"a\"\n\
                 controller = \"127.0.0.1:1\"\ndirectory = \"state\"\n{instances}"
            )
        };
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("srd0.toml");
        let cases = [("", false), ("[enrol.instances]\nzone = \"us-east-1a\"\n", true)];
        for (instances, is_refused) in cases {
            std::fs::write(&file, text(instances)).unwrap();
            let enrol = Config::load_without_keys(&file).unwrap().enrol.unwrap();
            assert!(check_account(&enrol, true).is_ok());
            assert_eq!(check_account(&enrol, false).is_err(), is_refused);
            // Without a token, the check refuses the file as well.
            let error = check(&file).unwrap_err().to_string();
            let is_of_account = error.contains("adduser");
            assert_eq!(is_of_account, is_refused && !privileges::has_own_account(), "{error}");
        }
    }

    /// A check of a file was an error until the host had enrolled.
    #[test]
    fn regression_a_file_is_checked_before_the_enrolment_with_its_token() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let write = |token: &str| {
            let text = format!(
                "[interface]\nlisten = \"127.0.0.1:7471\"\n[enrol]\n\
                 controller = \"127.0.0.1:1\"\nname = \"a\"\ndirectory = \"state\"\n{token}"
            );
            std::fs::write(at("srd0.toml"), text).unwrap();
        };
        let checked = || check(&at("srd0.toml"));
        let error = || format!("{:#}", checked().unwrap_err());
        write("");
        assert!(error().contains("has not enrolled at 127.0.0.1:1: write a token"), "{}", error());
        write("token_file = \"token\"\n");
        assert!(error().contains("the enrolment token"), "{}", error());
        let identity = Identity::draw().unwrap();
        let drawn = Token::draw(identity.fingerprint()).unwrap();
        std::fs::write(at("token"), drawn.expose()).unwrap();
        std::fs::set_permissions(at("token"), PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(checked().unwrap().unwrap().enrol.unwrap().name, "a");
        // The check has made nothing.
        assert!(!at("state").exists());
        let state = StateDirectory::new(at("state"));
        state.create().unwrap();
        let enrolment = enrolment();
        state.store(&enrolment).unwrap();
        assert!(checked().unwrap().is_none());
        // A host that was removed has to enrol again.
        state.store(&Enrolment { is_removed: true, ..enrolment }).unwrap();
        assert!(checked().unwrap().is_some());
        write("");
        assert!(error().contains("was removed from the control plane"), "{}", error());
    }

    /// A host that was killed while it changed its key started with the former key, which its peers
    /// refused until the host reached the controller again. There is no controller here.
    #[test]
    fn regression_a_start_uses_the_key_that_was_offered_to_the_controller() {
        for is_offered in [true, false] {
            let directory = tempfile::tempdir().unwrap();
            let file = directory.path().join("srd0.toml");
            let text = format!(
                "[interface]\nlisten = \"127.0.0.1:7471\"\n[enrol]\n\
                 controller = \"127.0.0.1:1\"\ndirectory = \"state\"\n[control]\nsocket = \"{}\"\n",
                directory.path().join("srd0.sock").display()
            );
            std::fs::write(&file, text).unwrap();
            let state = StateDirectory::new(directory.path().join("state"));
            state.create().unwrap();
            let [former, next] = [PRIVATE_KEY, NEXT_KEY].map(|name| state.key(name).unwrap());
            state.store(&enrolment()).unwrap();
            if is_offered {
                state.mark_offered().unwrap();
            }
            // The second start finds the outcome of the first one.
            for _ in 0..2 {
                prepare(&file).unwrap();
                let expected = if is_offered { &next } else { &former };
                assert_eq!(&state.key(PRIVATE_KEY).unwrap(), expected);
                assert_eq!(state.next_key().unwrap().is_some(), !is_offered);
            }
        }
    }

    #[test]
    fn a_file_of_a_token_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let missing = format!("{:#}", token(&path, None).unwrap_err());
        assert!(missing.contains("srd control token create"), "{missing}");
        let drawn = Token::draw(srd_enrol::Identity::draw().unwrap().fingerprint()).unwrap();
        std::fs::write(&path, drawn.expose()).unwrap();
        let mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        mode(0o644);
        let error = token(&path, None).unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
        // Regression: the text was about a key.
        assert!(!error.contains("the key"), "{error}");
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
