//! One connection of a host.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use srd_enrol::frame::{CONTROLLER_BYTES_MAX, FrameError, HOST_BYTES_MAX, Inbox, encode};
use srd_enrol::message::VERSION;
use srd_enrol::{CloudTables, ControllerIdentities, Fingerprint, FromController, FromHost, Host};
use srd_enrol::{Refusal, RefusalKind, tls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::decide::{Admitted, Decision, Enrolment};
use super::hub::{Base, Entered, Hub};
use super::table::Table;
use super::{journal, pods};
use crate::clients::ClientSlot;
use crate::clock::now_s;
use crate::fleet::Parts;

/// Longest time from the acceptance of a connection to the first message.
const FIRST_WAIT_MAX: Duration = Duration::from_secs(10);
/// Longest time without a message of the host, which sends one twice a second, but none while its
/// card takes over a part of the cloud.
const SILENCE_MAX: Duration = Duration::from_secs(20);
/// Longest time in which a host does not take a message.
const WRITE_WAIT_MAX: Duration = Duration::from_secs(10);
/// Shortest time between two attempts to store the next key of a host.
const KEY_PAUSE: Duration = Duration::from_secs(2);
/// Shortest time between two attempts to record the identities that a host has stored.
const CONFIRM_PAUSE: Duration = Duration::from_secs(2);
/// Bytes that one call reads of a connection.
const READ_BYTES: usize = 4096;

/// Reason for the end of a connection.
#[derive(Debug)]
enum End {
    /// The connection or its messages.
    Broken,
    /// The host has sent no message in time.
    Silent,
    /// The host has not taken a message in time.
    Unread,
    /// The controller refuses the host.
    Refused(Refusal),
}

impl End {
    fn in_words(&self) -> &'static str {
        match self {
            Self::Broken => "the connection has ended",
            Self::Silent => "no message of the host in time",
            Self::Unread => "the host has not taken a message in time",
            Self::Refused(refusal) => journal::in_words(refusal.reason),
        }
    }
}

impl From<Refusal> for End {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<FrameError> for End {
    fn from(error: FrameError) -> Self {
        Self::Refused(Refusal::new(RefusalKind::Invalid, error.to_string()))
    }
}

/// A connection, and the bytes that were received on it.
struct Link {
    stream: TlsStream<TcpStream>,
    inbox: Inbox,
    /// Whether only a part of a message has been sent, so that no other one can follow.
    is_cut: bool,
    /// Identities of the controller that the host has stored; `None`: a host of an earlier build,
    /// which stores no others.
    stored: Option<ControllerIdentities>,
    /// The next key that the host has offered last, until an attempt to store it begins, and again
    /// after an attempt that has failed.
    offered_key: Option<String>,
}

impl Link {
    /// Returns the next message. If the caller drops the future, no byte is lost.
    async fn receive(&mut self) -> Result<FromHost, End> {
        loop {
            if let Some(message) = self.inbox.take()? {
                return Ok(message);
            }
            let mut bytes = [0; READ_BYTES];
            match self.stream.read(&mut bytes).await {
                Ok(0) | Err(_) => return Err(End::Broken),
                Ok(count) => self.inbox.push(&bytes[..count]),
            }
        }
    }

    /// Sends a message. If the caller drops the future, the connection cannot be used further.
    async fn send(&mut self, message: &FromController) -> Result<(), End> {
        let bytes = encode(message, CONTROLLER_BYTES_MAX)?;
        if std::mem::replace(&mut self.is_cut, true) {
            return Err(End::Broken);
        }
        let write = async {
            self.stream.write_all(&bytes).await?;
            self.stream.flush().await
        };
        match timeout(WRITE_WAIT_MAX, write).await {
            Ok(Ok(())) => {
                self.is_cut = false;
                Ok(())
            }
            Ok(Err(_)) => Err(End::Broken),
            Err(_) => Err(End::Unread),
        }
    }

