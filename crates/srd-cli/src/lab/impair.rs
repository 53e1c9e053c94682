//! `srd lab impair`: puts an impaired wire between two hosts while a command runs.

use super::{NameArgs, open};
use crate::output::{JsonOutput, tell};
use crate::units::bytes;
use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use srd_chart::Table;
use srd_lab::{HostId, Impairment, impair::Direction};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;

const EXAMPLES: &str = "\
EXAMPLES
  srd lab impair h0.0 h1.0 --delay 2ms --paths 1 --in h0.0 -- ping -c3 198.18.1.1
  srd lab impair h0.0 h1.0 --loss 0.5% --delay 50us..500us -- ./my-test.sh
  srd lab impair h0.0 h1.0 --loss 2% --jitter 100us --json wire.json -- sleep 60

Without --in the command runs where you are, not in a host, so that it may start something in both
with `srd lab exec`. All that the two hosts say to each other meanwhile
goes by the wire, with their addresses as they are; what they say to others does not.

EXIT CODES
  that of the command; if it was not started: 1 it failed, 2 wrong arguments, 3 it needs root";

/// `srd lab impair`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ImpairArgs {
    #[command(flatten)]
    name: NameArgs,
    /// One end, for example h0.0.
    from: String,
    /// The other end, for example h1.0.
    to: String,
    /// Share of packets that are lost in each direction, in percent.
    #[arg(long, value_name = "PERCENT", default_value = "0", value_parser = parse_ppm)]
    loss: u32,
    /// Paths of the wire, 1 to 1024. The same number of consecutive source ports uses each path
    /// once.
    #[arg(long, value_name = "N", default_value_t = Impairment::default().paths)]
    paths: u16,
    /// Delays of the shortest and of the longest path, with equal steps between; or one delay for
    /// all.
    #[arg(long, value_name = "TIME[..TIME]", default_value = "50us..500us",
          value_parser = parse_delay)]
    delay: (u64, u64),
    /// Maximum of an additional random delay of each packet; packets of one path then overtake each
    /// other.
    #[arg(long, value_name = "TIME", default_value = "0us", value_parser = parse_ns)]
    jitter: u64,
    /// Seed of losses and jitter.
    #[arg(long, value_name = "N", default_value_t = Impairment::default().seed)]
    seed: u64,
    /// Maximum number of packets on the wire in each direction; further packets are dropped and
    /// counted.
    #[arg(long, value_name = "PACKETS", default_value_t = Impairment::default().queue_packets_max)]
    queue: u32,
    /// Also write the wire's counters as JSON to this file. Standard output is the command's.
    #[arg(long, value_name = "FILE")]
    json: Option<OsString>,
    /// Run the command in this host.
    #[arg(long = "in", value_name = "HOST")]
    inside: Option<HostId>,
    /// The command to run, and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Result of `srd lab impair` in JSON.
#[derive(Serialize)]
struct Report {
    impairment: Impairment,
    seconds: f64,
    exit_code: i32,
    directions: [Direction; 2],
}

/// Returns the command to run: as the user gave it, or so that it runs in a host of the lab.
fn command(args: &ImpairArgs, program: PathBuf) -> Vec<OsString> {
    let Some(host) = &args.inside else { return args.command.clone() };
    let words = ["lab", "exec", "--name", &args.name.name, &host.to_string(), "--"];
    let words = words.map(OsString::from);
    [program.into()].into_iter().chain(words).chain(args.command.iter().cloned()).collect()
}

/// Runs the command while the impaired wire is in place. Returns the command's exit code.
pub(super) fn run(args: &ImpairArgs) -> Result<u8> {
    let impairment = Impairment {
        loss_ppm: args.loss,
        paths: args.paths,
        delay_min_ns: args.delay.0,
        delay_max_ns: args.delay.1,
        jitter_ns: args.jitter,
        seed: args.seed,
        queue_packets_max: args.queue,
    };
    let hosts: [HostId; 2] = [args.from.parse()?, args.to.parse()?];
    impairment.validate()?;
    let json = JsonOutput { json: args.json.clone() };
    json.check_beside_program()?;
    let fabric = open(&args.name)?;
    let command = command(args, std::env::current_exe().context("where is this program")?);
    if args.inside.is_none() {
        tell!("srd: the command runs here and not in a host; --in {} runs it there", args.from);
    }
    let begun = Instant::now();
    let (exit_code, directions) = fabric.run_impaired(hosts, &impairment, &command)?;
    let seconds = begun.elapsed().as_secs_f64();
    // Standard output belongs to the command, so the table goes to standard error.
    tell!("{}", table(&directions));
    json.write(&Report { impairment, seconds, exit_code, directions })?;
    Ok(u8::try_from(exit_code).unwrap_or(1))
}

