//! DNS queries (RFC 1035, RFC 6891), in the form that this resolver supports.
//!
//! A query consists of its header, one name with type and class, and the size in its EDNS record.
//! Other records are not read, so that a message costs little, whatever number of records its
//! header claims. A query to the machine's resolver is written anew from these parts, so that no
//! other data of a guest is forwarded (V13).

/// Maximum size of a query in bytes. A query with the longest name, and EDNS with options, fits.
pub(super) const QUESTION_BYTES_MAX: usize = 512;
/// Maximum size of an answer in one datagram, in bytes. It fits into the packets of most networks.
/// Source: *DNS flag day 2020*.
pub(super) const DATAGRAM_BYTES_MAX: u16 = 1232;
/// Maximum size of an answer in one datagram, in bytes, to a query without EDNS.
const DATAGRAM_BYTES_PLAIN: u16 = 512;
const HEADER_BYTES: usize = 12;
const NAME_BYTES_MAX: usize = 255;

/// Bit of the first byte of the flags that marks a response.
const RESPONSE: u8 = 0x80;
const OPCODE: u8 = 0x78;
const AUTHORITATIVE: u8 = 0x04;
const TRUNCATED: u8 = 0x02;
const RECURSION_DESIRED: u8 = 0x01;
const RECURSION_AVAILABLE: u8 = 0x80;
/// Flags of DNSSEC: the guest checks signatures itself (CD), or requests the result of the
/// resolver's check (AD).
const SIGNATURES: u8 = 0x30;

const CLASS_INTERNET: u16 = 1;
const TYPE_OPT: u16 = 41;
/// Types that only queries have (QTYPE and meta types): zone transfers, and keys of transactions.
/// `TYPE_ANY` is one of them, and is supported.
const TYPES_OF_QUESTIONS: std::ops::RangeInclusive<u16> = 128..=255;
pub(super) const TYPE_ANY: u16 = 255;

/// Response code of DNS (RFC 1035, RFC 6891).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Code {
    NoError = 0,
    FormatError = 1,
    ServerFailure = 2,
    NameError = 3,
    NotImplemented = 4,
    Refused = 5,
    /// Unknown version of EDNS. The upper bits of this code are in the EDNS record.
    BadVersion = 16,
}

/// A DNS query of the internet's class (IN).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Question {
    id: [u8; 2],
    /// Whether the guest requests recursion.
    is_recursive: bool,
    signatures: u8,
    /// Name, type and class, as received.
    section: Vec<u8>,
    /// The name in lower case, without the final dot.
    pub(super) name: String,
    pub(super) kind: u16,
    edns: Option<Edns>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Edns {
    datagram_bytes: u16,
    version: u8,
    wants_signatures: bool,
}

/// Result of reading a message of a guest.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Message {
    Question(Question),
    /// The query is refused with this answer, which contains the code.
    Refused(Vec<u8>),
    /// The message is no query, and gets no answer.
    Nothing,
}

/// Whether a message answers a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answers {
    /// The message answers exactly this query.
    AsAsked,
    /// The message answers this query, but letters of the name differ in upper and lower case.
    InOtherCases,
    /// The message is no answer to this query.
    Nothing,
}

/// Reads a message of a guest.
pub(super) fn read(message: &[u8]) -> Message {
    let Some(header) = message.first_chunk::<HEADER_BYTES>() else { return Message::Nothing };
    if header[2] & RESPONSE != 0 || message.len() > QUESTION_BYTES_MAX {
        return Message::Nothing;
    }
    let [_, _, flags, more_flags, counts @ ..] = header;
    let refuse = |code: Code| {
        let flags = RESPONSE | flags & (OPCODE | RECURSION_DESIRED);
        let more_flags = RECURSION_AVAILABLE | code as u8;
        let reply = [header[0], header[1], flags, more_flags, 0, 0, 0, 0, 0, 0, 0, 0];
        Message::Refused(reply.to_vec())
    };
    if flags & OPCODE != 0 {
        return refuse(Code::NotImplemented);
    }
    let &[0, 1, 0, 0, 0, 0, 0, additional @ 0..=1] = counts else {
        return refuse(Code::FormatError);
    };
    let Some(section) = section(message) else { return refuse(Code::FormatError) };
    let rest = &message[HEADER_BYTES + section.len()..];
    let edns = Edns::read(rest);
    let is_whole = if additional == 0 { rest.is_empty() } else { edns.is_some() };
    if !is_whole {
        return refuse(Code::FormatError);
    }
    let (name, end) = section.split_at(section.len() - 4);
    let [kind, class] = [[end[0], end[1]], [end[2], end[3]]].map(u16::from_be_bytes);
    let question = Question {
        id: [header[0], header[1]],
        is_recursive: flags & RECURSION_DESIRED != 0,
        signatures: more_flags & SIGNATURES,
        section: section.to_vec(),
        name: text(name),
        kind,
        edns,
    };
    let code = match kind {
        _ if edns.is_some_and(|edns| edns.version != 0) => Code::BadVersion,
        TYPE_OPT => Code::FormatError,
        _ if class != CLASS_INTERNET => Code::Refused,
        TYPE_ANY => return Message::Question(question),
        _ if TYPES_OF_QUESTIONS.contains(&kind) => Code::Refused,
        _ => return Message::Question(question),
    };
    Message::Refused(question.fail(code))
}

