//! The side of the daemon that takes over in a hand-over.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};

use super::decision::AwaitedDecision;
use super::state::State;
use super::wire::{DESCRIPTORS_MAX, LineConnection, parts_of};
use super::{DONE, Differs, GO, READY, STOP, VERSION};
use crate::config::Config;
use crate::control::protocol::Answer;
use crate::control::socket::SocketState;
use crate::control::{Client, ClientError, RefusalKind, Request};

/// Longest wait for a line or the decision of the daemon that runs: longer than that daemon waits.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// Longest wait for a process that the daemon starts: longer than that daemon needs for all steps.
const SUCCESSION_WAIT_MAX: Duration = Duration::from_secs(60);

/// Longest wait for the reason why the daemon that runs goes on.
const REASON_WAIT_MAX: Duration = Duration::from_secs(1);

/// Result of the request for a hand-over.
pub(crate) enum Offer {
    /// The state and the descriptors of the daemon that runs.
    Taken(Box<Taken>),
    /// The daemon that runs has started a process of its own, with this number, which has taken
    /// over.
    Succeeded(u32),
}

/// The state and the descriptors of the daemon that runs, which goes on for now. Dropping them
/// removes nothing.
#[derive(Debug)]
pub(crate) struct Taken {
    line: LineConnection,
    decision: AwaitedDecision,
    pub(crate) state: State,
    pub(crate) socket: SocketState,
    descriptors: std::vec::IntoIter<OwnedFd>,
}

/// Requests the hand-over from the daemon that serves the socket of a configuration, or that has
/// started this process, with a connection to it as standard input (`by_input`).
pub(crate) fn request(config: &Config, by_input: bool) -> Result<Offer> {
    let path = &config.control.socket;
    let client = match by_input {
        true => Client::over(io::stdin().as_fd().try_clone_to_owned()?.into(), path)?,
        false => Client::connect(path)?,
    };
    let stream = client.begin(&Request::TakeOver { version: VERSION })?;
    stream.set_read_timeout(Some(WAIT_MAX))?;
    stream.set_write_timeout(Some(WAIT_MAX))?;
    let mut line = LineConnection::new(stream);
    let said = line.line_or_end().context("the daemon that runs")?.ok_or_else(gone)?;
    let count = match answer_of(&said)? {
        Answer::Ok(count) => count,
        Answer::Error(refusal) if refusal.kind == RefusalKind::OfUnit => {
            return succession(path).map(Offer::Succeeded);
        }
        Answer::Error(refusal) if refusal.kind == RefusalKind::BadRequest => {
            bail!("the daemon that runs is of a version that cannot hand over: restart it")
        }
        Answer::Error(refusal) => return Err(ClientError::Refused(refusal).into()),
    };
    if count > DESCRIPTORS_MAX {
        bail!("the daemon that runs has too many descriptors");
    }
    let mut descriptors = line.descriptors(count)?.into_iter();
    let file = descriptors.next().context("the state is missing")?;
    let decision = descriptors.next().context("the socket of the decision is missing")?.into();
    let [state, socket] = parts_of(&file.into())?;
    let state = serde_json::from_slice(&state).context("the state of the daemon that runs")?;
    let socket = serde_json::from_slice(&socket).context("the socket of the daemon that runs")?;
    Ok(Offer::Taken(Box::new(Taken { line, decision, state, socket, descriptors })))
}

/// Parses the answer to the request. A card of an earlier version (`srd card up`) refuses in
/// another form.
fn answer_of(said: &str) -> Result<Answer<usize>> {
    #[derive(serde::Deserialize)]
    struct EarlierRefusal {
        what: String,
    }
    match (serde_json::from_str(said), serde_json::from_str(said)) {
        (Ok(answer), _) => Ok(answer),
        (Err(_), Ok(EarlierRefusal { what })) => bail!("{what}"),
        (Err(error), Err(_)) => Err(error).context("the answer of the daemon that runs"),
    }
}

/// Requests that the daemon that runs starts a process of its own, and returns the number of this
/// process after it has taken over.
fn succession(path: &Path) -> Result<u32> {
    let stream = Client::connect(path)?.begin(&Request::Succeed)?;
    stream.set_read_timeout(Some(SUCCESSION_WAIT_MAX))?;
    let said = LineConnection::new(stream).line_or_end().context("the daemon that runs")?;
    let said = said.ok_or_else(gone)?;
    let answer = serde_json::from_str::<Answer<u32>>(&said);
    match answer.context("the answer of the daemon that runs")? {
        Answer::Ok(process) => Ok(process),
        Answer::Error(refusal) => Err(ClientError::Refused(refusal).into()),
    }
}

