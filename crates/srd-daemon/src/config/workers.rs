//! The setting `workers`: the number of threads that process packets.

use std::ops::RangeInclusive;

use srd_net::xdp::IoChoice;

use super::file::InterfaceTable;
use super::number::whole;
use srd_config::{ConfigError, Source};

/// Allowed numbers of threads that process packets.
const WORKERS: RangeInclusive<i64> = 1..=8;

type Result<T> = std::result::Result<T, ConfigError>;

/// Number of threads that process packets. If the file does not set it, this is one thread for
/// every two cores, or one thread with AF_XDP. Each thread sends from as many ports as there are
/// paths. The port ranges of the threads follow each other, starting at `port`.
pub(super) fn workers(
    source: &Source<'_>,
    table: &InterfaceTable,
    (port, paths): (u16, i64),
    io: IoChoice,
) -> Result<u8> {
    let most = (i64::from(u16::MAX) + 1 - i64::from(port)) / paths;
    let workers = match &table.workers {
        Some(text) => {
            let wanted = whole(source, Some(text), "workers", &WORKERS)?.unwrap_or(1);
            if wanted > most {
                let what =
                    format!("{wanted} workers of {paths} paths each do not fit behind port {port}");
                let remedy = format!("write a number of at most {most}, or take a smaller port");
                return Err(source.error(Some(text.span()), what, remedy));
            }
            if io == IoChoice::AfXdp && wanted > 1 {
                let what = format!("AF_XDP has one worker, and {wanted} are asked for");
                let remedy = "write workers = 1, or io = \"udp\"";
                return Err(source.error(Some(text.span()), what, remedy));
            }
            wanted
        }
        None if io == IoChoice::AfXdp => 1,
        None => {
            let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            i64::try_from(cores / 2).unwrap_or(1).min(most).clamp(*WORKERS.start(), *WORKERS.end())
        }
    };
    Ok(u8::try_from(workers).unwrap_or(1))
}
