//! Limits of one process.

use std::io;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Limits that the command line can change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Connections that are served at once; one more is closed at once.
    pub clients_max: usize,
    /// Connections of one source address (of IPv6: of one /64) that the half beside the server
    /// serves at once.
    pub address_clients_max: usize,
    /// Bytes of one record, all its fragments together.
    pub record_bytes_max: usize,
    /// Bytes of calls that one client has without a reply. Then its next calls wait.
    pub outstanding_bytes_max: usize,
    /// Calls that one client has without a reply. Then its next calls wait.
    pub outstanding_calls_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        // Linux reads and writes at most 1 MiB at once; other systems have used 2 MiB.
        Self {
            clients_max: 256,
            // Four clients of the most connections each.
            address_clients_max: 4 * CONNECTIONS_MAX,
            record_bytes_max: 4 << 20,
            outstanding_bytes_max: 64 << 20,
            outstanding_calls_max: 4096,
        }
    }
}

/// Files of a process beside those of its connections: metrics, signals, certificates.
const OTHER_FILES: u64 = 64;

/// Lets this process have the files that so many connections take, as far as the system permits.
///
/// # Errors
/// It does not permit so many.
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

/// Fragments of one record. Linux and libtirpc send one; a record of more than this gets nowhere.
pub const FRAGMENTS_MAX: usize = 1024;
/// Calls of the server to a client (delegations that are recalled) without a reply.
pub const CALLBACKS_MAX: usize = 256;
/// The first port that any user may bind, by the system's default.
pub const UNPRIVILEGED_PORT: u16 = 1024;
/// Connections from one client to the server.
pub const CONNECTIONS_MAX: usize = 16;
/// Longest pause within a record.
pub const RECORD_STALL_MAX: Duration = Duration::from_secs(60);
/// Time limit for setting a connection up. A connection whose first packet was lost takes longer;
/// another one has another path.
pub const CONNECT_WAIT_MAX: Duration = Duration::from_millis(700);
/// Time limit for a whole TLS handshake.
pub const HANDSHAKE_WAIT_MAX: Duration = Duration::from_secs(10);
/// Time for which calls may still be answered after the client has left or the process is to end.
pub const DRAIN_WAIT_MAX: Duration = Duration::from_secs(5);
/// Time without acknowledgement of sent data after which a connection counts as lost.
pub const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(30);