/// The error for the end of the daemon that runs before it has handed over.
fn gone() -> anyhow::Error {
    anyhow!(
        "the daemon that ran has closed the connection before it handed over: it has ended, or \
         another process has taken over. `srd status` shows whether a daemon runs; if none runs, \
         start one by `srd up` without --take-over"
    )
}

impl Taken {
    /// Returns an error if the configuration differs in a setting that no take-over changes, or if
    /// it lacks a peer.
    pub(crate) fn check(&self, config: &Config) -> Result<()> {
        let mut keys = self.state.differs(config);
        if !self.socket.is_of(&config.control) {
            keys.push("[control]");
        }
        let file = config.file.display();
        if !keys.is_empty() && config.has_file() {
            return Err(Differs(format!(
                "{file} has other values of {} than the daemon that runs, which only a restart \
                 changes: restart the daemon, or change the file back",
                keys.join(", ")
            ))
            .into());
        }
        if !keys.is_empty() {
            return Err(Differs(format!(
                "the command line has other values of {} than the process that runs: give the \
                 same, or end that process first",
                keys.join(", ")
            ))
            .into());
        }
        if let Some(name) = self.state.missing(config) {
            bail!(
                "the daemon that runs has the peer {name}, which is not in {file}: add it to the \
                 file, or run `srd reload`"
            );
        }
        Ok(())
    }

    /// Returns the addresses at which peers answer, by the identities of the peers.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (String, SocketAddr)> {
        self.state.peers.iter().filter_map(|peer| Some((peer.identity.clone(), peer.address?)))
    }

    /// Returns the next descriptor.
    pub(crate) fn next(&mut self) -> Result<OwnedFd> {
        self.descriptors.next().context("a descriptor is missing")
    }

    /// Returns the next descriptors.
    pub(crate) fn several(&mut self, count: usize) -> Result<Vec<OwnedFd>> {
        (0..count).map(|_| self.next()).collect()
    }

    /// Returns the next two descriptors, if `is_there`.
    pub(crate) fn pipes(&mut self, is_there: bool) -> Result<Option<[OwnedFd; 2]>> {
        is_there.then(|| Ok([self.next()?, self.next()?])).transpose()
    }

    /// Reports that everything is prepared, and waits until the daemon that runs has stopped.
    /// Returns the descriptors of the state of the card; none without instances.
    pub(crate) fn ready(&mut self) -> Result<Vec<OwnedFd>> {
        let said = ready(&mut self.line)?;
        let count = said.strip_prefix(GO).map(|count| count.trim_start().parse::<usize>());
        match count {
            Some(Ok(count)) if count <= DESCRIPTORS_MAX => return self.line.descriptors(count),
            Some(_) => bail!("the daemon that runs has too many descriptors: {said}"),
            None => {}
        }
        match serde_json::from_str::<Answer<()>>(&said) {
            Ok(Answer::Error(refusal)) => Err(ClientError::Refused(refusal).into()),
            _ => Err(anyhow!("the daemon that runs goes on as before: {said}")),
        }
    }

    /// Reports that this process is ready to move packets, and waits until the other process has
    /// decided that this one goes on, or has ended. After that, no other process goes on, so the
    /// caller must not end because of any further error.
    ///
    /// # Errors
    /// If the other process goes on. This process has to end.
    pub(crate) fn done(&mut self) -> Result<()> {
        done(&mut self.line, &self.decision, WAIT_MAX)
    }

    /// Waits until the other process has ended. Returns whether it was requested to stop meanwhile,
    /// so that this process has to stop.
    pub(crate) fn end(mut self) -> bool {
        has_to_stop(&mut self.line)
    }
}

/// Reads the lines of a process that is about to end. Returns whether it was requested to stop.
fn has_to_stop(line: &mut LineConnection) -> bool {
    let mut has_to_stop = false;
    loop {
        match line.line_or_end() {
            Ok(Some(said)) => has_to_stop |= said == STOP,
            Ok(None) => return has_to_stop,
            Err(error) => {
                tracing::warn!("the process before has not ended yet: {error:#}");
                return has_to_stop;
            }
        }
    }
}

/// Reports that everything is prepared, and returns the answer.
fn ready(line: &mut LineConnection) -> Result<String> {
    let said = line.exchange(READY).context("the daemon that runs goes on as before")?;
    said.ok_or_else(gone)
}

