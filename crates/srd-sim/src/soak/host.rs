//! Hosts of the soak: addresses, keys, endpoints.

use std::net::SocketAddr;

use srd_proto::{Config, Duration, Endpoint, Epoch, Instant, Protection, Qpn, ReceiveBuffers};

use super::plan::Plan;
use crate::engine::hash::mix;
use crate::engine::nic;
use crate::engine::node::HostId;

/// Returns the address of a host.
pub(super) fn address(host: u32, port: u16) -> SocketAddr {
    nic::address(HostId(host), port)
}

/// Returns the host at an address; `None` for IPv6.
pub(super) fn host_at(address: SocketAddr) -> Option<u32> {
    nic::host_at(address.ip()).map(|host| host.0)
}

/// Returns the endpoint configuration of a host: that of the plan, with a private key for each host
/// if static keys are used.
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

/// Creates the endpoint of a host for the run with number `epoch`.
pub(super) fn endpoint(plan: &Plan, host: u32, epoch: u64, now: Instant) -> Endpoint {
    let mut seed = [0; 32];
    for (n, word) in (1_u64..).zip(seed.chunks_exact_mut(8)) {
        let mixed = mix(mix(plan.seed ^ mix(n)) ^ u64::from(host) << 32 ^ epoch);
        word.copy_from_slice(&mixed.to_le_bytes());
    }
    // The epochs of a host's runs are far apart, because an endpoint numbers its contexts upwards
    // from its epoch.
    let made = Endpoint::new(config(plan, host), Epoch(epoch << 32), seed, now);
    let mut endpoint = made.expect("the plan keeps within the bounds");
    let buffers =
        plan.posting.map_or(ReceiveBuffers::Unlimited, |p| ReceiveBuffers::Counted(p.initial));
    for n in 0..plan.receive_qps {
        endpoint.open_qp(Qpn(n), buffers);
    }
    endpoint
}

/// Returns the time that hosts may need to notice that all flows have ended.
pub(super) fn settling(config: &Config) -> Duration {
    config.rto_max.times(8) + config.peer_timeout.times(2) + Duration::from_millis(5)
}
