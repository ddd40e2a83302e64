use std::io::{self, BufRead, BufReader, Read};

use tar::{EntryType, Header};

use crate::ArchiveError;
use crate::hooks::Hooks;
use crate::read::header::{BLOCK, Kind, Member, check_sum, natural, padding, plain};
use crate::read::pax::{Extended, check_global};
use crate::rules::MAX_TRAILING;

/// What is read at once, in bytes: as much as a pipe holds.
const BUFFER: usize = 64 * 1024;

/// Reads an archive member by member.
#[derive(Debug)]
pub(crate) struct Members<R> {
    input: BufReader<R>,
    /// Content of the last member that was not read yet.
    left: u64,
    padding: usize,
    max_header: u64,
    ended: bool,
}

impl<R: Read> Members<R> {
    pub(crate) fn new(input: R, max_header: u64) -> Self {
        Self { input: BufReader::with_capacity(BUFFER, input), left: 0, padding: 0, max_header, ended: false }
    }

    /// The next member, or `None` at the end, after which nothing came but zeros.
    pub(crate) fn next(&mut self, hooks: &Hooks<'_>) -> Result<Option<Member>, ArchiveError> {
        if self.ended {
            return Ok(None);
        }
        self.pass(hooks)?;
        let mut extended = Extended::default();
        loop {
            hooks.check()?;
            let Some(header) = self.header()? else {
                if !extended.is_empty() {
                    return Err(ArchiveError::malformed(
                        "it ends after an extended header, without its member",
                    ));
                }
                self.ended = true;
                return Ok(None);
            };
            let body = match header.entry_type() {
                EntryType::GNULongName
                | EntryType::GNULongLink
                | EntryType::XHeader
                | EntryType::XGlobalHeader => self.body(&header, &mut extended)?,
                _ => return self.member(&header, extended).map(Some),
            };
            match header.entry_type() {
                EntryType::GNULongName => extended.long_path(&body),
                EntryType::GNULongLink => extended.long_link(&body),
                EntryType::XHeader => extended.records(&body)?,
                _ => check_global(&body)?,
            }
        }
    }

    /// Some of the member's content; nothing at its end.
    pub(crate) fn content(&mut self, buffer: &mut [u8]) -> Result<usize, ArchiveError> {
        let wanted = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if wanted == 0 {
            return Ok(0);
        }
        let read = read(&mut self.input, &mut buffer[..wanted])?;
        if read == 0 {
            return Err(ArchiveError::truncated("the archive is cut short inside of it"));
        }
        self.left -= read as u64;
        Ok(read)
    }

    /// Goes over what is left of the last member.
    fn pass(&mut self, hooks: &Hooks<'_>) -> Result<(), ArchiveError> {
        let mut left = self.left.saturating_add(self.padding as u64);
        (self.left, self.padding) = (0, 0);
        while left > 0 {
            hooks.check()?;
            let held = loop {
                match self.input.fill_buf() {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    held => break held.map_err(ArchiveError::stream)?.len(),
                }
            };
            if held == 0 {
                return Err(ArchiveError::truncated("the archive is cut short inside a member"));
            }
            let passed = held.min(usize::try_from(left).unwrap_or(usize::MAX));
            self.input.consume(passed);
            left -= passed as u64;
        }
        Ok(())
    }

    /// The next header, or `None` at the end marker.
    fn header(&mut self) -> Result<Option<Header>, ArchiveError> {
        let mut block = [0; BLOCK];
        match self.fill(&mut block)? {
            BLOCK => {}
            0 => return Err(ArchiveError::truncated("the archive is cut short: its end marker is missing")),
            _ => return Err(ArchiveError::truncated("the archive is cut short inside a header")),
        }
        if block.iter().any(|byte| *byte != 0) {
            let header = Header::from_byte_slice(&block).clone();
            check_sum(&header)?;
            return Ok(Some(header));
        }
        if self.fill(&mut block)? < BLOCK {
            return Err(ArchiveError::truncated("the archive is cut short inside its end marker"));
        }
        if block.iter().any(|byte| *byte != 0) {
            return Err(ArchiveError::malformed("a block of zeros is among the members"));
        }
        self.trailing()?;
        Ok(None)
    }

    /// What fills the last record is zeros, and not without end.
    fn trailing(&mut self) -> Result<(), ArchiveError> {
        let mut passed = 0;
        let mut block = [0; BLOCK];
        loop {
            let read = read(&mut self.input, &mut block)?;
            passed += read as u64;
            if read == 0 {
                return Ok(());
            }
            if block[..read].iter().any(|byte| *byte != 0) {
                return Err(ArchiveError::malformed("something other than zeros comes after the end marker"));
            }
            if passed > MAX_TRAILING {
                let text = format!("more than {MAX_TRAILING} bytes come after the end marker");
                return Err(ArchiveError::limit(text));
            }
        }
    }

    /// The body of a long name or extended header.
    fn body(&mut self, header: &Header, extended: &mut Extended) -> Result<Vec<u8>, ArchiveError> {
        let size = natural(&header.as_old().size, "size")?;
        extended.taken = extended.taken.saturating_add(size).saturating_add(1);
        if extended.taken > self.max_header {
            let text = format!("the extended headers of a member are longer than {} bytes", self.max_header);
            return Err(ArchiveError::limit(text));
        }
        let mut body = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
        let mut padding_bytes = [0; BLOCK];
        let padded = padding(size);
        if self.fill(&mut body)? < body.len() || self.fill(&mut padding_bytes[..padded])? < padded {
            return Err(ArchiveError::truncated("the archive is cut short inside an extended header"));
        }
        Ok(body)
    }

    fn member(&mut self, header: &Header, extended: Extended) -> Result<Member, ArchiveError> {
        let (mut member, mut size) = plain(header)?;
        extended.apply(&mut member, &mut size);
        if size > 0 && !matches!(member.kind, Kind::File(_)) {
            // Readers of tar do not agree on whether content follows.
            return Err(ArchiveError::malformed("it has content and is no file").of(&member.path));
        }
        self.left = size;
        self.padding = padding(size);
        Ok(member)
    }

    /// Reads until the buffer is full or nothing comes any more.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, ArchiveError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match read(&mut self.input, &mut buffer[filled..])? {
                0 => break,
                read => filled += read,
            }
        }
        Ok(filled)
    }
}

fn read(input: &mut impl Read, buffer: &mut [u8]) -> Result<usize, ArchiveError> {
    loop {
        match input.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read.map_err(ArchiveError::stream),
        }
    }
}
