//! Detects connections whose packets are not acknowledged, and ends them long before the kernel
//! would.
//!
//! A TCP connection stays on its path. When the path fails, the kernel repeats a segment after 0.2,
//! 0.6, 1.4, 3, 6 s and so on, on the same path. A path that recovers in between is noticed only at
//! the next repetition. Another connection has another source port and so, most likely, another
//! path. [`Watch`] ends a connection once [`REPEATED_MAX`] repetitions in a row have no answer; its
//! calls move to another connection.
//!
//! If all calls are acknowledged, and the path fails before the replies arrive, this end has
//! nothing to repeat. Therefore an idle connection sends keepalive probes, and ends once
//! [`REPEATED_MAX`] probes in a row have no answer. The kernel of a slow server still answers
//! probes.
//!
//! `TCP_USER_TIMEOUT` cannot be that short: it also ends a connection whose server reads nothing
//! for that time. The counts of repetitions and of probes are columns of `/proc/net/tcp`, which is
//! read only while a connection waits for a reply and gets none.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt;

/// Time between two checks of a connection.
const LOOK_PAUSE: Duration = Duration::from_millis(250);
/// Largest number of repetitions in a row without an acknowledgement. It is reached after 1.4 s, or
/// later if round trips are long.
const REPEATED_MAX: u32 = 3;
/// Silence before the first keepalive probe.
const PROBE_AFTER: Duration = Duration::from_secs(2);
/// Interval of probes that have no answer. The kernel's unit is a second.
const PROBE_PAUSE: Duration = Duration::from_secs(1);
/// Tables of the kernel that contain the counts of repetitions and probes.
const TABLES: [&str; 2] = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];

/// Counters of a connection's calls and replies.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) calls: AtomicU64,
    pub(super) replies: AtomicU64,
}

/// Watches connections until it is dropped.
#[derive(Debug, Default)]
pub(super) struct Watch {
    watched: Mutex<Vec<Watched>>,
    /// The kernel's tables. They stay open, because connections use up the descriptors of a process
    /// just when they are lost.
    tables: Vec<File>,
}

#[derive(Debug)]
struct Watched {
    socket: TcpStream,
    inode: u64,
    progress: Weak<Progress>,
    /// Number of replies at the last check.
    replies: u64,
}

impl Watch {
    /// Starts the thread that watches connections.
    ///
    /// # Errors
    /// An error of the operating system, if the thread cannot be started.
    pub(super) fn start() -> io::Result<Arc<Self>> {
        // A machine without IPv6 has only the first table.
        let tables = TABLES.into_iter().filter_map(|table| File::open(table).ok()).collect();
        let watch = Arc::new(Self { tables, ..Self::default() });
        let kept = Arc::downgrade(&watch);
        let look = move || {
            while let Some(watch) = kept.upgrade() {
                watch.look();
                drop(watch);
                thread::sleep(LOOK_PAUSE);
            }
        };
        thread::Builder::new().name("srd-nfs-watch".to_owned()).spawn(look)?;
        Ok(watch)
    }

    /// Watches a connection until the returned [`Progress`] is dropped.
    ///
    /// # Errors
    /// An error of the operating system, if the limit of open files is reached.
    pub(super) fn add(&self, socket: &TcpStream) -> io::Result<Arc<Progress>> {
        let socket = socket.try_clone()?;
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, PROBE_AFTER)?;
        sockopt::set_tcp_keepintvl(&socket, PROBE_PAUSE)?;
        let inode = rustix::fs::fstat(&socket)?.st_ino;
        let progress = Arc::new(Progress::default());
        let watched = Watched { socket, inode, progress: Arc::downgrade(&progress), replies: 0 };
        self.lock().push(watched);
        Ok(progress)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self) {
        let mut watched = self.lock();
        watched.retain(|one| one.progress.strong_count() > 0);
        let mut waits = Vec::new();
        for (place, one) in watched.iter_mut().enumerate() {
            let Some(progress) = one.progress.upgrade() else { continue };
            let replies = progress.replies.load(Ordering::Relaxed);
            if replies == one.replies && progress.calls.load(Ordering::Relaxed) > replies {
                waits.push(place);
            }
            one.replies = replies;
        }
        if waits.is_empty() {
            return;
        }
        let repeated: HashMap<u64, u32> =
            self.tables.iter().flat_map(|table| repeated(&text(table))).collect();
        for one in waits.into_iter().map(|place| &watched[place]) {
            if repeated.get(&one.inode).is_some_and(|count| *count >= REPEATED_MAX) {
                tracing::warn!("a connection's packets are not acknowledged: it is made anew");
                let _ = one.socket.shutdown(Shutdown::Both);
            }
        }
    }
}

