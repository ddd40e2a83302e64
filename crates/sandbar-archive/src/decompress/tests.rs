use std::io::Write;

use super::*;

fn taken_off(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    decompress(bytes)?.read_to_end(&mut text)?;
    Ok(text)
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn zstd(text: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(text, ruzstd::encoding::CompressionLevel::Fastest)
}

#[test]
fn what_is_not_compressed_stays() {
    for text in [&b""[..], b"x", b"\x1f", b"ordinary text"] {
        assert_eq!(taken_off(text).unwrap(), text);
    }
}

#[test]
fn gzip_and_zstd_are_taken_off_part_after_part() {
    let text = b"a line\n".repeat(50_000);
    for pack in [gzip, zstd] {
        let two = [pack(&text), pack(b"end")].concat();
        assert_eq!(taken_off(&two).unwrap(), [&text[..], b"end"].concat());
    }
    let skipped = [zstd(b"a"), vec![0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 9, 9], zstd(b"b")].concat();
    assert_eq!(taken_off(&skipped).unwrap(), b"ab");
}

#[test]
fn zeros_may_follow_gzip_and_nothing_else() {
    let text = b"a line\n".repeat(50_000);
    for zeros in [1, BUFFER - 1, BUFFER, 3 * BUFFER] {
        let padded = [gzip(&text), vec![0; zeros]].concat();
        assert_eq!(taken_off(&padded).unwrap(), text, "{zeros} zeros");
        let error = taken_off(&[padded, gzip(b"more")].concat()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{zeros} zeros");
    }
    let error = taken_off(&[gzip(&text), b"junk".to_vec()].concat()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(error.to_string().contains("what follows its end is no gzip"), "{error}");
}

#[test]
fn cut_and_damaged_streams_are_told_apart() {
    let text: Vec<u8> = (0..100_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    for pack in [gzip, zstd] {
        let whole = pack(&text);
        for cut in [whole.len() - 1, whole.len() / 2, 5] {
            assert_eq!(
                taken_off(&whole[..cut]).unwrap_err().kind(),
                io::ErrorKind::UnexpectedEof,
                "cut at {cut}"
            );
        }
        let mut damaged = whole.clone();
        damaged[whole.len() / 2] ^= 0x10;
        assert_eq!(taken_off(&damaged).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
