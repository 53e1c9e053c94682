use super::*;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    ruzstd::encoding::compress_to_vec(bytes, level)
}

/// Writes `bytes` to a file and returns what is read from it.
fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let mut all = Vec::new();
    Input::open(file.path(), &|| false)?.read_to_end(&mut all)?;
    Ok(all)
}

#[test]
fn compressed_bytes_come_out_as_they_were() {
    let bytes: Vec<u8> =
        (0..300_000_u32).flat_map(|n| (n.wrapping_mul(n) % 253).to_le_bytes()).collect();
    let (one, other) = bytes.split_at(1000);
    for (name, compressed) in [
        ("plain", bytes.clone()),
        ("gzip", gzip(&bytes)),
        ("gzip, two members", [gzip(one), gzip(other)].concat()),
        ("zstd", zstd(&bytes)),
        ("zstd, two frames", [zstd(one), zstd(other)].concat()),
        // Files that `pzstd` writes have a skippable frame before each data frame.
        ("zstd, skipped", [&b"\x50\x2a\x4d\x18\x02\0\0\0xx"[..], &zstd(&bytes)].concat()),
    ] {
        assert!(read(&compressed).unwrap() == bytes, "{name}");
    }
    assert_eq!(read(b"ab").unwrap(), b"ab");
    assert_eq!(read(b"").unwrap(), b"");
}

#[test]
fn what_is_compressed_and_ends_early_or_is_damaged_is_an_error() {
    let bytes: Vec<u8> =
        (0..100_000_u32).flat_map(|n| (n.wrapping_mul(n) % 251).to_le_bytes()).collect();
    for compressed in [gzip(&bytes), zstd(&bytes)] {
        for cut in [5, compressed.len() / 2, compressed.len() - 1] {
            let error = read(&compressed[..cut]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{cut}: {error}");
        }
    }
    let mut damaged = gzip(&bytes);
    damaged[4000..4100].fill(0xff);
    assert!(read(&damaged).is_err());
}

#[test]
fn a_fifo_without_a_writer_is_opened_and_ends_when_told_to() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let asked = Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        asked.get() > 2
    };
    let error = Input::open(&fifo, &stop).and_then(|mut input| input.read(&mut [0])).unwrap_err();
    assert_eq!(error.to_string(), "stopped");
    // Once the FIFO has a writer, its bytes are read as soon as they are written. When the writer
    // closes the FIFO, the input ends.
    let has_read = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = OpenOptions::new().write(true).open(&fifo).unwrap();
            writer.write_all(b"first").unwrap();
            while !has_read.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            writer.write_all(b"second").unwrap();
        });
        let mut input = Input::open(&fifo, &|| false).unwrap();
        let mut first = [0; 5];
        input.read_exact(&mut first).unwrap();
        has_read.store(true, Ordering::Release);
        let mut rest = Vec::new();
        input.read_to_end(&mut rest).unwrap();
        assert_eq!((&first, &rest[..], input.taken().get()), (b"first", &b"second"[..], 11));
    });
    assert!(!is_read_again(&fifo) && !is_read_again(Path::new(STDIN)));
}