impl Edns {
    /// Reads the record after the question; `None` if the bytes are not exactly one EDNS record.
    fn read(record: &[u8]) -> Option<Self> {
        let &[0, high, low, a, b, _, version, flags, _, c, d, ref options @ ..] = record else {
            return None;
        };
        let is_whole = usize::from(u16::from_be_bytes([c, d])) == options.len();
        let is_its = u16::from_be_bytes([high, low]) == TYPE_OPT;
        let datagram_bytes = u16::from_be_bytes([a, b]);
        let wants_signatures = flags & 0x80 != 0;
        (is_whole && is_its).then_some(Self { datagram_bytes, version, wants_signatures })
    }

    /// Returns the EDNS record of an answer to the guest, or of a query to the machine's resolver.
    fn record(self, code: Code) -> [u8; 11] {
        let [[kind, of], [a, b]] = [TYPE_OPT, DATAGRAM_BYTES_MAX].map(u16::to_be_bytes);
        let flags = if self.wants_signatures { 0x80 } else { 0 };
        [0, kind, of, a, b, code as u8 >> 4, 0, flags, 0, 0, 0]
    }
}

impl Question {
    /// Returns an answer with `count` records.
    pub(super) fn answer(&self, code: Code, count: u16, records: &[u8]) -> Vec<u8> {
        self.reply(AUTHORITATIVE, code, count, records)
    }

    /// Returns an answer with an error code.
    pub(super) fn fail(&self, code: Code) -> Vec<u8> {
        self.reply(0, code, 0, &[])
    }

    fn reply(&self, flags: u8, code: Code, count: u16, records: &[u8]) -> Vec<u8> {
        let flags = RESPONSE | flags | u8::from(self.is_recursive);
        let more_flags = RECURSION_AVAILABLE | self.signatures & 0x10 | code as u8 & 15;
        let [high, low] = count.to_be_bytes();
        let additional = u8::from(self.edns.is_some());
        let counts = [0, 1, high, low, 0, 0, 0, additional];
        let edns = self.edns.map(|edns| edns.record(code));
        let edns = edns.as_ref().map_or(&[][..], |record| record);
        [&self.id, &[flags, more_flags][..], &counts, &self.section, records, edns].concat()
    }

    /// Returns an answer that fits into one datagram. If `answer` is too long, a truncated answer
    /// is returned, and the guest repeats its query over TCP.
    pub(super) fn fitting(&self, answer: Vec<u8>) -> Vec<u8> {
        let asked = self.edns.map_or(DATAGRAM_BYTES_PLAIN, |edns| edns.datagram_bytes);
        let most = asked.clamp(DATAGRAM_BYTES_PLAIN, DATAGRAM_BYTES_MAX);
        if answer.len() <= usize::from(most) {
            return answer;
        }
        self.reply(TRUNCATED, Code::NoError, 0, &[])
    }

    /// Returns the name, type and class of the query. The bits that `word` returns select upper or
    /// lower case for each letter of the name. An answer has to repeat these cases.
    pub(super) fn mixed(&self, mut word: impl FnMut() -> u64) -> Vec<u8> {
        let mut section = self.section.clone();
        let name = section.len().saturating_sub(4);
        // Lengths of labels are smaller than the codes of letters.
        let letters = section[..name].iter_mut().filter(|byte| byte.is_ascii_alphabetic());
        let mut bits = 0;
        for (number, letter) in letters.enumerate() {
            if number % 64 == 0 {
                bits = word();
            }
            *letter = letter.to_ascii_lowercase() ^ if bits & 1 == 1 { 0x20 } else { 0 };
            bits >>= 1;
        }
        section
    }

