//! The limit of one flow, as the card has it, for a host that sends one flow only.
//!
//! An instance of EC2 may send 10 Gb/s in one flow inside of a cluster placement group, and 25 Gb/s
//! in one that ENA Express carries. What counts is the flow of the program, not the paths that
//! Express sends it on; so the limit stands where the program's packets leave it: at the host's
//! link, or at the interface of `srd up`. Both are divided by [`SCALE`], as the lab's links are.
//!
//! Bound: packets wait for [`WAIT_MAX_MS`] at most, and are dropped when they would wait longer.

use super::{Stage, Variant};
use anyhow::Result;
use srd_lab::config::FabricConfig;
use srd_lab::fabric::Fabric;
use srd_lab::id::HostId;
use srd_lab::plan::{self, HOST_DEVICE};
use srd_lab::{command, express};

/// A link of 250 Mb/s stands for one of 50 Gb/s.
pub(super) const SCALE: u32 = 200;
/// One flow in a cluster placement group, in Mb/s.
const PLAIN_MBPS: u32 = 10_000;
/// One flow that Express carries, in Mb/s.
const EXPRESS_MBPS: u32 = 25_000;
/// How long a packet may wait.
const WAIT_MAX_MS: u32 = 10;

/// What one flow of a transport may send here.
pub(super) fn flow_mbps(variant: Variant) -> u32 {
    if variant == Variant::Express { EXPRESS_MBPS / SCALE } else { PLAIN_MBPS / SCALE }
}

/// The limit, for as long as this lives.
pub(super) struct FlowLimit<'a> {
    fabric: &'a Fabric,
    namespace: String,
    /// At the host's own link, which goes back to its rate; an interface of `srd up` goes away.
    own: bool,
}

impl<'a> FlowLimit<'a> {
    /// Limits what a host sends in its one flow.
    pub(super) fn set(stage: &Stage<'a>, host: HostId) -> Result<FlowLimit<'a>> {
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
            // A host that is gone has no link to put right.
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
