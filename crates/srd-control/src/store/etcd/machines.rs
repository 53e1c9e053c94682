//! The lease of the controller that runs the machines, which are the network namespaces of
//! instances.
//!
//! A controller that was suspended or cut off for longer than the life of the lease may have lost
//! the machines without knowing it. So it reads the key of the machines before each request and
//! each change that it follows, and its transactions are made only if the key still has its name.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use super::client::{CallError, Client};
use super::wire::{
    Compare, LeaseGrantRequest, LeaseGrantResponse, LeaseRevokeRequest, LeaseRevokeResponse,
    Operation, PutRequest, RangeRequest, TxnRequest, TxnResponse,
};
use super::{EtcdStore, LEASE_GRANT, LEASE_REVOKE, READ_WAIT_MAX, TXN};

/// Time in seconds after which the lease of the machines ends if it is not prolonged.
const MACHINES_TTL_S: i64 = 10;
/// Longest wait for the machines. It is longer than the lease, which a killed controller no longer
/// prolongs.
pub(super) const MACHINES_WAIT_MAX: Duration = Duration::from_secs(15);
/// Pause between two attempts to get the machines.
const MACHINES_PAUSE: Duration = Duration::from_millis(250);

/// The machines that this controller has claimed.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) keeper: AbortHandle,
    pub(super) lease: Arc<AtomicI64>,
    /// Whether another controller has the machines.
    pub(super) is_lost: Arc<AtomicBool>,
}

impl EtcdStore {
    /// Claims the machines as soon as no other controller has them. Fails after `wait`.
    pub(super) fn claim_within(&mut self, wait: Duration) -> Result<(), String> {
        let until = std::time::Instant::now() + wait;
        let claim = Claimant {
            client: Arc::clone(&self.client),
            key: self.keys.machines(),
            id: self.id.clone(),
        };
        loop {
            let (answer, answered) = std::sync::mpsc::channel();
            let attempt = claim.clone();
            self.handle.spawn(async move {
                let _ = answer.send(attempt.claim().await);
            });
            match answered.recv().map_err(|error| error.to_string())? {
                Ok(Some(lease)) => {
                    let lease = Arc::new(AtomicI64::new(lease));
                    let is_lost = Arc::new(AtomicBool::new(false));
                    let news = Arc::clone(&self.inbox.news);
                    let keep = claim.keep(Arc::clone(&lease), Arc::clone(&is_lost), news);
                    let keeper = self.handle.spawn(keep).abort_handle();
                    self.claim = Some(Claim { keeper, lease, is_lost });
                    return Ok(());
                }
                Ok(None) if std::time::Instant::now() < until => {
                    std::thread::sleep(MACHINES_PAUSE);
                }
                Ok(None) => {
                    return Err("another controller runs the machines of this state".to_owned());
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Checks that this controller still has the machines, if it has claimed them.
    ///
    /// # Errors
    /// If another controller has them, their lease has ended, or the key cannot be read.
    pub(super) fn check_claim(&self) -> Result<(), String> {
        let Some(claim) = &self.claim else { return Ok(()) };
        let lost = || Err("another controller runs the machines of this state".to_owned());
        if claim.is_lost.load(Ordering::Relaxed) {
            return lost();
        }
        let request = RangeRequest { key: self.keys.machines(), ..RangeRequest::default() };
        let answer = self.read(request).map_err(|error| error.to_string())?;
        match answer.kvs.first() {
            Some(kv) if kv.value == self.id.as_bytes() => Ok(()),
            Some(_) => {
                claim.is_lost.store(true, Ordering::Relaxed);
                self.inbox.news.notify_one();
                lost()
            }
            // The keeper claims them again, unless another controller is faster.
            None => Err("the lease of the machines has ended".to_owned()),
        }
    }
}

/// A controller that claims the machines.
#[derive(Clone)]
struct Claimant {
    client: Arc<Client>,
    key: Vec<u8>,
    id: String,
}

impl Claimant {
    /// Claims the machines under a new lease, and returns it; `None` if another controller has
    /// them.
    async fn claim(&self) -> Result<Option<i64>, CallError> {
        let until = Instant::now() + READ_WAIT_MAX;
        let grant = LeaseGrantRequest { ttl: MACHINES_TTL_S };
        let granted: LeaseGrantResponse = self.client.call(LEASE_GRANT, &grant, until).await?;
        let (key, lease) = (self.key.clone(), granted.id);
        let value = self.id.clone().into_bytes();
        let write = |key| PutRequest { key, value: value.clone(), lease, ignore_value: false };
        let read = RangeRequest { key: key.clone(), ..RangeRequest::default() };
        let request = TxnRequest {
            compare: vec![Compare::is_at(key.clone(), 0)],
            success: vec![Operation::Put(write(key.clone())).into()],
            failure: vec![Operation::Range(read).into()],
        };
        let answer: TxnResponse = self.client.call(TXN, &request, until).await?;
        if answer.succeeded {
            return Ok(Some(lease));
        }
        // The key may contain an earlier copy of this claim, or an earlier claim of this
        // controller.
        let found = answer.responses.first().and_then(|of| of.range.as_ref()?.kvs.first());
        match found {
            Some(kv) if kv.value == value => {
                let request = TxnRequest {
                    compare: vec![Compare::is_at(key.clone(), kv.mod_revision)],
                    success: vec![Operation::Put(write(key)).into()],
                    failure: Vec::new(),
                };
                let answer: TxnResponse = self.client.call(TXN, &request, until).await?;
                Ok(answer.succeeded.then_some(lease))
            }
            _ => {
                let revoke = LeaseRevokeRequest { id: lease };
                let _: LeaseRevokeResponse = self.client.call(LEASE_REVOKE, &revoke, until).await?;
                Ok(None)
            }
        }
    }

    /// Keeps the machines. If the lease has ended, claims them again, unless another controller has
    /// them: this is signalled.
    async fn keep(self, lease: Arc<AtomicI64>, is_lost: Arc<AtomicBool>, news: Arc<Notify>) {
        let pause = Duration::from_secs(u64::try_from(MACHINES_TTL_S / 3).unwrap_or(1));
        loop {
            sleep(pause).await;
            match self.client.keep_alive(lease.load(Ordering::Relaxed)).await {
                Ok(ttl) if ttl > 0 => {}
                Ok(_) => match self.claim().await {
                    Ok(Some(new)) => lease.store(new, Ordering::Relaxed),
                    Ok(None) => {
                        is_lost.store(true, Ordering::Relaxed);
                        return news.notify_one();
                    }
                    Err(_) => {}
                },
                // The members do not answer; the lease may still live.
                Err(_) => {}
            }
        }
    }
}
