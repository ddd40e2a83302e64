//! A certificate authority of this sandbox alone, which its programs are made to trust: outside, its gateway speaks for hosts with it.

use std::collections::{BTreeMap, HashSet};
use std::fs::{File, OpenOptions, Permissions};
use std::io::ErrorKind::{NotADirectory, PermissionDenied, ReadOnlyFilesystem};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use sandbar_wire::trust::{ADDED, FOLDER, LISTS, MAX_LIST, NAME, block, without};

use crate::config::AuthorityConfig;
use crate::log::log;

/// Longest certificate of a sandbox before this one that is read, in bytes: one takes one or two KiB.
const MAX_CERTIFICATE: u64 = 64 << 10;
/// Most entries of the folder of trusted certificates that are looked at; with the links to them there are some 300.
const MAX_ENTRIES: usize = 100_000;
/// Variables by which programs that don't use the system's list, or not always, are told one: OpenSSL and curl, requests, pip, git.
const LIST_VARIABLES: &[&str] =
    &["SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO"];
/// Variables by which programs are told what to trust beside their own list: Node.js.
const EXTRA_VARIABLES: &[&str] = &["NODE_EXTRA_CA_CERTS"];

/// Adds the certificate to what this system trusts, instead of what was added at an earlier start, of this sandbox or of the one that its files are from. Answers
/// the variables that tell the programs that look elsewhere. `etc` is `/etc`; nothing else runs yet, so nobody can put a link in the way, but what ran before may
/// have left anything there: a list that is none is passed over, with a line in the log.
pub(crate) fn install(etc: &Path, authority: &AuthorityConfig) -> io::Result<BTreeMap<String, String>> {
    let pem = authority.certificate.as_str();
    let folder = etc.join(FOLDER);
    std::fs::create_dir_all(&folder).map_err(|cause| at(&folder, &cause))?;
    let own = folder.join(NAME).with_extension("pem");
    let earlier = earlier(&own);
    write(&own, pem.as_bytes())?;
    // Only for who makes the list anew by hand, which takes a root user; where nobody can write there, nobody can.
    let added = etc.parent().unwrap_or(etc).join(ADDED);
    match std::fs::create_dir_all(&added)
        .and_then(|()| write(&added.join(NAME).with_extension("crt"), pem.as_bytes()))
    {
        Err(cause) if !matches!(cause.kind(), ReadOnlyFilesystem | PermissionDenied | NotADirectory) => {
            return Err(cause);
        }
        _ => {}
    }
    unlink(&folder)?;
    link(&folder, &authority.subject_hash)?;
    let list = add(etc, pem, &earlier)?.unwrap_or_else(|| own.clone());
    let told = |names: &[&str], path: &Path| {
        names.iter().map(|name| ((*name).to_owned(), path.display().to_string())).collect::<Vec<_>>()
    };
    Ok(told(LIST_VARIABLES, &list).into_iter().chain(told(EXTRA_VARIABLES, &own)).collect())
}

