//! The experiment `incast`: many instances send to one instance at the same moment.

use super::ceilings::INTERFACES;
use super::figure::{Figure, Near};
use super::lab::{self, GuestTraffic, MTU, MTU_EXPRESS};
use super::{Experiment, Findings, Options};
use crate::engine::topology::Topology;
use crate::engine::topology::clos::{ClosSpec, Links};
use crate::engine::world::{ACK_BYTES, Ended, US, World};
use crate::machines::card::{CardNode, Pair};
use crate::workload::FlowPlan;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "incast",
    about: "48 instances of c6in.16xlarge send 512 KiB each to another one at the same moment, \
            each by a connection of its own, with ENA Express and plainly: when the last one is \
            complete, as a multiple of what the receiver's link needs for the bytes.",
    run,
};

const SENDERS: u32 = 48;
const BYTES: u64 = 512 << 10;
/// Host of the receiver, which follows the hosts of the senders.
const RECEIVER: u32 = SENDERS;
/// Time of the incast in picoseconds. Until then, the hosts establish their contexts.
const START_PS: u64 = 1_000 * US;
const HORIZON_PS: u64 = 5_000_000 * US;
/// The network has seven racks of seven hosts, and four paths between two racks.
const RACKS: u32 = 7;
const SPINES: u32 = 4;
const LINKS: Links = Links {
    host_bps: 100_000_000_000,
    up_bps: 200_000_000_000,
    latency_ps: US,
    switch_latency_ps: US / 2,
    bundle: 1,
};
/// Number of runs with different seeds. The result is the result of the worst run.
const SEEDS: u64 = 4;
/// Initial window of the endpoints in bytes. It is so small that the first bursts of all senders
/// fit into the queue of a port.
const TWO_PACKETS: u64 = 20_000;
const MOST: f64 = 1.05;
const SOURCE: &str = "SRD paper, figure of the incast";

/// Explanation why the incast takes longer than the reference value.
const BURST: &str = "the first ten segments of 48 connections at once overflow the receiver's \
    port: until what was lost is sent again hardly a frame is whole, and TCP sends nothing more";
const BURST_PERCENT: f64 = 1.0;

fn run(options: &Options) -> Result<Findings, String> {
    let plain = Pair { senders: SENDERS, ..Pair::of("c6in.16xlarge") };
    let express = Pair { express: true, ..plain.clone() };
    let mut found = Findings::default();
    for (name, pair, mtu, window_bytes) in [
        ("ENA Express", &express, MTU_EXPRESS, 0),
        ("ENA Express, first window of two packets", &express, MTU_EXPRESS, TWO_PACKETS),
        ("without ENA Express", &plain, MTU, 0),
    ] {
        let mut worst: f64 = 0.0;
        let (mut by_srd, mut packets) = (0, 0);
        let (mut lost, mut again, mut of_guests) = (0, 0, 0);
        for seed in options.seed..options.seed + SEEDS {
            let (world, over_ideal) = ran(pair, mtu, window_bytes, seed)?;
            worst = worst.max(over_ideal);
            let came = world.nodes()[RECEIVER as usize].stage().traffic;
            by_srd += came.srd_rx_pkts;
            packets += came.srd_rx_pkts + came.plain_rx_pkts;
            lost += world.counters().dropped_total();
            let nodes = world.nodes();
            again += nodes.iter().map(|node| node.totals().again).sum::<u64>();
            of_guests += nodes.iter().map(|node| node.tcp().segments_resent).sum::<u64>();
        }
        let name = format!("{name}, last of 48 over ideal, worst of {SEEDS} seeds");
        let figure = Figure::new(name.clone(), "", worst);
        let share = Figure::new("  share of packets that came by SRD", "", {
            by_srd as f64 / packets as f64
        });
        if pair.express {
            let figure = figure.wanted(MOST, Near::AtMost, SOURCE);
            let as_it_is = window_bytes == 0;
            found.figures.push(if as_it_is {
                figure.because(BURST, BURST_PERCENT)
            } else {
                figure
            });
            found.figures.push(share.wanted(1.0, Near::Exactly, INTERFACES));
        } else {
            found.figures.push(figure);
        }
        found.notes.push(format!(
            "{name}: the network lost {lost} packets; sent again: by SRD {again}, by guests \
             {of_guests}"
        ));
    }
    Ok(found)
}

/// Runs until all flows are complete. Returns the world, and the completion time of the last flow
/// as a multiple of the ideal: the time of all payload on the receiver's link, plus a round trip.
fn ran(
    pair: &Pair,
    mtu_bytes: u32,
    window_initial_bytes: u64,
    seed: u64,
) -> Result<(World<CardNode>, f64), String> {
    let spec = ClosSpec::leaf_spine(RACKS, SPINES, (SENDERS + 1) / RACKS, &LINKS);
    let network: Topology = spec.build().map_err(|error| error.0)?;
    let rtt_ps = network.base_rtt_ps(0, RECEIVER, mtu_bytes, ACK_BYTES.into());
    let ideal_ps = u64::from(SENDERS) * BYTES * 8_000 / (LINKS.host_bps / 1_000_000_000) + rtt_ps;
    let flow = |src| FlowPlan::at(START_PS, src, RECEIVER, BYTES);
    let flows: Vec<FlowPlan> = (0..SENDERS).map(flow).collect();
    let datagrams = vec![None; flows.len()];
    let triggers = Vec::new();
    let sent = GuestTraffic { datagrams, flows, triggers, mtu_bytes, window_initial_bytes };
    let mut world = lab::world_of(pair, network, sent, seed)?;
    if world.run(HORIZON_PS) != Ended::Finished {
        return Err("the incast does not end".into());
    }
    lab::check(&world)?;
    let last_ps = world.flows().iter().filter_map(|flow| flow.finished_ps).max();
    let took_ps = last_ps.unwrap_or(HORIZON_PS) - START_PS;
    Ok((world, took_ps as f64 / ideal_ps as f64))
}
