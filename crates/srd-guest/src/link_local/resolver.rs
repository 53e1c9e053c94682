//! Names of a cloud: `ip-10-0-1-10.ec2.internal`, `i-0123456789abcdef0.ec2.internal`, and reverse
//! names. Source: EC2 User Guide, *EC2 instance hostnames and domains*.

use std::net::{IpAddr, Ipv4Addr};

use simple_dns::rdata::{A, AAAA, PTR, RData};
use simple_dns::{CLASS, Name, Packet, ResourceRecord, TYPE};

use super::facts::{DOMAIN, Names};
use super::name_of;
use super::question::{Code, Question, TYPE_ANY};

/// Time in seconds for which an answer may be cached.
const TTL_S: u32 = 60;
const REVERSE: &str = "in-addr.arpa";
/// Maximum number of records in an answer. Names of the cloud usually have one or two addresses.
const RECORDS_MAX: usize = 64;

/// Returns the answer to a question; `None` if its name is outside the cloud.
pub(super) fn answer(question: &Question, names: &Names) -> Option<Vec<u8>> {
    let name = question.name.as_str();
    let wants = |kind: TYPE| [u16::from(kind), TYPE_ANY].contains(&question.kind);
    let own = name.strip_suffix(DOMAIN).and_then(|rest| rest.strip_suffix('.'));
    if let Some(host) = own {
        let Some(addresses) = names.get(host) else {
            return Some(question.answer(Code::NameError, 0, &[]));
        };
        let records = addresses.iter().filter_map(|address| match address {
            IpAddr::V4(address) => wants(TYPE::A).then(|| RData::A(A::from(*address))),
            IpAddr::V6(address) => wants(TYPE::AAAA).then(|| RData::AAAA(AAAA::from(*address))),
        });
        return Some(said(question, records.collect()));
    }
    let reverse = name.strip_suffix(REVERSE).and_then(|rest| rest.strip_suffix('.'));
    let host = name_of(reverse.and_then(address_of_reverse)?);
    if !names.contains_key(&host) {
        return None;
    }
    let target = format!("{host}.{DOMAIN}");
    let target = Name::new(&target).ok().filter(|_| wants(TYPE::PTR));
    Some(said(question, target.map(|name| RData::PTR(PTR(name))).into_iter().collect()))
}

/// Returns an answer to a query, with records of these data for the query's name.
fn said(question: &Question, data: Vec<RData<'_>>) -> Vec<u8> {
    let Ok(name) = Name::new(&question.name) else { return question.fail(Code::ServerFailure) };
    let mut packet = Packet::new_reply(0);
    let records = data.into_iter().take(RECORDS_MAX);
    packet
        .answers
        .extend(records.map(|data| ResourceRecord::new(name.clone(), CLASS::IN, TTL_S, data)));
    let count = u16::try_from(packet.answers.len()).unwrap_or(u16::MAX);
    let header = Packet::new_reply(0).build_bytes_vec().map_or(0, |header| header.len());
    let written = packet.build_bytes_vec();
    match written.as_deref().ok().and_then(|bytes| bytes.get(header..)) {
        Some(records) => question.answer(Code::NoError, count, records),
        None => question.fail(Code::ServerFailure),
    }
}

/// Returns the address of a reverse name: `10.0.1.10` for `10.1.0.10.in-addr.arpa`.
fn address_of_reverse(labels: &str) -> Option<Ipv4Addr> {
    let [d, c, b, a] = labels.parse::<Ipv4Addr>().ok()?.octets();
    Some(Ipv4Addr::new(a, b, c, d))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail loudly
    use super::super::question::{self, Message};
    use super::*;
    use simple_dns::{PacketFlag, RCODE};

    fn names() -> Names {
        let v6: IpAddr = "2001:db8::1".parse().unwrap();
        let v4: IpAddr = "10.0.1.10".parse().unwrap();
        [("ip-10-0-1-10".to_owned(), vec![v4]), ("i-01".to_owned(), vec![v4, v6])].into()
    }

    fn query(name: &str, kind: u16) -> Vec<u8> {
        let mut packet = Packet::new_query(77);
        let asked = simple_dns::Question::new(
            Name::new(name).unwrap(),
            simple_dns::QTYPE::ANY,
            CLASS::IN.into(),
            false,
        );
        packet.questions.push(asked);
        let mut bytes = packet.build_bytes_vec().unwrap();
        let at = bytes.len() - 4;
        bytes[at..at + 2].copy_from_slice(&kind.to_be_bytes());
        bytes
    }

    fn ask(name: &str, kind: u16) -> Option<Vec<u8>> {
        let bytes = query(name, kind);
        let Message::Question(question) = question::read(&bytes) else { panic!("{name}") };
        answer(&question, &names())
    }

    fn said(name: &str, kind: TYPE) -> (RCODE, Vec<String>) {
        let bytes = ask(name, kind.into()).unwrap();
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
        // Types without a record here, whether known or unknown, and a query for all types.
        assert_eq!(said("i-01.ec2.internal", TYPE::MX), (RCODE::NoError, vec![]));
        let unknown = ask("i-01.ec2.internal", 99).unwrap();
        assert_eq!((unknown[3] & 15, &unknown[6..8]), (0, &[0, 0][..]));
        let all = ask("i-01.ec2.internal", TYPE_ANY).unwrap();
        assert_eq!(all[6..8], [0, 2]);
    }

    #[test]
    fn an_answer_has_so_many_records() {
        let many: Names = [("i-02".to_owned(), vec![[10, 0, 0, 9].into(); 2 * RECORDS_MAX])].into();
        let Message::Question(question) = question::read(&query("i-02.ec2.internal", 1)) else {
            panic!()
        };
        let bytes = answer(&question, &many).unwrap();
        assert_eq!(usize::from(bytes[7]), RECORDS_MAX);
        assert_eq!(Packet::parse(&bytes).unwrap().answers.len(), RECORDS_MAX);
    }

    #[test]
    fn other_names_are_asked_elsewhere() {
        for name in ["example.com", "11.1.0.10.in-addr.arpa", "ec2.internal.example.com"] {
            assert_eq!(ask(name, 1), None, "{name}");
        }
    }
}
