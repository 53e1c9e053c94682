//! Control sockets of the nodes that run on this machine: daemons of `srd up`, and the card of
//! `srd card up`.
//!
//! A command that names no node uses the only one that runs. Sockets at other paths than the
//! default ones are not found.
//!
//! The user `srd` owns the directory of the sockets, and can create other sockets there. Such a
//! socket is ignored if a node runs that was started by root, by the user of the command, or with a
//! file of root in [`CONFIGS`].

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Result;
use srd_daemon::config::{Config, socket_default};
use srd_daemon::control::socket;
use srd_guest::{Client, SOCKET_DEFAULT};
use srd_trust::{peer, place, privileges};

use crate::failure::usage;

/// Directory with the configurations of the package's units, which only root changes.
const CONFIGS: &str = "/etc/srd";

/// State of a path as the socket of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// A process listens at the socket.
    Served,
    /// This user has no permission to connect, so a process may listen.
    Denied,
    /// No process listens.
    Absent,
}

fn state(path: &Path) -> State {
    match srd_trust::socket::connect(path).map_err(|error| error.kind()) {
        // The queue of connections is full.
        Ok(_) | Err(ErrorKind::WouldBlock) => State::Served,
        Err(ErrorKind::PermissionDenied) => State::Denied,
        Err(_) => State::Absent,
    }
}

/// Whether a process listens at a socket.
pub(crate) fn is_served(path: &Path) -> bool {
    state(path) == State::Served
}

/// Whether a process listens at a socket, or may listen because this user may not connect to it.
pub(crate) fn may_be_served(path: &Path) -> bool {
    state(path) != State::Absent
}

/// Returns the socket of the only node that runs. If no node runs, this is the socket of the daemon
/// `srd0`.
///
/// # Errors
/// Several nodes run: a usage error with their options.
pub(crate) fn only() -> Result<PathBuf> {
    one_of(found(paths()), socket_default("srd0"))
}

/// Returns the socket of the only node that runs and has instances. If there is no such node, this
/// is the default socket of a card.
///
/// # Errors
/// Several nodes with instances run: a usage error with their options.
pub(crate) fn only_with_instances() -> Result<PathBuf> {
    let mut found = found(card_first(paths()));
    if found.len() > 1 {
        // A socket whose queue is full would be waited for.
        found.retain(|path| is_ready(path) && Client::connect(path).is_ok());
    }
    one_of(found, SOCKET_DEFAULT.into())
}

/// Returns the default paths of sockets that exist or may exist.
fn paths() -> Vec<PathBuf> {
    let usual = socket_default("srd0");
    let mut all = socket::all();
    if !all.contains(&usual) {
        // This user may have no permission to list the directory.
        all.push(usual);
    }
    all.push(SOCKET_DEFAULT.into());
    all
}

/// Returns the paths at which a process listens. If no process listens, returns the first path to
/// which this user may not connect, so that the error of the connection contains the remedy.
fn running(paths: Vec<PathBuf>, state: impl Fn(&Path) -> State) -> Vec<PathBuf> {
    let states: Vec<(PathBuf, State)> =
        paths.into_iter().map(|path| (path.clone(), state(&path))).collect();
    let of = |wanted: State| {
        let found = states.iter().filter(move |(_, state)| *state == wanted);
        found.map(|(path, _)| path.clone())
    };
    let served: Vec<PathBuf> = of(State::Served).collect();
    if served.is_empty() { of(State::Denied).take(1).collect() } else { served }
}

/// Returns the paths with the default socket of a card in the first place: a user who may connect
/// to no socket gets the error about the card.
fn card_first(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.sort_by_key(|path| path != Path::new(SOCKET_DEFAULT));
    paths
}

/// Returns those of these sockets at which nodes run, as far as they count.
fn found(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    known(running(paths, state), is_known)
}

/// Returns the sockets of known nodes; all sockets if there is only one, or none of a known node.
fn known(found: Vec<PathBuf>, is_known: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    if found.len() < 2 {
        return found;
    }
    let known: Vec<PathBuf> = found.iter().filter(|path| is_known(path)).cloned().collect();
    if known.is_empty() { found } else { known }
}

fn is_known(path: &Path) -> bool {
    is_known_by(path, Path::new(CONFIGS))
}

