//! The lease of the controller that runs the machines, which are the network namespaces of
//! instances.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

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
                    let keep = claim.keep(Arc::clone(&lease), Arc::clone(&is_lost));
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
    /// them.
    async fn keep(self, lease: Arc<AtomicI64>, is_lost: Arc<AtomicBool>) {
        let pause = Duration::from_secs(u64::try_from(MACHINES_TTL_S / 3).unwrap_or(1));
        loop {
            sleep(pause).await;
            match self.client.keep_alive(lease.load(Ordering::Relaxed)).await {
                Ok(ttl) if ttl > 0 => {}
                Ok(_) => match self.claim().await {
                    Ok(Some(new)) => lease.store(new, Ordering::Relaxed),
                    Ok(None) => return is_lost.store(true, Ordering::Relaxed),
                    Err(_) => {}
                },
                // The members do not answer; the lease may still live.
                Err(_) => {}
            }
        }
    }
}
