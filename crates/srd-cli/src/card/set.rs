//! `srd card set`: queues, rings, steering and interrupts of an instance's device.

use anyhow::{Result, bail};
use clap::Args;
use srd_guest::Client;
use srd_guest::protocol::{Answer, DeviceChange, DeviceReport, DeviceRule, Request, RssTable};

use super::SocketArg;
use crate::output::{JsonOutput, say};

const NOTES: &str = "\
EXAMPLES
  srd card set web                                   # what the device is set to
  srd card set web --queues 2 --rx-ring 4096         # 2 are the most of a c7i.large
  srd card set web --rss-weights 3,1                 # three of four flows to queue 0
  srd card set web --rx-usecs 20                     # as the driver on EC2 begins
  srd card set db --rule 'tcp4 dst-port 22 action 1 loc 0'
  srd card set db --delete-rule 0

n-tuple rules are for types of Nitro v5 and later, as c7gn, c8g and c8i: `srd run --type c8g.xlarge
--subnet app --name db -- sh` starts one; --subnet is needed if the VPC has several.
A change is whole, or nothing of it is done. Rules are written as for `ethtool -N`; they come before
the hash, in the order of their places. `srd card stats` shows what each queue has carried.

EXIT CODES
  0  it worked
  1  no card answers, or it failed
  2  wrong arguments, or the card refuses them; or several cards run, and none is named
  3  it needs root";

/// Arguments of `srd card set`.
#[derive(Args, Clone, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct SetArgs {
    /// Name of the instance.
    instance: String,
    /// The device, as ens6. Default: the first device.
    device: Option<String>,
    /// Number of queue pairs, up to the type's maximum, which is at most one for each vCPU. Like
    /// each setting without its option, it stays as it is by default.
    #[arg(long, value_name = "N")]
    queues: Option<u16>,
    /// Maximum number of packets that wait in a queue for the card: a power of two from 256 to
    /// 1024.
    #[arg(long, value_name = "N")]
    tx_ring: Option<u32>,
    /// Maximum number of packets that wait in a queue for the instance while interrupts are held
    /// back: a power of two from 256 to 16384.
    #[arg(long, value_name = "N")]
    rx_ring: Option<u32>,
    /// Spread flows evenly over the first N queues.
    #[arg(long, value_name = "N", group = "rss")]
    rss_equal: Option<u16>,
    /// Spread flows in proportion to these weights: of queue 0, queue 1, and so on.
    #[arg(long, value_name = "W,W,...", value_delimiter = ',', group = "rss")]
    rss_weights: Vec<u32>,
    /// Spread flows evenly over all queues, whatever their number.
    #[arg(long, group = "rss")]
    rss_default: bool,
    /// Key of the hash, 40 bytes as 6d:5a:...; `default` for the adapter's own, which puts both
    /// directions of a flow into one queue.
    #[arg(long, value_name = "KEY")]
    rss_key: Option<String>,
    /// Add a rule that steers packets to a queue, as `tcp4 dst-port 22 action 1 loc 0`; it replaces
    /// a rule at the same location.
    #[arg(long, value_name = "RULE")]
    rule: Vec<DeviceRule>,
    /// Delete the rule at this location of the table.
    #[arg(long, value_name = "LOC")]
    delete_rule: Vec<u32>,
    /// Hold interrupts back for this number of microseconds after a packet for the instance, 0 to
    /// 10000.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    rx_usecs: Option<u32>,
    /// Adapt the time of --rx-usecs to the traffic.
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    adaptive_rx: Option<bool>,
    #[command(flatten)]
    socket: SocketArg,
    #[command(flatten)]
    json: JsonOutput,
}

fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(String::from("give on or off")),
    }
}

impl SetArgs {
    fn change(&self) -> DeviceChange {
        let weights = Some(&self.rss_weights).filter(|weights| !weights.is_empty());
        let rss = match (self.rss_equal, weights) {
            (Some(queues), _) => Some(RssTable::Equal(queues)),
            (None, Some(weights)) => Some(RssTable::Weights(weights.clone())),
            (None, None) => self.rss_default.then_some(RssTable::Default),
        };
        DeviceChange {
            queues: self.queues,
            tx_ring: self.tx_ring,
            rx_ring: self.rx_ring,
            rss,
            rss_key: self.rss_key.clone(),
            delete_rules: self.delete_rule.clone(),
            rules: self.rule.clone(),
            rx_usecs: self.rx_usecs,
            adaptive_rx: self.adaptive_rx,
        }
    }
}

pub(super) fn run(args: &SetArgs) -> Result<u8> {
    args.json.check()?;
    let mut client = Client::connect(&args.socket.path()?)?;
    let (instance, device) = (args.instance.clone(), args.device.clone());
    let request = Request::Device { instance, device, change: args.change() };
    let Answer::Device(report) = client.ask(&request).map_err(super::or_usage)? else {
        bail!("the card answers something else");
    };
    args.json.write(&report)?;
    if !args.json.owns_stdout() {
        show(&report)?;
    }
    Ok(0)
}

fn show(report: &DeviceReport) -> Result<()> {
    let DeviceReport { instance, instance_type, device, queues_max, settings, .. } = report;
    let called = report.renamed.as_ref().map(|name| format!(", which the instance calls {name}"));
    say(format!("{instance} {device} ({instance_type}){}", called.unwrap_or_default()))?;
    say(format!("  queues       {} of {queues_max}", settings.queues))?;
    say(format!("  rings        tx {}, rx {}", settings.tx_ring, settings.rx_ring))?;
    let entries = |queue: u16| settings.rss_table.iter().filter(|of| **of == queue).count();
    let entries: Vec<String> =
        (0..settings.queues).map(|queue| entries(queue).to_string()).collect();
    let set = if settings.rss_table_is_set { "set" } else { "default" };
    say(format!("  rss entries  {} ({set})", entries.join(" ")))?;
    say(format!("  rss key      {}", settings.rss_key.as_deref().unwrap_or("the adapter's own")))?;
    let adaptive = if settings.adaptive_rx { "on" } else { "off" };
    say(format!("  interrupts   rx-usecs {}, adaptive-rx {adaptive}", settings.rx_usecs))?;
    match report.rule_places {
        0 => say("  rules        the type takes none")?,
        places => say(format!("  rules        {} of {places} places", report.rules.len()))?,
    }
    for rule in &report.rules {
        say(format!("    {rule}"))?;
    }
    Ok(())
}