/// Whether root or the own user has started the process that listens at a socket, or a daemon's
/// user has started it and a file of root in `configs` describes its node.
fn is_known_by(path: &Path, configs: &Path) -> bool {
    let Ok(stream) = srd_trust::socket::connect(path) else { return false };
    // The path may be a link to the socket of another node, or another name of it.
    let address = stream.peer_addr().ok();
    let place = address.and_then(|of| srd_trust::socket::place_of(of.as_pathname()?));
    if place.is_some_and(|place| place != path) {
        return false;
    }
    match peer::check(&stream) {
        Ok(()) => true,
        Err(error) => {
            let user = peer::stranger(&error).map(|of| of.user);
            user.is_some_and(privileges::is_of_daemons) && is_registered(path, configs)
        }
    }
}

/// Whether a file of root in this directory configures a node with this socket. A file that this
/// user may not read counts as one.
fn is_registered(socket: &Path, configs: &Path) -> bool {
    let entries = match fs::read_dir(configs) {
        Ok(entries) => entries,
        Err(error) => return error.kind() != ErrorKind::NotFound,
    };
    let files = entries.flatten().map(|entry| entry.path());
    let mut files = files.filter(|file| file.extension().is_some_and(|of| of == "toml"));
    files.any(|file| {
        if !place::is_roots_alone(&file) {
            return false;
        }
        match (File::open(&file), Config::load_without_keys(&file)) {
            (Err(_), _) => true,
            (Ok(_), Ok(config)) => config.control.socket == socket,
            // The file may have been changed since the start of the node.
            (Ok(_), Err(_)) => file.file_stem() == socket.file_stem(),
        }
    })
}

/// Whether a process listens at a socket, and its queue of connections is not full.
fn is_ready(path: &Path) -> bool {
    srd_trust::socket::connect(path).is_ok()
}

fn one_of(found: Vec<PathBuf>, usual: PathBuf) -> Result<PathBuf> {
    match found.as_slice() {
        [] => Ok(usual),
        [only] => Ok(only.clone()),
        several => {
            let lines: Vec<String> = several.iter().map(|path| line(path)).collect();
            usage(format!("several nodes run here: name one of them\n{}", lines.join("\n")))
        }
    }
}

