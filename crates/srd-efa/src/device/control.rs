//! Control verbs: creating, modifying and destroying objects (B1 to B10).

use alloc::boxed::Box;
use alloc::vec::Vec;

use srd_proto::{Endpoint, Instant, PeerId, Qpn, ReceiveBuffers};

use crate::cq::{Completion, CompletionQueue, WcOpcode, WcStatus};
use crate::device::state::{AhEntry, Device};
use crate::error::{CreateError, DestroyError, ModifyError};
use crate::handle::{Ah, Cq, Pd};
use crate::mr::{Mr, Registration};
use crate::qp::{QpAttr, QpInit, QpState, QueuePair};
use crate::slots::Key;

impl Device {
    /// Makes a protection domain.
    ///
    /// # Errors
    /// [`CreateError::Full`], if there are `pds_max` domains.
    pub fn alloc_pd(&mut self) -> Result<Pd, CreateError> {
        self.pds.insert((), self.config.pds_max).map(Pd).ok_or(CreateError::Full)
    }

    /// Destroys a protection domain.
    ///
    /// # Errors
    /// [`DestroyError`], if the domain does not exist, or if other objects belong to it (B1).
    pub fn dealloc_pd(&mut self, pd: Pd) -> Result<(), DestroyError> {
        self.pds.get(pd.0).ok_or(DestroyError::NoSuchObject)?;
        let used = self.ahs.iter().any(|(_, ah)| ah.pd == pd.0)
            || self.qps.iter().flatten().any(|qp| qp.init.pd == pd)
            || self.regions.has(pd.0);
        if used {
            return Err(DestroyError::Busy);
        }
        self.pds.remove(pd.0);
        Ok(())
    }

    /// Makes an address handle for a peer. From now on the peer may read and write registered
    /// memory whose keys it has.
    ///
    /// # Errors
    /// [`CreateError`], if the domain does not exist or has a handle for this peer already (B2), or
    /// if there are `ahs_max` handles.
    pub fn create_ah(&mut self, pd: Pd, peer: PeerId) -> Result<Ah, CreateError> {
        self.pds.get(pd.0).ok_or(CreateError::NoSuchObject)?;
        if self.ah_of.contains_key(&(pd.0, peer)) {
            return Err(CreateError::Exists);
        }
        let entry = AhEntry { pd: pd.0, peer };
        let key = self.ahs.insert(entry, self.config.ahs_max).ok_or(CreateError::Full)?;
        self.ah_of.insert((pd.0, peer), key);
        Ok(Ah(key))
    }

    /// Destroys an address handle. Outstanding requests that use it complete as flushed, whether
    /// they were delivered or not; other requests continue (B3).
    ///
    /// # Errors
    /// [`DestroyError`], if the address handle does not exist.
    pub fn destroy_ah(&mut self, ah: Ah) -> Result<(), DestroyError> {
        let entry = self.ahs.remove(ah.0).ok_or(DestroyError::NoSuchObject)?;
        self.ah_of.remove(&(entry.pd, entry.peer));
        let outstanding: Vec<Key> =
            self.ops.iter().filter(|(_, op)| op.ah == Some(ah.0)).map(|(key, _)| key).collect();
        for key in outstanding {
            self.fail(key, WcStatus::Flushed);
        }
        Ok(())
    }

    /// Makes a completion queue of `entries_max` entries.
    ///
    /// # Errors
    /// [`CreateError`], if there are `cqs_max` queues, or if the size is zero or above
    /// `cq_entries_max`.
    pub fn create_cq(&mut self, entries_max: u32) -> Result<Cq, CreateError> {
        if entries_max == 0 || entries_max > self.config.cq_entries_max {
            return Err(CreateError::Invalid);
        }
        let queue = CompletionQueue::new(entries_max);
        self.cqs.insert(queue, self.config.cqs_max).map(Cq).ok_or(CreateError::Full)
    }

