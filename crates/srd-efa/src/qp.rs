//! Queue pairs: types, states, and the transitions between states.
//!
//! The table of transitions is that of the EFA driver (`srd_qp_state_table`).

use alloc::collections::VecDeque;

use srd_proto::Class;

use crate::error::ModifyError;
use crate::handle::{Cq, Pd};
use crate::mr::MemoryLocation;
use crate::slots::Key;
use crate::wr::SGES_MAX;

/// Bytes at the start of a receive buffer of a UD queue pair, before the message. InfiniBand puts
/// its global routing header there; this device leaves these bytes unchanged.
pub const UD_HEADER_BYTES: u32 = 40;

/// Service level of queue pairs whose datagrams are sent in the low-latency class.
pub const SERVICE_LEVEL_LOW_LATENCY: u8 = 8;

/// Service type of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpType {
    /// Unreliable datagrams, up to one packet.
    Ud,
    /// Scalable reliable datagrams, and RDMA.
    Srd,
}

/// The state of a queue pair (`ibv_qp_state`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpState {
    /// The queue pair is new, or was reset.
    Reset,
    /// The queue pair accepts receive requests, but receives nothing.
    Init,
    /// The queue pair is ready to receive, but not to send.
    Rtr,
    /// The queue pair is ready to send and to receive.
    Rts,
    /// The send queue is drained: the queue pair receives; new send requests are accepted, and
    /// wait.
    Sqd,
    /// The send queue has failed; the queue pair still receives.
    Sqe,
    /// The queue pair has failed, and its requests were flushed.
    Error,
}

impl QpState {
    /// Whether datagrams may be placed in this state.
    pub(crate) const fn receives(self) -> bool {
        matches!(self, Self::Rtr | Self::Rts | Self::Sqd | Self::Sqe)
    }

    /// Whether the driver allows the transition from this state to `to`.
    pub const fn may_become(self, to: Self) -> bool {
        match (self, to) {
            (_, Self::Reset | Self::Error) => !matches!((self, to), (Self::Reset, Self::Error)),
            (Self::Reset | Self::Init, Self::Init)
            | (Self::Init, Self::Rtr)
            | (Self::Rtr | Self::Rts | Self::Sqd | Self::Sqe, Self::Rts)
            | (Self::Rts | Self::Sqd, Self::Sqd) => true,
            _ => false,
        }
    }
}

/// Attributes of a new queue pair (`ibv_qp_init_attr_ex`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpInit {
    /// Protection domain of the queue pair.
    pub pd: Pd,
    /// Service type of the queue pair.
    pub qp_type: QpType,
    /// Completion queue of sends.
    pub send_cq: Cq,
    /// Completion queue of receives.
    pub recv_cq: Cq,
    /// Largest number of outstanding send requests.
    pub sq_wrs_max: u32,
    /// Largest number of posted receive requests.
    pub rq_wrs_max: u32,
    /// Largest number of inline bytes of a send.
    pub inline_bytes_max: u32,
    /// Service level: [`SERVICE_LEVEL_LOW_LATENCY`], or any other value.
    pub service_level: u8,
    /// Whether writes with immediate data use no receive request (`unsolicited_write_recv`).
    pub unsolicited_write_recv: bool,
}

/// Attributes for [`crate::Device::modify_qp`] (`ibv_qp_attr`): the new state and the values that
/// it needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QpAttr {
    /// New state; `None` keeps the state.
    pub state: Option<QpState>,
    /// Index of the partition key; only 0 is valid. For the transition to Init.
    pub pkey_index: Option<u16>,
    /// Port; only 1 is valid. For the transition to Init.
    pub port: Option<u8>,
    /// Q key that peers must send. For the transition to Init.
    pub qkey: Option<u32>,
    /// First packet number; EFA requires and ignores it. For the transition from Rtr to Rts.
    pub sq_psn: Option<u32>,
    /// Number of retries if a peer has no receive request, 0 to 7; 7 means without limit. For the
    /// transition from Rtr to Rts.
    pub rnr_retry: Option<u8>,
}

impl QpAttr {
    /// Returns the attributes of the transition to Init.
    pub fn init(qkey: u32) -> Self {
        Self {
            state: Some(QpState::Init),
            pkey_index: Some(0),
            port: Some(1),
            qkey: Some(qkey),
            ..Self::default()
        }
    }

    /// Returns the attributes of the transition to Rtr.
    pub fn rtr() -> Self {
        Self { state: Some(QpState::Rtr), ..Self::default() }
    }

    /// Returns the attributes of the transition from Rtr to Rts.
    pub fn rts() -> Self {
        Self { state: Some(QpState::Rts), sq_psn: Some(0), ..Self::default() }
    }

