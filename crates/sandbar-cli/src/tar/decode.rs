use bytes::{Buf, Bytes, BytesMut};

use crate::tar::header::{BLOCK, CHECKSUM, LINK, MAGIC, MODE, MTIME, NAME, PREFIX, SIZE, TYPE, checksum};
use crate::tar::{Kind, Member, TarError, padding};

/// Longest long name or extended header taken, in bytes: a path and a link target of 4 KiB each fit many times.
const MAX_META: u64 = 256 * 1024;

/// Reads an archive that comes in pieces.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    buffer: Bytes,
    state: State,
    /// What long names and extended headers said about the next member.
    next: Overrides,
}

/// What comes out of an archive, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Member(Member),
    /// Content of the file member before it.
    Data(Bytes),
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Header,
    /// The body of a long name or extended header, by its type.
    Meta {
        flag: u8,
        size: u64,
    },
    Data {
        left: u64,
        padding: usize,
    },
    Skip(usize),
    End,
}

#[derive(Debug, Default)]
struct Overrides {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
}

impl Decoder {
    /// Takes the next piece.
    pub(crate) fn push(&mut self, bytes: Bytes) {
        if matches!(self.state, State::End) {
            return;
        }
        // Most often nothing is left of what came before, and then nothing is copied.
        if self.buffer.is_empty() {
            self.buffer = bytes;
        } else {
            let mut joined = BytesMut::with_capacity(self.buffer.len() + bytes.len());
            joined.extend_from_slice(&self.buffer);
            joined.extend_from_slice(&bytes);
            self.buffer = joined.freeze();
        }
    }

    /// The next item, or `None` if more has to come first.
    pub(crate) fn next(&mut self) -> Result<Option<Item>, TarError> {
        loop {
            match self.state {
                State::End => return Ok(None),
                State::Skip(left) => {
                    let skipped = left.min(self.buffer.len());
                    self.buffer.advance(skipped);
                    if skipped < left {
                        self.state = State::Skip(left - skipped);
                        return Ok(None);
                    }
                    self.state = State::Header;
                }
                State::Data { left: 0, padding } => self.state = State::Skip(padding),
                State::Data { left, padding } => {
                    let length = usize::try_from(left).unwrap_or(usize::MAX).min(self.buffer.len());
                    if length == 0 {
                        return Ok(None);
                    }
                    self.state = State::Data { left: left - length as u64, padding };
                    return Ok(Some(Item::Data(self.buffer.split_to(length))));
                }
                State::Meta { flag, size } => {
                    let length =
                        usize::try_from(size).map_err(|_| TarError("an extended header is too long"))?;
                    if self.buffer.len() < length {
                        return Ok(None);
                    }
                    let body = self.buffer.split_to(length);
                    self.next.take(flag, &body)?;
                    self.state = State::Skip(padding(size));
                }
                State::Header => {
                    let Some(block) = self.buffer.first_chunk::<BLOCK>() else {
                        return Ok(None);
                    };
                    let block = *block;
                    self.buffer.advance(BLOCK);
                    if let Some(member) = self.header(&block)? {
                        return Ok(Some(Item::Member(member)));
                    }
                }
            }
        }
    }

    /// Says whether the archive came to its end.
    pub(crate) fn finish(&self) -> Result<(), TarError> {
        match self.state {
            State::End => Ok(()),
            _ => Err(TarError("the archive is cut short")),
        }
    }

