//! Tests of instances behind the card, on one machine and on two.

#![allow(clippy::unwrap_used)] // a test may fail loudly

#[path = "../../../srd-net/tests/support/cable.rs"]
mod cable;
mod card_config;
mod card_device;
mod card_end;
mod card_lab;
mod card_metrics;
mod card_processors;
mod card_restart;
mod card_workers;
mod cards;
mod clients;
mod clouds;
mod cni;
mod control;
mod dpdk;
#[path = "../../../srd-control/tests/support/etcd.rs"]
mod etcd;
mod express;
mod fleet;
mod flow_logs;
#[path = "../../../srd-vhost/tests/support/mod.rs"]
mod front_end;
mod front_ends;
mod instances;
mod keys;
mod libfabric;
mod lives;
mod local_users;
mod node;
mod node_take_over;
mod privileges;
mod scaling;
mod services;
mod setups;
#[path = "../support/mod.rs"]
mod support;
mod take_over;
mod tenants;
mod traces;
mod trust;
mod upkeep;
mod virtual_machine;