    /// Returns the attributes of a transition to a state that needs no other attribute.
    pub fn to(state: QpState) -> Self {
        Self { state: Some(state), ..Self::default() }
    }

    /// Checks whether a queue pair in state `from` accepts these attributes. Returns the new state.
    ///
    /// # Errors
    /// [`ModifyError`], if there is no such transition, or if an attribute is missing or not
    /// accepted.
    pub(crate) fn check(&self, from: QpState) -> Result<QpState, ModifyError> {
        let to = self.state.unwrap_or(from);
        if !from.may_become(to) {
            return Err(ModifyError::BadTransition);
        }
        let bound = [self.pkey_index.is_some(), self.port.is_some(), self.qkey.is_some()];
        let values_fit = self.pkey_index.unwrap_or(0) == 0
            && self.port.unwrap_or(1) == 1
            && self.rnr_retry.unwrap_or(0) <= 7;
        let fits = match (from, to) {
            (QpState::Reset, QpState::Init) => bound == [true; 3],
            (QpState::Init, QpState::Init) => true,
            _ => bound == [false; 3],
        };
        let starts = (from, to) == (QpState::Rtr, QpState::Rts);
        let sending_fits =
            if starts { self.sq_psn.is_some() } else { self.sq_psn.or(self.rnr()).is_none() };
        if fits && values_fit && sending_fits { Ok(to) } else { Err(ModifyError::BadAttributes) }
    }

    fn rnr(&self) -> Option<u32> {
        self.rnr_retry.map(u32::from)
    }
}

/// A piece of a receive request, checked when it was posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    pub(crate) place: MemoryLocation,
    pub(crate) length: u32,
}

/// A receive request that waits for its message.
#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) wr_id: u64,
    pub(crate) pieces: [Option<Piece>; SGES_MAX],
    pub(crate) length: u32,
}

/// A queue pair. Bounds: `sq_wrs_max` and `rq_wrs_max` requests.
#[derive(Debug)]
pub(crate) struct QueuePair {
    pub(crate) init: QpInit,
    pub(crate) state: QpState,
    pub(crate) qkey: u32,
    /// Number of send requests that have not completed.
    pub(crate) sends: u32,
    pub(crate) receives: VecDeque<Posted>,
    /// Send requests that wait until the queue pair is ready to send again.
    pub(crate) drained: VecDeque<Key>,
}

impl QueuePair {
    pub(crate) fn new(init: QpInit) -> Self {
        Self {
            init,
            state: QpState::Reset,
            qkey: 0,
            sends: 0,
            receives: VecDeque::new(),
            drained: VecDeque::new(),
        }
    }

    pub(crate) fn class(&self) -> Class {
        match self.init.service_level {
            SERVICE_LEVEL_LOW_LATENCY => Class::LowLatency,
            _ => Class::Bulk,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use QpState::{Error, Init, Reset, Rtr, Rts, Sqd, Sqe};

    const STATES: [QpState; 7] = [Reset, Init, Rtr, Rts, Sqd, Sqe, Error];

    #[test]
    fn states_follow_each_other_as_in_the_driver() {
        let allowed: [&[QpState]; 7] = [
            &[Reset, Init],
            &[Reset, Init, Rtr, Error],
            &[Reset, Rts, Error],
            &[Reset, Rts, Sqd, Error],
            &[Reset, Rts, Sqd, Error],
            &[Reset, Rts, Error],
            &[Reset, Error],
        ];
        for (from, allowed) in STATES.into_iter().zip(allowed) {
            for to in STATES {
                assert_eq!(from.may_become(to), allowed.contains(&to), "{from:?} to {to:?}");
            }
        }
    }

    #[test]
    fn each_transition_takes_its_own_attributes() {
        assert_eq!(QpAttr::init(5).check(Reset), Ok(Init));
        assert_eq!(QpAttr::rtr().check(Init), Ok(Rtr));
        assert_eq!(QpAttr { rnr_retry: Some(3), ..QpAttr::rts() }.check(Rtr), Ok(Rts));
        assert_eq!(QpAttr::to(Rts).check(Sqd), Ok(Rts));
        let bad = Err(ModifyError::BadAttributes);
        assert_eq!(QpAttr { qkey: None, ..QpAttr::init(5) }.check(Reset), bad);
        assert_eq!(QpAttr { port: Some(2), ..QpAttr::init(5) }.check(Reset), bad);
        assert_eq!(QpAttr { rnr_retry: Some(8), ..QpAttr::rts() }.check(Rtr), bad);
        assert_eq!(QpAttr::to(Rts).check(Rtr), bad, "without sq_psn");
        assert_eq!(QpAttr { qkey: Some(1), ..QpAttr::rtr() }.check(Init), bad);
        assert_eq!(QpAttr { rnr_retry: Some(1), ..QpAttr::to(Rts) }.check(Sqd), bad);
    }
}
