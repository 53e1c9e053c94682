//! The experiment `nconnect`: many connections, each of which is limited to the rate of one flow.

use super::ceilings::{by_srd, moved, ran};
use super::figure::{Figure, Near};
use super::lab::{MS, MTU, MTU_EXPRESS, SECOND};
use super::{Experiment, Findings, Options};
use crate::machines::card::Pair;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "nconnect",
    about: "c6in.16xlarge (100 Gb/s), outside of a placement group, over four paths of 25 Gb/s: 16 \
            connections, as an NFS mount with `nconnect=16` opens, of at most 5 Gb/s each reach 80 \
            of 100 at most; with ENA Express they ride SRD over all paths, and reach the bandwidth \
            of the instance.",
    run,
};

const SOURCE: &str = "ENA Express and nconnect";

fn run(options: &Options) -> Result<Findings, String> {
    let time_ps = options.quick_or(50 * MS, SECOND);
    let pair = Pair { clustered: false, ..Pair::of("c6in.16xlarge") };
    let express = Pair { express: true, ..pair.clone() };
    let mut found = Findings::default();
    for (name, pair, mtu, flows, (gbps, near)) in [
        ("one connection", &pair, MTU, 1, (5.0, Near::SIMULATED)),
        ("16 connections", &pair, MTU, 16, (80.0, Near::AtMost)),
        ("one connection, ENA Express", &express, MTU_EXPRESS, 1, (25.0, Near::SIMULATED)),
        ("16 connections, ENA Express", &express, MTU_EXPRESS, 16, (95.5, Near::SIMULATED)),
    ] {
        let ran = ran(pair, mtu, flows, time_ps, options.seed)?;
        let figure = Figure::new(name, "Gb/s", ran.all_gbps());
        found.figures.push(figure.wanted(gbps, near, SOURCE));
        found.figures.extend(by_srd(pair, &ran.world));
        found.notes.push(moved(name, &ran.world));
    }
    found.notes.push(
        "the source measured 64 without ENA Express and names 80 as the wall: connections whose \
         ports hash to one path share it"
            .into(),
    );
    Ok(found)
}