/// Returns the option that selects the node at a socket, and the kind of the node.
fn line(path: &Path) -> String {
    let kind = match path == Path::new(SOCKET_DEFAULT) {
        true => "the card of `srd card up`".to_owned(),
        false => {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            format!("`srd up` with the name {name}")
        }
    };
    format!("  --socket {}  {kind}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{USAGE, exit_code};

    const ALL: [&str; 3] = ["/run/srd/srd0.sock", "/run/srd/srd7.sock", SOCKET_DEFAULT];

    /// Returns the socket that a command uses, or the text of its error. `states`: those of
    /// [`ALL`].
    fn chosen(states: [State; 3]) -> Result<String, String> {
        let state = |path: &Path| {
            let at = ALL.iter().position(|of| path == Path::new(of)).unwrap();
            states[at]
        };
        let found = running(ALL.map(PathBuf::from).to_vec(), state);
        match one_of(found, "/usual".into()) {
            Ok(path) => Ok(path.to_str().unwrap().to_owned()),
            Err(error) => {
                assert_eq!(exit_code(&error), USAGE);
                Err(error.to_string())
            }
        }
    }

    /// `srd reload` did not find a card. If several daemons ran, it silently used `srd0`.
    #[test]
    fn regression_the_only_node_that_runs_is_used_and_several_are_listed() {
        use State::{Absent, Denied, Served};
        for (states, wanted) in [
            ([Absent, Absent, Absent], "/usual"),
            ([Absent, Absent, Served], SOCKET_DEFAULT),
            ([Absent, Served, Absent], ALL[1]),
            // The card's directory is closed to this user, whether a card runs or not.
            ([Served, Absent, Denied], ALL[0]),
            ([Absent, Absent, Denied], SOCKET_DEFAULT),
            ([Denied, Absent, Denied], ALL[0]),
        ] {
            assert_eq!(chosen(states).unwrap(), wanted, "{states:?}");
        }
        let text = chosen([Served, Absent, Served]).unwrap_err();
        assert!(text.contains("--socket /run/srd/srd0.sock  `srd up` with"), "{text}");
        assert!(text.contains(&format!("--socket {SOCKET_DEFAULT}  the card")), "{text}");
        assert!(!text.contains("srd7"), "{text}");
    }

    /// `srd card status` of a user without rights named the socket of the daemon `srd0`.
    #[test]
    fn regression_a_user_without_rights_is_told_about_the_socket_of_the_card() {
        let all = ALL.map(PathBuf::from).to_vec();
        assert_eq!(running(card_first(all.clone()), |_| State::Denied), [Path::new(ALL[2])]);
        // Of a card that does not run, there is no directory.
        let state = |path: &Path| match path == Path::new(SOCKET_DEFAULT) {
            true => State::Absent,
            false => State::Denied,
        };
        assert_eq!(running(card_first(all), state), [Path::new(ALL[0])]);
    }

    #[test]
    fn a_socket_without_a_process_is_not_served() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.sock");
        assert!(!is_served(&path) && !may_be_served(&path));
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(is_served(&path) && may_be_served(&path));
        rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).unwrap();
        assert!(!is_served(&path), "a process has left it behind");
    }

    /// The user `srd` put a socket into the directory, and each command required --socket.
    #[test]
    fn regression_a_socket_of_no_known_node_does_not_count_beside_one() {
        let all = || ALL.map(PathBuf::from).to_vec();
        let only = |path: &Path| path == Path::new(ALL[1]);
        assert_eq!(known(all(), only), [Path::new(ALL[1])]);
        assert_eq!(known(all(), |path| !only(path)), [Path::new(ALL[0]), Path::new(ALL[2])]);
        // A single one is used, and of several unknown ones one has to be named.
        assert_eq!(known(all()[..1].to_vec(), |_| false), [Path::new(ALL[0])]);
        assert_eq!(known(all(), |_| false), all());
    }

    fn listen(path: &Path) -> std::os::unix::net::UnixListener {
        let options = srd_trust::socket::Options { mode: 0o600, group: None, replace: false };
        srd_trust::socket::listen(path, options).unwrap().listener
    }

    #[test]
    fn another_name_of_a_socket_is_no_further_node() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().canonicalize().unwrap().join(name);
        let listener = listen(&at("srd0.sock"));
        std::os::unix::fs::symlink("srd0.sock", at("link.sock")).unwrap();
        fs::hard_link(at("srd0.sock"), at("name.sock")).unwrap();
        for (name, is) in [("srd0", true), ("link", false), ("name", false), ("none", false)] {
            assert_eq!(is_known(&at(&format!("{name}.sock"))), is, "{name}");
        }
        // Of a full queue, the listener is not known.
        rustix::net::listen(&listener, 0).unwrap();
        let queued: Vec<_> =
            std::iter::from_fn(|| srd_trust::socket::connect(&at("srd0.sock")).ok()).collect();
        assert!(!is_known(&at("srd0.sock")) && !is_ready(&at("srd0.sock")));
        drop(queued);
    }

    /// A daemon of the package runs as the user `srd` from the beginning.
    #[test]
    fn a_socket_of_the_user_of_daemons_is_known_if_root_has_configured_it() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root becomes another user");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().canonicalize().unwrap().join(name);
        let sockets = ["a.sock", "b.sock", "c.sock"].map(at);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        fs::set_permissions(directory.path(), mode).unwrap();
        let configs = at("configs");
        fs::create_dir(&configs).unwrap();
        let listens = |user: u32| {
            let sockets = sockets.clone();
            let begun = std::thread::spawn(move || {
                let user = rustix::process::Uid::from_raw(user);
                // The user id of this thread alone changes.
                rustix::thread::set_thread_res_uid(user, user, user).unwrap();
                sockets.map(|path| listen(&path))
            });
            begun.join().unwrap()
        };
        let known = || sockets.each_ref().map(|path| is_known_by(path, &configs));
        let listeners = listens(srd_trust::spare::FIRST);
        assert_eq!(known(), [false; 3], "root has configured nothing");
        let config = format!("[control]\nsocket = \"{}\"\n", sockets[0].display());
        let interface = "[interface]\nname = \"srd7\"\naddress = [\"10.77.0.1/24\"]\n\
                         private_key_file = \"private.key\"\nlisten = \"0.0.0.0:7471\"\n";
        let text = format!("{interface}{config}");
        fs::write(configs.join("x.toml"), text).unwrap();
        // A file with an error counts by its name.
        fs::write(configs.join("b.toml"), "wrong").unwrap();
        fs::write(configs.join("c.conf"), "").unwrap();
        let is_read = Config::load_without_keys(&configs.join("x.toml"));
        assert_eq!(is_read.unwrap().control.socket, sockets[0]);
        assert_eq!(known(), [true, true, false]);
        drop(listeners);
        sockets.iter().for_each(|path| fs::remove_file(path).unwrap());
        let _listeners = listens(54_321);
        assert_eq!(known(), [false; 3], "no daemon has this user");
    }
}
