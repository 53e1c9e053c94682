//! Phrases: rules, list entries and routes, each in one line.
//!
//! ```text
//!  rule   = traffic ("from" | "to") other          tcp 443 from 0.0.0.0/0
//!  entry  = number ("allow" | "deny") rule         100 allow all from 0.0.0.0/0
//!  route  = destination "to" target ["propagated"]  0.0.0.0/0 to internet_gateway main
//!  mirror = number ("accept" | "reject") traffic ["source" ports] "from" BLOCK "to" BLOCK
//!  other  = BLOCK | "group" NAME | "list" NAME
//!  traffic = "all" | "tcp" [ports] | "udp" [ports] | "icmp" [TYPE [CODE]] | "icmpv6" [TYPE [CODE]]
//!          | "protocol" NUMBER
//!  ports  = PORT | PORT "-" PORT
//! ```

use ipnet::IpNet;
use srd_vpc::object::Traffic;

/// An error in a phrase, with its remedy.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) what: String,
    pub(crate) remedy: &'static str,
}

type Result<T> = std::result::Result<T, Wrong>;

/// The remote addresses of a rule, or the destination of a route, as the phrase names them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AddressSet<'a> {
    Block(IpNet),
    Group(&'a str),
    List(&'a str),
}

/// Target of a route, as the phrase names it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target<'a> {
    Blackhole,
    /// An object: the word for its kind in tables, and its name.
    Object(&'a str, &'a str),
}

const RULE: &str = "write traffic, `from` or `to`, and the other side, as in \
                    \"tcp 443 from 0.0.0.0/0\" or \"all to group app\"";
const ENTRY: &str = "write a number from 1 to 32766, `allow` or `deny`, and a rule, as in \
                     \"100 allow tcp 443 from 0.0.0.0/0\"";
const ROUTE: &str = "write a block and a target, as in \"0.0.0.0/0 to internet_gateway main\", \
                     \"10.1.0.0/16 to peering p1\" or \"192.0.2.0/24 to blackhole\"; one that a \
                     gateway propagated ends in `propagated`";
const MIRROR: &str = "write a number from 1 to 32766, `accept` or `reject`, traffic and two \
                      blocks of one family, as in \
                      \"100 accept tcp 443 from 0.0.0.0/0 to 10.0.0.0/16\"";
const BLOCK: &str = "write an address and a prefix length, as in 10.0.0.0/16";
const TRAFFIC: &str = "write all, tcp, udp, icmp, icmpv6 or protocol NUMBER; ports as 443 or \
                       1024-65535, ICMP types as numbers";

/// Parses a rule of a security group, or the rule inside a list entry. `word`: the expected `from`
/// or `to`.
pub(crate) fn rule<'a>(text: &'a str, word: &str) -> Result<(Traffic, AddressSet<'a>)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let Some(at) = words.iter().position(|w| *w == "from" || *w == "to") else {
        return Err(Wrong { what: format!("`{text}` names no other side"), remedy: RULE });
    };
    if words[at] != word {
        let what = format!("`{}` in a rule whose other side follows `{word}`", words[at]);
        return Err(Wrong { what, remedy: RULE });
    }
    let traffic = traffic(&words[..at])?;
    let other = match words[at + 1..] {
        ["group", name] => AddressSet::Group(name),
        ["list", name] => AddressSet::List(name),
        [block_text] => AddressSet::Block(block(block_text)?),
        _ => {
            let what = format!("`{text}` ends in no block, group or list");
            return Err(Wrong { what, remedy: RULE });
        }
    };
    Ok((traffic, other))
}

