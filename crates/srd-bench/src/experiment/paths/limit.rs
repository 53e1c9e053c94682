//! The rate limit of one flow, as a card applies it, for a host that sends one flow only.
//!
//! An instance of EC2 may send 10 Gb/s in one flow inside of a cluster placement group, and 25
//! Gb/s in a flow that ENA Express carries. The limit applies to the flow of the program, not to
//! the paths that Express uses. So it is set where the program's packets leave: at the host's
//! link, or at the interface of `srd up`. Both limits are divided by [`SCALE`], like the lab's
//! links.
//!
//! Bound: packets wait for [`WAIT_MAX_MS`] at most, and are dropped if they would wait longer.

use crate::experiment::{Stage, Variant};
use anyhow::Result;
use srd_lab::config::FabricConfig;
use srd_lab::fabric::Fabric;
use srd_lab::id::HostId;
use srd_lab::plan::{self, HOST_DEVICE};
use srd_lab::{command, express};

/// Divisor of rates: a link of 250 Mb/s represents one of 50 Gb/s.
pub(in crate::experiment) const SCALE: u32 = 200;
/// One flow in a cluster placement group, in Mb/s.
const PLAIN_MBPS: u32 = 10_000;
/// One flow that Express carries, in Mb/s.
const EXPRESS_MBPS: u32 = 25_000;
/// Longest time that a packet may wait.
const WAIT_MAX_MS: u32 = 10;

/// Rate that one flow of a transport may send here.
pub(in crate::experiment) fn flow_mbps(variant: Variant) -> u32 {
    if variant == Variant::Express { EXPRESS_MBPS / SCALE } else { PLAIN_MBPS / SCALE }
}

/// The limit; removed when this is dropped.
pub(in crate::experiment) struct FlowLimit<'a> {
    fabric: &'a Fabric,
    namespace: String,
    /// Whether the limit is on the host's own link. If so, `drop` restores the link's rate.
    /// Otherwise the limit is on the interface of `srd up`, which is removed together with its
    /// limit.
    own: bool,
}

impl<'a> FlowLimit<'a> {
    /// Limits the rate of a host's one flow.
    pub(in crate::experiment) fn set(stage: &Stage<'a>, host: HostId) -> Result<FlowLimit<'a>> {
        let own = stage.variant != Variant::Express;
        let device = if own { HOST_DEVICE } else { express::DEVICE };
        let namespace = stage.fabric.host_namespace(host)?;
        command::tc_batch_in(&namespace, &tc(stage.fabric.config(), device, stage.variant))?;
        Ok(FlowLimit { fabric: stage.fabric, namespace, own })
    }
}

fn tc(config: &FabricConfig, device: &str, variant: Variant) -> String {
    let mbps = flow_mbps(variant).min(config.host_rate_mbps);
    let queue_bytes = mbps * 1000 / 8 * WAIT_MAX_MS;
    plan::shape(config, device, mbps, queue_bytes.max(config.burst_bytes()))
}

impl Drop for FlowLimit<'_> {
    fn drop(&mut self) {
        if self.own {
            let config = self.fabric.config();
            let rate =
                plan::shape(config, HOST_DEVICE, config.host_rate_mbps, config.host_queue_bytes);
            // The host may be gone; then there is no link to restore.
            let _ = command::tc_batch_in(&self.namespace, &rate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_flows_have_less_than_half_of_what_express_has() {
        assert_eq!((flow_mbps(Variant::Plain), flow_mbps(Variant::Express)), (50, 125));
        let config = FabricConfig { host_rate_mbps: 250, ..FabricConfig::default() };
        let plain = tc(&config, HOST_DEVICE, Variant::Plain);
        assert!(plain.contains("dev eth0 root tbf rate 50mbit"), "{plain}");
        assert!(plain.contains("limit 62500\n"), "{plain}");
        let slow = FabricConfig { host_rate_mbps: 20, ..config };
        assert!(tc(&slow, "srd0", Variant::Express).contains("dev srd0 root tbf rate 20mbit"));
    }
}
