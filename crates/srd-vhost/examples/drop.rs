//! A back end that reads frames and drops them, to measure the device alone.
//!
//! `cargo run --release -p srd-vhost --example drop -- /tmp/port.sock` prints frames per second.
//! With `join` as a second argument, the front end listens at the socket.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use srd_vhost::Device;

fn main() -> std::io::Result<()> {
    let path = std::env::args_os().nth(1).map(PathBuf::from);
    let path = path.ok_or_else(|| std::io::Error::other("say where the socket shall be"))?;
    let joins = std::env::args_os().nth(2).is_some_and(|word| word == "join");
    let mut device = if joins { Device::join(&path)? } else { Device::open(&path)? };
    let (mut frames, mut began) = (0_u64, Instant::now());
    loop {
        device.turn();
        device.wake();
        for _ in 0..64 {
            let Some(frame) = device.read() else { break };
            frames += u64::from(!std::hint::black_box(frame).packet.is_empty());
        }
        device.flush();
        if began.elapsed() >= Duration::from_secs(1) {
            println!("{frames} frames/s");
            (frames, began) = (0, Instant::now());
        }
    }
}
