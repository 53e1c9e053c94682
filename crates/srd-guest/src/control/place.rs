//! The place of the control socket of a card that the command line starts.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use srd_trust::{place, socket};

use crate::control::client::is_default;
use crate::failure::WrongSettings;
use crate::machine::earlier;
use crate::machine::locks::DIRECTORY_MODE;

/// Prepares the place of the socket of a new card: creates the directory if it is missing, and
/// checks that the path is free. The card removes the socket of a dead card when it listens.
/// Returns the created directories, from the innermost one on, but not the directory of the default
/// socket, which belongs to all cards.
///
/// # Errors
/// A card serves the socket, or an earlier version of a card runs; the file is no socket
/// ([`WrongSettings`]); or another user could replace the socket.
pub fn prepare_socket(path: &Path) -> Result<Vec<PathBuf>> {
    if is_default(path) && earlier::card().is_some() {
        bail!(
            "a card of an earlier version serves {}: end it first (connections of its instances \
             end with it)",
            earlier::SOCKET
        );
    }
    let made = make_directory_of(path)?;
    check_free(path)?;
    Ok(if is_default(path) { Vec::new() } else { made })
}

/// Creates the directory of a socket if it is missing. Returns the directories that were missing.
/// Returns an error if another user could replace the socket there.
fn make_directory_of(path: &Path) -> Result<Vec<PathBuf>> {
    let path = std::path::absolute(path)?;
    let Some(directory) = path.parent() else { return Ok(Vec::new()) };
    let missing = directory.ancestors().take_while(|at| !at.exists()).map(Path::to_owned).collect();
    place::make_directory(directory, DIRECTORY_MODE).with_context(|| {
        let shown = directory.display();
        format!("no socket of a card can be in {shown}: name a place that root alone may change")
    })?;
    Ok(missing)
}

/// Returns an error for a file that is no socket, and for a socket in use.
fn check_free(path: &Path) -> Result<()> {
    let shown = path.display();
    match socket::is_dead(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let what = format!("{shown} is there and no socket: name another place with --socket");
            Err(WrongSettings(what).into())
        }
        Err(error) if error.kind() == ErrorKind::AddrInUse => bail!(
            "a card serves {shown}{} already: `srd card status` shows it, --socket names another",
            socket::listener_inserted(path)
        ),
        Err(error) => Err(error).with_context(|| format!("which process has {shown} is unknown")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn regression_a_place_that_another_user_may_change_is_refused_and_named() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let open = directory.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        let error = make_directory_of(&open.join("inner/card.sock")).unwrap_err();
        let said = format!("{error:#}");
        assert!(
            said.contains(&format!("others than root may change {}", open.display())),
            "{said}"
        );
        assert!(!open.join("inner").exists());
        let made = make_directory_of(&directory.path().join("own/card.sock")).unwrap();
        assert_eq!(made, [directory.path().join("own")]);
        let made = make_directory_of(&directory.path().join("own/a/b/card.sock")).unwrap();
        assert_eq!(made, ["own/a/b", "own/a"].map(|name| directory.path().join(name)));
    }

    /// The error named the socket only.
    #[test]
    fn regression_the_error_about_a_socket_in_use_names_the_process() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("card.sock");
        let _lives = UnixListener::bind(&path).unwrap();
        let error = check_free(&path).unwrap_err().to_string();
        let process = format!("card.sock (process {}) already", std::process::id());
        assert!(error.contains(&process), "{error}");
    }

    /// If a card accepts no connections at the moment, the start of another card fails at once. In
    /// an earlier version, the start waited for the first card, without a limit.
    #[test]
    fn regression_a_full_queue_of_connections_delays_no_start() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("card.sock");
        let lives = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&lives, 0).unwrap();
        let _queued: Vec<_> = std::iter::from_fn(|| socket::connect(&path).ok()).collect();
        let (send, receive) = channel();
        let of_card = path.clone();
        thread::spawn(move || send.send(check_free(&of_card)));
        let checked = receive.recv_timeout(Duration::from_secs(60)).expect("it waits");
        assert!(checked.unwrap_err().to_string().contains("serves"));
        rustix::net::shutdown(&lives, rustix::net::Shutdown::Both).unwrap();
        check_free(&path).unwrap();
        // The socket of the card replaces it.
        assert!(path.exists());
    }
}
