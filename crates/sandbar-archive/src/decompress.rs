use std::io::{self, BufRead, BufReader, Read};
use std::mem;

use flate2::bufread::GzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Largest window of zstd, in bytes: what `--ultra` of the usual program makes is more, and every level without it is at most 8 MiB (RFC 8878, 3.1.1.1.2,
/// recommends to support that much).
pub const MAX_WINDOW: u64 = 8 << 20;

/// What is read at once, in bytes.
const BUFFER: usize = 64 * 1024;
/// How an archive in gzip begins (RFC 1952).
const GZIP: &[u8] = &[0x1f, 0x8b];
/// How one in zstd begins (RFC 8878).
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// Takes gzip or zstd off, if the stream begins like one, and leaves any other as it is. What comes out has no bound of its own: that of [`Unpack`](crate::Unpack)
/// is on content, members and what follows the end, so that a small stream that unpacks to a huge one is stopped there.
///
/// A stream that is cut short fails with [`io::ErrorKind::UnexpectedEof`], a damaged one with [`io::ErrorKind::InvalidData`].
pub fn decompress<'a>(reader: impl Read + Send + 'a) -> io::Result<Box<dyn Read + Send + 'a>> {
    let mut reader = reader;
    let mut start = [0; ZSTD.len()];
    let mut length = 0;
    while length < start.len() {
        match reader.read(&mut start[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let start = start[..length].to_vec();
    let (gzip, zstd) = (start.starts_with(GZIP), start.starts_with(ZSTD));
    let whole = io::Cursor::new(start).chain(reader);
    Ok(if gzip {
        Box::new(Gzip::new(BufReader::with_capacity(BUFFER, whole)))
    } else if zstd {
        Box::new(Zstd::new(BufReader::with_capacity(BUFFER, whole)))
    } else {
        Box::new(whole)
    })
}

/// A stream of gzip: members one after the other, whose checksums are checked. Zeros may follow the last, as on a tape.
struct Gzip<R> {
    member: Member<R>,
    padded: bool,
}

enum Member<R> {
    Open(Box<GzDecoder<R>>),
    /// What comes after a member is to be looked at.
    Over(R),
    /// Only while one becomes the other.
    Moving,
}

impl<R: BufRead> Gzip<R> {
    fn new(inner: R) -> Self {
        Self { member: Member::Open(Box::new(GzDecoder::new(inner))), padded: false }
    }
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            match &mut self.member {
                Member::Open(member) => {
                    let read = member.read(buffer).map_err(|error| match error.kind() {
                        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => damaged("gzip", &error),
                        _ => error,
                    })?;
                    if read > 0 {
                        return Ok(read);
                    }
                    if let Member::Open(member) = mem::replace(&mut self.member, Member::Moving) {
                        self.member = Member::Over(member.into_inner());
                    }
                }
                Member::Over(inner) => {
                    let ahead = inner.fill_buf()?;
                    let Some(&first) = ahead.first() else { return Ok(0) };
                    let zeros = ahead.iter().take_while(|byte| **byte == 0).count();
                    if zeros > 0 {
                        self.padded = true;
                        inner.consume(zeros);
                    } else if self.padded || first != GZIP[0] {
                        return Err(damaged("gzip", &"what follows its end is no gzip"));
                    } else if let Member::Over(inner) = mem::replace(&mut self.member, Member::Moving) {
                        self.member = Member::Open(Box::new(GzDecoder::new(inner)));
                    }
                }
                Member::Moving => return Ok(0),
            }
        }
    }
}

/// A stream of zstd: frames one after the other, those to be skipped among them.
struct Zstd<R> {
    source: Source<R>,
    decoder: FrameDecoder,
    in_frame: bool,
}

/// Remembers why reading stopped, which the decoder's errors tell only by their text.
struct Source<R> {
    inner: R,
    ended: bool,
    failed: Option<io::Error>,
}

impl<R: BufRead> Read for Source<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.inner.read(buffer) {
            Ok(0) if !buffer.is_empty() => self.ended = true,
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                let kind = error.kind();
                self.failed = Some(error);
                return Err(kind.into());
            }
            other => return other,
        }
        Ok(0)
    }
}

impl<R: BufRead> Zstd<R> {
    fn new(inner: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(MAX_WINDOW);
        Self { source: Source { inner, ended: false, failed: None }, decoder, in_frame: false }
    }

    /// Begins the next frame and says whether there is one.
    fn begin(&mut self) -> io::Result<bool> {
        loop {
            if self.source.inner.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.init(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    if io::copy(&mut (&mut self.source).take(length), &mut io::sink())? < length {
                        return Err(cut());
                    }
                }
                Err(error) => return Err(self.failure(&error)),
            }
        }
    }

    fn failure(&mut self, error: &FrameDecoderError) -> io::Error {
        match self.source.failed.take() {
            Some(error) => error,
            None if self.source.ended => cut(),
            None => damaged("zstd", error),
        }
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.in_frame {
                if !self.begin()? {
                    return Ok(0);
                }
                self.in_frame = true;
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let decoded =
                    self.decoder.decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1));
                if let Err(error) = decoded {
                    return Err(self.failure(&error));
                }
            }
            let read = self.decoder.read(buffer)?;
            if read > 0 {
                return Ok(read);
            }
            let told = self.decoder.get_checksum_from_data();
            if told.is_some() && told != self.decoder.get_calculated_checksum() {
                return Err(damaged("zstd", &"its checksum is wrong"));
            }
            self.in_frame = false;
        }
    }
}

fn damaged(what: &str, why: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the {what} around it is damaged: {why}"))
}

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the zstd around it is cut short")
}

#[cfg(test)]
mod tests;
