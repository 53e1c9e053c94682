//! Commands that need no special network setup: bad input, files, measurements over loopback, and
//! the package.

#![allow(clippy::unwrap_used)] // a test may fail loudly

#[path = "../support/api.rs"]
mod api;
mod bad_input;
mod bench_scripts;
mod book;
mod captures;
mod check;
mod control;
mod control_state;
mod daemon;
#[path = "../../../srd-control/tests/support/etcd.rs"]
mod etcd;
mod import;
mod nfs_mount;
mod nfs_proxy;
mod package;
mod perf;
mod sim_capture;
mod sim_goal;
mod streams;
#[path = "../support/book.rs"]
mod support_book;
mod vpc;
