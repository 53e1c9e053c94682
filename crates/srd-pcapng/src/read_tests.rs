use super::*;
use crate::{INTERFACE, PACKET, SECTION};
use std::io::Cursor;

/// Builds capture files whose numbers are in this byte order.
#[derive(Clone, Copy, PartialEq, Debug)]
struct In(Order);

const BOTH: [In; 2] = [In(Order::Little), In(Order::Big)];

impl In {
    fn u16(self, number: u16) -> Vec<u8> {
        match self.0 {
            Order::Little => number.to_le_bytes().to_vec(),
            Order::Big => number.to_be_bytes().to_vec(),
        }
    }

    fn u32(self, number: u32) -> Vec<u8> {
        match self.0 {
            Order::Little => number.to_le_bytes().to_vec(),
            Order::Big => number.to_be_bytes().to_vec(),
        }
    }

    fn words(self, numbers: &[u32]) -> Vec<u8> {
        numbers.iter().flat_map(|number| self.u32(*number)).collect()
    }

    fn i64(self, number: i64) -> Vec<u8> {
        match self.0 {
            Order::Little => number.to_le_bytes().to_vec(),
            Order::Big => number.to_be_bytes().to_vec(),
        }
    }

    /// Returns a pcap file. Each record consists of the seconds, the fraction and the two lengths
    /// as they stand in the file, and of the bytes.
    fn pcap(self, magic: u32, minor: u16, field: u32, records: &[([u32; 4], &[u8])]) -> Vec<u8> {
        let mut file = self.u32(magic);
        file.extend([self.u16(2), self.u16(minor), self.words(&[0, 0, 65_535, field])].concat());
        for (head, bytes) in records {
            file.extend(self.words(head));
            file.extend(*bytes);
        }
        file
    }

    fn block(self, kind: u32, body: &[&[u8]]) -> Vec<u8> {
        let mut body = body.concat();
        body.resize(body.len().next_multiple_of(4), 0);
        let length = u32::try_from(body.len() + 12).unwrap();
        [self.words(&[kind, length]), body, self.u32(length)].concat()
    }

    fn section(self) -> Vec<u8> {
        let version = [self.u16(1), self.u16(0)].concat();
        self.block(SECTION, &[&self.u32(0x1a2b_3c4d), &version, &[0xff; 8]])
    }

    fn option(self, code: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(value.len()).unwrap();
        let mut option = [self.u16(code), self.u16(length), value.to_vec()].concat();
        option.resize(option.len().next_multiple_of(4), 0);
        option
    }

    fn interface(self, link: u16, snaplen: u32, options: &[Vec<u8>]) -> Vec<u8> {
        let head = [self.u16(link), self.u16(0), self.u32(snaplen)].concat();
        self.block(INTERFACE, &[&head, &options.concat()])
    }

    /// Returns an enhanced packet block with four bytes of a packet of 60 bytes.
    fn packet(self, interface: u32, units: u64, options: &[Vec<u8>]) -> Vec<u8> {
        let time =
            [u32::try_from(units >> 32).unwrap(), u32::try_from(units & 0xffff_ffff).unwrap()];
        let head = self.words(&[interface, time[0], time[1], 4, 60]);
        self.block(PACKET, &[&head, &[1, 2, 3, 4], &options.concat()])
    }
}

/// A packet without its bytes, and a copy of its bytes.
type Packet = (Captured<'static>, Vec<u8>);

/// Returns all interfaces, all packets with their bytes, and the error that ended the reading.
fn read(source: impl Read) -> (Vec<Interface>, Vec<Packet>, Option<ReadError>) {
    let (mut interfaces, mut packets) = (Vec::new(), Vec::new());
    let mut reader = match Reader::new(source) {
        Ok(reader) => reader,
        Err(error) => return (interfaces, packets, Some(error)),
    };
    loop {
        match reader.next_record() {
            Ok(None) => return (interfaces, packets, None),
            Ok(Some(Record::Interface(interface))) => interfaces.push(interface),
            Ok(Some(Record::Packet(packet))) => {
                let bytes = packet.bytes.to_vec();
                packets.push((Captured { bytes: &[], ..packet }, bytes));
            }
            Err(error) => return (interfaces, packets, Some(error)),
        }
    }
}

fn packets(bytes: &[u8]) -> Vec<Captured<'static>> {
    let (_, packets, error) = read(bytes);
    assert!(error.is_none(), "{error:?}");
    packets.into_iter().map(|(packet, _)| packet).collect()
}