    /// Returns the query that is sent to the machine's resolver. `section`: the name, type and
    /// class from [`Question::mixed`].
    pub(super) fn of_ours(&self, id: [u8; 2], section: &[u8]) -> Vec<u8> {
        let counts = [0, 1, 0, 0, 0, 0, 0, u8::from(self.edns.is_some())];
        let edns = self.edns.map(|edns| edns.record(Code::NoError));
        let edns = edns.as_ref().map_or(&[][..], |record| record);
        [&id, &[RECURSION_DESIRED, self.signatures][..], &counts, section, edns].concat()
    }

    /// Returns the query that is sent to the machine's resolver, with the name as the guest has
    /// written it.
    pub(super) fn as_asked(&self, id: [u8; 2]) -> Vec<u8> {
        self.of_ours(id, &self.section)
    }

    /// Whether a message answers this query, whether or not letters of the name differ in upper and
    /// lower case. The query's id is not compared.
    pub(super) fn is_answered_by(&self, message: &[u8]) -> bool {
        self.answers(message, &self.section) != Answers::Nothing
    }

    /// Returns whether a message answers this query. `asked`: the name, type and class that were
    /// sent. The query's id is not compared.
    pub(super) fn answers(&self, message: &[u8], asked: &[u8]) -> Answers {
        let flags = message.get(2).copied().unwrap_or_default();
        let repeated = section(message).filter(|_| message.get(4..6) == Some(&[0, 1]));
        let repeated = repeated.filter(|_| flags & (RESPONSE | OPCODE) == RESPONSE);
        match repeated {
            Some(repeated) if repeated == asked => Answers::AsAsked,
            Some(repeated) if repeated.eq_ignore_ascii_case(asked) => Answers::InOtherCases,
            _ => Answers::Nothing,
        }
    }

    /// Returns the answer of the machine's resolver for the guest: with the id, the recursion flag
    /// and the name of the guest's query.
    pub(super) fn relayed(&self, mut answer: Vec<u8>) -> Vec<u8> {
        if let Some([a, b, flags, ..]) = answer.get_mut(..HEADER_BYTES) {
            [*a, *b] = self.id;
            *flags = *flags & !RECURSION_DESIRED | u8::from(self.is_recursive);
        }
        if let Some(section) = answer.get_mut(HEADER_BYTES..HEADER_BYTES + self.section.len()) {
            section.copy_from_slice(&self.section);
        }
        answer
    }
}

/// Whether an answer is truncated, so that the whole answer is available over TCP only.
pub(super) fn is_truncated(answer: &[u8]) -> bool {
    answer.get(2).is_some_and(|flags| flags & TRUNCATED != 0)
}

/// Returns the bytes of the name, type and class of a message's first question; `None` if they are
/// malformed.
fn section(message: &[u8]) -> Option<&[u8]> {
    let mut at = HEADER_BYTES;
    loop {
        match usize::from(*message.get(at)?) {
            0 => break,
            length @ 1..64 => at += 1 + length,
            // A pointer to an earlier name, but the first question has no earlier name.
            _ => return None,
        }
    }
    let is_name = at + 1 - HEADER_BYTES <= NAME_BYTES_MAX;
    message.get(HEADER_BYTES..at + 5).filter(|_| is_name)
}

/// Returns a name as text in lower case. Bytes that the name of a host cannot contain become a
/// character that no name contains.
fn text(mut name: &[u8]) -> String {
    let mut text = String::new();
    while let Some((length, rest)) = name.split_first() {
        let length = usize::from(*length).min(rest.len());
        let (label, rest) = rest.split_at(length);
        if !text.is_empty() && !label.is_empty() {
            text.push('.');
        }
        let letter = |byte: &u8| {
            let is_text = byte.is_ascii_graphic() && *byte != b'.';
            if is_text {
                char::from(byte.to_ascii_lowercase())
            } else {
                char::REPLACEMENT_CHARACTER
            }
        };
        text.extend(label.iter().map(letter));
        name = rest;
    }
    text
}

#[cfg(test)]
#[path = "question_tests.rs"]
mod tests;
