//! `srd set`: changes one setting of one peer, or of all peers, until the next restart or reload.

use super::Target;
use crate::failure::usage;
use crate::output;
use anyhow::Result;
use clap::{Args, ValueEnum};
use clap_complete::ArgValueCandidates;
use srd_daemon::config::{ALL_PEERS, UdpOrdering};
use srd_daemon::control::Request;
use srd_daemon::plane::Change;

/// `srd set`.
#[derive(Args, Clone, Debug)]
pub(crate) struct SetArgs {
    /// The peer's name, the beginning of its public key, or `all` for the whole interface. A node
    /// with instances only has no such settings.
    #[arg(add = ArgValueCandidates::new(super::complete::peer_names_and_all))]
    peer: String,
    /// Setting to change.
    #[arg(value_enum)]
    setting: Setting,
    /// New value: on or off; for udp-ordering, ordered or bypass.
    #[arg(value_enum)]
    value: Value,
    #[command(flatten)]
    target: Target,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Setting {
    /// Whether packets are sent over SRD: on or off.
    Express,
    /// Whether UDP is sent over SRD, too: on or off.
    Udp,
    /// Whether tunnels without ports (GRE, ESP, IP in IP) use SRD, too: on or off; only for `all`.
    Tunnels,
    /// Whether UDP is delivered in order: ordered or bypass; only for `all`.
    UdpOrdering,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Value {
    /// Switch it on.
    On,
    /// Switch it off.
    Off,
    /// UDP packets of a flow are delivered in the order in which they were sent.
    Ordered,
    /// UDP packets are delivered as they arrive.
    Bypass,
}

fn change(setting: Setting, value: Value) -> Result<Change> {
    let nothing = Change::default();
    match (setting, value) {
        (Setting::Express, Value::On | Value::Off) => {
            Ok(Change { express: Some(value == Value::On), ..nothing })
        }
        (Setting::Udp, Value::On | Value::Off) => {
            Ok(Change { udp: Some(value == Value::On), ..nothing })
        }
        (Setting::Tunnels, Value::On | Value::Off) => {
            Ok(Change { tunnels: Some(value == Value::On), ..nothing })
        }
        (Setting::UdpOrdering, Value::Ordered) => {
            Ok(Change { udp_ordering: Some(UdpOrdering::Ordered), ..nothing })
        }
        (Setting::UdpOrdering, Value::Bypass) => {
            Ok(Change { udp_ordering: Some(UdpOrdering::Bypass), ..nothing })
        }
        (Setting::UdpOrdering, _) => usage("udp-ordering is ordered or bypass"),
        (Setting::Express | Setting::Udp | Setting::Tunnels, _) => {
            usage("express, udp and tunnels are on or off")
        }
    }
}

/// Runs `srd set`.
pub(super) fn run(args: &SetArgs) -> Result<()> {
    let peer = (args.peer != ALL_PEERS).then(|| args.peer.clone());
    let change = Change { peer, ..change(args.setting, args.value)? };
    args.target.ask::<()>(&Request::Set(change))?;
    output::say("set, until the next restart or reload")
}
