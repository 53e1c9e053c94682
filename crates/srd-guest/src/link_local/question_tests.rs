//! Messages of guests, and answers to them.

use super::*;

const NAME: &[u8] = b"\x03wWw\x07example\x03com\0";

fn message(flags: [u8; 2], counts: [u8; 8], rest: &[&[u8]]) -> Vec<u8> {
    let header = [&[0, 7][..], &flags, &counts].concat();
    [&header[..], &rest.concat()].concat()
}

fn plain(kind: u8, class: u8) -> Vec<u8> {
    message([1, 0], [0, 1, 0, 0, 0, 0, 0, 0], &[NAME, &[0, kind, 0, class]])
}

/// Returns a query with a record after the question.
fn with(record: &[u8]) -> Vec<u8> {
    message([1, 0], [0, 1, 0, 0, 0, 0, 0, 1], &[NAME, &[0, 1, 0, 1], record])
}

fn question(message: &[u8]) -> Question {
    let Message::Question(question) = read(message) else { panic!("{message:?}") };
    question
}

/// Returns the two bytes of flags and code of the refusal that a message gets.
fn refused(message: &[u8]) -> (u8, u8) {
    let Message::Refused(reply) = read(message) else { panic!("{message:?}") };
    assert_eq!(reply[..2], [0, 7]);
    (reply[2], reply[3])
}

#[test]
fn other_operations_than_questions_are_not_implemented() {
    for opcode in 1..16 {
        let update = message([opcode << 3, 0], [0, 1, 0, 0, 0, 1, 0, 0], &[NAME, &[0, 6, 0, 1]]);
        assert_eq!(refused(&update), (0x80 | opcode << 3, 0x80 | 4), "{opcode}");
    }
}

#[test]
fn transfers_of_zones_and_other_classes_are_refused() {
    for kind in [128, 249, 250, 251, 252, 253, 254] {
        assert_eq!(refused(&plain(kind, 1)), (0x81, 0x85), "{kind}");
    }
    for class in [0, 3, 4, 254, 255] {
        assert_eq!(refused(&plain(1, class)), (0x81, 0x85), "{class}");
    }
    for kind in [1, 2, 28, 33, 43, 52, 65, 99, 255] {
        assert_eq!(question(&plain(kind, 1)).kind, u16::from(kind));
    }
}

/// The records are not read, so their errors make no difference.
#[test]
fn messages_with_records_are_no_questions() {
    for counts in [
        [0, 0, 0, 0, 0, 0, 0, 0],
        [0, 2, 0, 0, 0, 0, 0, 0],
        [0, 1, 0, 81, 0, 0, 0, 0],
        [0, 1, 0, 0, 2, 0, 0, 0],
        [0, 1, 0, 0, 0, 0, 0, 2],
        [0, 1, 0, 0, 0, 0, 1, 0],
    ] {
        let records = message([1, 0], counts, &[NAME, &[0, 1, 0, 1], &[0xc0; 20]]);
        assert_eq!(refused(&records), (0x81, 0x81), "{counts:?}");
    }
    let edns = with(&[0, 0, 41, 0x10, 0, 0, 0, 0, 0, 0, 0]);
    for (whole, at) in [(plain(1, 1), 7), (plain(1, 1), 6), (plain(1, 1), 9), (edns, 7)] {
        let mut more = whole.clone();
        more[at] = 1;
        assert_eq!(refused(&more), (0x81, 0x81), "it says that there are records: {at}");
        assert!(matches!(read(&whole), Message::Question(_)));
    }
    assert_eq!(refused(&[plain(1, 1), vec![0]].concat()), (0x81, 0x81), "bytes behind it");
    let long = [plain(1, 1), vec![0; QUESTION_BYTES_MAX]].concat();
    assert_eq!(read(&long), Message::Nothing);
    let mut answer = plain(1, 1);
    answer[2] |= RESPONSE;
    assert_eq!(read(&answer), Message::Nothing);
    assert_eq!(read(&answer[..11]), Message::Nothing);
    for length in HEADER_BYTES..plain(1, 1).len() {
        assert_eq!(refused(&plain(1, 1)[..length]), (0x81, 0x81), "{length}");
    }
}

#[test]
fn names_are_at_most_255_bytes_and_without_pointers() {
    let named = |name: &[u8]| message([1, 0], [0, 1, 0, 0, 0, 0, 0, 0], &[name, &[0, 1, 0, 1]]);
    assert_eq!(question(&named(NAME)).name, "www.example.com");
    assert_eq!(question(&named(&[0])).name, "");
    assert_eq!(question(&named(b"\x03a.b\x01\xff\0")).name, "a\u{fffd}b.\u{fffd}");
    let long = [b"\x01a".repeat(127), vec![0]].concat();
    assert_eq!(question(&named(&long)).name.len(), 253);
    let longer = [b"\x02aa".to_vec(), long].concat();
    for wrong in [&longer[..], b"\xc0\x0c", b"\x40", b"\x01a\xc0\x0c"] {
        assert_eq!(refused(&named(wrong)), (0x81, 0x81), "{wrong:?}");
    }
}