    /// Sends the last message, and closes the connection.
    async fn finish(&mut self, message: &FromController) -> End {
        match self.send(message).await {
            Ok(()) => {
                let _ = timeout(WRITE_WAIT_MAX, self.stream.shutdown()).await;
                End::Broken
            }
            Err(end) => end,
        }
    }
}

/// The permit and the slot that a connection occupies until it is admitted.
#[derive(Debug)]
pub(super) struct Stranger {
    pub(super) _permit: OwnedSemaphorePermit,
    pub(super) _slot: ClientSlot,
}

/// Serves a connection until its end. `stranger` is released when the host is known.
pub(super) async fn run(
    stream: TcpStream,
    from: SocketAddr,
    (acceptor, stranger): (TlsAcceptor, Stranger),
    hub: Arc<Hub>,
) {
    let opened = timeout(FIRST_WAIT_MAX, open(stream, &acceptor)).await;
    let Ok(Some((mut link, identity, first))) = opened else {
        hub.counters.strangers.fetch_add(1, Ordering::Relaxed);
        return;
    };
    let Some(_slot) = hub.admit_connection(identity) else {
        hub.counters.count(RefusalKind::Unavailable);
        hub.journal.refusal(Instant::now(), from, RefusalKind::Unavailable);
        return;
    };
    if let Ok(FromHost::Follow { identities, .. }) = &first {
        link.stored = *identities;
    }
    let enrols = matches!(first, Ok(FromHost::Enrol { .. }));
    let mut followed = None;
    let ended = match first {
        Ok(FromHost::Pod { version, request }) => {
            let host = check_version(version).and_then(|()| pods::host(&hub, identity));
            drop(stranger);
            let answered = match host {
                Ok(name) => pods::answer(&hub, (identity, name), request).await,
                Err(refusal) => Err(refusal),
            };
            match answered {
                Ok(answer) => link.finish(&FromController::Pod { answer }).await,
                Err(refusal) => End::Refused(refusal),
            }
        }
        Ok(first) => match admit(&hub, identity, first).await {
            Ok((admitted, generation)) => {
                drop(stranger);
                let base = hub.base(&admitted.name, generation);
                let entered = hub.enter(&admitted.name, from, generation);
                log_begin(&hub, &admitted, from, enrols);
                let end = follow(&hub, &mut link, (identity, &entered), &admitted, base).await;
                hub.leave(&admitted.name, &entered);
                // A host ends the connection on which it has enrolled, and connects again.
                followed = (!enrols).then_some(admitted.name);
                end
            }
            Err(refusal) => End::Refused(refusal),
        },
        Err(end) => end,
    };
    log_end(&hub, followed.as_deref(), from, &ended);
    match ended {
        End::Refused(refusal) => {
            hub.counters.count(refusal.reason);
            let _ = link.finish(&FromController::Refused(refusal)).await;
        }
        End::Unread => _ = hub.counters.unread.fetch_add(1, Ordering::Relaxed),
        End::Broken | End::Silent => {}
    }
}

/// Logs that a host is admitted.
fn log_begin(hub: &Hub, Admitted { name, address }: &Admitted, from: SocketAddr, enrols: bool) {
    let line = if enrols {
        format!("the host {name} has enrolled from {from}, with the overlay address {address}")
    } else {
        format!("the host {name} is connected from {from}")
    };
    hub.journal.session(Instant::now(), &line);
}

/// Logs the end of a session of the host `followed`, or the refusal of another connection.
fn log_end(hub: &Hub, followed: Option<&str>, from: SocketAddr, end: &End) {
    let now = Instant::now();
    match (followed, end) {
        (Some(name), end) => {
            let why = end.in_words();
            let line = format!("{from}: the session of the host {name} has ended: {why}");
            hub.journal.session(now, &line);
        }
        (None, End::Refused(refusal)) => hub.journal.refusal(now, from, refusal.reason),
        (None, _) => {}
    }
}

/// Makes the handshake, and reads the first message.
async fn open(
    stream: TcpStream,
    acceptor: &TlsAcceptor,
) -> Option<(Link, Fingerprint, Result<FromHost, End>)> {
    stream.set_nodelay(true).ok()?;
    let stream = acceptor.accept(stream).await.ok()?;
    let identity = tls::peer(stream.get_ref().1.peer_certificates())?;
    let inbox = Inbox::new(HOST_BYTES_MAX);
    let mut link = Link { stream, inbox, is_cut: false, stored: None, offered_key: None };
    let first = link.receive().await;
    match first {
        Err(End::Broken) => None,
        first => Some((link, identity, first)),
    }
}

/// Decides about the first message of a host. Returns the generation of the peers that it has.
async fn admit(
    hub: &Arc<Hub>,
    identity: Fingerprint,
    first: FromHost,
) -> Result<(Admitted, u64), Refusal> {
    let version = match &first {
        FromHost::Enrol { version, .. } | FromHost::Follow { version, .. } => *version,
        _ => {
            let what = "the first message of a host is `enrol` or `follow`";
            return Err(Refusal::new(RefusalKind::Invalid, what));
        }
    };
    check_version(version)?;
    let (request, generation) = match first {
        FromHost::Enrol { token, secret, name, host, .. } => {
            let request = Enrolment { identity, token, secret, name, host };
            // A refusal needs no transaction.
            let (changes, _) = by_table(hub, |table| table.enrol(&request, now_s())).await?;
            hub.admit_change(identity, &changes)?;
            (First::Enrol(request), 0)
        }
        FromHost::Follow { generation, host, .. } => {
            let (changes, admitted) = by_table(hub, |table| table.follow(identity, &host)).await?;
            hub.admit_change(identity, &changes)?;
            if changes.is_empty() {
                return Ok((admitted, generation));
            }
            (First::Follow(host), generation)
        }
        _ => return Err(Refusal::new(RefusalKind::Invalid, "it is no first message")),
    };
    let admitted = decide(hub, move |table| match &request {
        First::Enrol(request) => table.enrol(request, now_s()),
        First::Follow(host) => table.follow(identity, host),
    });
    Ok((admitted.await?, generation))
}

/// Makes a decision as one transaction, in a thread that may wait for the store.
async fn decide<T: Send + 'static>(
    hub: &Arc<Hub>,
    decide: impl FnMut(&Table) -> Decision<T> + Send + 'static,
) -> Result<T, Refusal> {
    let hub = Arc::clone(hub);
    let decided = tokio::task::spawn_blocking(move || hub.decide(decide));
    let defect = || Refusal::new(RefusalKind::Unavailable, "the request has ended in a defect");
    decided.await.unwrap_or_else(|_| Err(defect()))
}

