//! Names of a cloud: `ip-10-0-1-10.ec2.internal`, `i-0123456789abcdef0.ec2.internal`, and back.
//! Source: EC2 User Guide, *EC2 instance hostnames and domains*.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use simple_dns::rdata::{A, AAAA, PTR, RData};
use simple_dns::{CLASS, Name, Packet, PacketFlag, QTYPE, RCODE, ResourceRecord, TYPE};

use super::facts::DOMAIN;
use super::name_of;

/// For how long an answer may be kept.
const TTL_S: u32 = 60;
const REVERSE: &str = "in-addr.arpa";

/// What becomes of a question.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// This is said.
    Here(Vec<u8>),
    /// It is about a name that is none of the cloud's.
    Elsewhere,
    /// It is no question, and nothing is said.
    Nothing,
}

/// What is said of a question.
pub(super) fn answer(bytes: &[u8], names: &BTreeMap<String, Vec<IpAddr>>) -> Answer {
    let Ok(query) = Packet::parse(bytes) else { return Answer::Nothing };
    if query.has_flags(PacketFlag::RESPONSE) || query.questions.len() != 1 {
        return Answer::Nothing;
    }
    let question = &query.questions[0];
    let name = question.qname.to_string().to_ascii_lowercase();
    let mut reply = Packet::new_reply(query.id());
    reply.set_flags(PacketFlag::AUTHORITATIVE_ANSWER | PacketFlag::RECURSION_AVAILABLE);
    if query.has_flags(PacketFlag::RECURSION_DESIRED) {
        reply.set_flags(PacketFlag::RECURSION_DESIRED);
    }
    let wants = |kind: TYPE| [QTYPE::TYPE(kind), QTYPE::ANY].contains(&question.qtype);
    let record = |data| ResourceRecord::new(question.qname.clone(), CLASS::IN, TTL_S, data);
    let own = name.strip_suffix(DOMAIN).and_then(|rest| rest.strip_suffix('.'));
    let reverse = name.strip_suffix(REVERSE).and_then(|rest| rest.strip_suffix('.'));
    if let Some(host) = own {
        match names.get(host) {
            None => *reply.rcode_mut() = RCODE::NameError,
            Some(addresses) => {
                let records = addresses.iter().filter_map(|address| match address {
                    IpAddr::V4(address) => wants(TYPE::A).then(|| RData::A(A::from(*address))),
                    IpAddr::V6(address) => {
                        wants(TYPE::AAAA).then(|| RData::AAAA(AAAA::from(*address)))
                    }
                });
                reply.answers.extend(records.map(record));
            }
        }
    } else if let Some(address) = reverse.and_then(address_of_reverse)
        && let host = name_of(address)
        && names.contains_key(&host)
    {
        let target = format!("{host}.{DOMAIN}");
        if let (true, Ok(target)) = (wants(TYPE::PTR), Name::new(&target)) {
            reply.answers.push(record(RData::PTR(PTR(target.into_owned()))));
        }
    } else {
        return Answer::Elsewhere;
    }
    finish(reply, &query)
}

/// Says that a question cannot be answered.
pub(super) fn refuse(bytes: &[u8]) -> Option<Vec<u8>> {
    let query = Packet::parse(bytes).ok()?;
    let mut reply = Packet::new_reply(query.id());
    *reply.rcode_mut() = RCODE::ServerFailure;
    match finish(reply, &query) {
        Answer::Here(bytes) => Some(bytes),
        _ => None,
    }
}

fn finish<'a>(mut reply: Packet<'a>, query: &Packet<'a>) -> Answer {
    reply.questions = query.questions.clone();
    reply.build_bytes_vec_compressed().map_or(Answer::Nothing, Answer::Here)
}

/// `10.1.0.10` of `10.1.0.10.in-addr.arpa`, turned round.
fn address_of_reverse(labels: &str) -> Option<Ipv4Addr> {
    let [d, c, b, a] = labels.parse::<Ipv4Addr>().ok()?.octets();
    Some(Ipv4Addr::new(a, b, c, d))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail loudly
    use super::*;
    use simple_dns::Question;

    fn names() -> BTreeMap<String, Vec<IpAddr>> {
        let v6: IpAddr = "2001:db8::1".parse().unwrap();
        let v4: IpAddr = "10.0.1.10".parse().unwrap();
        [("ip-10-0-1-10".to_owned(), vec![v4]), ("i-01".to_owned(), vec![v4, v6])].into()
    }

    fn query(name: &str, kind: TYPE) -> Vec<u8> {
        let mut packet = Packet::new_query(77);
        let name = Name::new(name).unwrap();
        packet.questions.push(Question::new(name, kind.into(), CLASS::IN.into(), false));
        packet.build_bytes_vec().unwrap()
    }

    fn said(name: &str, kind: TYPE) -> (RCODE, Vec<String>) {
        let Answer::Here(bytes) = answer(&query(name, kind), &names()) else { panic!("{name}") };
        let packet = Packet::parse(&bytes).unwrap();
        assert!(packet.id() == 77 && packet.has_flags(PacketFlag::RESPONSE));
        let text = |record: &ResourceRecord<'_>| match &record.rdata {
            RData::A(a) => Ipv4Addr::from(a.address).to_string(),
            RData::AAAA(a) => std::net::Ipv6Addr::from(a.address).to_string(),
            RData::PTR(name) => name.0.to_string(),
            other => panic!("{other:?}"),
        };
        (packet.rcode(), packet.answers.iter().map(text).collect())
    }

    #[test]
    fn names_of_the_cloud_have_their_addresses() {
        let one = |text: &str| (RCODE::NoError, vec![text.to_owned()]);
        assert_eq!(said("IP-10-0-1-10.ec2.internal", TYPE::A), one("10.0.1.10"));
        assert_eq!(said("i-01.ec2.internal", TYPE::A), one("10.0.1.10"));
        assert_eq!(said("i-01.ec2.internal", TYPE::AAAA), one("2001:db8::1"));
        let back = said("10.1.0.10.in-addr.arpa", TYPE::PTR);
        assert_eq!(back, one("ip-10-0-1-10.ec2.internal"));
        assert_eq!(said("ip-10-0-1-10.ec2.internal", TYPE::AAAA), (RCODE::NoError, vec![]));
        assert_eq!(said("ip-10-0-1-11.ec2.internal", TYPE::A), (RCODE::NameError, vec![]));
    }

    #[test]
    fn other_names_are_asked_elsewhere_and_noise_is_not_answered() {
        for name in ["example.com", "11.1.0.10.in-addr.arpa", "ec2.internal.example.com"] {
            assert_eq!(answer(&query(name, TYPE::A), &names()), Answer::Elsewhere, "{name}");
        }
        let mut response = query("i-01.ec2.internal", TYPE::A);
        response[2] |= 0x80;
        for noise in [&response[..], &[], &[0; 12], &[255; 40]] {
            assert_eq!(answer(noise, &names()), Answer::Nothing);
        }
        let bytes = refuse(&query("example.com", TYPE::A)).unwrap();
        assert_eq!(Packet::parse(&bytes).unwrap().rcode(), RCODE::ServerFailure);
    }
}
