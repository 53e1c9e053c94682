//! A store in an etcd cluster, version 3, for any number of controllers.
//!
//! ```text
//!  PREFIXgeneration     written by each transaction: who has made it
//!  PREFIXstate/KEY      the values
//!  PREFIXparts/ID/N     a large transaction, until its values are written
//!  PREFIXmachines       the controller that runs the machines, with a lease
//! ```
//!
//! A transaction is made if the generation still has the revision that its controller has read. So
//! a controller changes the newest state only. A watch delivers the changes of other controllers.
//! Before each request, the controller reads the revision of the generation from the cluster, and
//! waits until the watch has delivered this revision.
//!
//! If the answer to a transaction is lost, the controller repeats it: at most one of the copies can
//! find the generation at the known revision. The generation contains, for the 16 controllers that
//! made the newest transactions, the number of their last transaction. This number shows whether an
//! earlier copy was made.
//!
//! etcd limits the operations and the size of a transaction. A larger transaction is first written
//! as parts under a lease; these parts do not belong to the state yet. Then one transaction of etcd
//! releases the parts from the lease, which makes all changes at once. The values are written
//! afterwards, before any other transaction.
//!
//! | module | content |
//! |---|---|
//! | `client` | calls to the members |
//! | `inbox` | changes of other controllers |
//! | `keys` | the keys, and the value of `generation` |
//! | `machines` | the lease of the controller that runs the machines |
//! | `wire` | messages |

mod client;
mod inbox;
mod keys;
mod machines;
mod wire;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use prost::Message;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::{CommitError, KeyChange, News, Store};
use crate::random;
pub use client::Tls;
use client::{CallError, Client};
use inbox::{Batch, Inbox};
use keys::{Generation, Keys, Large};
use machines::{Claim, MACHINES_WAIT_MAX};
use wire::{
    Compare, DeleteRangeRequest, KeyValue, LeaseGrantRequest, LeaseGrantResponse,
    LeaseRevokeRequest, LeaseRevokeResponse, Operation, PutRequest, PutResponse, RangeRequest,
    RangeResponse, RequestOp, TxnRequest, TxnResponse,
};

/// Largest number of changes of one transaction of etcd, which accepts 128 operations.
const OPERATIONS_MAX: usize = 100;
/// Largest size of the changes of one transaction of etcd, which accepts 1.5 MiB.
const TRANSACTION_BYTES_MAX: usize = 1 << 20;
/// Largest number of parts of a large transaction.
const PARTS_MAX: usize = 100;
/// Largest size of a key with its value, in bytes.
pub const VALUE_BYTES_MAX: usize = 1_400_000;
/// Largest number of keys that one call reads of the state.
const PAGE: i64 = 250;
/// Largest number of attempts to load the state, because each may be prevented by a compaction.
const LOADS_MAX: usize = 5;
/// Longest time for a transaction.
const COMMIT_WAIT_MAX: Duration = Duration::from_secs(10);
/// Longest time for a call that reads.
const READ_WAIT_MAX: Duration = Duration::from_secs(5);
/// If the watch has not delivered a change within this time, another member is watched.
const WATCH_WAIT_MAX: Duration = Duration::from_secs(1);
/// Number of members that are watched before a request fails.
const WATCHES_MAX: usize = 5;
/// Longest wait for the end of a lease when the store is closed.
const END_WAIT_MAX: Duration = Duration::from_secs(1);
/// Time to live, in seconds, of the lease under which the parts of a large transaction are written.
const PARTS_TTL_S: i64 = 120;

/// Error for a state that is not in the cluster any more.
const REMOVED: &str = "the state in etcd was removed";

const RANGE: &str = "/etcdserverpb.KV/Range";
const PUT: &str = "/etcdserverpb.KV/Put";
const TXN: &str = "/etcdserverpb.KV/Txn";
const LEASE_GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
const LEASE_REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";