    /// Destroys a completion queue together with its entries.
    ///
    /// # Errors
    /// [`DestroyError`], if the queue does not exist, or if queue pairs use it (B1).
    pub fn destroy_cq(&mut self, cq: Cq) -> Result<(), DestroyError> {
        let queue = self.cqs.get(cq.0).ok_or(DestroyError::NoSuchObject)?;
        if queue.users > 0 {
            return Err(DestroyError::Busy);
        }
        self.cqs.remove(cq.0);
        Ok(())
    }

    /// Registers memory.
    ///
    /// # Errors
    /// [`CreateError`], if the domain does not exist, the range overflows, remote write access is
    /// requested without local write access, or there are `mrs_max` registrations.
    pub fn reg_mr(&mut self, pd: Pd, registration: Registration) -> Result<Mr, CreateError> {
        self.pds.get(pd.0).ok_or(CreateError::NoSuchObject)?;
        self.regions.register(pd.0, registration, (None, 0), self.config.mrs_max)
    }

    /// Registers memory with a remote key that the caller chooses.
    ///
    /// # Errors
    /// [`CreateError`], for the reasons of [`Device::reg_mr`], and if the key is in use already
    /// (B10).
    pub fn reg_mr_as(
        &mut self,
        pd: Pd,
        registration: Registration,
        rkey: u64,
    ) -> Result<Mr, CreateError> {
        self.pds.get(pd.0).ok_or(CreateError::NoSuchObject)?;
        self.regions.register(pd.0, registration, (Some(rkey), 0), self.config.mrs_max)
    }

    /// Registers memory that begins at offset `base` of its region, with the remote key `rkey`.
    pub(crate) fn reg_mr_at(
        &mut self,
        pd: Pd,
        registration: Registration,
        rkey: u64,
        base: u64,
    ) -> Result<Mr, CreateError> {
        self.regions.register(pd.0, registration, (Some(rkey), base), self.config.mrs_max)
    }

    /// Deregisters memory: from now on its keys are invalid. Outstanding requests of this device
    /// and of peers that use the memory fail.
    ///
    /// # Errors
    /// [`DestroyError`], if there is no such registration.
    pub fn dereg_mr(&mut self, mr: Mr) -> Result<(), DestroyError> {
        if self.regions.deregister(mr.lkey) { Ok(()) } else { Err(DestroyError::NoSuchObject) }
    }

    /// Makes a queue pair in state Reset, with a number that the device chooses.
    ///
    /// # Errors
    /// [`CreateError`], if the domain or a completion queue does not exist, a size is beyond its
    /// limit, or there are `qps_max` queue pairs.
    pub fn create_qp(&mut self, endpoint: &mut Endpoint, init: QpInit) -> Result<Qpn, CreateError> {
        self.pds.get(init.pd.0).ok_or(CreateError::NoSuchObject)?;
        let c = &self.config;
        let fits = (1..=c.sq_wrs_max).contains(&init.sq_wrs_max)
            && init.rq_wrs_max <= c.rq_wrs_max
            && init.inline_bytes_max <= c.inline_bytes_max;
        if !fits {
            return Err(CreateError::Invalid);
        }
        for cq in [init.send_cq, init.recv_cq] {
            self.cqs.get(cq.0).ok_or(CreateError::NoSuchObject)?;
        }
        let qpn = self.free_number().ok_or(CreateError::Full)?;
        for cq in [init.send_cq, init.recv_cq] {
            if let Some(queue) = self.cqs.get_mut(cq.0) {
                queue.users += 1;
            }
        }
        let slot = usize::from(qpn.0 - self.config.qpn_first);
        if self.qps.len() <= slot {
            self.qps.resize_with(slot + 1, || None);
        }
        self.qps[slot] = Some(Box::new(QueuePair::new(init)));
        // The device itself counts receive requests, because it also has their sizes.
        endpoint.open_qp(qpn, ReceiveBuffers::Unlimited);
        Ok(qpn)
    }

