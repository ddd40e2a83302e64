use bytes::{Bytes, BytesMut};
use memchr::memmem;
use sandbar_wire::envd::HttpError;

/// Most bytes of a part's headers.
pub(super) const MAX_HEADER_BYTES: usize = 16 << 10;
/// What ends them.
const BLANK_LINE: &[u8] = b"\r\n\r\n";
/// Longest boundary (RFC 2046, 5.1.1, allows 70).
const MAX_BOUNDARY: usize = 200;

/// What comes next in a `multipart/form-data` body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// A part begins.
    Part {
        name: String,
        /// As sent, folders included.
        filename: Option<String>,
    },
    /// Some of its content.
    Data(Bytes),
    /// It ends.
    End,
}

/// Cuts a body into parts, whatever the pieces it arrives in.
pub(super) struct Multipart {
    /// `\r\n--boundary`.
    delimiter: Vec<u8>,
    buffer: BytesMut,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Preamble,
    AfterDelimiter,
    Headers,
    Content,
    Done,
}

impl Multipart {
    /// For a body of that content type.
    pub(super) fn new(content_type: &str) -> Result<Self, HttpError> {
        let boundary = parameter(content_type, "boundary")
            .filter(|boundary| !boundary.is_empty() && boundary.len() <= MAX_BOUNDARY)
            .ok_or_else(|| HttpError::new(400, "multipart body without a valid boundary"))?;
        // The first delimiter may stand at the very start; an empty line before it makes all of them alike.
        let buffer = BytesMut::from(&b"\r\n"[..]);
        Ok(Self { delimiter: format!("\r\n--{boundary}").into_bytes(), buffer, state: State::Preamble })
    }

    pub(super) fn push(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// The next item; `None` where more of the body is needed.
    pub(super) fn next_item(&mut self) -> Result<Option<Item>, HttpError> {
        loop {
            match self.state {
                State::Preamble => {
                    if memmem::find(&self.buffer, &self.delimiter).is_none() {
                        self.keep_tail();
                        return Ok(None);
                    }
                    self.skip_content();
                    self.state = State::AfterDelimiter;
                }
                State::AfterDelimiter => match self.buffer.get(..2) {
                    None => return Ok(None),
                    Some(b"--") => self.state = State::Done,
                    Some(b"\r\n") => {
                        // Its line break stays: it is the first of the two that end empty headers.
                        self.state = State::Headers;
                    }
                    Some(padding) if padding[0] == b' ' || padding[0] == b'\t' => {
                        let _ = self.buffer.split_to(1);
                    }
                    Some(_) => return Err(HttpError::new(400, "multipart boundary is followed by garbage")),
                },
                State::Headers => {
                    // No further, so that it does not matter in what pieces they came.
                    let most = self.buffer.len().min(MAX_HEADER_BYTES + BLANK_LINE.len());
                    let Some(end) = memmem::find(&self.buffer[..most], BLANK_LINE) else {
                        if most < MAX_HEADER_BYTES + BLANK_LINE.len() {
                            return Ok(None);
                        }
                        return Err(HttpError::new(400, "headers of a part are too long"));
                    };
                    let headers = self.buffer.split_to(end + BLANK_LINE.len());
                    self.state = State::Content;
                    // The break before a delimiter that follows at once was taken for the end of the headers.
                    return part(&headers[..end]).map(Some);
                }
                State::Content => return Ok(self.content()),
                State::Done => return Ok(None),
            }
        }
    }

    /// How many bytes are held back.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn kept(&self) -> usize {
        self.buffer.len()
    }

    /// Whether the body may end here.
    pub(super) fn finish(&self) -> Result<(), HttpError> {
        if self.state == State::Done {
            Ok(())
        } else {
            Err(HttpError::new(400, "multipart body is cut short"))
        }
    }

    fn content(&mut self) -> Option<Item> {
        if let Some(at) = memmem::find(&self.buffer, &self.delimiter) {
            if at > 0 {
                return Some(Item::Data(self.buffer.split_to(at).freeze()));
            }
            let _ = self.buffer.split_to(self.delimiter.len());
            self.state = State::AfterDelimiter;
            return Some(Item::End);
        }
        let ready = self.ready();
        (ready > 0).then(|| Item::Data(self.buffer.split_to(ready).freeze()))
    }

    /// How much of the buffer can't belong to a delimiter that is still on its way.
    fn ready(&self) -> usize {
        self.buffer.len().saturating_sub(self.delimiter.len() - 1)
    }

    fn skip_content(&mut self) {
        if let Some(at) = memmem::find(&self.buffer, &self.delimiter) {
            let _ = self.buffer.split_to(at + self.delimiter.len());
        }
    }

    fn keep_tail(&mut self) {
        let ready = self.ready();
        let _ = self.buffer.split_to(ready);
    }
}

fn part(headers: &[u8]) -> Result<Item, HttpError> {
    let text =
        std::str::from_utf8(headers).map_err(|_| HttpError::new(400, "headers of a part are not UTF-8"))?;
    let disposition = text
        .split("\r\n")
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim().eq_ignore_ascii_case("content-disposition"))
        .map(|(_, value)| value.trim())
        .unwrap_or_default();
    Ok(Item::Part {
        name: parameter(disposition, "name").unwrap_or_default(),
        filename: extended(disposition).or_else(|| parameter(disposition, "filename")),
    })
}