/// Settings of a store in etcd.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Addresses of the members, `http://HOST:PORT` or `https://HOST:PORT`.
    pub members: Vec<String>,
    /// Prefix of all keys.
    pub prefix: String,
    /// Files of certificates for `https`. They are read again when they change.
    pub tls: Option<Tls>,
    /// Reports new and refused certificates to the operator.
    pub report: fn(&str),
}

/// Returns the first of these addresses at which packets without TLS leave this machine: `http` to
/// another host than a loopback address or `localhost`.
pub fn plain_remote(members: &[String]) -> Option<&str> {
    let is_safe = |member: &str| {
        let Ok(uri) = member.parse::<hyper::Uri>() else { return false };
        let host = uri.host().unwrap_or_default();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        uri.scheme_str() == Some("https")
            || host == "localhost"
            || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    };
    members.iter().map(String::as_str).find(|member| !is_safe(member))
}

/// A store in etcd.
#[derive(Debug)]
pub struct EtcdStore {
    keys: Keys,
    client: Arc<Client>,
    handle: Handle,
    /// Ends the thread of the runtime when it is dropped.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    inbox: Arc<Inbox>,
    watch: Option<AbortHandle>,
    claim: Option<Claim>,
    /// Identifier of this controller.
    id: String,
    /// Number of this controller's last transaction.
    number: u64,
    /// Revision of the generation that the caller has read; 0 if the key does not exist.
    revision: i64,
    generation: Generation,
}

/// Returns a random identifier.
fn draw_id() -> Result<String, String> {
    random::number().map(|number| format!("{number:016x}"))
}

fn put(key: Vec<u8>, value: Vec<u8>) -> RequestOp {
    Operation::Put(PutRequest { key, value, ..PutRequest::default() }).into()
}

/// The operation of a change.
fn operation(keys: &Keys, (key, value): &KeyChange) -> RequestOp {
    let key = keys.state(key);
    match value {
        Some(value) => put(key, value.clone().into_bytes()),
        None => Operation::DeleteRange(DeleteRangeRequest { key, range_end: Vec::new() }).into(),
    }
}

fn bytes((key, value): &KeyChange) -> usize {
    key.len() + value.as_ref().map_or(0, String::len)
}

/// Splits changes into groups that are small enough for a transaction of etcd.
fn groups(changes: &[KeyChange]) -> Vec<&[KeyChange]> {
    let mut groups = Vec::new();
    let mut rest = changes;
    while !rest.is_empty() {
        let mut sum = 0;
        let fits = |change: &&KeyChange| {
            sum += bytes(change);
            sum <= TRANSACTION_BYTES_MAX
        };
        let count = rest.iter().take(OPERATIONS_MAX).take_while(fits).count().max(1);
        let (group, others) = rest.split_at(count);
        groups.push(group);
        rest = others;
    }
    groups
}

fn text(kv: &KeyValue) -> Result<String, String> {
    let text = String::from_utf8(kv.value.clone());
    text.map_err(|_| format!("the value of `{}` is no text", String::from_utf8_lossy(&kv.key)))
}

/// The changes of a large transaction.
fn join<'a>(parts: impl Iterator<Item = &'a KeyValue>) -> Result<Vec<KeyChange>, String> {
    let mut parts: Vec<&KeyValue> = parts.collect();
    parts.sort_by(|a, b| a.key.cmp(&b.key));
    let json: Vec<u8> = parts.iter().flat_map(|part| &part.value).copied().collect();
    serde_json::from_slice(&json).map_err(|error| format!("a large transaction: {error}"))
}