/// Returns the current text of one of the kernel's tables; an empty text if it cannot be read.
fn text(mut table: &File) -> String {
    let mut text = String::new();
    let read = table.rewind().and_then(|()| table.read_to_string(&mut text));
    read.map(|_| text).unwrap_or_default()
}

/// Returns, for each socket in the text of `/proc/net/tcp`, its inode and the number of times in a
/// row that the kernel has retransmitted data, or has sent a keepalive probe, without an answer.
fn repeated(table: &str) -> Vec<(u64, u32)> {
    let read = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().take(COLUMNS).collect();
        let (timer, _) = fields.get(TIMER)?.split_once(':')?;
        let count = match timer {
            "01" => u32::from_str_radix(fields.get(RETRANSMITTED)?, 16).ok()?,
            "02" => fields.get(PROBES)?.parse().ok()?,
            // The columns also count probes of a closed window; then the path is not silent.
            _ => 0,
        };
        Some((fields.get(INODE)?.parse().ok()?, count))
    };
    table.lines().skip(1).filter_map(read).collect()
}

/// Columns: `sl local rem st tx:rx tr:tm->when retrnsmt uid timeout inode`. The timer 01 is for
/// retransmissions, and 02 for keepalive; `timeout` is the number of probes without an answer.
const TIMER: usize = 5;
const RETRANSMITTED: usize = 6;
const PROBES: usize = 8;
const INODE: usize = 9;
const COLUMNS: usize = INODE + 1;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A table as the kernel prints it, without the columns after the last column that is read.
    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode
   0: 0100007F:5BA0 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 7 1
   1: 0100007F:5BA0 0100007F:C001 01 00000400:00000000 01:0000001A 0000000B 0 0 77 2
   2: 0100007F:5BA0 0100007F:C002 01 00000400:00000000 04:0000001A 00000009 0 7 78 2
   3: 0100007F:5BA0 0100007F:C003 01 00000000:00000000 02:0000001A 00000000 0 12 79 2
";

    #[test]
    fn repetitions_of_data_are_read_from_the_kernels_table() {
        let [listening, repeats, closed_window, probed] = [(7, 0), (77, 11), (78, 0), (79, 12)];
        assert_eq!(repeated(TABLE), [listening, repeats, closed_window, probed]);
        assert!(repeated("").is_empty());
        assert!(repeated("head\n0: a b\n").is_empty(), "a line without all columns");
    }

    #[test]
    fn the_kernel_tells_it_of_a_socket_of_ours() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let inode = rustix::fs::fstat(&socket).unwrap().st_ino;
        let table = File::open(TABLES[0]).unwrap();
        for look in 0..2 {
            let table = text(&table);
            assert!(repeated(&table).contains(&(inode, 0)), "look {look}: {table}");
        }
    }

    #[test]
    fn a_connection_is_forgotten_with_its_progress() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let watch = Watch::default();
        let progress = watch.add(&socket).unwrap();
        watch.look();
        assert_eq!(watch.lock().len(), 1);
        drop(progress);
        watch.look();
        assert_eq!(watch.lock().len(), 0);
    }
}