/// Takes away what was added at an earlier start; now there is nothing to add.
pub(crate) fn remove(etc: &Path) -> io::Result<()> {
    let folder = etc.join(FOLDER);
    let own = folder.join(NAME).with_extension("pem");
    if std::fs::symlink_metadata(&own).is_err() {
        return Ok(());
    }
    let earlier = earlier(&own);
    for list in LISTS.iter().map(|list| etc.join(list)).filter(|list| list.exists()) {
        if let Err(cause) = replace(&list, &[], &[&earlier], &mut HashSet::new()) {
            log(format_args!("{}", at(&list, &cause)));
        }
    }
    unlink(&folder)?;
    let added = etc.parent().unwrap_or(etc).join(ADDED).join(NAME).with_extension("crt");
    for file in [added, own] {
        match std::fs::remove_file(&file) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                log(format_args!("{}", at(&file, &cause)));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Adds the certificate to all lists, and answers the first; where there is none, that is made. `None` means that none can be used.
fn add(etc: &Path, pem: &str, earlier: &str) -> io::Result<Option<PathBuf>> {
    let lists: Vec<PathBuf> = LISTS.iter().map(|list| etc.join(list)).filter(|list| list.exists()).collect();
    if lists.is_empty() {
        let made = etc.join(LISTS[0]);
        // What is there is a link to nothing.
        let _ = std::fs::remove_file(&made);
        write(&made, &block(pem))?;
        return Ok(Some(made));
    }
    let (mut seen, mut first) = (HashSet::new(), None);
    for list in lists {
        match replace(&list, &block(pem), &[earlier, pem], &mut seen) {
            Ok(()) => first = first.or(Some(list)),
            Err(cause) => log(format_args!("{}; it is passed over", at(&list, &cause))),
        }
    }
    Ok(first)
}

/// The certificate that the files were left with; nothing where it can't be read.
fn earlier(own: &Path) -> String {
    let mut text = String::new();
    match open(own, OFlags::RDONLY).and_then(|file| file.take(MAX_CERTIFICATE).read_to_string(&mut text)) {
        // A part of a certificate could be a part of many.
        Ok(_) if text.trim().starts_with("-----BEGIN") && text.trim().ends_with("-----") => text,
        _ => String::new(),
    }
}

/// Removes the links to it, whatever the hash.
fn unlink(folder: &Path) -> io::Result<()> {
    let target = Path::new(NAME).with_extension("pem");
    for entry in std::fs::read_dir(folder).map_err(|cause| at(folder, &cause))?.take(MAX_ENTRIES) {
        let path = entry.map_err(|cause| at(folder, &cause))?.path();
        if std::fs::read_link(&path).is_ok_and(|to| to == target) {
            std::fs::remove_file(&path).map_err(|cause| at(&path, &cause))?;
        }
    }
    Ok(())
}

/// Where OpenSSL looks for it: under the hash, and a number that others with the same hash don't have.
fn link(folder: &Path, hash: &str) -> io::Result<()> {
    /// Certificates with one hash; there are hardly two.
    const MOST: u32 = 100;
    let target = Path::new(NAME).with_extension("pem");
    for number in 0..MOST {
        let path = folder.join(format!("{hash}.{number}"));
        match symlink(&target, &path) {
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {}
            Err(cause) => return Err(at(&path, &cause)),
            Ok(()) => return Ok(()),
        }
    }
    Err(io::Error::other(format!("`{}` is full of certificates like it", folder.display())))
}

/// Writes a file of its own, not through what has its name: that may be a link, or a pipe.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let written = match std::fs::remove_file(path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(cause),
        _ => OpenOptions::new().write(true).create_new(true).mode(0o644).open(path),
    };
    let done = written.and_then(|mut file| {
        file.write_all(bytes)?;
        file.set_permissions(Permissions::from_mode(0o644))
    });
    done.map_err(|cause| at(path, &cause))
}

/// Opens a regular file, and nothing that could wait.
fn open(path: &Path, access: OFlags) -> io::Result<File> {
    let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    // A device may do something when it is opened.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file"));
    }
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

