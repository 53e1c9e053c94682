//! The client of the control socket: sends a command's request, and explains failures to people.

use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::{Gid, Group};
use rustix::process::geteuid;
use serde::de::DeserializeOwned;
use srd_trust::peer::{self, Stranger};
use srd_trust::text::clean_json;

use super::protocol::{Answer, Refusal, Request};
use srd_trust::privileges;

/// Longest wait for an answer: longer than the daemon waits for its control thread.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(15);
/// Largest number of bytes of an answer; the state of a thousand peers with all their paths is
/// smaller.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// A connection to a daemon, for one request.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    path: PathBuf,
}

/// Reason why a request failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// No daemon serves this socket.
    NotRunning(PathBuf),
    /// This user is not permitted to connect to the socket.
    Denied {
        /// Path of the socket.
        socket: PathBuf,
        /// The group whose members may use the socket; `None`: only root may.
        group: Option<String>,
    },
    /// Another user's process serves the socket, and root does not trust that user's answers.
    Stranger {
        /// Path of the socket.
        socket: PathBuf,
        /// The user id of the process that serves the socket.
        user: u32,
    },
    /// The daemon has refused the request.
    Refused(Refusal),
    /// The answer has another form: another program serves the socket, or a daemon of another
    /// version.
    NotUnderstood(PathBuf, serde_json::Error),
    /// Reading from or writing to the socket has failed.
    Io(PathBuf, io::Error),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRunning(path) => {
                write!(f, "no daemon serves {}; start one: srd up -c ", path.display())?;
                let usual = Path::new("/etc/srd").join(path.file_stem().unwrap_or_default());
                match usual.with_extension("toml") {
                    file if file.exists() => write!(f, "{}", file.display()),
                    _ => f.write_str("FILE, with the configuration of the daemon"),
                }
            }
            Self::Denied { socket, group } => {
                write!(f, "permission denied: {} is for root", socket.display())?;
                match group {
                    Some(group) => write!(
                        f,
                        " and the group {group}: use sudo, or join it (usermod -aG {group} USER, \
                         then log in again)"
                    ),
                    None => f.write_str(": use sudo, or give it a group ([control] group)"),
                }
            }
            Self::Stranger { socket, user } => write!(
                f,
                "user {user} serves {}, which is neither root nor the user of the package's \
                 daemons: root does not believe its answers; ask as that user, or name another \
                 socket",
                socket.display()
            ),
            Self::Refused(refusal) => write!(f, "{refusal}"),
            Self::NotUnderstood(path, error) => write!(
                f,
                "{} does not answer as a daemon of this version ({error}): if it is the socket of \
                 `srd card up`, use `srd card`; otherwise restart the daemon with this version",
                path.display()
            ),
            Self::Io(path, e)
                if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
            {
                write!(f, "the daemon at {} does not answer; look at its log", path.display())
            }
            Self::Io(path, e) => write!(f, "{}: {e}", path.display()),
        }
    }
}

impl std::error::Error for ClientError {}

