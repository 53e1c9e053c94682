//! The user at the other end of a Unix socket. The kernel recorded this user when the other end
//! connected or began to listen; neither end can choose it.

use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;

use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

use crate::process::Process;

/// Number of the root user.
const ROOT: u32 = 0;

/// Error: the user at the other end is not trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stranger {
    /// Number of the user at the other end.
    pub user: u32,
}

impl fmt::Display for Stranger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "user {} is at the other end, neither root nor a user that is trusted here",
            self.user
        )
    }
}

impl std::error::Error for Stranger {}

/// Checks that the user at the other end is root or this process's own user.
///
/// # Errors
/// An error of the operating system, if the user cannot be read. For another user, the error is a
/// [`Stranger`] of the kind [`PermissionDenied`](io::ErrorKind::PermissionDenied).
pub fn check(stream: &UnixStream) -> io::Result<()> {
    check_one(stream, geteuid().as_raw())
}

/// Checks that the user at the other end is root or `user`. In contrast to [`check`], the own user
/// of this process is not trusted: it may have fewer rights than the user that started it.
///
/// # Errors
/// The errors of [`check`].
pub fn check_one(stream: &UnixStream, user: u32) -> io::Result<()> {
    let there = socket_peercred(stream)?.uid.as_raw();
    if is_trusted(there, user) {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, Stranger { user: there }))
}

/// Returns the user in an error of [`check`]; `None` for other errors.
pub fn stranger(error: &io::Error) -> Option<Stranger> {
    error.get_ref()?.downcast_ref().copied()
}

/// Returns the user and the process at the other end, in words for a log.
pub fn in_words(stream: &UnixStream) -> String {
    match socket_peercred(stream) {
        Ok(by) => format!("user {}, process {}", by.uid.as_raw(), by.pid.as_raw_nonzero()),
        Err(error) => format!("an unknown user: {error}"),
    }
}

/// Returns the process at the other end as an insertion into a message, such as ` (process 7)`. The
/// text is empty if this process is not known, or has ended and left the socket to another one.
pub(crate) fn inserted(stream: &UnixStream) -> String {
    let process = socket_peercred(stream).ok();
    let process = process.and_then(|by| u32::try_from(by.pid.as_raw_nonzero().get()).ok());
    let process = process.filter(|id| Process::open(*id).is_ok());
    process.map(|id| format!(" (process {id})")).unwrap_or_default()
}

fn is_trusted(user: u32, own: u32) -> bool {
    user == ROOT || user == own
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a card that took over from another one trusted any process that listened at the
    /// socket, and ran the program named by that process, as root.
    #[test]
    fn regression_root_and_the_own_user_are_trusted_and_nobody_else() {
        let (root, own, other) = (0, 1000, 65_534);
        assert!(is_trusted(root, own) && is_trusted(own, own) && is_trusted(root, root));
        assert!(!is_trusted(other, own) && !is_trusted(other, root) && !is_trusted(own, root));
    }

    #[test]
    fn the_own_process_is_trusted_and_an_error_names_the_user() {
        let (here, there) = UnixStream::pair().unwrap();
        check(&here).unwrap();
        let own = geteuid().as_raw();
        check_one(&here, own).unwrap();
        assert_eq!(own == ROOT, check_one(&here, own + 1).is_ok());
        check(&there).unwrap();
        let error = io::Error::new(io::ErrorKind::PermissionDenied, Stranger { user: 7 });
        assert_eq!(stranger(&error), Some(Stranger { user: 7 }));
        assert!(error.to_string().contains("user 7"));
        assert_eq!(stranger(&io::ErrorKind::NotFound.into()), None);
    }
}