/// Puts the block at the end of a list instead of all that is there. One list may have several names.
fn replace(
    list: &Path,
    block: &[u8],
    certificates: &[&str],
    seen: &mut HashSet<(u64, u64)>,
) -> io::Result<()> {
    let mut file = open(list, OFlags::RDWR)?;
    let data = file.metadata()?;
    if !seen.insert((data.dev(), data.ino())) {
        return Ok(());
    }
    if data.len() > MAX_LIST {
        let why = format!("it has {} bytes, and a list may have {MAX_LIST}", data.len());
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let mut text = Vec::with_capacity(usize::try_from(data.len()).unwrap_or(0) + 64);
    (&mut file).take(MAX_LIST).read_to_end(&mut text)?;
    let wanted = [&without(&text, certificates), block].concat();
    // What comes before the first change stays as it is, also if this is broken off.
    let same = text.iter().zip(&wanted).take_while(|(is, wanted)| is == wanted).count();
    if same < text.len().max(wanted.len()) {
        file.seek(io::SeekFrom::Start(same as u64))?;
        file.write_all(&wanted[same..])?;
        file.set_len(wanted.len() as u64)?;
    }
    Ok(())
}

fn at(path: &Path, cause: &io::Error) -> io::Error {
    io::Error::new(cause.kind(), format!("add a certificate authority: `{}`: {cause}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEM: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

    fn authority() -> AuthorityConfig {
        AuthorityConfig { certificate: PEM.to_owned(), subject_hash: "0a1b2c3d".to_owned() }
    }

    fn block_text(pem: &str) -> String {
        String::from_utf8(block(pem)).unwrap()
    }

    #[test]
    fn every_list_has_it_once_and_programs_are_told_the_first() {
        let root = tempfile::tempdir().unwrap();
        let etc = root.path().join("etc");
        for folder in ["ssl/certs", "pki/tls/certs"] {
            std::fs::create_dir_all(etc.join(folder)).unwrap();
        }
        std::fs::write(etc.join("ssl/certs/ca-certificates.crt"), "others, not ended").unwrap();
        std::fs::write(etc.join("ssl/certs/0a1b2c3d.0"), "another with this hash").unwrap();
        std::fs::write(etc.join("pki/tls/certs/ca-bundle.crt"), "").unwrap();
        symlink("certs/ca-certificates.crt", etc.join("ssl/cert.pem")).unwrap();
        let told = install(&etc, &authority()).unwrap();
        let list = std::fs::read_to_string(etc.join("ssl/certs/ca-certificates.crt")).unwrap();
        assert_eq!(list, format!("others, not ended{}", block_text(PEM)));
        assert_eq!(
            std::fs::read_to_string(etc.join("pki/tls/certs/ca-bundle.crt")).unwrap(),
            block_text(PEM)
        );
        assert_eq!(std::fs::read_to_string(etc.join("ssl/certs/0a1b2c3d.1")).unwrap(), PEM);
        let added = root.path().join(ADDED).join("sandbar-egress.crt");
        assert_eq!(std::fs::read_to_string(added).unwrap(), PEM);
        assert_eq!(told["SSL_CERT_FILE"], etc.join("ssl/certs/ca-certificates.crt").display().to_string());
        assert_eq!(std::fs::read_to_string(&told["NODE_EXTRA_CA_CERTS"]).unwrap(), PEM);
        assert_eq!(told.len(), LIST_VARIABLES.len() + EXTRA_VARIABLES.len());
    }

    #[test]
    fn a_system_without_a_list_gets_one() {
        let root = tempfile::tempdir().unwrap();
        let told = install(root.path(), &authority()).unwrap();
        assert_eq!(std::fs::read_to_string(&told["SSL_CERT_FILE"]).unwrap(), block_text(PEM));
        std::fs::write(root.path().join("file"), "").unwrap();
        let error = install(&root.path().join("file"), &authority()).unwrap_err().to_string();
        assert!(error.contains("add a certificate authority"), "{error}");
    }

    #[test]
    fn each_start_leaves_one_and_a_copy_trusts_its_own_alone() {
        let root = tempfile::tempdir().unwrap();
        let etc = root.path().join("etc");
        let (folder, list) = (etc.join(FOLDER), etc.join(LISTS[0]));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(&list, "others\n").unwrap();
        for _ in 0..3 {
            install(&etc, &authority()).unwrap();
            assert_eq!(std::fs::read_to_string(&list).unwrap(), format!("others\n{}", block_text(PEM)));
        }
        // Somebody made the list anew, from files.
        std::fs::write(&list, format!("others\n{PEM}")).unwrap();
        let other =
            AuthorityConfig { certificate: PEM.replace("AAAA", "BBBB"), subject_hash: "99999999".to_owned() };
        install(&etc, &other).unwrap();
        let text = std::fs::read_to_string(&list).unwrap();
        assert_eq!(text, format!("others\n{}", block_text(&other.certificate)));
        assert_eq!(std::fs::read_to_string(folder.join("99999999.0")).unwrap(), other.certificate);
        assert!(std::fs::symlink_metadata(folder.join("0a1b2c3d.0")).is_err(), "the parent's is gone");
        remove(&etc).unwrap();
        assert_eq!(std::fs::read_to_string(&list).unwrap(), "others\n");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        assert_eq!(std::fs::read_dir(root.path().join(ADDED)).unwrap().count(), 0);
        remove(&etc).unwrap();
    }

    #[test]
    fn what_is_no_list_is_passed_over_and_nothing_waits_for_it() {
        let root = tempfile::tempdir().unwrap();
        let etc = root.path().join("etc");
        let folder = etc.join(FOLDER);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::create_dir_all(etc.join("pki/tls/certs")).unwrap();
        let pipe = |path: &Path| {
            rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, Mode::from(0o644), 0)
                .unwrap();
        };
        pipe(&etc.join(LISTS[0]));
        pipe(&folder.join("sandbar-egress.pem"));
        let own = folder.join("sandbar-egress.pem");
        let told = install(&etc, &authority()).unwrap();
        assert_eq!(told["SSL_CERT_FILE"], own.display().to_string(), "there is no other");
        assert_eq!(std::fs::read_to_string(&own).unwrap(), PEM);
        let huge = File::create(etc.join(LISTS[1])).unwrap();
        huge.set_len(MAX_LIST + 1).unwrap();
        std::fs::write(etc.join("ssl/cert.pem"), "others\n").unwrap();
        // A link in the certificate's place is replaced, not followed.
        std::fs::remove_file(&own).unwrap();
        std::fs::write(etc.join("precious"), "mine").unwrap();
        symlink("../../precious", &own).unwrap();
        let told = install(&etc, &authority()).unwrap();
        assert_eq!(told["SSL_CERT_FILE"], etc.join("ssl/cert.pem").display().to_string());
        assert_eq!(huge.metadata().unwrap().len(), MAX_LIST + 1);
        assert_eq!(std::fs::read_to_string(etc.join("precious")).unwrap(), "mine");
        remove(&etc).unwrap();
        assert_eq!(std::fs::read_to_string(etc.join("ssl/cert.pem")).unwrap(), "others\n");
    }
}
