//! Questions of DNS (RFC 1035, RFC 6891), as far as they are read here.
//!
//! A question is its header, one name with type and class, and what EDNS says of its size. No other
//! record is read, so that a message costs little, however many records it says that it has; and
//! what is asked elsewhere is written afresh, so that nothing else of a guest's gets out (V13).

/// Bytes of a question. The longest name, and EDNS with its options, fit.
pub(super) const QUESTION_BYTES_MAX: usize = 512;
/// Bytes of an answer in one datagram, which fit into the packets of most networks. Source: *DNS
/// flag day 2020*.
pub(super) const DATAGRAM_BYTES_MAX: u16 = 1232;
/// Bytes of an answer in one datagram to a question without EDNS.
const DATAGRAM_BYTES_PLAIN: u16 = 512;
const HEADER_BYTES: usize = 12;
const NAME_BYTES_MAX: usize = 255;

/// Bits of the flags: their first byte, and their second.
const RESPONSE: u8 = 0x80;
const OPCODE: u8 = 0x78;
const AUTHORITATIVE: u8 = 0x04;
const TRUNCATED: u8 = 0x02;
const RECURSION_DESIRED: u8 = 0x01;
const RECURSION_AVAILABLE: u8 = 0x80;
/// Whether the guest checks signatures itself, and wants to know that the resolver has.
const SIGNATURES: u8 = 0x30;

const CLASS_INTERNET: u16 = 1;
const TYPE_OPT: u16 = 41;
/// Types that no record has, but for `TYPE_ANY`: transfers of zones, and keys of transactions.
const TYPES_OF_QUESTIONS: std::ops::RangeInclusive<u16> = 128..=255;
pub(super) const TYPE_ANY: u16 = 255;

/// How an answer ends (RFC 1035, RFC 6891).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Code {
    NoError = 0,
    FormatError = 1,
    ServerFailure = 2,
    NameError = 3,
    NotImplemented = 4,
    Refused = 5,
    /// A version of EDNS that is not known: its upper bits are in the record of EDNS.
    BadVersion = 16,
}

/// A question for names of the internet's class.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Question {
    id: [u8; 2],
    /// Whether it asks for what other servers know.
    is_recursive: bool,
    signatures: u8,
    /// Name, type and class, as they came.
    section: Vec<u8>,
    /// The name in lower case, without the dot at its end.
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

/// What a message is.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Message {
    Question(Question),
    /// It gets this answer, which says why.
    Refused(Vec<u8>),
    /// It is no question, and nothing is said.
    Nothing,
}

/// The relation of a message to a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answers {
    /// An answer to just this.
    AsAsked,
    /// One whose letters are not in the cases that were asked for.
    InOtherCases,
    /// None.
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
    /// Reads the one record behind the question; `None` if it is no whole one of EDNS.
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

    /// The record that goes with an answer, or with a question of ours.
    fn record(self, code: Code) -> [u8; 11] {
        let [[kind, of], [a, b]] = [TYPE_OPT, DATAGRAM_BYTES_MAX].map(u16::to_be_bytes);
        let flags = if self.wants_signatures { 0x80 } else { 0 };
        [0, kind, of, a, b, code as u8 >> 4, 0, flags, 0, 0, 0]
    }
}

impl Question {
    /// An answer with so many records.
    pub(super) fn answer(&self, code: Code, count: u16, records: &[u8]) -> Vec<u8> {
        self.reply(AUTHORITATIVE, code, count, records)
    }

    /// Says that it cannot be answered.
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

    /// The answer for a datagram: if it does not fit, one that sends the guest to TCP.
    pub(super) fn fitting(&self, answer: Vec<u8>) -> Vec<u8> {
        let asked = self.edns.map_or(DATAGRAM_BYTES_PLAIN, |edns| edns.datagram_bytes);
        let most = asked.clamp(DATAGRAM_BYTES_PLAIN, DATAGRAM_BYTES_MAX);
        if answer.len() <= usize::from(most) {
            return answer;
        }
        self.reply(TRUNCATED, Code::NoError, 0, &[])
    }

    /// Name, type and class, with letters of the name in upper or lower case by the bits of words:
    /// an answer has to repeat them.
    pub(super) fn mixed(&self, mut word: impl FnMut() -> u64) -> Vec<u8> {
        let mut section = self.section.clone();
        let name = section.len().saturating_sub(4);
        // Lengths of labels are below all letters.
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

    /// The question in a message of ours, with letters as in [`Question::mixed`].
    pub(super) fn of_ours(&self, id: [u8; 2], section: &[u8]) -> Vec<u8> {
        let counts = [0, 1, 0, 0, 0, 0, 0, u8::from(self.edns.is_some())];
        let edns = self.edns.map(|edns| edns.record(Code::NoError));
        let edns = edns.as_ref().map_or(&[][..], |record| record);
        [&id, &[RECURSION_DESIRED, self.signatures][..], &counts, section, edns].concat()
    }

    /// The question in a message of ours, with the letters of the guest.
    pub(super) fn as_asked(&self, id: [u8; 2]) -> Vec<u8> {
        self.of_ours(id, &self.section)
    }

    /// Whether a message answers it, whatever case its letters have: its number is not looked at.
    pub(super) fn is_answered_by(&self, message: &[u8]) -> bool {
        self.answers(message, &self.section) != Answers::Nothing
    }

    /// Whether a message answers it as it was asked: its number is not looked at.
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

    /// Another server's answer to it, as the guest has asked.
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

/// Whether an answer says that there is more of it, by TCP.
pub(super) fn is_truncated(answer: &[u8]) -> bool {
    answer.get(2).is_some_and(|flags| flags & TRUNCATED != 0)
}

/// Name, type and class of a message's first question.
fn section(message: &[u8]) -> Option<&[u8]> {
    let mut at = HEADER_BYTES;
    loop {
        match usize::from(*message.get(at)?) {
            0 => break,
            length @ 1..64 => at += 1 + length,
            // A pointer to another name, before which there is none.
            _ => return None,
        }
    }
    let is_name = at + 1 - HEADER_BYTES <= NAME_BYTES_MAX;
    message.get(HEADER_BYTES..at + 5).filter(|_| is_name)
}

/// A name as people write it. Bytes that are no letter of a host's name become others that no
/// name has.
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