/// A first message that needs a transaction.
enum First {
    Enrol(Enrolment),
    Follow(Host),
}

/// Decides by the table in memory, without a transaction. The table may be older than the store: a
/// refusal counts only if it is the same after a read of the store, because another controller may
/// have admitted the host. If the store cannot be read, the refusal is a temporary one.
async fn by_table<T>(hub: &Arc<Hub>, decide: impl Fn(&Table) -> Decision<T>) -> Decision<T> {
    let decided = decide(&hub.hosts().table());
    if decided.is_ok() {
        return decided;
    }
    hub.catch_up().await?;
    decide(&hub.hosts().table())
}

/// Checks the version of a first message.
fn check_version(version: u32) -> Result<(), Refusal> {
    if version == VERSION {
        return Ok(());
    }
    let what = format!(
        "the host uses version {version} of the protocol, and the controller version {VERSION}: \
         install the same build on both"
    );
    Err(Refusal::new(RefusalKind::Version, what))
}

/// Sends a host its peers and each change, until the connection ends, or a newer session of the
/// host begins.
async fn follow(
    hub: &Arc<Hub>,
    link: &mut Link,
    (identity, entered): (Fingerprint, &Entered),
    admitted: &Admitted,
    base: Base,
) -> End {
    let name = &admitted.name;
    let accepts = hub.hosts().table().capacities().any(|(host, _)| host == name);
    let parts = hub.parts().filter(|_| accepts);
    let done = async {
        let mut wake = Arc::<Notify>::default();
        if let Some(parts) = parts {
            // Another controller may have changed the part of this host a moment ago. Without the
            // store, this controller cannot serve the host.
            hub.catch_up().await?;
            wake = parts.enter(&admitted.name, entered.number);
        }
        let Admitted { name, address } = admitted.clone();
        link.send(&FromController::Welcome { name, address }).await?;
        work(hub, link, (identity, entered), &admitted.name, (base, parts, wake.as_ref())).await
    };
    let done = tokio::select! {
        done = done => done,
        () = entered.end.notified() => Err(superseded(name)),
    };
    parts.iter().for_each(|parts| parts.leave(name, entered.number));
    match done {
        Ok(never) => match never {},
        Err(end) => end,
    }
}