/// A parameter of a header's value. Within quotes a backslash escapes quotes and backslashes only, as Go reads it:
/// old browsers send paths with single backslashes.
fn parameter(value: &str, wanted: &str) -> Option<String> {
    let mut rest = value.split_once(';')?.1;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ';']);
        if rest.is_empty() {
            return None;
        }
        let (name, tail) = rest.split_once('=')?;
        let mut text = String::new();
        if let Some(quoted) = tail.strip_prefix('"') {
            let mut letters = quoted.char_indices().peekable();
            let mut end = quoted.len();
            while let Some((at, letter)) = letters.next() {
                match letter {
                    '"' => {
                        end = at + 1;
                        break;
                    }
                    '\\' if matches!(letters.peek(), Some((_, '"' | '\\'))) => {
                        text.extend(letters.next().map(|(_, letter)| letter));
                    }
                    letter => text.push(letter),
                }
            }
            rest = &quoted[end..];
        } else {
            let end = tail.find(';').unwrap_or(tail.len());
            text.push_str(tail[..end].trim());
            rest = &tail[end..];
        }
        if name.trim().eq_ignore_ascii_case(wanted) {
            return Some(text);
        }
    }
}

/// `filename*=utf-8''…` (RFC 5987).
fn extended(disposition: &str) -> Option<String> {
    let value = parameter(disposition, "filename*")?;
    let (charset, rest) = value.split_once('\'')?;
    let encoded = rest.split_once('\'')?.1;
    if !charset.eq_ignore_ascii_case("utf-8") {
        return None;
    }
    let mut bytes = Vec::new();
    let mut rest = encoded.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first == b'%' {
            let (digits, tail) = tail.split_at_checked(2)?;
            let digits = std::str::from_utf8(digits).ok()?;
            // `from_str_radix` takes a leading `+`.
            if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                return None;
            }
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = tail;
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Parts = Vec<(String, Option<String>, Vec<u8>)>;

    fn read(body: &[u8], step: usize) -> Result<Parts, HttpError> {
        let mut multipart = Multipart::new("multipart/form-data; boundary=XX")?;
        let mut parts = Parts::new();
        for piece in body.chunks(step.max(1)) {
            multipart.push(piece);
            while let Some(item) = multipart.next_item()? {
                match item {
                    Item::Part { name, filename } => parts.push((name, filename, Vec::new())),
                    Item::Data(data) => parts.last_mut().unwrap().2.extend_from_slice(&data),
                    Item::End => {}
                }
            }
        }
        multipart.finish().map(|()| parts)
    }

    fn body(content: &[u8]) -> Vec<u8> {
        let head = "ignored\r\n--XX\r\ncontent-type: text/plain\r\nContent-Disposition: form-data; name=\"file\"; \
                    filename=\"a/b \\\"c\\\".txt\"\r\n\r\n";
        [
            head.as_bytes(),
            content,
            b"\r\n--XX\r\nContent-Disposition: form-data; name=x\r\n\r\n\r\n--XX--\r\n",
        ]
        .concat()
    }

    #[test]
    fn names_are_kept_whole() {
        for step in [1, 2, 7, 1000] {
            let parts = read(&body(b"1\r\n2--XX"), step).unwrap();
            assert_eq!(parts[0].1.as_deref(), Some("a/b \"c\".txt"));
            assert_eq!(parts[0].2, b"1\r\n2--XX");
            assert_eq!((parts[1].0.as_str(), parts[1].2.len()), ("x", 0));
        }
        assert_eq!(parameter(r#"form-data; filename="C:\dir\f""#, "filename").as_deref(), Some(r"C:\dir\f"));
        assert_eq!(extended("f; filename*=UTF-8''%e2%82%ac").as_deref(), Some("€"));
        assert_eq!(extended("f; filename*=UTF-8''a%+1"), None);
        assert_eq!(read(b"--XX--", 1).unwrap().len(), 0);
    }

    #[test]
    fn damage_is_an_error() {
        for bad in
            [&b""[..], b"--XX", b"--XX\r\nContent-Disposition: form-data\r\n\r\nabc", b"--XXgarbage\r\n"]
        {
            assert!(read(bad, 3).is_err());
        }
        assert!(Multipart::new("multipart/form-data").is_err());
        assert!(read(&[b"--XX\r\n".as_slice(), &vec![b'a'; MAX_HEADER_BYTES * 2]].concat(), 100).is_err());
    }

    #[test]
    fn headers_are_too_long_in_whatever_pieces_they_come() {
        for (padding, good) in [(MAX_HEADER_BYTES - 100, true), (MAX_HEADER_BYTES, false)] {
            let head = format!("--XX\r\nx-padding: {}\r\n\r\n", "a".repeat(padding));
            let body = [head.as_bytes(), b"content\r\n--XX--"].concat();
            for step in [1, 1000, body.len()] {
                assert_eq!(read(&body, step).is_ok(), good, "{padding} in pieces of {step}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_content_survives_any_split(content in prop::collection::vec(any::<u8>(), 0..300), step in 1usize..40) {
            prop_assume!(memmem::find(&content, b"\r\n--XX").is_none());
            prop_assert_eq!(&read(&body(&content), step).unwrap()[0].2, &content);
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), value in ".{0,60}") {
            let _ = read(&[b"--XX\r\n".as_slice(), &bytes].concat(), 5);
            let _ = (parameter(&value, "name"), extended(&value));
        }
    }
}