fn error(bytes: &[u8]) -> ReadError {
    read(bytes).2.expect("an error")
}

#[test]
fn every_field_of_a_pcap_header_counts() {
    for order in BOTH {
        for (magic, unit_ns) in [(0xa1b2_c3d4, 1000), (0xa1b2_3c4d, 1)] {
            // The type is in the low 16 bits; the length of the check sequence counts with its bit.
            for (field, fcs_bytes) in
                [(1, 0), (0x2400_0001, 4), (0x3000_0001, 0), (0x1400_0001, 2), (0x03ff_0001, 0)]
            {
                let file = order.pcap(magic, 4, field, &[([7, 9, 3, 60], &[1, 2, 3])]);
                let (interfaces, packets, error) = read(&file[..]);
                assert!(error.is_none(), "{error:?}");
                assert_eq!((interfaces.len(), interfaces[0].link), (1, 1), "{field:#x}");
                assert_eq!(interfaces[0].is_big_endian, order.0 == Order::Big);
                let (packet, bytes) = &packets[0];
                assert_eq!(packet.time_ns, Some(7_000_000_000 + 9 * unit_ns));
                assert_eq!((packet.length, packet.fcs_bytes), (60, fcs_bytes), "{field:#x}");
                assert_eq!((packet.interface, &bytes[..]), (Some(0), &[1, 2, 3][..]));
            }
        }
    }
}

#[test]
fn old_versions_have_the_lengths_the_other_way_round() {
    let lengths = |minor, head| {
        let file = BOTH[0].pcap(0xa1b2_c3d4, minor, 1, &[(head, &[0; 4])]);
        let (_, packets, error) = read(&file[..]);
        assert!(error.is_none(), "{minor}: {error:?}");
        (packets[0].1.len(), packets[0].0.length)
    };
    assert_eq!(lengths(4, [0, 0, 4, 60]), (4, 60));
    assert_eq!(lengths(2, [0, 0, 60, 4]), (4, 60));
    assert_eq!((lengths(3, [0, 0, 60, 4]), lengths(3, [0, 0, 4, 60])), ((4, 60), (4, 60)));
    // Bytes that were captured were on the link.
    assert_eq!(lengths(4, [0, 0, 4, 0]), (4, 4));
    let mut other = BOTH[0].pcap(0xa1b2_c3d4, 4, 1, &[]);
    other[4] = 3;
    assert!(error(&other).to_string().contains("version"), "{}", error(&other));
}

