//! The local API of the operator: a Unix socket that only this user and root can use.
//!
//! A client sends one request, a line of JSON, and receives one answer, a line of JSON:
//! `{"ok": …}` or `{"error": "…"}`.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ipnet::IpNet;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use srd_enrol::{Refusal, RefusalKind};
use srd_trust::{peer, socket};

use super::asked;
use super::decide::TokenOptions;
use super::hub::Hub;
use super::record::TokenRecord;
use super::rotation::IdentityChange;
use crate::clock::now_s;

/// Largest request, in bytes.
const REQUEST_BYTES_MAX: u64 = 4096;
/// Largest answer, in bytes.
const ANSWER_BYTES_MAX: u64 = 4 << 20;
/// Longest time for a request of a client. Requests are answered one after the other.
const CLIENT_WAIT_MAX: Duration = Duration::from_secs(5);
/// Longest time for an answer, which may have to wait for the store.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(60);

/// A request of the operator.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "action", deny_unknown_fields)]
pub enum Request {
    /// The hosts: [`Listing`].
    Hosts,
    /// Removes a host: [`Removed`].
    Remove {
        /// Name of the host.
        name: String,
    },
    /// Requests another key of a host.
    Rotate {
        /// Name of the host.
        name: String,
    },
    /// Replaces the authority that issues certificates of the servers.
    RotateAuthority,
    /// The identity of the controller: [`IdentityEntry`].
    Identity,
    /// Begins a change of the identity of the controller: [`IdentityEntry`].
    RotateIdentity,
    /// Ends a change of the identity, with the next one: [`IdentityEnd`].
    FinishIdentity {
        /// Whether hosts that have not stored the next identity are excluded.
        excludes: bool,
    },
    /// Ends a change of the identity, with the present one: [`IdentityEnd`].
    CancelIdentity,
    /// The access keys: a list of [`KeyEntry`](crate::sign::KeyEntry).
    Keys,
    /// Makes an access key: [`NewKey`].
    CreateKey,
    /// Activates or deactivates an access key.
    SetKey {
        /// Identifier of the key.
        id: String,
        /// Whether its signatures are accepted.
        is_active: bool,
    },
    /// Deletes an access key.
    DeleteKey {
        /// Identifier of the key.
        id: String,
    },
    /// Makes an enrolment token: [`NewToken`].
    CreateToken {
        /// Time until its end, in seconds.
        lifetime_s: u64,
        /// Number of hosts that may enrol with it.
        uses: u32,
    },
    /// The enrolment tokens: a list of [`TokenEntry`].
    Tokens,
    /// Revokes an enrolment token.
    RevokeToken {
        /// Identifier of the token.
        id: String,
    },
}

impl Request {
    /// Returns the request in words, for the log; `None` if it changes nothing and creates no
    /// secret.
    fn in_words(&self) -> Option<String> {
        Some(match self {
            Self::Hosts | Self::Identity | Self::Keys | Self::Tokens => return None,
            Self::Remove { name } => format!("to remove the host {name:?}"),
            Self::Rotate { name } => format!("to change the key of the host {name:?}"),
            Self::RotateAuthority => String::from("to replace the authority"),
            Self::RotateIdentity => String::from("to begin a change of the identity"),
            Self::FinishIdentity { excludes: false } => {
                String::from("to end the change of the identity, with the next one")
            }
            Self::FinishIdentity { excludes: true } => String::from(
                "to end the change of the identity, with the next one, and to exclude hosts \
                 without it",
            ),
            Self::CancelIdentity => {
                String::from("to end the change of the identity, with the present one")
            }
            Self::CreateKey => String::from("to create an access key"),
            Self::SetKey { id: name, is_active: true } => {
                format!("to activate the access key {name:?}")
            }
            Self::SetKey { id: name, is_active: false } => {
                format!("to deactivate the access key {name:?}")
            }
            Self::DeleteKey { id: name } => format!("to delete the access key {name:?}"),
            Self::CreateToken { lifetime_s, uses } => {
                format!("to create a token for {uses} hosts, which expires in {lifetime_s} s")
            }
            Self::RevokeToken { id: name } => format!("to revoke the token {name:?}"),
        })
    }
}

/// A host that was removed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Removed {
    /// Identifiers of its instances, which are stopped.
    pub stopped: Vec<String>,
    /// Number of enrolment tokens with uses left, with which the host can enrol again.
    pub tokens: usize,
}

/// A new enrolment token.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NewToken {
    /// Its public identifier.
    pub id: String,
    /// The token, which contains its secret.
    pub token: String,
    /// Time of the end of its life, in seconds since 1970.
    pub expires_at: u64,
    /// Number of hosts that may enrol with it.
    pub uses: u32,
}

