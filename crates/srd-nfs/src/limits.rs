//! What one process takes on, at most.

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
        // Linux reads and writes at most 1 MiB at once; others have said 2 MiB.
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
/// The first port that any user may have, unless the system says otherwise.
pub const UNPRIVILEGED_PORT: u16 = 1024;
/// Connections from one client to the server.
pub const CONNECTIONS_MAX: usize = 16;
/// How long a record that has begun may bring nothing more.
pub const RECORD_STALL_MAX: Duration = Duration::from_secs(60);
/// How long a connection may take to be there. One whose first packet was lost comes later; another
/// has another path.
pub const CONNECT_WAIT_MAX: Duration = Duration::from_millis(700);
/// How long a TLS handshake may take, all of it.
pub const HANDSHAKE_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long calls may still be answered after the client has left or the process is to end.
pub const DRAIN_WAIT_MAX: Duration = Duration::from_secs(5);
/// How long sent data may go without acknowledgement until the connection counts as lost.
pub const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(30);