#[test]
fn other_formats_are_named_with_what_to_do() {
    for (magic, words) in [
        (&0xa1b2_cd34_u32.to_le_bytes()[..], "Kuznetzov"),
        (&0xa1b2_cd34_u32.to_be_bytes(), "tcpdump -r"),
        (&0xa1b2_34cd_u32.to_le_bytes(), "modified"),
        (b"snoop\0\0\0", "snoop"),
        (b"\xfd7zXZ\0", "xz -dc"),
        (b"PK\x03\x04", "unzip"),
        (b"what is this", "neither a pcap nor a pcapng file"),
        (b"", "empty"),
        (b"\xa1\xb2", "neither"),
    ] {
        let file = [magic, if magic.len() < 4 { &[] } else { &[0; 30] }].concat();
        let said = error(&file).to_string();
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn a_file_that_ends_within_a_record_says_where() {
    let record: &[([u32; 4], &[u8])] = &[([1, 0, 4, 4], &[0; 4])];
    let file = BOTH[0].pcap(0xa1b2_c3d4, 4, 1, &[record[0], record[0]]);
    for cut in 1..20 {
        let (_, packets, error) = read(&file[..file.len() - cut]);
        assert_eq!(packets.len(), 1);
        assert!(matches!(error, Some(ReadError::Cut { offset: 44 })), "{cut}: {error:?}");
    }
    assert!(matches!(error(&file[..20]), ReadError::Cut { offset: 0 }));
    let block = [BOTH[0].section(), BOTH[0].interface(1, 0, &[]), BOTH[0].packet(0, 0, &[])];
    let file = block.concat();
    let begin = (file.len() - block[2].len()) as u64;
    for cut in 1..block[2].len() {
        let error = error(&file[..file.len() - cut]);
        assert!(matches!(error, ReadError::Cut { offset } if offset == begin), "{cut}: {error:?}");
    }
}

#[test]
fn times_have_the_resolution_and_the_offset_of_their_interface() {
    let (micro, second) = (1_700_000_000_000_000_u64, 1_000_000_000_i64);
    for order in BOTH {
        for (offset, resolution, units, expected) in [
            (None, None, micro, 1_700_000_000 * second),
            (Some(-3600), None, micro, (1_700_000_000 - 3600) * second),
            (Some(0x0102_0304), None, 0, 0x0102_0304 * second),
            (Some(5), Some(9), 7, 5 * second + 7),
            (Some(1), Some(0x80 | 10), 512, second + second / 2),
            (Some(-1), None, 0, 0),
            (Some(i64::MAX), None, u64::MAX, i64::MAX),
        ] {
            let mut options = Vec::new();
            options.extend(resolution.map(|value: u8| order.option(9, &[value])));
            options.extend(offset.map(|value| order.option(14, &order.i64(value))));
            options.push(order.option(0, &[]));
            let file = [order.section(), order.interface(1, 0, &options)].concat();
            let file = [file, order.packet(0, units, &[])].concat();
            let found = packets(&file)[0].time_ns;
            let context = format!("{order:?} {offset:?} {resolution:?}");
            assert_eq!(found, Some(u64::try_from(expected).unwrap()), "{context}");
        }
    }
}

#[test]
fn sections_may_differ_in_their_byte_order_and_count_interfaces_anew() {
    let mut file = Vec::new();
    for (order, link) in [(BOTH[0], 1), (BOTH[1], 101), (BOTH[0], 113)] {
        file.extend(order.section());
        file.extend(order.interface(link, 0, &[order.option(2, b"eth0")]));
        file.extend(order.packet(0, 1, &[]));
        file.extend(order.packet(1, 1, &[]));
    }
    let (interfaces, packets, error) = read(&file[..]);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(interfaces.iter().map(|of| of.link).collect::<Vec<_>>(), [1, 101, 113]);
    assert!(interfaces.iter().all(|of| of.name.as_deref() == Some("eth0")));
    // The second packet of each is of an interface that its section does not describe.
    let numbers: Vec<_> = packets.iter().map(|(packet, _)| packet.interface).collect();
    assert_eq!(numbers, [Some(0), None, Some(1), None, Some(2), None]);
}

#[test]
fn simple_and_obsolete_packets_are_read_and_other_blocks_skipped() {
    for order in BOTH {
        let simple = |length: u32, bytes: &[u8]| order.block(3, &[&order.u32(length), bytes]);
        let head = [order.u16(0), order.u16(9), order.words(&[0, 5_000_000, 3, 60])].concat();
        let flags = order.option(2, &order.u32(2 | 4 << 5));
        let file = [
            order.section(),
            order.block(0x0bad, &[&[7; 5000]]),
            order.interface(101, 8, &[order.option(13, &[4])]),
            simple(6, &[1; 6]),
            simple(60, &[2; 8]),
            order.block(5, &[&order.words(&[0, 0, 0])]),
            order.block(2, &[&head, &[3; 4], &flags]),
            order.packet(0, 7, &[order.option(1, b"a comment"), order.option(2, &order.u32(1))]),
        ];
        let (_, packets, error) = read(&file.concat()[..]);
        assert!(error.is_none(), "{error:?}");
        let kept: Vec<usize> = packets.iter().map(|(_, bytes)| bytes.len()).collect();
        assert_eq!(kept, [6, 8, 3, 4], "as many as the block has, and the snaplen lets through");
        let times: Vec<_> = packets.iter().map(|(packet, _)| packet.time_ns).collect();
        assert_eq!(times, [None, None, Some(5_000_000_000), Some(7_000)]);
        let ways: Vec<_> = packets.iter().map(|(packet, _)| packet.direction).collect();
        assert_eq!(ways, [None, None, Some(Direction::Out), Some(Direction::In)]);
        let lengths: Vec<_> = packets.iter().map(|(packet, _)| packet.length).collect();
        assert_eq!(lengths, [6, 60, 60, 60]);
        assert!(packets.iter().all(|(packet, _)| packet.fcs_bytes == 4), "{packets:?}");
    }
}

#[test]
fn lengths_that_disagree_are_errors_with_their_place() {
    for order in BOTH {
        let (section, interface) = (order.section(), order.interface(1, 0, &[]));
        let whole = [section.clone(), interface.clone(), order.packet(0, 0, &[])].concat();
        let at = section.len() + interface.len();
        let with = |place: usize, number: u32| {
            let mut file = whole.clone();
            file[place..place + 4].copy_from_slice(&order.u32(number));
            file
        };
        for (file, offset, why) in [
            (with(whole.len() - 4, 99), at, "disagree"),
            (with(at + 4, 37), at, "multiple of 4"),
            (with(at + 4, 8), at, "multiple of 4"),
            (with(at + 4, 0x7000_0000), at, "larger"),
            (with(at + 20, 1000), at, "longer than its block"),
            (with(at + 20, u32::MAX), at, "longer than its block"),
            (with(section.len() - 4, 29), 0, "disagree"),
            (
                [&whole[..], &order.block(7, &[&[0; 8]])[..16], &[9; 8]].concat(),
                whole.len(),
                "disa",
            ),
            ([&whole[..], &order.block(INTERFACE, &[&[0; 4]])].concat(), whole.len(), "too short"),
            ([&whole[..], &order.block(PACKET, &[&[0; 16]])].concat(), whole.len(), "too short"),
            ([&whole[..], &order.block(SECTION, &[&[0; 16]])].concat(), whole.len(), "byte order"),
            (
                [&whole[..], &order.interface(1, 0, &[order.u32(1 << 16 | 64)])].concat(),
                whole.len(),
                "option",
            ),
            (
                [&whole[..], &order.interface(1, 0, &[order.option(14, &[0; 4])])].concat(),
                whole.len(),
                "if_tsoffset",
            ),
            (
                [&whole[..], &order.interface(1, 0, &[order.option(9, &[0x7f])])].concat(),
                whole.len(),
                "if_tsresol",
            ),
        ] {
            let found = error(&file);
            let said = found.to_string();
            assert!(said.contains(why), "{why}: {said}");
            assert!(
                matches!(found, ReadError::Damaged { offset: at, .. } if at == offset as u64),
                "{why}: {found:?} at {offset}"
            );
        }
    }
}

#[test]
fn interfaces_and_records_are_bounded() {
    let mut file = BOTH[0].section();
    (0..INTERFACES_MAX).for_each(|_| file.extend(BOTH[0].interface(1, 0, &[])));
    assert_eq!(read(&file[..]).0.len(), INTERFACES_MAX);
    file.extend(BOTH[0].interface(1, 0, &[]));
    assert!(matches!(error(&file), ReadError::Interfaces));
    let claims = u32::try_from(BLOCK_BYTES_MAX).unwrap() + 1;
    let file = BOTH[0].pcap(0xa1b2_c3d4, 4, 1, &[([0, 0, claims, claims], &[])]);
    assert!(matches!(error(&file), ReadError::Damaged { offset: 24, .. }));
    // A block whose content is not read may be larger: it is skipped.
    let mut file = BOTH[0].section();
    let body = vec![0; BLOCK_BYTES_MAX + 8];
    file.extend(BOTH[0].block(9, &[&body]));
    file.extend(BOTH[0].packet(0, 0, &[]));
    assert_eq!(packets(&file).len(), 1);
}

/// A source that returns one byte at a time, and never reads ahead.
struct Dribble<'a>(Cursor<&'a [u8]>);

impl Read for Dribble<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let most = to.len().min(1);
        self.0.read(&mut to[..most])
    }
}