/// Parses an entry of an access control list: its number, whether it allows, its traffic and its
/// block.
pub(crate) fn entry(text: &str, word: &str) -> Result<(u16, bool, Traffic, IpNet)> {
    let wrong = |what: String| Wrong { what, remedy: ENTRY };
    let (number, rest) = text.trim().split_once(' ').ok_or_else(|| wrong(format!("`{text}`")))?;
    let parsed = number.parse::<u16>().ok().filter(|n| (1..=32_766).contains(n));
    let parsed = parsed.ok_or_else(|| wrong(format!("`{number}` is no number of an entry")))?;
    let (verb, rest) = rest.trim().split_once(' ').ok_or_else(|| wrong(format!("`{text}`")))?;
    let allow = match verb {
        "allow" => true,
        "deny" => false,
        _ => return Err(wrong(format!("`{verb}` is neither `allow` nor `deny`"))),
    };
    match rule(rest, word)? {
        (traffic, AddressSet::Block(block)) => Ok((parsed, allow, traffic, block)),
        _ => Err(wrong(String::from("an access control list knows blocks only"))),
    }
}

/// A rule of a mirror filter, without its direction.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mirrored {
    pub(crate) number: u16,
    pub(crate) accept: bool,
    pub(crate) traffic: Traffic,
    pub(crate) source_ports: Option<(u16, u16)>,
    pub(crate) source: IpNet,
    pub(crate) destination: IpNet,
}

/// Parses a rule of a mirror filter.
pub(crate) fn mirrored(text: &str) -> Result<Mirrored> {
    let wrong =
        || Wrong { what: format!("`{text}` is no rule of a mirror filter"), remedy: MIRROR };
    let words: Vec<&str> = text.split_whitespace().collect();
    let [number, verb, rest @ .., "from", source, "to", destination] = &words[..] else {
        return Err(wrong());
    };
    let number = number.parse().ok().filter(|n| (1..=32_766).contains(n)).ok_or_else(wrong)?;
    let accept = match *verb {
        "accept" => true,
        "reject" => false,
        _ => return Err(wrong()),
    };
    let (of, source_ports) = match rest {
        [of @ .., "source", range] => (of, Some(ports(range).ok_or_else(wrong)?)),
        of => (of, None),
    };
    let traffic = traffic(of)?;
    let has_ports = matches!(traffic, Traffic::Tcp(..) | Traffic::Udp(..));
    let (source, destination) = (block(source)?, block(destination)?);
    if source_ports.is_some() && !has_ports
        || source.addr().is_ipv4() != destination.addr().is_ipv4()
    {
        return Err(wrong());
    }
    Ok(Mirrored { number, accept, traffic, source_ports, source, destination })
}

/// Parses a route: a block or the name of a prefix list, a target, and whether the route is
/// propagated.
pub(crate) fn route(text: &str) -> Result<(AddressSet<'_>, Target<'_>, bool)> {
    let wrong = || Wrong { what: format!("`{text}` is no route"), remedy: ROUTE };
    let words: Vec<&str> = text.split_whitespace().collect();
    let at = words.iter().position(|w| *w == "to").ok_or_else(wrong)?;
    let destination = match words[..at] {
        ["list", name] => AddressSet::List(name),
        [block_text] => AddressSet::Block(block(block_text)?),
        _ => return Err(wrong()),
    };
    let (target, propagated) = match &words[at + 1..] {
        [target @ .., "propagated"] if !target.is_empty() => (target, true),
        target => (target, false),
    };
    if propagated && matches!(destination, AddressSet::List(_)) {
        let what = String::from("a route to a prefix list is never propagated");
        return Err(Wrong {
            what,
            remedy: "write its blocks, each as a route, or no `propagated`",
        });
    }
    let target = match *target {
        ["blackhole"] => Target::Blackhole,
        [kind, name] => Target::Object(kind, name),
        _ => return Err(wrong()),
    };
    Ok((destination, target, propagated))
}

/// Parses a block of addresses. Bits after the prefix are set to zero, as EC2 sets them.
pub(crate) fn block(text: &str) -> Result<IpNet> {
    let wrong = |_| Wrong { what: format!("`{text}` is no block of addresses"), remedy: BLOCK };
    text.parse::<IpNet>().map(|block| block.trunc()).map_err(wrong)
}

