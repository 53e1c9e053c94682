//! Measures the kernel's TCP on the fabric: one flow, a failed spine, an incast.
//!
//! Run as root: `kernel_tcp flow|failover|incast [cubic|bbr|reno] [subflows] [rounds]`.

use anyhow::{Result, bail};
use srd_bench::tcp::{Failover, Flow, Incast, barrier_incast, failover, single_flow};
use srd_lab::{Fabric, FabricConfig, priority};
use std::time::{Duration, Instant};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |number: usize| arguments.get(number).map(String::as_str);
    let congestion = argument(1).unwrap_or("cubic").parse().map_err(anyhow::Error::msg)?;
    let mptcp_subflows = argument(2).unwrap_or("0").parse()?;
    let rounds = argument(3).unwrap_or("5").parse()?;
    let what = argument(0).unwrap_or("flow");

    let uplink_rate_mbps = if what == "incast" { 1000 } else { 250 };
    let config =
        FabricConfig { name_prefix: "tcp".into(), uplink_rate_mbps, ..FabricConfig::default() };
    let start = Instant::now();
    let fabric = Fabric::up_guarded(config)?;
    println!("up in {} ms", start.elapsed().as_millis());
    let _priority = priority::raise(Duration::from_secs(60))?;
    let flow = Flow { congestion, mptcp_subflows, ..Flow::default() };
    match what {
        "flow" => {
            let seen = single_flow(&fabric, &flow)?;
            println!("{:.1} Mb/s, CPU {:.0} %", seen.mbps, seen.cpu.busy_share() * 100.0);
        }
        "failover" => {
            let plan = Failover::default();
            let flow = Flow { seconds: plan.flow.seconds, ..flow };
            let seen = failover(&fabric, &Failover { flow, ..plan })?;
            println!(
                "spine {} dead from {} to {} ms: nothing arrived for {} ms, recovered: {}",
                seen.spine.busiest, seen.failed_ms, seen.healed_ms, seen.silence_ms, seen.recovered
            );
            for half_second in seen.throughput.intervals.chunks(100) {
                let bytes: u64 = half_second.iter().map(|(_, bytes)| bytes).sum();
                println!("{:>6} ms {:>7.1} Mb/s", half_second[0].0, bytes as f64 * 16.0 / 1e6);
            }
        }
        "incast" => {
            let incast = Incast { congestion, mptcp_subflows, rounds, ..Incast::default() };
            let seen = barrier_incast(&fabric, &incast)?;
            let (summary, cpu) = (seen.summary(), seen.cpu.busy_share() * 100.0);
            println!("ideal {} us, {summary:#?}, CPU {cpu:.0} %", seen.ideal_us);
            let worst = seen.rounds.iter().map(|round| round.worst_us().map(|us| us / 1000));
            println!("slowest flow of each round, ms: {:?}", worst.collect::<Vec<_>>());
            println!("{} packets dropped", seen.dropped_packets);
        }
        other => bail!("`{other}` is none of flow, failover, incast"),
    }
    println!("down: {:?}", fabric.down()?.namespaces.len());
    Ok(())
}