#[test]
fn a_record_is_there_with_its_last_byte() {
    let files = [
        BOTH[0].pcap(0xa1b2_c3d4, 4, 1, &[([1, 0, 4, 4], &[1; 4]), ([2, 0, 2, 9], &[2; 2])]),
        [
            BOTH[1].section(),
            BOTH[1].interface(1, 0, &[]),
            BOTH[1].block(77, &[&[0; 64]]),
            BOTH[1].packet(0, 1, &[]),
            BOTH[1].packet(0, 2, &[]),
        ]
        .concat(),
    ];
    for file in files {
        let whole = read(&file[..]);
        let bytewise = read(Dribble(Cursor::new(&file)));
        assert_eq!((&whole.0, &whole.1), (&bytewise.0, &bytewise.1));
        let mut reader = Reader::new(Dribble(Cursor::new(&file))).unwrap();
        let mut last = 0;
        while let Some(record) = reader.next_record().unwrap() {
            if let Record::Packet(packet) = record {
                last = packet.bytes.len();
            }
        }
        assert!(last > 0);
        // Without its last byte, the last packet is missing; the one before it is not.
        let (_, packets, _) = read(Dribble(Cursor::new(&file[..file.len() - 1])));
        assert_eq!(packets.len() + 1, whole.1.len());
    }
}