impl Client {
    /// Connects to the daemon at a socket.
    ///
    /// # Errors
    /// If no daemon serves the socket, or this user is not permitted to connect.
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let stream = UnixStream::connect(path).map_err(|e| match e.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                ClientError::NotRunning(path.to_path_buf())
            }
            ErrorKind::PermissionDenied => {
                ClientError::Denied { socket: path.to_path_buf(), group: group_of(path) }
            }
            _ => ClientError::Io(path.to_path_buf(), e),
        })?;
        if geteuid().is_root() {
            check(&stream, path)?;
        }
        let client = Self { stream: BufReader::new(stream), path: path.to_path_buf() };
        client.wait_at_most(ANSWER_WAIT_MAX)?;
        Ok(client)
    }

    /// Uses a connection to the daemon that has started this process. `path`: the socket of the
    /// daemon, for errors.
    ///
    /// # Errors
    /// An error of the operating system.
    pub(crate) fn over(stream: UnixStream, path: &Path) -> Result<Self, ClientError> {
        let client = Self { stream: BufReader::new(stream), path: path.to_path_buf() };
        client.wait_at_most(ANSWER_WAIT_MAX)?;
        Ok(client)
    }

    fn wait_at_most(&self, wait_max: Duration) -> Result<(), ClientError> {
        let stream = self.stream.get_ref();
        let set = stream.set_read_timeout(Some(wait_max));
        set.and_then(|()| stream.set_write_timeout(Some(wait_max))).map_err(|e| self.io(e))
    }

    fn io(&self, e: io::Error) -> ClientError {
        ClientError::Io(self.path.clone(), e)
    }

    /// Sends a request, and waits for its answer. Closes the connection.
    ///
    /// # Errors
    /// If no answer arrives, or the daemon refuses.
    pub fn ask<T: DeserializeOwned>(mut self, request: &Request) -> Result<T, ClientError> {
        self.send(request)?;
        let answer = self.answer()?;
        answer.ok_or_else(|| self.io(ErrorKind::UnexpectedEof.into()))
    }

    /// Starts a watch: the daemon sends an answer at every `interval` until it ends.
    ///
    /// # Errors
    /// If the request could not be sent.
    pub fn watch(mut self, request: &Request, interval: Duration) -> Result<Watch, ClientError> {
        self.send(request)?;
        self.wait_at_most(interval + ANSWER_WAIT_MAX)?;
        Ok(Watch(self))
    }

    /// Starts a capture: after an answer, the daemon sends packets as pcapng. A later read times
    /// out after `pause`.
    ///
    /// # Errors
    /// If the request could not be sent, or was refused.
    pub fn capture(mut self, request: &Request, pause: Duration) -> Result<Capture, ClientError> {
        self.send(request)?;
        let answer: Option<()> = self.answer()?;
        answer.ok_or_else(|| self.io(ErrorKind::UnexpectedEof.into()))?;
        self.wait_at_most(pause)?;
        Ok(Capture(self.stream))
    }

    /// Sends a request, and returns the connection, from which nothing has been read.
    ///
    /// # Errors
    /// If the request could not be sent.
    pub fn begin(mut self, request: &Request) -> Result<UnixStream, ClientError> {
        self.send(request)?;
        Ok(self.stream.into_inner())
    }

    fn send(&mut self, request: &Request) -> Result<(), ClientError> {
        let mut line = serde_json::to_vec(request).map_err(|e| self.io(e.into()))?;
        line.push(b'\n');
        // A daemon without a free slot sends a refusal and closes the connection before it reads
        // the request, so this write may fail although there is an answer to read.
        match self.stream.get_ref().write_all(&line) {
            Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(self.io(e)),
            _ => Ok(()),
        }
    }

    /// Reads the next answer; `None` if the daemon has closed the connection.
    fn answer<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ClientError> {
        let mut line = Vec::new();
        let read = (&mut self.stream).take(ANSWER_BYTES_MAX).read_until(b'\n', &mut line);
        if read.map_err(|e| self.io(e))? == 0 {
            return Ok(None);
        }
        clean_json(&mut line);
        match serde_json::from_slice(&line) {
            Ok(Answer::Ok(value)) => Ok(Some(value)),
            Ok(Answer::Error(refusal)) => Err(ClientError::Refused(refusal)),
            Err(e) => Err(ClientError::NotUnderstood(self.path.clone(), e)),
        }
    }
}

/// A running watch, whose answers can be read one by one.
#[derive(Debug)]
pub struct Watch(Client);

impl Watch {
    /// Waits for the next answer; `None` if the daemon has ended.
    ///
    /// # Errors
    /// If the connection fails, or the daemon refuses.
    pub fn wait<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ClientError> {
        self.0.answer()
    }
}

/// A running capture, which can be read as a pcapng stream.
#[derive(Debug)]
pub struct Capture(BufReader<UnixStream>);

impl Capture {
    /// Returns a handle that ends the capture while another thread reads it.
    ///
    /// # Errors
    /// The system's error.
    pub fn stopper(&self) -> io::Result<Stopper> {
        self.0.get_ref().try_clone().map(Stopper)
    }
}