impl EtcdStore {
    /// Creates a store in this cluster. The first call connects to a member.
    ///
    /// # Errors
    /// If the settings are wrong, or the thread for the connections cannot start.
    pub fn new(settings: &Settings) -> Result<Self, String> {
        let prefix = &settings.prefix;
        if prefix.is_empty() || !prefix.ends_with('/') || !prefix.is_ascii() {
            return Err(format!("`{prefix}`: a prefix of keys ends with `/`"));
        }
        let failed = |error: std::io::Error| format!("the thread for etcd: {error}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(failed)?;
        let handle = runtime.handle().clone();
        let client = {
            let _entered = handle.enter();
            Arc::new(Client::new(&settings.members, settings.tls.as_ref())?)
        };
        let (followed, report) = (Arc::clone(&client), settings.report);
        handle.spawn(async move { followed.follow_files(report).await });
        let (stop, stopped) = oneshot::channel();
        let run = move || drop(runtime.block_on(stopped));
        let thread = std::thread::Builder::new().name("srd-etcd".to_owned()).spawn(run);
        let thread = Some(thread.map_err(failed)?);
        let (id, keys) = (draw_id()?, Keys::new(prefix));
        let inbox = Arc::new(Inbox::new(keys.clone(), id.clone(), Arc::default()));
        Ok(Self {
            keys,
            client,
            handle,
            stop: Some(stop),
            thread,
            inbox,
            watch: None,
            claim: None,
            id,
            number: 0,
            revision: 0,
            generation: Generation::default(),
        })
    }

    /// Calls a function of the API, and waits for the answer.
    fn call<Q, A>(&self, path: &'static str, request: Q, wait: Duration) -> Result<A, CallError>
    where
        Q: Message + Clone + Default + 'static,
        A: Message + Default + 'static,
    {
        let (answer, answered) = std::sync::mpsc::channel();
        let client = Arc::clone(&self.client);
        self.handle.spawn(async move {
            let until = Instant::now() + wait;
            let _ = answer.send(client.call(path, &request, until).await);
        });
        answered.recv().unwrap_or_else(|_| {
            let status = tonic::Status::unavailable("the thread for etcd has ended");
            Err(CallError { status, is_uncertain: true })
        })
    }

    fn read(&self, request: RangeRequest) -> Result<RangeResponse, CallError> {
        self.call(RANGE, request, READ_WAIT_MAX)
    }

    /// Reads all keys that begin with this name, at a revision.
    fn read_all(&self, name: &str, revision: i64) -> Result<Vec<KeyValue>, CallError> {
        let (mut key, range_end) = self.keys.range(name);
        let mut all: Vec<KeyValue> = Vec::new();
        loop {
            let range_end = range_end.clone();
            let request = RangeRequest { key, range_end, limit: PAGE, revision };
            let answer = self.read(request)?;
            all.extend(answer.kvs);
            match all.last() {
                Some(last) if answer.more => {
                    key = last.key.clone();
                    key.push(0);
                }
                _ => return Ok(all),
            }
        }
    }

    /// Reads the generation and its revision, and the revision of the cluster.
    fn read_generation(&self) -> Result<(Option<KeyValue>, i64), CallError> {
        let key = self.keys.generation();
        let answer = self.read(RangeRequest { key, ..RangeRequest::default() })?;
        let revision = answer.header.map_or(0, |header| header.revision);
        Ok((answer.kvs.into_iter().next(), revision))
    }

    /// Reads the whole state; `Ok(None)` if a compaction removed the revision while it was read.
    fn read_state(&mut self) -> Result<Option<Vec<(String, String)>>, String> {
        let (kv, revision) = self.read_generation().map_err(|error| error.to_string())?;
        let generation = kv.as_ref().map(|kv| Generation::parse(&kv.value)).transpose()?;
        let generation = generation.unwrap_or_default();
        let read = |name: &str| match self.read_all(name, revision) {
            Ok(all) => Ok(Some(all)),
            Err(error) if error.is_compacted() => Ok(None),
            Err(error) => Err(error.to_string()),
        };
        let Some(state) = read("state/")? else { return Ok(None) };
        let mut all = std::collections::BTreeMap::new();
        for kv in &state {
            let key = self.keys.of_state(&kv.key).ok_or("a key in etcd is no text")?;
            all.insert(key.to_owned(), text(kv)?);
        }
        drop(state);
        if let Some(large) = &generation.large {
            let Some(parts) = read(&format!("parts/{}/", large.id))? else { return Ok(None) };
            for (key, value) in join(parts.iter())? {
                match value {
                    Some(value) => drop(all.insert(key, value)),
                    None => drop(all.remove(&key)),
                }
            }
        }
        self.revision = kv.map_or(0, |kv| kv.mod_revision);
        self.generation = generation;
        self.start_watch(revision + 1);
        Ok(Some(all.into_iter().collect()))
    }

    /// Watches from a revision on, and forgets earlier changes.
    fn start_watch(&mut self, next: i64) {
        if let Some(watch) = self.watch.take() {
            watch.abort();
        }
        let news = Arc::clone(&self.inbox.news);
        let is_uncertain = self.inbox.is_uncertain();
        self.inbox = Arc::new(Inbox::new(self.keys.clone(), self.id.clone(), news));
        self.inbox.set_uncertain(is_uncertain);
        let (client, inbox) = (Arc::clone(&self.client), Arc::clone(&self.inbox));
        self.watch = Some(self.handle.spawn(inbox::watch(client, inbox, next)).abort_handle());
    }

    /// Makes all changes, or none of them.
    fn make(&mut self, changes: &[KeyChange]) -> Result<(), CommitError> {
        self.settle()?;
        match groups(changes).len() {
            0 => Ok(()),
            1 if changes.iter().all(|change| bytes(change) <= VALUE_BYTES_MAX) => {
                let success = changes.iter().map(|change| operation(&self.keys, change));
                self.transact(Vec::new(), success.collect(), None)
            }
            _ => self.transact_large(changes),
        }
    }

    /// Makes a transaction if the generation has the known revision.
    fn transact(
        &mut self,
        mut compare: Vec<Compare>,
        mut success: Vec<RequestOp>,
        large: Option<Large>,
    ) -> Result<(), CommitError> {
        self.number += 1;
        let next = self.generation.next(&self.id, self.number, large);
        let key = self.keys.generation();
        compare.push(Compare::is_at(key.clone(), self.revision));
        if self.claim.is_some() {
            compare.push(Compare::has(self.keys.machines(), self.id.clone().into_bytes()));
        }
        success.push(put(key.clone(), next.text()));
        let read = RangeRequest { key, ..RangeRequest::default() };
        let failure = vec![Operation::Range(read).into()];
        let request = TxnRequest { compare, success, failure };
        let answer: TxnResponse = match self.call(TXN, request, COMMIT_WAIT_MAX) {
            Ok(answer) => answer,
            Err(error) if error.is_uncertain => {
                return Err(CommitError::Unknown(error.to_string()));
            }
            Err(error) => return Err(CommitError::Failed(error.to_string())),
        };
        if answer.succeeded {
            self.revision = answer.header.map_or(0, |header| header.revision);
            self.generation = next;
            self.inbox.discard(self.revision);
            return Ok(());
        }
        let found = answer.responses.first().and_then(|of| of.range.as_ref()?.kvs.first());
        let found = found.map(|kv| Generation::parse(&kv.value)).transpose();
        let found = found.map_err(CommitError::Unknown)?.unwrap_or_default();
        match found.last_of(&self.id) {
            // An earlier copy of this transaction was made. The known revision is the one before
            // it, so the next refresh returns its changes together with those of others.
            Some(number) if number == self.number => Ok(()),
            None if self.generation.last_of(&self.id).is_some() => {
                let why = "more than 16 controllers have changed the state meanwhile";
                Err(CommitError::Unknown(why.to_owned()))
            }
            _ => Err(CommitError::Conflict),
        }
    }

    /// Makes a transaction that is larger than etcd allows.
    fn transact_large(&mut self, changes: &[KeyChange]) -> Result<(), CommitError> {
        let failed = |error: String| CommitError::Failed(error);
        if let Some((key, _)) = changes.iter().find(|change| bytes(change) > VALUE_BYTES_MAX) {
            let why = format!("`{key}` has more than {VALUE_BYTES_MAX} bytes, the limit of etcd");
            return Err(CommitError::Failed(why));
        }
        let json = serde_json::to_vec(changes).map_err(|error| failed(error.to_string()))?;
        let parts = json.len().div_ceil(TRANSACTION_BYTES_MAX);
        if parts > PARTS_MAX {
            let max = PARTS_MAX * TRANSACTION_BYTES_MAX;
            return Err(CommitError::Failed(format!("a transaction has at most {max} bytes")));
        }
        let large = Large { id: draw_id().map_err(failed)?, parts };
        let lease = self.grant(PARTS_TTL_S).map_err(|error| failed(error.to_string()))?;
        let (mut compare, mut success) = (Vec::new(), Vec::new());
        for (number, part) in json.chunks(TRANSACTION_BYTES_MAX).enumerate() {
            let key = self.keys.part(&large.id, number);
            let value = part.to_vec();
            let request = PutRequest { key: key.clone(), value, lease, ignore_value: false };
            let written: Result<PutResponse, _> = self.call(PUT, request, COMMIT_WAIT_MAX);
            written.map_err(|error| failed(error.to_string()))?;
            compare.push(Compare::exists(key.clone()));
            // The part keeps its value, and no longer ends with the lease.
            let release = PutRequest { key, ignore_value: true, ..PutRequest::default() };
            success.push(Operation::Put(release).into());
        }
        let made = self.transact(compare, success, Some(large));
        if made.is_ok() {
            // If this fails, the next transaction of any controller writes the values.
            let _ = self.settle_with(changes);
        } else {
            // The end of the lease removes the parts.
            let revoke = LeaseRevokeRequest { id: lease };
            let _: Result<LeaseRevokeResponse, _> = self.call(LEASE_REVOKE, revoke, READ_WAIT_MAX);
        }
        made
    }

    /// Writes the values of a large transaction that was made, if there is one.
    fn settle(&mut self) -> Result<(), CommitError> {
        let Some(large) = self.generation.large.clone() else { return Ok(()) };
        let parts = self.read_all(&format!("parts/{}/", large.id), 0);
        let parts = parts.map_err(|error| CommitError::Failed(error.to_string()))?;
        if parts.len() != large.parts {
            // Another controller has written the values.
            return Err(CommitError::Conflict);
        }
        self.settle_with(&join(parts.iter()).map_err(CommitError::Failed)?)
    }

    fn settle_with(&mut self, changes: &[KeyChange]) -> Result<(), CommitError> {
        let Some(large) = self.generation.large.clone() else { return Ok(()) };
        for group in groups(changes) {
            let compare = vec![Compare::is_at(self.keys.generation(), self.revision)];
            let success = group.iter().map(|change| operation(&self.keys, change)).collect();
            let request = TxnRequest { compare, success, failure: Vec::new() };
            let answer: Result<TxnResponse, _> = self.call(TXN, request, COMMIT_WAIT_MAX);
            let answer = answer.map_err(|error| CommitError::Failed(error.to_string()))?;
            if !answer.succeeded {
                return Err(CommitError::Conflict);
            }
        }
        let (key, range_end) = self.keys.range(&format!("parts/{}/", large.id));
        let remove = Operation::DeleteRange(DeleteRangeRequest { key, range_end });
        self.transact(Vec::new(), vec![remove.into()], None)
    }

    fn grant(&self, ttl: i64) -> Result<i64, CallError> {
        let granted: Result<LeaseGrantResponse, _> =
            self.call(LEASE_GRANT, LeaseGrantRequest { ttl }, READ_WAIT_MAX);
        granted.map(|granted| granted.id)
    }

    /// Returns the changes of other controllers in these batches, which begin after the known
    /// revision.
    fn follow(&mut self, batches: Vec<Batch>) -> Result<Vec<KeyChange>, String> {
        let mut changes = Vec::new();
        let batches = batches.into_iter().filter(|batch| batch.revision > self.revision);
        for batch in batches.collect::<Vec<_>>() {
            let mut large = None;
            for event in &batch.events {
                let Some(kv) = &event.kv else { continue };
                if kv.key == self.keys.generation() {
                    if event.kind != 0 {
                        return Err(REMOVED.to_owned());
                    }
                    let generation = Generation::parse(&kv.value)?;
                    if generation.large != self.generation.large {
                        large.clone_from(&generation.large);
                    }
                    self.generation = generation;
                    self.revision = batch.revision;
                } else if let Some(key) = self.keys.of_state(&kv.key) {
                    let value = if event.kind == 0 { Some(text(kv)?) } else { None };
                    changes.push((key.to_owned(), value));
                }
            }
            if let Some(large) = large {
                let (begin, _) = self.keys.range(&format!("parts/{}/", large.id));
                let parts = batch.events.iter().filter_map(|event| event.kv.as_ref());
                changes.extend(join(parts.filter(|kv| kv.key.starts_with(&begin)))?);
            }
        }
        Ok(changes)
    }
}

impl Store for EtcdStore {
    fn load(&mut self) -> Result<Vec<(String, String)>, String> {
        self.check_claim()?;
        for _ in 0..LOADS_MAX {
            if let Some(all) = self.read_state()? {
                return Ok(all);
            }
        }
        Err("etcd is compacted faster than the state is loaded".to_owned())
    }

    fn commit(&mut self, changes: Vec<KeyChange>) -> Result<(), CommitError> {
        let made = self.make(&changes);
        match &made {
            // An earlier transaction of an unknown outcome cannot be made after this one.
            Ok(()) if !changes.is_empty() => self.inbox.set_uncertain(false),
            Err(CommitError::Unknown(_)) => self.inbox.set_uncertain(true),
            _ => {}
        }
        made
    }

    fn refresh(&mut self) -> Result<News, String> {
        self.check_claim()?;
        let (kv, _) = self.read_generation().map_err(|error| error.to_string())?;
        let newest = kv.map_or(0, |kv| kv.mod_revision);
        if newest == self.revision {
            self.inbox.discard(newest);
            return Ok(News::Changes(Vec::new()));
        }
        if newest == 0 {
            return Err(REMOVED.to_owned());
        }
        if newest < self.revision {
            // The cluster was restored from a backup: the watch waits for revisions that stood for
            // other changes.
            return self.load().map(News::All);
        }
        for _ in 0..WATCHES_MAX {
            match self.inbox.take(newest, WATCH_WAIT_MAX) {
                Ok(Some(batches)) => return self.follow(batches).map(News::Changes),
                Ok(None) => return self.load().map(News::All),
                // The watched member may have lost its connection to the other members.
                Err(()) => self.inbox.restart.notify_one(),
            }
        }
        Err("etcd does not deliver the changes of other controllers".to_owned())
    }

    fn news(&self) -> Option<Arc<Notify>> {
        Some(Arc::clone(&self.inbox.news))
    }

    fn claim_machines(&mut self) -> Result<(), String> {
        self.claim_within(MACHINES_WAIT_MAX)
    }

    fn has_lost_machines(&self) -> bool {
        self.claim.as_ref().is_some_and(|claim| claim.is_lost.load(Ordering::Relaxed))
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            claim.keeper.abort();
            let revoke = LeaseRevokeRequest { id: claim.lease.load(Ordering::Relaxed) };
            let _: Result<LeaseRevokeResponse, _> = self.call(LEASE_REVOKE, revoke, END_WAIT_MAX);
        }
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
