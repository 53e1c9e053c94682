//! Requests as clients send them, against the control plane without a socket and over one.

#![allow(clippy::unwrap_used)] // a test may fail loudly

mod access;
mod addresses;
mod beside;
mod configurations;
mod console;
mod controllers;
mod endpoints;
#[path = "../support/etcd.rs"]
mod etcd;
mod fleet;
mod hostile;
#[path = "../support/hostile/mod.rs"]
mod hostile_support;
mod hosts;
mod https;
mod identity;
mod keys;
mod launches;
mod mirrors;
mod overlaps;
mod planes;
mod pods;
mod races;
mod requests;
mod rules;
mod scaling;
mod seams;
mod sites;
mod socket;
mod storage;
mod support;
mod terraform;
mod transit;
mod vpns;
