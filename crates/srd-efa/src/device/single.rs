//! A device with one queue pair, ready to send. The layers [`crate::rdm`] and [`crate::direct`] use
//! it.

use srd_proto::{Endpoint, Instant};

use crate::config::Config;
use crate::device::state::Device;
use crate::error::CreateError;
use crate::handle::{Cq, Pd};
use crate::layer::request::Shared;
use crate::layer::world::Refused;
use crate::mr::{Access, MRS_MAX, Mr, Registration};
use crate::qp::{QpAttr, QpInit, QpType};

/// A device with one protection domain, one completion queue and one queue pair.
pub(crate) struct SingleQp {
    pub(crate) device: Device,
    pub(crate) pd: Pd,
    pub(crate) cq: Cq,
    /// Local key of the registration that covers the whole address space.
    pub(crate) lkey: u32,
}

impl SingleQp {
    /// Makes a device with a queue pair `limits.qpn_first` that has space for all work requests of
    /// `limits`.
    ///
    /// # Panics
    /// Never: a new device has space for the objects that this function makes.
    pub(crate) fn new(limits: Config, endpoint: &mut Endpoint, qkey: u32, rnr_retry: u8) -> Self {
        let limits = Config { qps_max: 1, pds_max: 1, cqs_max: 1, mrs_max: MRS_MAX, ..limits };
        let Config { sq_wrs_max, rq_wrs_max, cq_entries_max, inline_bytes_max, .. } = limits;
        let mut device = Device::new(limits, endpoint);
        let pd = device.alloc_pd().expect("a new device has room");
        let cq = device.create_cq(cq_entries_max).expect("a new device has room");
        let qp = QpInit {
            pd,
            qp_type: QpType::Srd,
            send_cq: cq,
            recv_cq: cq,
            sq_wrs_max,
            rq_wrs_max,
            inline_bytes_max,
            service_level: 0,
            unsolicited_write_recv: true,
        };
        let qpn = device.create_qp(endpoint, qp).expect("a new device has room");
        let rts = QpAttr { rnr_retry: Some(rnr_retry), ..QpAttr::rts() };
        for attr in [QpAttr::init(qkey), QpAttr::rtr(), rts] {
            let modified = device.modify_qp(Instant::ZERO, endpoint, qpn, &attr);
            modified.expect("the way of every queue pair");
        }
        let access = Access { local_write: true, ..Access::default() };
        let all = Registration { region: 0, addr: 0, length: u64::MAX, access };
        let lkey = device.reg_mr(pd, all).expect("a new device has room").lkey;
        Self { device, pd, cq, lkey }
    }
}

impl Shared {
    /// Registers the memory for peers, with the remote key that the caller chose.
    pub(crate) fn register(self, device: &mut Device, pd: Pd) -> Result<Mr, Refused> {
        let Self { region, addr, length, rkey, mut access } = self;
        // Remote write implies local write.
        access.local_write |= access.remote_write;
        let registration = Registration { region, addr, length, access };
        device.reg_mr_as(pd, registration, rkey).map_err(|error| match error {
            CreateError::Full => Refused::Again,
            _ => Refused::Invalid,
        })
    }
}
