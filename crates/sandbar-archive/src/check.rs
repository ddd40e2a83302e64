use std::collections::HashMap;
use std::io::Read;

use crate::hooks::Hooks;
use crate::read::{Kind, Member, Members};
use crate::rules::{MAX_FOLDER_NAMES, Special};
use crate::unpack::{check_target, inside};
use crate::{ArchiveError, Rules, UnpackReport};

/// Reads an archive to its end and judges it by its words, without unpacking it: for whoever has it unpacked elsewhere, by somebody else's program.
///
/// What passes lies below where it is unpacked, whoever does that: no member goes through a link of the archive, and no link leads out.
#[derive(Debug)]
pub struct Check {
    rules: Rules,
    /// The symbolic links so far, and where they lead.
    links: HashMap<Vec<u8>, Vec<u8>>,
    links_bytes: usize,
}

impl Check {
    /// With these rules.
    pub fn new(rules: Rules) -> Self {
        Self { rules, links: HashMap::new(), links_bytes: 0 }
    }

    /// Reads `tar`, which is plain, up to the stream's end, which must be the archive's.
    pub fn run(mut self, tar: &mut dyn Read) -> Result<UnpackReport, ArchiveError> {
        let hooks = Hooks::default();
        let mut members = Members::new(tar, self.rules.max_header);
        let mut report = UnpackReport::default();
        while let Some(member) = members.next(&hooks)? {
            let of = |error: ArchiveError| error.of(&member.path);
            if report.entries >= self.rules.max_entries {
                let text = format!("the archive has more than {} members", self.rules.max_entries);
                return Err(of(ArchiveError::limit(text)));
            }
            if let Kind::File(size) = member.kind {
                report.bytes = report.bytes.saturating_add(size);
                if report.bytes > self.rules.max_bytes {
                    let text = format!("the archive has more than {} bytes of content", self.rules.max_bytes);
                    return Err(of(ArchiveError::limit(text)));
                }
            }
            self.judge(&member).map_err(of)?;
            report.entries += 1;
        }
        Ok(report)
    }

    fn judge(&mut self, member: &Member) -> Result<(), ArchiveError> {
        let path = inside(&member.path, &self.rules)?;
        if path.is_empty() {
            return match member.kind {
                Kind::Folder => Ok(()),
                _ => Err(ArchiveError::refused("its name is the destination's own, and it is no folder")),
            };
        }
        self.through_a_link(&path)?;
        match &member.kind {
            // Some programs take a link to a folder for the folder.
            Kind::Folder if self.links.contains_key(&path) => Err(in_the_way()),
            Kind::File(_) | Kind::Folder => Ok(()),
            Kind::Symlink(target) => {
                check_target(&path, target, &self.rules)?;
                self.remember(path, target.clone())
            }
            Kind::HardLink(target) => self.hard_link(path, target),
            Kind::Device => special(self.rules.devices, "it is a device"),
            Kind::Fifo => special(self.rules.fifos, "it is a named pipe"),
        }
    }

    fn hard_link(&mut self, path: Vec<u8>, target: &[u8]) -> Result<(), ArchiveError> {
        let shown = crate::error::escaped(target);
        let of = |error: ArchiveError| {
            ArchiveError::refused(format!("it is a hard link to `{shown}`: {}", error.reason()))
        };
        let to = inside(target, &self.rules).map_err(of)?;
        if to == path {
            return Err(ArchiveError::refused("it is a hard link to itself"));
        }
        self.through_a_link(&to).map_err(of)?;
        match self.links.get(&to).cloned() {
            None => Ok(()),
            // From here the same words may lead somewhere else.
            Some(leads) => {
                check_target(&path, &leads, &self.rules)?;
                self.remember(path, leads)
            }
        }
    }

    /// A folder on the way that is a link would be followed by a program that goes by paths.
    fn through_a_link(&self, path: &[u8]) -> Result<(), ArchiveError> {
        let mut slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        if slashes.any(|at| self.links.contains_key(&path[..at])) { Err(in_the_way()) } else { Ok(()) }
    }

    fn remember(&mut self, path: Vec<u8>, target: Vec<u8>) -> Result<(), ArchiveError> {
        self.links_bytes += path.len() + target.len() + size_of::<(Vec<u8>, Vec<u8>)>();
        if self.links_bytes > MAX_FOLDER_NAMES {
            let text = format!("the names of its links take more than {MAX_FOLDER_NAMES} bytes");
            return Err(ArchiveError::limit(text));
        }
        self.links.insert(path, target);
        Ok(())
    }
}

fn in_the_way() -> ArchiveError {
    ArchiveError::refused("a link of the archive is on its way: members are not unpacked through links")
}

fn special(rule: Special, what: &str) -> Result<(), ArchiveError> {
    match rule {
        Special::Skip => Ok(()),
        Special::Refuse => {
            Err(ArchiveError::refused(format!("{what}: only files, folders and links are taken")))
        }
    }
}

#[cfg(test)]
mod tests;
