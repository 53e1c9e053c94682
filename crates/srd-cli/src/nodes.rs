//! Control sockets of the nodes that run on this machine: daemons of `srd up`, and the card of
//! `srd card up`.
//!
//! A command that names no node uses the only one that runs. Sockets at other paths than the
//! default ones are not found.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Result;
use srd_daemon::config::socket_default;
use srd_daemon::control::socket;
use srd_guest::{Client, SOCKET_DEFAULT};

use crate::failure::usage;

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
    one_of(running(paths(), state), socket_default("srd0"))
}

/// Returns the socket of the only node that runs and has instances. If there is no such node, this
/// is the default socket of a card.
///
/// # Errors
/// Several nodes with instances run: a usage error with their options.
pub(crate) fn only_with_instances() -> Result<PathBuf> {
    let mut found = running(paths(), state);
    if found.len() > 1 {
        found.retain(|path| Client::connect(path).is_ok());
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
            format!("`srd up` with the interface name {name}")
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
}