/// An access key that was made.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewKey {
    /// Identifier of the key.
    pub id: String,
    /// Its secret.
    pub secret: String,
}

impl fmt::Debug for NewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The identity of the controller, by which hosts recognize it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct IdentityEntry {
    /// Fingerprint of the identity.
    pub present: String,
    /// Fingerprint of the identity that replaces it; absent: no change is in progress.
    pub next: Option<String>,
    /// Number of all hosts.
    pub hosts: usize,
    /// Hosts that have not stored the next identity.
    pub without_next: Vec<String>,
}

/// End of a change of the identity.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct IdentityEnd {
    /// Fingerprint of the identity from now on.
    pub present: String,
    /// Hosts that have to enrol again.
    pub excluded: Vec<String>,
    /// Enrolment tokens that were removed, because they name the other identity.
    pub tokens: Vec<String>,
}

impl From<IdentityChange> for IdentityEnd {
    fn from(change: IdentityChange) -> Self {
        let IdentityChange { present, excluded, tokens } = change;
        Self { present: present.to_string(), excluded, tokens }
    }
}

/// An enrolment token, without its secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TokenEntry {
    /// Its public identifier.
    pub id: String,
    /// Time of the end of its life, in seconds since 1970.
    pub expires_at: u64,
    /// Number of hosts that may still enrol.
    pub uses: u32,
}

/// All hosts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Listing {
    /// Fingerprint of the controller.
    pub controller: String,
    /// Block from which overlay addresses are assigned.
    pub overlay: Option<IpNet>,
    /// Generation of the last change of a host.
    pub generation: u64,
    /// The hosts, in the order of their names.
    pub hosts: Vec<HostEntry>,
    /// Number of connections since the start of the controller that were no hosts: without a valid
    /// handshake, or without a first message.
    pub strangers: u64,
    /// Number of connections since the start of the controller that were closed because the host
    /// did not take a message in time.
    pub unread: u64,
    /// Number of refusals since the start of the controller, by their reasons.
    pub refused: BTreeMap<String, u64>,
}

/// A host in the list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostEntry {
    /// Name of the host.
    pub name: String,
    /// Overlay address.
    pub address: String,
    /// Public key of its transport.
    pub public_key: String,
    /// Addresses at which its peers reach it.
    pub endpoints: Vec<SocketAddr>,
    /// Number of its processors.
    pub processors: u32,
    /// Size of its memory in bytes.
    pub memory_bytes: u64,
    /// Its instances; absent: it accepts no instances.
    pub instances: Option<HostInstances>,
    /// Whether it is connected to this controller.
    pub connected: bool,
    /// Address of its last connection; absent: it has not connected since the start of the
    /// controller.
    pub from: Option<SocketAddr>,
    /// Time of its last message, in seconds since 1970.
    pub seen_at: Option<u64>,
    /// Generation of the peers that it uses.
    pub applied: Option<u64>,
    /// Progress of a change of its key: `requested`, or `not in use yet`: the controller has the
    /// next key, and the host has not connected with it.
    pub rotation: Option<String>,
}

/// Instances of a host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostInstances {
    /// Availability zone of the host.
    pub zone: String,
    /// Number of its instances.
    pub count: u32,
    /// Sum of the vCPUs of its instances.
    pub vcpus_used: u32,
    /// Largest sum of the vCPUs of its instances.
    pub vcpus: u32,
    /// Instance types that it accepts. Empty: all types.
    pub types: Vec<String>,
    /// Generation of the part of the cloud that it needs. The number is that of this controller
    /// since its start.
    pub generation: u64,
    /// Generation that its card uses.
    pub applied: u64,
}

/// Listens at a path. A socket that a killed server has left is replaced. The socket has mode 0600.
///
/// # Errors
/// A text for the operator.
pub fn listen(path: &Path) -> Result<UnixListener, String> {
    let shown = path.display();
    socket::remove_dead(path).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "another controller uses the socket {shown}{}: choose another one by --admin",
            socket::listener_inserted(path)
        ),
        io::ErrorKind::AlreadyExists => format!("{shown} is no socket: choose another path"),
        _ => format!("{shown}: {error}"),
    })?;
    let options = socket::Options { mode: 0o600, group: None, replace: false };
    let bound = socket::listen(path, options).map_err(|error| format!("{shown}: {error}"))?;
    Ok(bound.listener)
}

/// Function that writes a line to the log.
pub type Log = Box<dyn Fn(&str) + Send>;

