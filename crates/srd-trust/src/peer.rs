//! The user at the other end of a Unix socket. The kernel noted it when the other end
//! connected or began to listen; neither end can choose it.

use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;

use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

/// The root user.
const ROOT: u32 = 0;

/// Another user than the trusted ones is at the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stranger {
    /// The number of this user.
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

/// Finds out whether root, this process's own user or one of `also` is at the other end.
///
/// # Errors
/// An error of the system; one of another user is a [`Stranger`], of the kind
/// [`PermissionDenied`](io::ErrorKind::PermissionDenied).
pub fn check(stream: &UnixStream, also: &[u32]) -> io::Result<()> {
    let user = socket_peercred(stream)?.uid.as_raw();
    if is_trusted(user, geteuid().as_raw(), also) {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, Stranger { user }))
}

/// Finds out whether root or this one user is at the other end: for a process whose user has
/// changed since, and is shared with others.
///
/// # Errors
/// As [`check`].
pub fn check_one(stream: &UnixStream, user: u32) -> io::Result<()> {
    let there = socket_peercred(stream)?.uid.as_raw();
    if is_trusted(there, user, &[]) {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, Stranger { user: there }))
}

/// The user that such an error is about.
pub fn stranger(error: &io::Error) -> Option<Stranger> {
    error.get_ref()?.downcast_ref().copied()
}

fn is_trusted(user: u32, own: u32, also: &[u32]) -> bool {
    user == ROOT || user == own || also.contains(&user)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A card that took over trusted any process that listened at the socket, and ran as root the
    /// program that this process named.
    #[test]
    fn regression_root_the_own_user_and_named_ones_are_trusted_and_nobody_else() {
        let (root, own, other) = (0, 1000, 65_534);
        assert!(is_trusted(root, own, &[]) && is_trusted(own, own, &[]));
        assert!(is_trusted(root, root, &[]) && is_trusted(other, own, &[other]));
        assert!(!is_trusted(other, own, &[]) && !is_trusted(other, root, &[own]));
        assert!(!is_trusted(own, root, &[]));
    }

    #[test]
    fn the_own_process_is_trusted_and_an_error_names_the_user() {
        let (here, there) = UnixStream::pair().unwrap();
        check(&here, &[]).unwrap();
        let own = geteuid().as_raw();
        check_one(&here, own).unwrap();
        assert_eq!(own == ROOT, check_one(&here, own + 1).is_ok());
        check(&there, &[]).unwrap();
        let error = io::Error::new(io::ErrorKind::PermissionDenied, Stranger { user: 7 });
        assert_eq!(stranger(&error), Some(Stranger { user: 7 }));
        assert!(error.to_string().contains("user 7"));
        assert_eq!(stranger(&io::ErrorKind::NotFound.into()), None);
    }
}
