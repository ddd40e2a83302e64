//! The files of the service, which this program carries with it.

use sandbar_core::{Error, ErrorKind, Result};
use sha2::{Digest as _, Sha256};

use crate::seal::hex;

/// Where all of it lies in the template.
pub(super) const FOLDER: &str = "/opt/code-interpreter";

/// Each file with the name it has in the template, whether it is a program, and its text.
const FILES: &[(&str, bool, &str)] = &[
    ("service/server.py", false, include_str!("../../code-interpreter/server.py")),
    ("service/contexts.py", false, include_str!("../../code-interpreter/contexts.py")),
    ("service/results.py", false, include_str!("../../code-interpreter/results.py")),
    ("service/child.py", false, include_str!("../../code-interpreter/child.py")),
    ("service/python_kernel.py", false, include_str!("../../code-interpreter/python_kernel.py")),
    ("service/javascript_kernel.py", false, include_str!("../../code-interpreter/javascript_kernel.py")),
    ("service/shell_kernel.py", false, include_str!("../../code-interpreter/shell_kernel.py")),
    ("service/startup.py", false, include_str!("../../code-interpreter/startup.py")),
    ("service/kernel.mjs", false, include_str!("../../code-interpreter/kernel.mjs")),
    ("service/kernel.bash", false, include_str!("../../code-interpreter/kernel.bash")),
    ("service/run.sh", true, include_str!("../../code-interpreter/run.sh")),
];

/// What packages the service needs, as pip reads it.
pub(super) const MINIMAL: &str = include_str!("../../code-interpreter/requirements-minimal.txt");

/// What is there for cells beside them.
pub(super) const FULL: &str = include_str!("../../code-interpreter/requirements-full.txt");

/// What login shells of `user` read: its packages come before those of the system.
const PROFILE: &str = "PATH=/opt/code-interpreter/python/bin:$PATH\n";

/// Where programs are looked for without a login shell.
pub(super) const PATH: &str =
    "/opt/code-interpreter/python/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// An archive of the service, to be unpacked in [`FOLDER`].
pub(super) fn archive() -> Result<Vec<u8>> {
    let mut tar = Tar::new();
    tar.folder("service/")?;
    for (name, is_program, text) in FILES {
        tar.file(name, if *is_program { 0o755 } else { 0o644 }, text.as_bytes())?;
    }
    tar.end()
}

/// An archive of what goes to the user's home.
pub(super) fn home() -> Result<Vec<u8>> {
    let mut tar = Tar::new();
    tar.file(".profile", 0o644, PROFILE.as_bytes())?;
    tar.end()
}

/// What says that a template is of these files and of what else `parts` name.
pub(super) fn fingerprint<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let own = FILES.iter().flat_map(|(name, _, text)| [*name, *text]);
    let mut digest = Sha256::new();
    for part in own.chain([PROFILE, PATH, MINIMAL, FULL]).chain(parts) {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part.as_bytes());
    }
    hex(&digest.finalize()[..8])
}

/// An archive whose members have no times and no owners of their own: the same content is the same archive.
pub(super) struct Tar<W: std::io::Write>(tar::Builder<W>);

impl Tar<Vec<u8>> {
    pub(super) fn new() -> Self {
        Self::to(Vec::new())
    }
}

impl<W: std::io::Write> Tar<W> {
    pub(super) fn to(writer: W) -> Self {
        Self(tar::Builder::new(writer))
    }

    pub(super) fn folder(&mut self, name: &str) -> Result<()> {
        self.member(name, 0o755, tar::EntryType::Directory, 0, std::io::empty())
    }

    pub(super) fn file(&mut self, name: &str, mode: u32, bytes: &[u8]) -> Result<()> {
        self.member(name, mode, tar::EntryType::Regular, bytes.len() as u64, bytes)
    }

    pub(super) fn member(
        &mut self,
        name: &str,
        mode: u32,
        kind: tar::EntryType,
        size: u64,
        content: impl std::io::Read,
    ) -> Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(size);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        self.0.append_data(&mut header, name, content).map_err(|cause| failed(&cause))
    }

    pub(super) fn end(self) -> Result<W> {
        self.0.into_inner().map_err(|cause| failed(&cause))
    }
}

fn failed(cause: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unexpected, "make template", format!("an archive could not be written: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_files_are_the_same_archive_and_others_another_fingerprint() {
        assert_eq!(archive().unwrap(), archive().unwrap());
        assert_eq!(fingerprint(["a"]), fingerprint(["a"]));
        assert_ne!(fingerprint(["a", "b"]), fingerprint(["ab"]));
    }

    #[test]
    fn every_module_that_is_imported_is_carried() {
        let has = |name: &str| FILES.iter().any(|(file, ..)| *file == format!("service/{name}.py"));
        let imported = FILES.iter().flat_map(|(_, _, text)| text.lines()).filter_map(|line| {
            let module = line.strip_prefix("from ").or_else(|| line.strip_prefix("import "))?;
            module.split([' ', '.']).next()
        });
        let own = ["results", "child", "contexts", "python_kernel", "javascript_kernel", "shell_kernel"];
        let imported: Vec<_> = imported.filter(|module| own.contains(module)).collect();
        assert!(imported.len() >= own.len());
        assert!(imported.iter().all(|module| has(module)), "{imported:?}");
    }
}