fn superseded(name: &str) -> End {
    let what = format!(
        "`{name}` has connected again from elsewhere: if its state directory was copied to a \
         second machine, enrol that machine under a name of its own"
    );
    End::Refused(Refusal::new(RefusalKind::Superseded, what))
}

/// Does the work of [`follow`]. `wake`: signal of a change of the part of the host.
async fn work(
    hub: &Arc<Hub>,
    link: &mut Link,
    (identity, entered): (Fingerprint, &Entered),
    name: &str,
    (mut base, parts, wake): (Base, Option<&Parts>, &Notify),
) -> Result<std::convert::Infallible, End> {
    let mut changes = hub.hosts().changes();
    let mut part = None;
    let mut has_asked = false;
    let (mut announced, mut retry_at) = (None, None);
    // At most one attempt to store a key, which ends with the session.
    let mut storing = JoinSet::new();
    let mut key_retry_at: Option<Instant> = None;
    loop {
        changes.mark_unchanged();
        let news = {
            let table = hub.hosts().table();
            if table.name_of(identity) != Some(name) {
                let what = format!("`{name}` was removed from the control plane");
                return Err(Refusal::new(RefusalKind::HostUnknown, what).into());
            }
            if table.time_line() != base.time_line {
                base = Base { time_line: table.time_line(), generation: 0 };
            }
            (table.since(base.generation, name), table.must_rotate(name))
        };
        let (update, must_rotate) = news;
        if let Some((present, message)) = update {
            link.send(&message).await?;
            base.generation = present;
            hub.sent(name, entered, base);
        }
        if let Some(parts) = parts {
            send_part(parts, link, name, &mut part).await?;
        }
        if must_rotate && !has_asked {
            link.send(&FromController::Rotate).await?;
        }
        has_asked = must_rotate;
        let may_store = key_retry_at.is_none_or(|at| Instant::now() >= at);
        if storing.is_empty()
            && may_store
            && let Some(public_key) = link.offered_key.take()
        {
            let hub = Arc::clone(hub);
            storing.spawn(async move {
                let stored = store_key(&hub, identity, public_key.clone()).await;
                (public_key, stored)
            });
        }
        announce(hub, link, identity, (&mut announced, &mut retry_at)).await?;
        tokio::select! {
            message = timeout(SILENCE_MAX, link.receive()) => {
                let message = message.map_err(|_| End::Silent)??;
                answer(hub, link, entered, name, message).await?;
            }
            Some(attempt) = storing.join_next() => {
                let (public_key, stored) = attempt.map_err(|_| End::Broken)?;
                key_retry_at = answer_key(link, public_key, stored).await?;
            }
            changed = changes.changed() => changed.map_err(|_| End::Broken)?,
            () = wake.notified() => {}
        }
    }
}

/// Sends a host the identities of the controller, unless it has stored them or they were sent last,
/// as `announced` shows. Records a next identity that the host has stored, not before `retry_at`.
async fn announce(
    hub: &Arc<Hub>,
    link: &mut Link,
    identity: Fingerprint,
    (announced, retry_at): (&mut Option<ControllerIdentities>, &mut Option<Instant>),
) -> Result<(), End> {
    let Some(stored) = link.stored else { return Ok(()) };
    let present = || hub.hosts().table().controller();
    if present() == Some(stored) {
        return confirm(hub, identity, stored, retry_at).await;
    }
    if present() == *announced {
        return Ok(());
    }
    // Another controller may have begun or ended a change a moment ago. Without the store, the host
    // keeps the identities that it has, and the next message leads to another attempt.
    if hub.catch_up().await.is_err() {
        return Ok(());
    }
    let Some(identities) = present().filter(|of| *of != stored) else { return Ok(()) };
    link.send(&FromController::Identities(identities)).await?;
    *announced = Some(identities);
    Ok(())
}

