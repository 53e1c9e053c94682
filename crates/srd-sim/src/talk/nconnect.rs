//! Many connections against the ceiling of each: `nconnect`.

use super::ceilings::{moved, ran};
use super::figure::{Figure, Near};
use super::lab::{MS, MTU, MTU_EXPRESS, SECOND};
use super::{Experiment, Found, Options};
use crate::card::Pair;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "nconnect",
    about: "c6in.16xlarge (100 Gb/s), outside of a placement group: 16 connections, as an NFS \
            mount with `nconnect=16` opens, of at most 5 Gb/s each reach 80 of 100; with ENA \
            Express they reach the bandwidth of the instance.",
    run,
};

const SOURCE: &str = "ENA Express and nconnect";

/// Why 16 connections with ENA Express have more than the source measured.
const SERVER: &str = "the source reads files from an NFS server, whose own limits and headers are \
    not simulated; the instance has 100 Gb/s";

fn run(options: &Options) -> Result<Found, String> {
    let time_ps = options.quick_or(50 * MS, SECOND);
    let pair = Pair { clustered: false, ..Pair::of("c6in.16xlarge") };
    let express = Pair { express: true, ..pair.clone() };
    let mut found = Found::default();
    for (name, pair, mtu, flows, gbps) in [
        ("one connection", &pair, MTU, 1, 5.0),
        ("16 connections", &pair, MTU, 16, 80.0),
        ("one connection, ENA Express", &express, MTU_EXPRESS, 1, 25.0),
        ("16 connections, ENA Express", &express, MTU_EXPRESS, 16, 95.5),
    ] {
        let ran = ran(pair, mtu, flows, time_ps, options.seed)?;
        let figure = Figure::new(name, "Gb/s", ran.all_gbps());
        let figure = figure.wanted(gbps, Near::SIMULATED, SOURCE);
        let served = flows > 1 && pair.express;
        found.figures.push(if served { figure.because(SERVER) } else { figure });
        found.notes.push(moved(name, &ran.world));
    }
    found.notes.push(
        "the source measured 64 without ENA Express and names 80 as the wall; ENA Express is its \
         ceiling here: the path between the hosts is one fast link"
            .into(),
    );
    Ok(found)
}