#[test]
fn what_the_writer_writes_is_read() {
    let mut writer = crate::Writer::begin("test");
    let interface = writer.interface("srd0 inner", 1500);
    let (direction, time_ns, length) = (Direction::Out, 0x1122_3344_5566_7788, 100);
    let bytes = &[1, 2, 3][..];
    let comment = "why";
    writer.packet(&crate::Packet { interface, direction, time_ns, length, bytes, comment });
    writer.statistics(interface, 5, 1, 0);
    let file = writer.take();
    let (interfaces, packets, error) = read(&file[..]);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(interfaces[0].name.as_deref(), Some("srd0 inner"));
    let (packet, kept) = &packets[0];
    assert_eq!((packet.time_ns, packet.length), (Some(time_ns), length));
    assert_eq!((packet.direction, &kept[..]), (Some(Direction::Out), bytes));
}

/// A source that ends as a decompressor does if its input is cut off.
struct CutOff<'a>(&'a [u8]);

impl Read for CutOff<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self.0.read(to)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => Ok(count),
        }
    }
}

/// In an earlier version, a compressed file that was cut off between two packets was read as a
/// complete file.
#[test]
fn regression_a_compressed_source_that_is_cut_off_is_not_complete() {
    let pcap = BOTH[0].pcap(0xa1b2_c3d4, 4, 1, &[([1, 0, 4, 4], &[1; 4])]);
    let head = [BOTH[1].section(), BOTH[1].interface(1, 0, &[])].concat();
    let ng = [head, BOTH[1].packet(0, 1, &[])].concat();
    for file in [pcap, ng] {
        let (interfaces, packets, error) = read(CutOff(&file));
        assert_eq!((interfaces.len(), packets.len()), (1, 1));
        let end = file.len() as u64;
        assert!(matches!(error, Some(ReadError::Cut { offset }) if offset == end), "{error:?}");
    }
    let error = Reader::new(CutOff(b"")).unwrap_err();
    assert!(matches!(error, ReadError::Cut { offset: 0 }), "{error:?}");
}
