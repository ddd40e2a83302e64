use std::{fmt, io};

/// Longest name shown in an error, in bytes before escaping: enough to find the member.
const SHOWN_NAME: usize = 300;

/// Why an archive was not unpacked or packed.
#[derive(Debug)]
pub struct ArchiveError {
    kind: ErrorKind,
    member: Option<String>,
    reason: String,
    source: Option<io::Error>,
}

/// What sort of reason it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// It is not an archive, or a damaged one.
    Malformed,
    /// It ends before its end.
    Truncated,
    /// It holds what is not allowed.
    Refused,
    /// It is larger than is allowed.
    Limit,
    /// The file system or the stream failed.
    Io,
    /// It was told to stop.
    Cancelled,
}

impl ArchiveError {
    /// What sort of reason it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The member's name with control characters escaped, where a member is the reason.
    pub fn member(&self) -> Option<&str> {
        self.member.as_deref()
    }

    /// The reason without the member's name.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    pub(crate) fn new(kind: ErrorKind, reason: impl Into<String>) -> Self {
        Self { kind, member: None, reason: reason.into(), source: None }
    }

    pub(crate) fn malformed(reason: impl Into<String>) -> Self {
        Self::new(ErrorKind::Malformed, reason)
    }

    pub(crate) fn truncated(reason: impl Into<String>) -> Self {
        Self::new(ErrorKind::Truncated, reason)
    }

    pub(crate) fn refused(reason: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, reason)
    }

    pub(crate) fn limit(reason: impl Into<String>) -> Self {
        Self::new(ErrorKind::Limit, reason)
    }

    pub(crate) fn cancelled() -> Self {
        Self::new(ErrorKind::Cancelled, "it was cancelled")
    }

    /// A call of the file system that failed at `doing`.
    pub(crate) fn io(doing: &str, error: impl Into<io::Error>) -> Self {
        let error = error.into();
        Self { reason: format!("{doing}: {error}"), source: Some(error), ..Self::new(ErrorKind::Io, "") }
    }

    /// What reading the stream failed with: what took the compression off says so by the error's kind.
    pub(crate) fn stream(error: io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::UnexpectedEof => ErrorKind::Truncated,
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => ErrorKind::Malformed,
            _ => ErrorKind::Io,
        };
        Self { reason: format!("read the archive: {error}"), source: Some(error), ..Self::new(kind, "") }
    }

    /// Names the member, unless one is named already.
    pub(crate) fn of(mut self, member: &[u8]) -> Self {
        self.member.get_or_insert_with(|| escaped(member));
        self
    }
}

impl From<io::Error> for ArchiveError {
    /// What reading the stream failed with.
    fn from(error: io::Error) -> Self {
        Self::stream(error)
    }
}

impl fmt::Display for ArchiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.member {
            Some(member) => write!(f, "member `{member}`: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

impl std::error::Error for ArchiveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|error| error as _)
    }
}

/// Printable, on one line, and not endless: UTF-8 as it is, everything that a terminal could take for a command escaped.
pub(crate) fn escaped(name: &[u8]) -> String {
    let shown = &name[..name.len().min(SHOWN_NAME)];
    let mut text = String::with_capacity(shown.len());
    for chunk in shown.utf8_chunks() {
        for char in chunk.valid().chars() {
            if char.is_control() || is_direction(char) || matches!(char, '\\' | '`') {
                text.extend(char.escape_default());
            } else {
                text.push(char);
            }
        }
        text.extend(
            chunk.invalid().iter().flat_map(|byte| format!("\\x{byte:02x}").into_bytes()).map(char::from),
        );
    }
    if shown.len() < name.len() {
        text.push_str("...");
    }
    text
}

/// What turns the direction of text round, and so shows a name that is not there, or shows nothing.
fn is_direction(char: char) -> bool {
    matches!(char, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}