/// Records that a host has stored these identities, unless the store fails: then the first message
/// after `retry_at` leads to another attempt. The host is served meanwhile.
async fn confirm(
    hub: &Arc<Hub>,
    identity: Fingerprint,
    stored: ControllerIdentities,
    retry_at: &mut Option<Instant>,
) -> Result<(), End> {
    let confirmed = hub.hosts().table().confirm_identity(identity, stored);
    let is_new = confirmed.is_ok_and(|(changes, ())| !changes.is_empty());
    if !is_new || retry_at.is_some_and(|at| Instant::now() < at) {
        return Ok(());
    }
    // All sessions share this read, and do not wait for a store that is away one after the other.
    let mut decided = hub.catch_up().await;
    if decided.is_ok() {
        let hub = Arc::clone(hub);
        let decides = tokio::task::spawn_blocking(move || {
            hub.decide(|table| table.confirm_identity(identity, stored))
        });
        decided = decides.await.map_err(|_| End::Broken)?;
    }
    *retry_at = decided.is_err().then(|| Instant::now() + CONFIRM_PAUSE);
    Ok(())
}

/// Acknowledges a next key that is stored. If the store has failed, or the host changes too often,
/// returns the time after which the first message leads to another attempt. A key that is refused
/// for good ends the connection.
async fn answer_key(
    link: &mut Link,
    public_key: String,
    stored: Result<(), Refusal>,
) -> Result<Option<Instant>, End> {
    match stored {
        Ok(()) => {
            link.send(&FromController::KeyStored { public_key }).await?;
            Ok(None)
        }
        Err(refusal) if refusal.reason.is_temporary() => {
            // The host may have offered another key meanwhile.
            link.offered_key.get_or_insert(public_key);
            Ok(Some(Instant::now() + KEY_PAUSE))
        }
        Err(refusal) => Err(refusal.into()),
    }
}

/// Stores the next key that a host has offered. The host is served meanwhile: a store that does not
/// answer takes longer than a host waits for the answer to a ping. A store that is away does not
/// count as a change of the host.
async fn store_key(
    hub: &Arc<Hub>,
    identity: Fingerprint,
    public_key: String,
) -> Result<(), Refusal> {
    hub.catch_up().await?;
    let (changes, ()) = hub.hosts().table().next_key(identity, &public_key)?;
    hub.admit_change(identity, &changes)?;
    decide(hub, move |table| table.next_key(identity, &public_key)).await
}

/// Sends a host the changes of its part of the cloud since the generation that was sent last, which
/// is `sent`.
async fn send_part(
    parts: &Parts,
    link: &mut Link,
    name: &str,
    sent: &mut Option<(u64, Arc<CloudTables>)>,
) -> Result<(), End> {
    let (generation, tables) = parts.of(name);
    if sent.as_ref().is_some_and(|(sent, _)| *sent == generation) {
        return Ok(());
    }
    let former = sent.as_ref().map(|(_, tables)| tables);
    for section in parts.since(former, &tables, generation) {
        link.send(&FromController::Cloud(section)).await?;
    }
    *sent = Some((generation, tables));
    Ok(())
}

async fn answer(
    hub: &Arc<Hub>,
    link: &mut Link,
    entered: &Entered,
    name: &str,
    message: FromHost,
) -> Result<(), End> {
    match message {
        FromHost::Applied { generation } => hub.saw(name, entered, Some(generation)),
        FromHost::CloudApplied { generation, error } => {
            hub.saw(name, entered, None);
            if let Some(parts) = hub.parts() {
                parts.decided(name, entered.number, generation, error);
            }
        }
        FromHost::Ping => {
            hub.saw(name, entered, None);
            link.send(&FromController::Pong).await?;
        }
        FromHost::IdentitiesStored(identities) => {
            hub.saw(name, entered, None);
            link.stored = Some(identities);
        }
        FromHost::NextKey { public_key } => {
            hub.saw(name, entered, None);
            link.offered_key = Some(public_key);
        }
        FromHost::Enrol { .. } | FromHost::Follow { .. } | FromHost::Pod { .. } => {
            let what = "the host has identified itself already";
            return Err(Refusal::new(RefusalKind::Invalid, what).into());
        }
    }
    Ok(())
}