impl Read for Capture {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

/// Handle that ends a capture while another thread reads it.
#[derive(Debug)]
pub struct Stopper(UnixStream);

impl Stopper {
    /// Ends the capture. The daemon then sends the final statistics, which can still be read.
    pub fn stop(&self) {
        // If the daemon has closed the connection, the capture has ended already.
        let _ = self.0.shutdown(Shutdown::Write);
    }
}

/// Checks that root trusts the user of the process that serves a socket, before root acts on its
/// answers.
fn check(stream: &UnixStream, path: &Path) -> Result<(), ClientError> {
    let socket = path.to_path_buf();
    let Err(error) = peer::check(stream) else { return Ok(()) };
    match peer::stranger(&error) {
        Some(Stranger { user }) if privileges::is_of_daemons(user) => Ok(()),
        Some(Stranger { user }) => Err(ClientError::Stranger { socket, user }),
        None => Err(ClientError::Io(socket, error)),
    }
}

/// Returns the name of the group that may use a socket; `None` if only root may, or if the group
/// has no name.
fn group_of(path: &Path) -> Option<String> {
    // If this user may not enter the directory, the group of the directory is used: it is also that
    // of the socket.
    let facts = fs::metadata(path).or_else(|_| fs::metadata(path.parent().unwrap_or(path))).ok()?;
    let group = Group::from_gid(Gid::from_raw(facts.gid())).ok().flatten()?;
    (facts.gid() != 0).then_some(group.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;
    use std::sync::mpsc::channel;

    use rustix::process::Uid;
    use rustix::thread::set_thread_res_uid;
    use srd_trust::spare;

    #[test]
    fn errors_say_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let error = Client::connect(&directory.path().join("none.sock")).unwrap_err();
        assert!(error.to_string().contains("srd up -c"), "{error}");
        let denied = |group: Option<&str>| {
            let socket = PathBuf::from("/run/srd/srd0.sock");
            ClientError::Denied { socket, group: group.map(str::to_owned) }.to_string()
        };
        assert!(denied(Some("srd")).contains("usermod -aG srd"));
        assert!(denied(None).contains("[control] group"));
        let stranger = ClientError::Stranger { socket: "/x".into(), user: 65_534 }.to_string();
        assert!(stranger.contains("user 65534") && stranger.contains("name another"));
        let silent = ClientError::Io("/x".into(), ErrorKind::WouldBlock.into());
        assert!(silent.to_string().contains("does not answer"));
    }

    /// Starts a thread that serves a socket as another user, as a daemon would, and answers one
    /// request.
    fn answer_as(user: u32, path: &Path, answer: &'static str) -> std::thread::JoinHandle<()> {
        let directory = path.parent().unwrap();
        fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).unwrap();
        let (path, (ready, begun)) = (path.to_owned(), channel());
        let serve = std::thread::spawn(move || {
            let user = Uid::from_raw(user);
            // Changes the user id of this thread alone, not of the process.
            set_thread_res_uid(user, user, user).unwrap();
            let listener = UnixListener::bind(path).unwrap();
            ready.send(()).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.write_all(format!("{answer}\n").as_bytes());
            let _ = stream.read(&mut [0; 4096]);
        });
        begun.recv().unwrap();
        serve
    }

    #[test]
    fn regression_root_believes_no_other_user_s_socket() {
        if !geteuid().is_root() {
            println!("skipped: only root becomes another user");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        // No daemon of the system runs as this user.
        let (path, other) = (directory.path().join("a.sock"), 54_321);
        let serves = answer_as(other, &path, r#"{"ok":"believed"}"#);
        let error = Client::connect(&path).unwrap_err();
        assert!(matches!(error, ClientError::Stranger { user, .. } if user == other), "{error}");
        serves.join().unwrap();
        let path = directory.path().join("b.sock");
        let serves = answer_as(spare::FIRST, &path, r#"{"ok":"believed"}"#);
        let client = Client::connect(&path).unwrap();
        assert_eq!(client.ask::<String>(&Request::Stats).unwrap(), "believed");
        serves.join().unwrap();
    }

    /// The text was that of the parser of JSON.
    #[test]
    fn regression_the_socket_of_a_card_is_named_as_such() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let client = Client { stream: BufReader::new(here), path: "/x".into() };
        there.write_all(b"{\"answer\":\"failed\",\"what\":\"this is no request\"}\n").unwrap();
        let error = client.ask::<String>(&Request::Reload).unwrap_err();
        assert!(error.to_string().contains("use `srd card`"), "{error}");
    }

    #[test]
    fn regression_an_answer_brings_no_control_characters_to_a_terminal() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let client = Client { stream: BufReader::new(here), path: "/x".into() };
        there.write_all(b"{\"ok\":\"a\\u001b[2J\xc2\x9b2Jb\\nc\"}\n").unwrap();
        let said: String = client.ask(&Request::Stats).unwrap();
        assert_eq!(said, "a\u{fffd}[2J??2Jb\nc");
    }
}
