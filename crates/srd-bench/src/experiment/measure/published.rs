//! Figures that AWS has published for the same experiments, shown beside the measured ones.
//!
//! The texts name their sources in parentheses. *Express* is the article on ENA Express's effect on
//! workloads. *SRD* is "A Cloud-Optimized Transport Protocol for Elastic and Scalable HPC" (IEEE
//! Micro, 2020). *efs-utils* are the release notes of its versions 2.0.0 and 2.0.1. *Hadoop* is the
//! comparison of instances with and without Enhanced Networking (2015).

/// Returns the published figures for an experiment; `None` if there are no such figures.
pub(in crate::experiment) fn of(experiment: &str) -> Option<&'static str> {
    let (_, statement) = STATEMENTS.iter().find(|(name, _)| *name == experiment)?;
    Some(statement)
}

const STATEMENTS: &[(&str, &str)] = &[
    ("single-flow", "one flow of TCP goes from 5 to as much as 25 Gb/s, 5 x (Express)"),
    (
        "nconnect",
        "16 connections of NFS carry 64 Gb/s of 100 without ENA Express, where the limit of a \
         flow is 5 Gb/s, and 95.5 with it (Express)",
    ),
    (
        "redis",
        "at a million requests a second for eight hours, a SET takes 200 ms at p99.999 and \
         nearly 500 ms at p100 over TCP, and less than 10 ms up to p100 with ENA Express; a \
         GET at p100 takes more than 100 times less (Express)",
    ),
    (
        "video",
        "over plain UDP many frames of HD come more than 16.7 ms after the last; with ENA \
         Express none of 4K does (Express)",
    ),
    (
        "incast",
        "the same 48 flows: the slowest over TCP takes 3 to 20 times the ideal, over SRD \
         about the ideal (SRD)",
    ),
    (
        "failover",
        "SRD sends again on another path, 100 to 1,000 times as fast as routing converges \
         (SRD)",
    ),
    (
        "fairness",
        "over SRD each of 48 flows keeps its share of some 2 Gb/s; over TCP shares go up and \
         down, and some flows stay far below (SRD)",
    ),
    (
        "collisions",
        "with uplinks half full, the mean time of a flow is 50 % above the ideal over TCP, \
         its tail 10 to 100 times the ideal; over SRD the median is 15 % above, the slowest \
         below TCP's mean (SRD)",
    ),
    (
        "nfs",
        "one connection reads up to 5 times as fast with ENA Express (Express); writes of 9 \
         KiB took 45 to 65 ms until efs-proxy set TCP_NODELAY, and several connections raise \
         a client's limit from 500 to 1,500 MiB/s (efs-utils)",
    ),
    (
        "hadoop",
        "with Enhanced Networking TestDFSIO writes 2.36 and reads 2.26 times as fast, TeraGen \
         gains 29 %, TeraSort takes 20 % less time; placement adds nothing (Hadoop)",
    ),
    (
        "mpi-incast",
        "48 ranks of four hosts to one: about the ideal over SRD, 3 to 20 times that over TCP \
         (SRD)",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_statement_is_of_an_experiment() {
        for (name, _) in STATEMENTS {
            assert!(crate::experiment::find(name).is_some(), "{name}");
        }
        assert_eq!(of("soak"), None);
    }
}
