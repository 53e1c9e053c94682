//! Limits of one process.

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Limits that the command line can change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Largest number of simultaneous connections. A further connection is closed immediately or,
    /// on the server's side, replaces one of an unknown client.
    pub clients_max: usize,
    /// Largest number of simultaneous connections that the proxy on the server's side accepts from
    /// one source address (IPv6: from one /64 prefix).
    pub address_clients_max: usize,
    /// Largest number of bytes of one record, in all its fragments.
    pub record_bytes_max: usize,
    /// Largest number of bytes of one client's unanswered calls. At the limit its next calls wait.
    pub outstanding_bytes_max: usize,
    /// Largest number of one client's unanswered calls. At the limit its next calls wait.
    pub outstanding_calls_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        // Linux reads and writes at most 1 MiB at once; other systems have used 2 MiB.
        Self {
            clients_max: 256,
            // Enough for four clients with the largest number of connections.
            address_clients_max: 4 * CONNECTIONS_MAX,
            record_bytes_max: 4 << 20,
            outstanding_bytes_max: 64 << 20,
            outstanding_calls_max: 4096,
        }
    }
}

/// Open files of a process in addition to those of its connections: metrics, signals, certificates.
const OTHER_FILES: u64 = 64;

/// Raises the limit of open files of this process to the number that `connections` connections
/// need.
///
/// # Errors
/// An error of the operating system, if the limit cannot be read or set; a text with a remedy, if
/// the system permits fewer files.
pub fn permit_files(connections: usize, files_each: usize) -> io::Result<()> {
    let wanted = connections as u64 * files_each as u64 + OTHER_FILES;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    let permitted = maximum.map_or(wanted, |maximum| maximum.min(wanted));
    setrlimit(Resource::Nofile, Rlimit { current: Some(permitted), maximum })?;
    if permitted < wanted {
        let text = format!(
            "the limit of open files is {permitted}, and {connections} connections may need \
             {wanted}: raise it (ulimit -n, LimitNOFILE=), or lower --clients"
        );
        return Err(io::Error::other(text));
    }
    Ok(())
}

/// Returns the remedy for an error by which the system refuses another file descriptor; `None` for
/// any other error.
pub fn files_remedy(error: &io::Error) -> Option<&'static str> {
    match Errno::from_io_error(error)? {
        Errno::MFILE => Some(
            "raise the limit of open files (LimitNOFILE= of the service, ulimit -n), or lower \
             --clients",
        ),
        Errno::NFILE => Some("the whole machine has too many open files: raise fs.file-max"),
        _ => None,
    }
}

/// Largest number of fragments of one record. Linux and libtirpc send one; a record with more
/// fragments than this limit is refused.
pub const FRAGMENTS_MAX: usize = 1024;
/// Largest number of unanswered calls of the server to a client (recalls of delegations).
pub const CALLBACKS_MAX: usize = 256;
/// The first port that any user may bind, by the system's default.
pub const UNPRIVILEGED_PORT: u16 = 1024;
/// Largest number of connections to the server for one client.
pub const CONNECTIONS_MAX: usize = 16;
/// Longest pause while a record is being received.
pub const RECORD_STALL_MAX: Duration = Duration::from_secs(60);
/// Time limit for setting a connection up. A connection whose first packet was lost takes longer,
/// so it is given up: a new connection probably takes another path.
pub const CONNECT_WAIT_MAX: Duration = Duration::from_millis(700);
/// Time limit for a whole TLS handshake.
pub const HANDSHAKE_WAIT_MAX: Duration = Duration::from_secs(10);
/// Time for which calls may still be answered after the client has left or the process is to end.
pub const DRAIN_WAIT_MAX: Duration = Duration::from_secs(5);
/// Time without acknowledgement of sent data after which a connection counts as lost.
pub const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(30);
