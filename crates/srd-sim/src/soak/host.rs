//! Hosts in the configuration of the soak: addresses, keys, endpoints.

use std::net::SocketAddr;

use srd_proto::{Config, Duration, Endpoint, Epoch, Instant, Protection, Qpn, ReceiveBuffers};

use super::plan::Plan;
use crate::engine::hash::mix;
use crate::engine::nic;
use crate::engine::node::HostId;

/// Address of a host.
pub(super) fn address(host: u32, port: u16) -> SocketAddr {
    nic::address(HostId(host), port)
}

/// Host at an address.
pub(super) fn host_at(address: SocketAddr) -> Option<u32> {
    nic::host_at(address.ip()).map(|host| host.0)
}

/// Configuration of a host: the plan's, with a key of its own.
fn config(plan: &Plan, host: u32) -> Config {
    let mut config = plan.config.clone();
    if let Protection::Static(key) = &mut config.protection {
        for (n, word) in (0_u64..).zip(key.chunks_exact_mut(8)) {
            let mixed = mix(mix(plan.seed ^ n) ^ u64::from(host));
            word.copy_from_slice(&mixed.to_le_bytes());
        }
    }
    config
}

/// Creates an endpoint of a host.
pub(super) fn endpoint(plan: &Plan, host: u32, epoch: u64, now: Instant) -> Endpoint {
    let mut seed = [0; 32];
    for (n, word) in (1_u64..).zip(seed.chunks_exact_mut(8)) {
        let mixed = mix(mix(plan.seed ^ mix(n)) ^ u64::from(host) << 32 ^ epoch);
        word.copy_from_slice(&mixed.to_le_bytes());
    }
    // Epochs of runs are far apart: an endpoint counts its contexts up from its epoch.
    let made = Endpoint::new(config(plan, host), Epoch(epoch << 32), seed, now);
    let mut endpoint = made.expect("the plan keeps within the bounds");
    let buffers =
        plan.posting.map_or(ReceiveBuffers::Unlimited, |p| ReceiveBuffers::Counted(p.initial));
    for n in 0..plan.receive_qps {
        endpoint.open_qp(Qpn(n), buffers);
    }
    endpoint
}

/// Time that hosts of a plan may need to notice that all flows are over.
pub(super) fn settling(config: &Config) -> Duration {
    config.rto_max.times(8) + config.peer_timeout.times(2) + Duration::from_millis(5)
}