fn table(directions: &[Direction; 2]) -> String {
    let mut table = Table::new([
        "wire",
        "packets",
        "bytes",
        "lost",
        "dropped",
        "overtaken",
        "paths",
        "most",
        "late",
    ]);
    for direction in directions {
        let carried = &direction.carried;
        let dropped = carried.overflowed + carried.refused + direction.device_dropped;
        table.row([
            format!("{} to {}", direction.from, direction.to),
            carried.packets.to_string(),
            bytes(carried.bytes),
            carried.lost.to_string(),
            dropped.to_string(),
            carried.overtaken.to_string(),
            carried.paths_used.to_string(),
            carried.under_way_most.to_string(),
            format!("{:.0} us, {:.0} at most", carried.late_us_mean, carried.late_us_max),
        ]);
    }
    table.to_string()
}

/// Parses a percentage, with or without the percent sign, as parts of a million.
fn parse_ppm(text: &str) -> Result<u32, String> {
    let expected = "write a share as 0.5 or 0.5%";
    let percent: f64 = text.strip_suffix('%').unwrap_or(text).parse().map_err(|_| expected)?;
    if !(0.0..=100.0).contains(&percent) {
        return Err(format!("must be 0 to 100; {expected}"));
    }
    // In range, and the rounding error is less than a millionth.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Ok((percent * 1e4).round() as u32)
}

/// Parses one delay (`50us`), or the shortest and the longest delay (`50us..500us`). Returns two
/// numbers of nanoseconds.
fn parse_delay(text: &str) -> Result<(u64, u64), String> {
    let (least, most) = text.split_once("..").unwrap_or((text, text));
    let (least, most) = (parse_ns(least)?, parse_ns(most)?);
    if least > most {
        return Err("write the shorter delay first, as 50us..500us".into());
    }
    Ok((least, most))
}

/// Parses a time of at most a second, with its unit. Returns nanoseconds.
fn parse_ns(text: &str) -> Result<u64, String> {
    let expected = "write a time as 50us, 2.5ms or 0us";
    let (digits, unit_ns) = if let Some(digits) = text.strip_suffix("us") {
        (digits, 1e3)
    } else if let Some(digits) = text.strip_suffix("ms") {
        (digits, 1e6)
    } else {
        return Err(expected.into());
    };
    let ns = digits.parse::<f64>().map_err(|_| expected)? * unit_ns;
    if !(0.0..=1e9).contains(&ns) {
        return Err(format!("must be at most 1000ms; {expected}"));
    }
    // In range, and fractions of a nanosecond do not matter.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Ok(ns.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_times_as_people_write_them() {
        assert_eq!(parse_ppm("0.5%"), Ok(5000));
        assert_eq!(parse_ppm("2"), Ok(20_000));
        assert_eq!(parse_ppm("100%"), Ok(1_000_000));
        assert_eq!(parse_delay("50us..0.5ms"), Ok((50_000, 500_000)));
        assert_eq!(parse_delay("2ms"), Ok((2_000_000, 2_000_000)));
        assert_eq!(parse_ns("0us"), Ok(0));
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for text in ["", "%", "-1", "101", "NaN", "half"] {
            assert!(parse_ppm(text).expect_err(text).contains("0.5%"), "{text}");
        }
        for text in ["", "us", "50", "5s", "-1us", "1001ms", "NaNus", "infms"] {
            assert!(parse_ns(text).expect_err(text).contains("2.5ms"), "{text}");
        }
        assert!(parse_delay("500us..50us").expect_err("swapped").contains("shorter"));
        assert!(parse_delay("50us..").is_err());
    }
}