#[test]
fn what_is_asked_elsewhere_is_the_question_alone() {
    let edns = [0, 0, 41, 0x10, 0, 0, 0, 0x80, 0, 0, 5, 0, 10, 0, 1, 99];
    let sent = question(&with(&edns)).as_asked([8, 9]);
    let own = [0, 0, 41, 0x04, 0xd0, 0, 0, 0x80, 0, 0, 0];
    let header = [8, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    assert_eq!(sent, [&header[..], NAME, &[0, 1, 0, 1], &own].concat());
    // We always set RD. Otherwise the guest could find out which names are in the server's cache.
    let mut still = plain(1, 1);
    still[2..4].copy_from_slice(&[0, 0x30]);
    let sent = question(&still).as_asked([8, 9]);
    assert_eq!(sent[..12], [8, 9, 1, 0x30, 0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(sent[12..], still[12..]);
}

/// Letters in upper case only, in lower case only, and a name with many letters.
#[test]
fn an_answer_has_to_repeat_the_cases_that_were_drawn() {
    let question = question(&plain(1, 1));
    let all = question.mixed(|| u64::MAX);
    let none = question.mixed(|| 0);
    assert_eq!(all, [&b"\x03WWW\x07EXAMPLE\x03COM\0"[..], &[0, 1, 0, 1]].concat());
    assert_eq!(none, [&b"\x03www\x07example\x03com\0"[..], &[0, 1, 0, 1]].concat());
    let mut answer = question.of_ours([8, 9], &all);
    answer[2] |= RESPONSE;
    assert_eq!(question.answers(&answer, &all), Answers::AsAsked);
    answer[13] ^= 0x20;
    assert_eq!(question.answers(&answer, &all), Answers::InOtherCases);
    answer[13] = b'x';
    assert_eq!(question.answers(&answer, &all), Answers::Nothing);
    // Each letter has a separate bit, also beyond the 64 bits of the first word.
    let long = [&b"\x3f"[..], &[b'a'; 63], b"\x3f", &[b'b'; 63], &[0]].concat();
    let long = message([1, 0], [0, 1, 0, 0, 0, 0, 0, 0], &[&long, &[0, 1, 0, 1]]);
    let mut words = [1 << 63, 1].into_iter();
    let mixed = super::tests::question(&long).mixed(|| words.next().unwrap());
    let upper: Vec<usize> = (0..mixed.len()).filter(|at| mixed[*at].is_ascii_uppercase()).collect();
    assert_eq!((upper, words.next()), (vec![65, 66], None));
}

#[test]
fn edns_is_one_whole_record_of_a_known_version() {
    for wrong in [
        &[0, 0, 250, 0x10, 0, 0, 0, 0, 0, 0, 0][..],
        &[0, 0, 41, 0x10, 0, 0, 0, 0, 0, 0, 1],
        &[0, 0, 41, 0x10, 0, 0, 0, 0, 0, 0, 0, 0],
        &[1, 0, 41, 0x10, 0, 0, 0, 0, 0, 0, 0],
        &[0, 0, 41, 0x10, 0, 0, 0, 0, 0, 0],
        &[],
    ] {
        assert_eq!(refused(&with(wrong)), (0x81, 0x81), "{wrong:?}");
    }
    let Message::Refused(reply) = read(&with(&[0, 0, 41, 0x10, 0, 0, 1, 0, 0, 0, 0])) else {
        panic!()
    };
    assert_eq!((reply[3] & 15, reply[reply.len() - 6]), (0, 1), "bad version is 16");
}

#[test]
fn an_answer_that_does_not_fit_is_cut() {
    let edns = |a, b| with(&[0, 0, 41, a, b, 0, 0, 0, 0, 0, 0]);
    for (message, most) in [
        (plain(1, 1), 512),
        (edns(0, 0), 512),
        (edns(0x03, 0xe8), 1000),
        (edns(0x10, 0), 1232),
        (edns(0xff, 0xff), 1232),
    ] {
        let question = question(&message);
        let fits = question.fitting(vec![0; most]);
        assert_eq!(fits.len(), most);
        let cut = question.fitting(vec![0; most + 1]);
        assert!(is_truncated(&cut) && !is_truncated(&fits) && question.is_answered_by(&cut));
        assert!(cut.len() < 60 && cut[..4] == [0, 7, 0x83, 0x80], "{cut:?}");
    }
}

#[test]
fn an_answer_repeats_the_question_and_comes_back_as_it_was_asked() {
    let question = question(&plain(1, 1));
    let mut answer = question.answer(Code::NoError, 0, &[]);
    assert!(question.is_answered_by(&answer));
    answer[13..16].copy_from_slice(b"WWW");
    answer[..3].copy_from_slice(&[8, 9, 0x80]);
    assert!(question.is_answered_by(&answer));
    let relayed = question.relayed(answer.clone());
    assert_eq!((&relayed[..3], &relayed[12..]), (&[0, 7, 0x81][..], &plain(1, 1)[12..]));
    for (at, value) in [(2, 1), (2, 0x90), (5, 2), (13, b'x'), (30, 2)] {
        let mut other = answer.clone();
        other[at] = value;
        assert!(!question.is_answered_by(&other), "{at}");
    }
    assert!(!question.is_answered_by(&answer[..20]) && !question.is_answered_by(&[]));
}

#[test]
fn a_failure_says_what_was_asked_of_it() {
    let failed = question(&plain(1, 1)).fail(Code::ServerFailure);
    assert_eq!(failed[..4], [0, 7, 0x81, 0x82], "RD as in the question, and RA");
    let mut still = plain(1, 1);
    still[2] = 0;
    assert_eq!(question(&still).fail(Code::ServerFailure)[..4], [0, 7, 0x80, 0x82]);
}
