//! Queue pairs: types, states, and which way leads from one to another.
//!
//! The table of transitions is the EFA driver's (`srd_qp_state_table`).

use alloc::collections::VecDeque;

use srd_proto::Class;

use crate::error::ModifyError;
use crate::handle::{Cq, Pd};
use crate::mr::MemoryLocation;
use crate::slots::Key;
use crate::wr::SGES_MAX;

/// Bytes before a message received by a UD queue pair, where InfiniBand puts its global routing
/// header. Nothing is written there.
pub const UD_HEADER_BYTES: u32 = 40;

/// The service level for low latency.
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
    /// New, or emptied.
    Reset,
    /// Takes receive requests, receives nothing.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// Receives; send requests are taken and wait.
    Sqd,
    /// The send queue has failed; receives.
    Sqe,
    /// Failed: requests were flushed.
    Error,
}

impl QpState {
    /// Whether datagrams may be placed.
    pub(crate) const fn receives(self) -> bool {
        matches!(self, Self::Rtr | Self::Rts | Self::Sqd | Self::Sqe)
    }

    /// Whether the driver lets a queue pair go from here to `to`.
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

/// Attributes that a queue pair is made with (`ibv_qp_init_attr_ex`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpInit {
    /// Its protection domain.
    pub pd: Pd,
    /// Its service.
    pub qp_type: QpType,
    /// Completion queue of sends.
    pub send_cq: Cq,
    /// Completion queue of receives.
    pub recv_cq: Cq,
    /// Send requests that may be outstanding.
    pub sq_wrs_max: u32,
    /// Receive requests that may be posted.
    pub rq_wrs_max: u32,
    /// Bytes that a send may carry inline.
    pub inline_bytes_max: u32,
    /// [`SERVICE_LEVEL_LOW_LATENCY`], or anything else.
    pub service_level: u8,
    /// Writes with immediate data use no receive request (`unsolicited_write_recv`).
    pub unsolicited_write_recv: bool,
}

/// Attributes for [`crate::Device::modify_qp`] (`ibv_qp_attr`): the new state and the values that
/// it needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QpAttr {
    /// The new state; `None` leaves it.
    pub state: Option<QpState>,
    /// Index of the partition key; there is one, 0. To Init.
    pub pkey_index: Option<u16>,
    /// Port; there is one, 1. To Init.
    pub port: Option<u8>,
    /// The Q key that peers must name. To Init.
    pub qkey: Option<u32>,
    /// First packet number; EFA demands it and ignores it. To Rts from Rtr.
    pub sq_psn: Option<u32>,
    /// Retries when a peer has no receive request, 0 to 7; 7 means for ever. To Rts from Rtr.
    pub rnr_retry: Option<u8>,
}

impl QpAttr {
    /// To Init, with what that takes.
    pub fn init(qkey: u32) -> Self {
        Self {
            state: Some(QpState::Init),
            pkey_index: Some(0),
            port: Some(1),
            qkey: Some(qkey),
            ..Self::default()
        }
    }

    /// To Rtr.
    pub fn rtr() -> Self {
        Self { state: Some(QpState::Rtr), ..Self::default() }
    }

    /// To Rts from Rtr.
    pub fn rts() -> Self {
        Self { state: Some(QpState::Rts), sq_psn: Some(0), ..Self::default() }
    }

    /// To a state that takes nothing else.
    pub fn to(state: QpState) -> Self {
        Self { state: Some(state), ..Self::default() }
    }

    /// Whether a queue pair in state `from` takes these.
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

/// One queue pair. Bounds: `sq_wrs_max` and `rq_wrs_max` requests.
#[derive(Debug)]
pub(crate) struct QueuePair {
    pub(crate) init: QpInit,
    pub(crate) state: QpState,
    pub(crate) qkey: u32,
    /// Send requests that have not completed.
    pub(crate) sends: u32,
    pub(crate) receives: VecDeque<Posted>,
    /// Send requests that wait for the queue pair to be ready to send again.
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
