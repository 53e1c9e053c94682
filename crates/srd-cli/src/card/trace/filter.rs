//! Filters of packets, in the syntax of tcpdump.

use std::net::IpAddr;
use std::str::FromStr;

use anyhow::{Result, bail};
use srd_guest::protocol::TraceFilter;

/// Advice for the user if a filter cannot be parsed.
const FORM: &str = "write for example: tcp port 443, udp dst port 53, icmp host 10.0.1.10, \
                    src 10.0.1.10 dst port 80, proto 47";

/// Parses a filter. A packet matches if it meets all conditions of the filter.
pub(super) fn parse(words: &[String]) -> Result<TraceFilter> {
    let mut filter = TraceFilter::default();
    let mut words = words.iter().flat_map(|words| words.split_whitespace());
    while let Some(word) = words.next() {
        match word {
            "and" => {}
            "tcp" => set(&mut filter.protocol, word, 6)?,
            "udp" => set(&mut filter.protocol, word, 17)?,
            "icmp" => set(&mut filter.protocol, word, 1)?,
            "icmp6" | "icmpv6" => set(&mut filter.protocol, word, 58)?,
            "proto" => set(&mut filter.protocol, word, value(word, words.next())?)?,
            "host" => set(&mut filter.host, word, value(word, words.next())?)?,
            "port" => set(&mut filter.port, word, value(word, words.next())?)?,
            "sport" => set(&mut filter.source_port, word, value(word, words.next())?)?,
            "dport" => set(&mut filter.destination_port, word, value(word, words.next())?)?,
            "src" | "dst" => {
                let (address, port) = if word == "src" {
                    (&mut filter.source, &mut filter.source_port)
                } else {
                    (&mut filter.destination, &mut filter.destination_port)
                };
                match words.next() {
                    Some("port") => set(port, word, value(word, words.next())?)?,
                    Some("host") => set(address, word, value(word, words.next())?)?,
                    other => set(address, word, value(word, other)?)?,
                }
            }
            other => bail!("`{other}` is no condition of a filter; {FORM}"),
        }
    }
    Ok(filter)
}

fn set<T>(place: &mut Option<T>, word: &str, value: T) -> Result<()> {
    if place.replace(value).is_some() {
        bail!("`{word}`: a packet has only one of these, and the filter names two");
    }
    Ok(())
}

fn value<T: Parsed>(word: &str, text: Option<&str>) -> Result<T> {
    let Some(text) = text else { bail!("`{word}` needs {} behind it; {FORM}", T::WHAT) };
    match text.parse() {
        Ok(value) => Ok(value),
        Err(_) => bail!("`{word} {text}`: {text} is not {}; {FORM}", T::WHAT),
    }
}

trait Parsed: FromStr {
    const WHAT: &'static str;
}

impl Parsed for IpAddr {
    const WHAT: &'static str = "an address";
}

impl Parsed for u16 {
    const WHAT: &'static str = "a port";
}

impl Parsed for u8 {
    const WHAT: &'static str = "a protocol number (0 to 255)";
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<TraceFilter> {
        parse(&text.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn words_of_tcpdump_are_understood() {
        let filter = read("tcp and src host 10.0.1.10 and dst port 443 host 10.0.0.1").unwrap();
        let source = Some([10, 0, 1, 10].into());
        let host = Some([10, 0, 0, 1].into());
        let (protocol, destination_port) = (Some(6), Some(443));
        let wanted = TraceFilter { protocol, source, destination_port, host, ..Default::default() };
        assert_eq!(filter, wanted);
        let filter = read("proto 47 dst fd00::1 port 1 sport 2").unwrap();
        let wanted = TraceFilter {
            protocol: Some(47),
            destination: Some("fd00::1".parse().unwrap()),
            port: Some(1),
            source_port: Some(2),
            ..Default::default()
        };
        assert_eq!(filter, wanted);
        assert_eq!(read("").unwrap(), TraceFilter::default());
        assert_eq!(parse(&["udp port 53".into()]).unwrap(), read("udp port 53").unwrap());
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (text, said) in [
            ("tcp udp", "names two"),
            ("port", "needs a port"),
            ("port 70000", "70000 is not a port"),
            ("host web", "web is not an address"),
            ("proto tcp", "tcp is not a protocol number"),
            ("or", "`or` is no condition"),
            ("src port 1 src port 2", "names two"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