    fn header(&mut self, block: &[u8; BLOCK]) -> Result<Option<Member>, TarError> {
        if block.iter().all(|byte| *byte == 0) {
            self.state = State::End;
            self.buffer.clear();
            return Ok(None);
        }
        if number(block, CHECKSUM)? != checksum(block) {
            return Err(TarError("a header's checksum is wrong"));
        }
        let size = number(block, SIZE)?;
        let flag = block[TYPE];
        if matches!(flag, b'L' | b'K' | b'x' | b'g') {
            if size > MAX_META {
                return Err(TarError("an extended header is too long"));
            }
            self.state = State::Meta { flag, size };
            return Ok(None);
        }
        let Overrides { path, link, size: real_size } = std::mem::take(&mut self.next);
        let link = || link.unwrap_or_else(|| text(block, LINK).to_vec());
        let size = real_size.unwrap_or(size);
        let kind = match flag {
            b'0' | b'7' | 0 => Kind::File(size),
            b'1' => Kind::HardLink(link()),
            b'2' => Kind::Symlink(link()),
            b'5' => Kind::Directory,
            other => Kind::Other(other),
        };
        // Only files have a body worth having; what else claims one is passed over.
        self.state = match kind {
            Kind::File(_) => State::Data { left: size, padding: padding(size) },
            _ if size > MAX_META => return Err(TarError("a member that is no file has content")),
            _ => State::Skip(usize::try_from(size).unwrap_or(0) + padding(size)),
        };
        Ok(Some(Member {
            path: path.unwrap_or_else(|| ustar_path(block)),
            mode: u32::try_from(number(block, MODE)? & 0o7777).unwrap_or(0),
            mtime: i64::try_from(number(block, MTIME)?).unwrap_or(0),
            kind,
        }))
    }
}

impl Overrides {
    fn take(&mut self, flag: u8, body: &[u8]) -> Result<(), TarError> {
        let until_nul = || body.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
        match flag {
            b'L' => self.path = Some(until_nul()),
            b'K' => self.link = Some(until_nul()),
            b'x' => self.extended(body)?,
            // Headers for the whole archive say nothing that is used here.
            _ => {}
        }
        Ok(())
    }

    /// Records of the form `LENGTH KEY=VALUE\n`, where the length counts all of it.
    fn extended(&mut self, mut body: &[u8]) -> Result<(), TarError> {
        let malformed = TarError("an extended header is malformed");
        while !body.is_empty() {
            let space = body.iter().position(|byte| *byte == b' ').ok_or(malformed.clone())?;
            let length = std::str::from_utf8(&body[..space]).ok().and_then(|digits| digits.parse().ok());
            let length: usize = length.ok_or(malformed.clone())?;
            if length > body.len() || length < space + 2 || body[length - 1] != b'\n' {
                return Err(malformed);
            }
            let record = &body[space + 1..length - 1];
            let equals = record.iter().position(|byte| *byte == b'=').ok_or(malformed.clone())?;
            let value = &record[equals + 1..];
            match &record[..equals] {
                b"path" => self.path = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => {
                    let size = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
                    self.size = Some(size.ok_or(malformed.clone())?);
                }
                _ => {}
            }
            body = &body[length..];
        }
        Ok(())
    }
}

fn text(block: &[u8; BLOCK], (offset, length): (usize, usize)) -> &[u8] {
    let field = &block[offset..offset + length];
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// The name, with the prefix that POSIX's form (and not GNU's) has for longer ones.
fn ustar_path(block: &[u8; BLOCK]) -> Vec<u8> {
    let name = text(block, NAME);
    let posix = block[MAGIC.0..].starts_with(b"ustar\0");
    match text(block, PREFIX) {
        prefix if posix && !prefix.is_empty() => [prefix, b"/", name].concat(),
        _ => name.to_vec(),
    }
}

/// Octal digits among blanks, or GNU's binary form.
fn number(block: &[u8; BLOCK], (offset, length): (usize, usize)) -> Result<u64, TarError> {
    let malformed = TarError("a number in a header is malformed");
    let field = &block[offset..offset + length];
    if field[0] == 0x80 {
        // Base 256 after the mark.
        let number = field[1..]
            .iter()
            .try_fold(0_u64, |number, byte| Some(number.checked_mul(256)? + u64::from(*byte)));
        return number.ok_or(malformed);
    }
    if field[0] == 0xff {
        // Negative: only times before 1970 are, and those are not kept.
        return Ok(0);
    }
    let digits = field.split(|byte| *byte == 0).next().unwrap_or_default().trim_ascii();
    let digits = std::str::from_utf8(digits).map_err(|_| malformed.clone())?;
    if digits.is_empty() { Ok(0) } else { u64::from_str_radix(digits, 8).map_err(|_| malformed) }
}

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
#[cfg(test)]
mod tests;
