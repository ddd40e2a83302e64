use super::head::{HeadFlaw, MAX_HEAD, field};

/// Longest line that says how long a chunk is: 16 digits, and extensions that nobody uses.
const MAX_SIZE_LINE: usize = 256;
/// Most digits of a chunk's length.
const MAX_DIGITS: usize = 15;
/// Fields that shape a message or say where it goes, and so have no place after its body.
const NOT_IN_TRAILERS: &[&[u8]] =
    &[b"content-length", b"transfer-encoding", b"host", b"trailer", b"connection"];

/// Follows a chunked body to its end, without changing it. As strict as [`super::check_head`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunks {
    state: State,
    /// The line that is being read, without its end.
    line: Vec<u8>,
    /// Bytes of trailers so far.
    trailers: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Size,
    Data(u64),
    /// The line end after a chunk's data.
    AfterData,
    Trailers,
    End,
}

impl Chunks {
    /// Takes the next bytes. Says how many of them belong to the body: fewer than there are, only if it ended.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<usize, HeadFlaw> {
        let mut at = 0;
        while at < bytes.len() && self.state != State::End {
            if let State::Data(left) = self.state {
                let taken = (bytes.len() - at).min(usize::try_from(left).unwrap_or(usize::MAX));
                at += taken;
                let left = left - taken as u64;
                self.state = if left == 0 { State::AfterData } else { State::Data(left) };
                continue;
            }
            self.line_byte(bytes[at])?;
            at += 1;
        }
        Ok(at)
    }

    /// Whether it ended.
    pub fn is_over(&self) -> bool {
        self.state == State::End
    }

    fn line_byte(&mut self, byte: u8) -> Result<(), HeadFlaw> {
        let bound = match self.state {
            State::AfterData => 1,
            State::Size => MAX_SIZE_LINE,
            _ => {
                self.trailers += 1;
                MAX_HEAD
            }
        };
        if self.line.last() == Some(&b'\r') {
            if byte != b'\n' {
                return Err(HeadFlaw::Malformed("a chunk's line end"));
            }
            self.line.pop();
            let line = std::mem::take(&mut self.line);
            self.state = self.after_line(&line)?;
            return Ok(());
        }
        if byte == b'\n' || self.line.len() >= bound || self.trailers > MAX_HEAD {
            return Err(HeadFlaw::Malformed("a chunk's line"));
        }
        self.line.push(byte);
        Ok(())
    }

    fn after_line(&self, line: &[u8]) -> Result<State, HeadFlaw> {
        match self.state {
            State::Size => {
                let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
                let (number, extension) = line.split_at(digits);
                let clean = extension.first().is_none_or(|b| *b == b';')
                    && extension.iter().all(|b| *b == b'\t' || (0x20..0x7f).contains(b));
                let number = std::str::from_utf8(number).ok().filter(|text| text.len() <= MAX_DIGITS);
                match number.and_then(|text| u64::from_str_radix(text, 16).ok()).filter(|_| clean) {
                    Some(0) => Ok(State::Trailers),
                    Some(size) => Ok(State::Data(size)),
                    None => Err(HeadFlaw::Malformed("a chunk's length")),
                }
            }
            State::AfterData if line.is_empty() => Ok(State::Size),
            State::Trailers if line.is_empty() => Ok(State::End),
            State::Trailers => {
                let (name, _) = field(line)?;
                if NOT_IN_TRAILERS.iter().any(|bad| name.eq_ignore_ascii_case(bad)) {
                    return Err(HeadFlaw::Malformed("a trailer"));
                }
                Ok(State::Trailers)
            }
            State::AfterData | State::Data(_) | State::End => Err(HeadFlaw::Malformed("a chunk's end")),
        }
    }
}