fn traffic(words: &[&str]) -> Result<Traffic> {
    let wrong = || Wrong { what: format!("`{}` is no traffic", words.join(" ")), remedy: TRAFFIC };
    let byte = |text: &str| text.parse::<u8>().map_err(|_| wrong());
    match *words {
        ["all"] => Ok(Traffic::All),
        ["tcp"] => Ok(Traffic::Tcp(0, u16::MAX)),
        ["udp"] => Ok(Traffic::Udp(0, u16::MAX)),
        ["tcp", range] => ports(range).map(|(a, b)| Traffic::Tcp(a, b)).ok_or_else(wrong),
        ["udp", range] => ports(range).map(|(a, b)| Traffic::Udp(a, b)).ok_or_else(wrong),
        ["icmp"] => Ok(Traffic::Icmp(None, None)),
        ["icmp", kind] => Ok(Traffic::Icmp(Some(byte(kind)?), None)),
        ["icmp", kind, code] => Ok(Traffic::Icmp(Some(byte(kind)?), Some(byte(code)?))),
        ["icmpv6"] => Ok(Traffic::Icmpv6(None, None)),
        ["icmpv6", kind] => Ok(Traffic::Icmpv6(Some(byte(kind)?), None)),
        ["icmpv6", kind, code] => Ok(Traffic::Icmpv6(Some(byte(kind)?), Some(byte(code)?))),
        ["protocol", number] => match byte(number)? {
            // TCP, UDP and ICMP have their own kinds of traffic. A rule by number would never match
            // them, because their packets are matched by ports or types.
            6 => Ok(Traffic::Tcp(0, u16::MAX)),
            17 => Ok(Traffic::Udp(0, u16::MAX)),
            1 => Ok(Traffic::Icmp(None, None)),
            58 => Ok(Traffic::Icmpv6(None, None)),
            number => Ok(Traffic::Protocol(number)),
        },
        _ => Err(wrong()),
    }
}

fn ports(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phrases_say_what_they_look_like() {
        let all = "0.0.0.0/0".parse().unwrap();
        assert_eq!(
            rule("tcp 443 from 0.0.0.0/0", "from"),
            Ok((Traffic::Tcp(443, 443), AddressSet::Block(all)))
        );
        assert_eq!(rule("all to group a", "to"), Ok((Traffic::All, AddressSet::Group("a"))));
        assert_eq!(
            rule("icmp 8 from list l", "from"),
            Ok((Traffic::Icmp(Some(8), None), AddressSet::List("l")))
        );
        assert_eq!(
            entry("100 deny udp 1-9 to 0.0.0.0/0", "to"),
            Ok((100, false, Traffic::Udp(1, 9), all))
        );
        assert_eq!(
            route("0.0.0.0/0 to blackhole"),
            Ok((AddressSet::Block(all), Target::Blackhole, false))
        );
        assert_eq!(
            route("0.0.0.0/0 to interface fw propagated"),
            Ok((AddressSet::Block(all), Target::Object("interface", "fw"), true))
        );
        assert_eq!(block("100.68.0.18/18").unwrap().to_string(), "100.68.0.0/18");
    }

    #[test]
    fn other_phrases_are_refused() {
        for text in [
            "",
            "tcp 443",
            "tcp 443 to 0.0.0.0/0",
            "tcp 9-1 from ::/0",
            "tcp 70000 from ::/0",
            "from ::/0",
            "all from group",
            "all from 10.0.0.0/33",
        ] {
            assert!(rule(text, "from").is_err(), "{text}");
        }
        for text in [
            "",
            "0 allow all from ::/0",
            "32767 allow all from ::/0",
            "1 let all from ::/0",
            "1 allow all from group a",
            "1",
        ] {
            assert!(entry(text, "from").is_err(), "{text}");
        }
        for text in [
            "",
            "::/0",
            "::/0 to",
            "::/0 to propagated",
            "a b to blackhole",
            "::/0 to a b c",
            "list l to blackhole propagated",
        ] {
            assert!(route(text).is_err(), "{text}");
        }
    }
}
