//! The client of the card's control socket.

use std::fmt;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use srd_daemon::control::protocol::Answer as NodeAnswer;
use srd_trust::peer;
use srd_trust::text::clean_json;

use crate::control::orders;
use crate::control::protocol::{
    Answer, Attach, Instance, LINE_BYTES_MAX, Request, Status, TraceFilter, TraceRecord,
};
use crate::failure::Missing;
use crate::figures::pages::WRITTEN_WITHIN;
use crate::machine::earlier;

/// Longest wait for the answer to a request that creates or changes an object.
const CHANGE_WAIT_MAX: Duration = Duration::from_secs(30);
/// Longest wait for the answer to a request for other rules. A card that stands still reports so
/// earlier.
const RULES_WAIT_MAX: Duration = orders::CHANGE_WAIT_MAX.saturating_mul(2);
/// Longest wait for the answer to a request that only reads. It is longer than a card waits for new
/// figures before it answers with old figures.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);
const _: () = assert!(WRITTEN_WITHIN.as_secs() < ANSWER_WAIT_MAX.as_secs());

/// Whether a path is the default path of the control socket.
pub(crate) fn is_default(socket: &Path) -> bool {
    socket == Path::new(crate::SOCKET_DEFAULT)
}

/// A connection to the card's control socket. An instance that was attached over this connection is
/// removed when the connection is dropped.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
}

/// Refusal of a request by the card, with the reason and a remedy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused(pub String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// The card has ended since the connection was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CardEnded;

impl fmt::Display for CardEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the card has ended")
    }
}

impl std::error::Error for CardEnded {}

/// Checks the user of the process that listens at the socket, before any of its data is trusted.
/// Names in its answers become parts of paths and commands.
fn check_server(stream: &UnixStream) -> Result<()> {
    let checked = peer::check(stream);
    if let Some(of) = checked.as_ref().err().and_then(peer::stranger) {
        bail!(
            "the socket belongs to user {}, which is neither root nor this card's user: it is no \
             card; name another place with --socket",
            of.user
        );
    }
    checked.context("the card that runs")
}