fn done(line: &mut LineConnection, decision: &AwaitedDecision, wait: Duration) -> Result<()> {
    // If the other process was killed, this process goes on alone.
    let _ = line.say(DONE);
    if decision.goes_on(wait) {
        return Ok(());
    }
    line.limit(Instant::now() + REASON_WAIT_MAX);
    let said = line.line_or_end().ok().flatten();
    match said.and_then(|said| serde_json::from_str::<Answer<()>>(&said).ok()) {
        Some(Answer::Error(refusal)) => Err(ClientError::Refused(refusal).into()),
        _ => bail!("the daemon that runs goes on as before: this process took too long"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::super::decision::Decision;
    use super::*;

    /// The text was `Broken pipe (os error 32)`, or that the daemon goes on as before.
    #[test]
    fn regression_the_end_of_the_daemon_that_runs_is_named_with_a_remedy() {
        let ready_with = |other: fn(UnixStream)| {
            let (here, there) = UnixStream::pair().unwrap();
            here.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            other(there);
            format!("{:#}", ready(&mut LineConnection::new(here)).unwrap_err())
        };
        // It was killed before this process was ready.
        let said = ready_with(drop);
        assert!(said.contains("has ended") && said.contains("start one by `srd up`"), "{said}");
        assert!(!said.contains("Broken pipe"), "{said}");
        // It was killed after it had read the line.
        let said = ready_with(|mut there| {
            std::thread::spawn(move || io::Read::read(&mut there, &mut [0; 64]));
        });
        assert!(said.contains("has ended") && !said.contains("as before"), "{said}");
    }

    /// Cards of earlier versions had a protocol of their own.
    #[test]
    fn the_refusal_of_a_card_of_an_earlier_version_is_shown() {
        assert!(matches!(answer_of("{\"ok\":7}").unwrap(), Answer::Ok(7)));
        let earlier = r#"{"answer":"failed","what":"form 5: end the card that runs first"}"#;
        assert!(answer_of(earlier).unwrap_err().to_string().contains("end the card"));
        assert!(answer_of("{}").is_err() && answer_of("").is_err());
    }

    /// Calls [`done`] for a daemon that makes its decision by `decides`, and sends a line before.
    fn done_with(line: &str, decides: impl FnOnce(Decision)) -> Result<()> {
        let (here, mut there) = UnixStream::pair().unwrap();
        there.write_all(line.as_bytes()).unwrap();
        let (decision, of_other) = Decision::new().unwrap();
        decides(decision);
        done(&mut LineConnection::new(here), &of_other.into(), Duration::from_millis(50))
    }

    #[test]
    fn the_decision_of_the_daemon_lets_this_process_go_on_and_a_line_does_not() {
        done_with("", |decision| decision.hand_over().unwrap()).unwrap();
        let text = r#"{"error":{"kind":"refused","text":"the daemon continues as before: x"}}"#;
        let error = done_with(&format!("{text}\n"), drop).unwrap_err();
        assert!(error.to_string().contains("continues as before: x"), "{error}");
        let error = done_with("ends\n", drop).unwrap_err();
        assert!(error.to_string().contains("took too long"), "{error}");
        // A silent daemon goes on later, and cannot decide otherwise any more.
        let silent = std::cell::Cell::new(None);
        done_with("", |decision| silent.set(Some(decision))).unwrap_err();
        silent.take().unwrap().hand_over().unwrap_err();
    }

    /// A daemon that was killed has closed both sockets.
    #[test]
    fn this_process_goes_on_alone_after_the_end_of_the_daemon() {
        let [(here, there), (of_daemon, of_other)] = [(); 2].map(|()| UnixStream::pair().unwrap());
        drop((there, of_daemon));
        let awaited = std::os::fd::OwnedFd::from(of_other).into();
        done(&mut LineConnection::new(here), &awaited, WAIT_MAX).unwrap();
    }

    /// A daemon that could not send `back` closed the connection and went on, and so did this
    /// process.
    #[test]
    fn regression_the_end_of_the_connection_alone_does_not_let_this_process_continue() {
        let (here, there) = UnixStream::pair().unwrap();
        drop(there);
        let (decision, of_other) = Decision::new().unwrap();
        let wait = Duration::from_millis(50);
        done(&mut LineConnection::new(here), &of_other.into(), wait).unwrap_err();
        decision.hand_over().unwrap_err();
    }

    #[test]
    fn a_stop_of_the_process_before_is_found_among_its_last_lines() {
        let said = |text: &str| {
            let (here, mut there) = UnixStream::pair().unwrap();
            there.write_all(text.as_bytes()).unwrap();
            drop(there);
            has_to_stop(&mut LineConnection::new(here))
        };
        assert!(said("stop\n") && said("\nother\nstop\n"));
        assert!(!said("") && !said("other\n"));
    }
}