/// Answers requests at the socket on a thread of its own, until the process ends. `log` gets a line
/// about each request that changes something or creates a secret.
///
/// # Errors
/// If the thread cannot start.
pub fn start(listener: UnixListener, hub: Arc<Hub>, log: Log) -> io::Result<()> {
    let serve = move || {
        for stream in listener.incoming() {
            match stream {
                // An error of a connection concerns its client only.
                Ok(stream) => drop(serve(stream, &hub, &*log)),
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    };
    thread::Builder::new().name("srd-admin".to_owned()).spawn(serve)?;
    Ok(())
}

fn serve(mut stream: UnixStream, hub: &Hub, log: &dyn Fn(&str)) -> io::Result<()> {
    peer::check(&stream)?;
    stream.set_read_timeout(Some(CLIENT_WAIT_MAX))?;
    stream.set_write_timeout(Some(CLIENT_WAIT_MAX))?;
    let mut line = String::new();
    BufReader::new((&stream).take(REQUEST_BYTES_MAX)).read_line(&mut line)?;
    let answer = match serde_json::from_str::<Request>(&line) {
        Ok(request) => {
            let words = request.in_words();
            let answer = answer(hub, request).map_err(|refusal| refusal.message);
            if let Some(words) = words {
                log(&asked::line(&stream, &words, &answer));
            }
            answer
        }
        Err(error) => Err(format!("the request is not valid: {error}")),
    };
    let answer = match answer {
        Ok(value) => json!({"ok": value}),
        Err(error) => json!({"error": error}),
    };
    stream.write_all(format!("{answer}\n").as_bytes())
}

/// Answers a request of the operator.
///
/// # Errors
/// The refusal.
pub fn answer(hub: &Hub, request: Request) -> Result<Value, Refusal> {
    let value = |value: serde_json::Result<Value>| {
        value.map_err(|error| Refusal::new(RefusalKind::Unavailable, error.to_string()))
    };
    match request {
        Request::Hosts => value(serde_json::to_value(listing(hub))),
        Request::Remove { name } => {
            let stopped = hub.remove(&name)?;
            let now = now_s();
            let is_usable = |token: &&TokenRecord| token.uses > 0 && token.expires_at > now;
            let tokens = hub.hosts().table().tokens.values().filter(is_usable).count();
            value(serde_json::to_value(Removed { stopped, tokens }))
        }
        Request::Rotate { name } => {
            hub.decide(|table| table.rotate(&name))?;
            Ok(Value::Null)
        }
        Request::RotateAuthority
        | Request::Keys
        | Request::CreateKey
        | Request::SetKey { .. }
        | Request::DeleteKey { .. } => secrets(hub, request),
        Request::Identity
        | Request::RotateIdentity
        | Request::FinishIdentity { .. }
        | Request::CancelIdentity => identity(hub, request),
        Request::CreateToken { lifetime_s, uses } => {
            let now = now_s();
            let options = TokenOptions { lifetime_s, uses };
            let token = hub.decide(|table| table.create_token(options, now))?;
            value(serde_json::to_value(NewToken {
                id: token.id.clone(),
                token: token.expose(),
                expires_at: now + lifetime_s,
                uses,
            }))
        }
        Request::Tokens => {
            let table = hub.hosts().table();
            let entries: Vec<TokenEntry> = table
                .tokens
                .iter()
                .map(|(id, token)| TokenEntry {
                    id: id.clone(),
                    expires_at: token.expires_at,
                    uses: token.uses,
                })
                .collect();
            value(serde_json::to_value(entries))
        }
        Request::RevokeToken { id } => {
            hub.decide(|table| table.revoke_token(&id))?;
            Ok(Value::Null)
        }
    }
}

/// Answers a request about the authority and about access keys.
fn secrets(hub: &Hub, request: Request) -> Result<Value, Refusal> {
    hub.change(|control| match request {
        Request::RotateAuthority => control.rotate_authority().map(|()| Value::Null),
        Request::Keys => control.access_keys().map(|keys| json!(keys)),
        Request::CreateKey => {
            let key = control.create_access_key(now_s())?;
            Ok(json!(NewKey { id: key.id, secret: key.secret }))
        }
        Request::SetKey { id, is_active } => {
            control.set_access_key(&id, is_active).map(|()| Value::Null)
        }
        Request::DeleteKey { id } => control.delete_access_key(&id).map(|()| Value::Null),
        _ => Err("it is another request".to_owned()),
    })
}

/// Answers a request about the identity of the controller.
fn identity(hub: &Hub, request: Request) -> Result<Value, Refusal> {
    let end = match request {
        Request::FinishIdentity { excludes } => {
            hub.decide(|table| table.finish_identity(excludes))?
        }
        Request::CancelIdentity => hub.decide(|table| table.cancel_identity())?,
        Request::RotateIdentity => {
            hub.decide(|table| table.begin_identity())?;
            return identity_entry(hub);
        }
        _ => return identity_entry(hub),
    };
    Ok(json!(IdentityEnd::from(end)))
}

/// Returns the identity of the controller, after the changes of other controllers.
fn identity_entry(hub: &Hub) -> Result<Value, Refusal> {
    let entry = hub.decide(|table| {
        let identities = table.controller().ok_or_else(|| {
            let what = "the controller accepts no hosts: start it with --hosts";
            Refusal::new(RefusalKind::Invalid, what)
        })?;
        let without_next = table.without_next_identity();
        let next = identities.next.map(|next| next.to_string());
        let (present, hosts) = (identities.present.to_string(), table.hosts.len());
        Ok((Vec::new(), IdentityEntry { present, next, hosts, without_next }))
    })?;
    Ok(json!(entry))
}

fn listing(hub: &Hub) -> Listing {
    let sessions = hub.sessions().clone();
    let table = hub.hosts().table();
    let hosts = table.hosts.iter().map(|(name, record)| {
        let session = sessions.get(name);
        let rotation = match (record.must_rotate, &record.next_key) {
            (true, _) => Some("requested".to_owned()),
            (false, Some(_)) => Some("not in use yet".to_owned()),
            (false, None) => None,
        };
        let instances = record.host.capacity.as_ref().map(|capacity| {
            let load = hub.parts().map(|parts| parts.load(name));
            let (load, generation, applied) = load.unwrap_or_default();
            HostInstances {
                zone: capacity.zone.clone(),
                count: load.instances,
                vcpus_used: load.vcpus,
                vcpus: capacity.vcpus,
                types: capacity.types.clone(),
                generation,
                applied,
            }
        });
        HostEntry {
            instances,
            name: name.clone(),
            address: table.address_of(record).to_string(),
            public_key: record.host.public_key.clone(),
            endpoints: record.host.endpoints.clone(),
            processors: record.host.processors,
            memory_bytes: record.host.memory_bytes,
            connected: session.is_some_and(|session| session.is_connected),
            from: session.map(|session| session.from),
            seen_at: session.map(|session| session.seen_at),
            applied: session.map(|session| session.applied),
            rotation,
        }
    });
    let refused = RefusalKind::ALL.iter().filter_map(|kind| {
        let count = hub.counters.refused(*kind);
        let name = serde_json::to_value(kind).ok()?.as_str()?.to_owned();
        (count > 0).then_some((name, count))
    });
    Listing {
        controller: table.fingerprint().map(|own| own.to_string()).unwrap_or_default(),
        overlay: table.overlay(),
        generation: table.generation(),
        hosts: hosts.collect(),
        strangers: hub.counters.strangers(),
        unread: hub.counters.unread(),
        refused: refused.collect(),
    }
}

/// Sends a request to the socket of a controller, and returns its answer.
///
/// # Errors
/// A text for the operator: the refusal, or the reason why no controller answers.
pub fn ask<T: DeserializeOwned>(path: &Path, request: &Request) -> Result<T, String> {
    let shown = path.display();
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            format!(
                "no controller listens at {shown}: start `srd control up` with --hosts ADDRESS or \
                 --admin PATH, or name the socket of a running one by --admin"
            )
        }
        io::ErrorKind::PermissionDenied => {
            format!("{shown}: run this command as the user of the controller, or as root")
        }
        _ => format!("the controller at {shown}: {error}"),
    };
    let mut stream = UnixStream::connect(path).map_err(failed)?;
    peer::check(&stream).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("{shown} is served by another user: run this command as this user (sudo -u)")
        }
        _ => failed(error),
    })?;
    stream.set_read_timeout(Some(ANSWER_WAIT_MAX)).map_err(failed)?;
    let text = serde_json::to_string(request).map_err(|error| error.to_string())?;
    stream.write_all(format!("{text}\n").as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    (&stream).take(ANSWER_BYTES_MAX).read_to_string(&mut answer).map_err(failed)?;
    let wrong = |error: serde_json::Error| format!("the answer of {shown} is not valid: {error}");
    let answer: Value = serde_json::from_str(&answer).map_err(wrong)?;
    match answer.get("error").and_then(Value::as_str) {
        Some(error) => Err(error.to_owned()),
        None => serde_json::from_value(answer["ok"].clone()).map_err(wrong),
    }
}