/// Whether the card has ended.
fn has_gone(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

impl Client {
    /// Connects to the control socket of a card, or of a node with instances.
    ///
    /// # Errors
    /// No card listens at the socket, or this user has no permission.
    pub fn connect(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket).map_err(|error| {
            let shown = socket.display();
            if error.kind() == ErrorKind::PermissionDenied {
                let what = format!("only root may ask the card at {shown}: run it with sudo");
                return anyhow::Error::new(error).context(Missing(what));
            }
            let what = match is_default(socket) && earlier::card().is_some() {
                true => format!(
                    "the card that runs is of an earlier version, at {}: end it, and start this \
                     one (connections of its instances end with it)",
                    earlier::SOCKET
                ),
                false => format!(
                    "no card answers at {shown}; `srd card up` starts one, and so does `srd up` \
                     with a table [cloud]. --socket PATH names the socket of another card: those \
                     of `srd control up` are below /run/srd-control"
                ),
            };
            anyhow::Error::new(error).context(what)
        })?;
        check_server(&stream)?;
        stream.set_read_timeout(Some(CHANGE_WAIT_MAX))?;
        stream.set_write_timeout(Some(CHANGE_WAIT_MAX))?;
        let mut client = Self { stream: BufReader::new(stream) };
        client.begin()?;
        Ok(client)
    }

    /// Begins requests about instances.
    fn begin(&mut self) -> Result<()> {
        self.send(&Request::Instances)?;
        let answer = self.answer(ANSWER_WAIT_MAX)?;
        match serde_json::from_slice::<NodeAnswer<()>>(&answer) {
            Ok(NodeAnswer::Ok(())) => Ok(()),
            Ok(NodeAnswer::Error(refusal)) => Err(Refused(refusal.text).into()),
            Err(_) => bail!("the card's answer is not understood: it may be of another version"),
        }
    }

    /// Sends a request and returns the answer.
    ///
    /// # Errors
    /// The connection broke, or the card reports a failure.
    pub fn ask(&mut self, request: &Request) -> Result<Answer> {
        let wait = match request {
            Request::Status | Request::Flows { .. } | Request::Logs => ANSWER_WAIT_MAX,
            Request::Apply { .. } => RULES_WAIT_MAX,
            _ => CHANGE_WAIT_MAX,
        };
        self.send(request)?;
        let answer = self.answer(wait)?;
        match serde_json::from_slice(&answer).context("the card's answer is not understood")? {
            Answer::Failed { what } => Err(Refused(what).into()),
            answer => Ok(answer),
        }
    }

    fn send(&mut self, request: &Request) -> Result<()> {
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        match self.stream.get_mut().write_all(line.as_bytes()) {
            Err(error) if has_gone(&error) => Err(CardEnded.into()),
            written => written.context("the card does not listen"),
        }
    }

    /// Reads an answer, for which it waits for at most `wait`.
    fn answer(&mut self, wait: Duration) -> Result<Vec<u8>> {
        self.stream.get_ref().set_read_timeout(Some(wait))?;
        let mut answer = Vec::new();
        let limit = LINE_BYTES_MAX as u64 * 16;
        (&mut self.stream).take(limit).read_until(b'\n', &mut answer).map_err(|error| {
            if has_gone(&error) {
                return CardEnded.into();
            }
            match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => anyhow::anyhow!(
                    "the card has not answered for {} s; its log may have the reason",
                    wait.as_secs()
                ),
                _ => anyhow::Error::new(error).context("the card does not answer"),
            }
        })?;
        if answer.is_empty() {
            return Err(CardEnded.into());
        }
        clean_json(&mut answer);
        Ok(answer)
    }

    /// Returns the status of the card.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn status(&mut self) -> Result<Status> {
        match self.ask(&Request::Status)? {
            Answer::Status(status) => Ok(status),
            _ => bail!("the card answers something else"),
        }
    }

    /// Adds an instance, which exists as long as this connection.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn attach(&mut self, attach: Attach) -> Result<Instance> {
        match self.ask(&Request::Attach(attach))? {
            Answer::Attached(instance) => Ok(instance),
            _ => bail!("the card answers something else"),
        }
    }

    /// Waits until the card has restored the parts of instances that other programs have changed,
    /// after a request for other rules over this connection. Returns the changes that are left, and
    /// the seconds after which the card has stopped to wait; `None` if all is restored that can be.
    /// A card of an earlier version does not wait.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn repaired(&mut self) -> Result<(Vec<String>, Option<u64>)> {
        match self.ask(&Request::Repaired) {
            Ok(Answer::Repaired { warnings, unfinished_s }) => Ok((warnings, unfinished_s)),
            Err(error) if error.is::<Refused>() => Ok((Vec::new(), None)),
            Ok(_) => bail!("the card answers something else"),
            Err(error) => Err(error),
        }
    }

    /// Begins a trace of packets. The trace ends with this connection. Returns the number of the
    /// trace.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn trace(
        &mut self,
        instance: Option<String>,
        filter: TraceFilter,
        packets: u32,
        head_bytes: u16,
    ) -> Result<u64> {
        match self.ask(&Request::Trace { instance, filter, packets, head_bytes })? {
            Answer::Tracing { id } => Ok(id),
            _ => bail!("the card answers something else"),
        }
    }

    /// Returns the records of a trace since the last call, the number of packets that could not be
    /// recorded, and whether the trace is over.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn traced(&mut self, id: u64) -> Result<(Vec<TraceRecord>, u64, bool)> {
        match self.ask(&Request::Traced { id })? {
            Answer::Traced { records, lost, is_over } => Ok((records, lost, is_over)),
            _ => bail!("the card answers something else"),
        }
    }
}
