//! The rate limit of one flow, as a cloud's network card applies it, for a host that sends only one
//! flow.
//!
//! An instance of EC2 may send 10 Gb/s in one flow inside of a cluster placement group, and 25 Gb/s
//! in one flow over ENA Express. The limit applies to the flow of the program, not to the paths
//! that Express uses. Therefore it is set at the interface through which the program sends: the
//! host's link, or the interface of `srd up`. Both limits are divided by [`SCALE`], like the rates
//! of the lab's links.
//!
//! Bound: a packet waits for [`WAIT_MAX_MS`] at most; a packet that would wait longer is dropped.

use crate::experiment::{Stage, Variant};
use anyhow::Result;
use srd_lab::config::FabricConfig;
use srd_lab::fabric::Fabric;
use srd_lab::id::HostId;
use srd_lab::plan::{self, HOST_DEVICE};
use srd_lab::{command, express};

/// Divisor of all rates: a link of 250 Mb/s in the lab stands for one of 50 Gb/s.
pub(in crate::experiment) const SCALE: u32 = 200;
/// Rate limit of one flow in a cluster placement group, in Mb/s.
const PLAIN_MBPS: u32 = 10_000;
/// Rate limit of one flow over ENA Express, in Mb/s.
const EXPRESS_MBPS: u32 = 25_000;
/// Longest time in milliseconds that a packet may wait for the limit.
const WAIT_MAX_MS: u32 = 10;

/// Returns the rate limit of one flow with a transport in the lab, in Mb/s.
pub(in crate::experiment) fn flow_mbps(variant: Variant) -> u32 {
    if variant == Variant::Express { EXPRESS_MBPS / SCALE } else { PLAIN_MBPS / SCALE }
}

/// The limit of one host, which is removed when this is dropped.
pub(in crate::experiment) struct FlowLimit<'a> {
    fabric: &'a Fabric,
    namespace: String,
    /// Whether the limit is on the host's own link. If so, dropping this restores the link's rate.
    /// Otherwise the limit is on the interface of `srd up`, which is later deleted together with
    /// its limit.
    own: bool,
}

impl<'a> FlowLimit<'a> {
    /// Limits the rate at which a host may send its only flow.
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
            // If the host was removed, there is no link to restore.
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