    /// Returns a free number for a queue pair. The search begins after the number that was assigned
    /// last (B7).
    fn free_number(&mut self) -> Option<Qpn> {
        for _ in 0..self.config.qps_max {
            let offset = self.qpn_next;
            self.qpn_next = (offset + 1) % self.config.qps_max;
            let qpn = self.config.qpn_first.checked_add(offset).map(Qpn)?;
            if self.qp(qpn).is_none() {
                return Some(qpn);
            }
        }
        None
    }

    /// Changes the state of a queue pair. State Error flushes outstanding requests, state Reset
    /// discards them (B6).
    ///
    /// # Errors
    /// [`ModifyError`], if the queue pair does not exist, the table has no such transition (B5), or
    /// the attributes do not fit the transition.
    pub fn modify_qp(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        qpn: Qpn,
        attr: &QpAttr,
    ) -> Result<(), ModifyError> {
        let qp = self.qp_mut(qpn).ok_or(ModifyError::NoSuchObject)?;
        let to = attr.check(qp.state)?;
        qp.state = to;
        qp.qkey = attr.qkey.unwrap_or(qp.qkey);
        // S3: Receiver not ready
        if let Some(retries) = attr.rnr_retry {
            endpoint.set_rnr_retries(qpn, retries);
        }
        match to {
            QpState::Reset | QpState::Error => {
                self.empty(now, endpoint, qpn, to == QpState::Error);
                endpoint.open_qp(qpn, ReceiveBuffers::Unlimited);
            }
            QpState::Rts => {
                let drained = self.qp_mut(qpn).map(|qp| core::mem::take(&mut qp.drained));
                for key in drained.unwrap_or_default() {
                    self.list(key);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Destroys a queue pair. Its outstanding requests are cancelled without completions, and its
    /// completions that were not polled are dropped (B4).
    ///
    /// # Errors
    /// [`DestroyError`], if the queue pair does not exist.
    pub fn destroy_qp(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        qpn: Qpn,
    ) -> Result<(), DestroyError> {
        let init = self.qp(qpn).ok_or(DestroyError::NoSuchObject)?.init;
        self.empty(now, endpoint, qpn, false);
        for cq in [init.send_cq, init.recv_cq] {
            if let Some(queue) = self.cqs.get_mut(cq.0) {
                queue.users -= 1;
                queue.forget(qpn);
            }
        }
        let slot = usize::from(qpn.0 - self.config.qpn_first);
        self.qps[slot] = None;
        Ok(())
    }

    /// Ends all requests and transfers of a queue pair. `completes`: whether each request gets a
    /// completion with status `Flushed`.
    fn empty(&mut self, now: Instant, endpoint: &mut Endpoint, qpn: Qpn, completes: bool) {
        let outstanding: Vec<Key> =
            self.ops.iter().filter(|(_, op)| op.qpn == qpn).map(|(key, _)| key).collect();
        for key in outstanding {
            if completes {
                self.fail(key, WcStatus::Flushed);
            } else {
                self.cancel(key);
            }
        }
        let before = self.writes_in.len();
        self.writes_in.retain(|_, write| write.qpn != qpn);
        self.counters.writes_forgotten += (before - self.writes_in.len()) as u64;
        self.flush_receives(qpn, completes);
        endpoint.close_qp(now, qpn);
    }

    fn flush_receives(&mut self, qpn: Qpn, completes: bool) {
        let Some(qp) = self.qp_mut(qpn) else { return };
        let (receives, cq) = (core::mem::take(&mut qp.receives), qp.init.recv_cq);
        let Some(queue) = self.cqs.get_mut(cq.0) else { return };
        for posted in receives {
            if !completes {
                queue.release();
                continue;
            }
            queue.fulfil(Completion {
                wr_id: posted.wr_id,
                status: WcStatus::Flushed,
                opcode: WcOpcode::Recv,
                qpn,
                byte_len: 0,
                imm: None,
                src_qpn: None,
                ah: None,
                peer: None,
                unsolicited: false,
            });
        }
    }
}
