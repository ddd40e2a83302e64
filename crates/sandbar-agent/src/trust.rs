//! A certificate authority of this sandbox alone, which its programs are made to trust: outside, its gateway speaks for hosts with it.

use std::collections::{BTreeMap, HashSet};
use std::fs::{File, OpenOptions, Permissions};
use std::io::ErrorKind::{NotADirectory, PermissionDenied, ReadOnlyFilesystem};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::config::AuthorityConfig;

/// Where Debian's `update-ca-certificates` looks for what it adds to the list, below the root.
const ADDED: &str = "usr/local/share/ca-certificates";
/// The certificate's file in there, and in the folder of trusted ones, where its ending is that of the others.
const NAME: &str = "sandbar-egress";
/// The folder of trusted certificates in which OpenSSL finds one by a hash of its subject, below `/etc`.
const FOLDER: &str = "ssl/certs";
/// Lists of trusted certificates, below `/etc`: Debian and its kin, Fedora and its kin, openSUSE, Alpine. Where there is none, the first is made.
const LISTS: &[&str] = &[
    "ssl/certs/ca-certificates.crt",
    "pki/tls/certs/ca-bundle.crt",
    "pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "ssl/ca-bundle.pem",
    "ssl/cert.pem",
];
/// Variables by which programs that don't use the system's list, or not always, are told one: OpenSSL and curl, requests, pip, git.
const LIST_VARIABLES: &[&str] =
    &["SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO"];
/// Variables by which programs are told what to trust beside their own list: Node.js.
const EXTRA_VARIABLES: &[&str] = &["NODE_EXTRA_CA_CERTS"];

/// Adds the certificate to what this system trusts, and answers the variables that tell the programs that look elsewhere. `etc` is `/etc`; nothing else runs yet,
/// so nobody can put a link in the way.
pub(crate) fn install(etc: &Path, authority: &AuthorityConfig) -> io::Result<BTreeMap<String, String>> {
    let pem = authority.certificate.as_bytes();
    let folder = etc.join(FOLDER);
    std::fs::create_dir_all(&folder).map_err(|cause| at(&folder, &cause))?;
    let own = folder.join(NAME).with_extension("pem");
    write(&own, pem)?;
    // Only for who makes the list anew by hand, which takes a root user; where nobody can write there, nobody can.
    let added = etc.parent().unwrap_or(etc).join(ADDED);
    match std::fs::create_dir_all(&added).and_then(|()| write(&added.join(NAME).with_extension("crt"), pem)) {
        Err(cause) if !matches!(cause.kind(), ReadOnlyFilesystem | PermissionDenied | NotADirectory) => {
            return Err(cause);
        }
        _ => {}
    }
    link(&folder, &authority.subject_hash)?;
    let lists: Vec<PathBuf> = LISTS.iter().map(|list| etc.join(list)).filter(|list| list.is_file()).collect();
    let list = match lists.first() {
        Some(list) => list.clone(),
        None => etc.join(LISTS[0]),
    };
    let mut seen = HashSet::new();
    for list in if lists.is_empty() { vec![list.clone()] } else { lists } {
        append(&list, pem, &mut seen)?;
    }
    let told = |names: &[&str], path: &Path| {
        names.iter().map(|name| ((*name).to_owned(), path.display().to_string())).collect::<Vec<_>>()
    };
    Ok(told(LIST_VARIABLES, &list).into_iter().chain(told(EXTRA_VARIABLES, &own)).collect())
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

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let done = std::fs::write(path, bytes)
        .and_then(|()| std::fs::set_permissions(path, Permissions::from_mode(0o644)));
    done.map_err(|cause| at(path, &cause))
}

/// One list may have several names.
fn append(list: &Path, pem: &[u8], seen: &mut HashSet<(u64, u64)>) -> io::Result<()> {
    let open = || -> io::Result<File> { OpenOptions::new().append(true).create(true).mode(0o644).open(list) };
    let appended = open().and_then(|mut file| {
        let data = file.metadata()?;
        if !seen.insert((data.dev(), data.ino())) {
            return Ok(());
        }
        // The last line of a list may not be ended.
        file.write_all(&[b"\n", pem].concat())
    });
    appended.map_err(|cause| at(list, &cause))
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
        assert_eq!(list, format!("others, not ended\n{PEM}"));
        assert_eq!(
            std::fs::read_to_string(etc.join("pki/tls/certs/ca-bundle.crt")).unwrap(),
            format!("\n{PEM}")
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
        assert_eq!(std::fs::read_to_string(&told["SSL_CERT_FILE"]).unwrap(), format!("\n{PEM}"));
        std::fs::write(root.path().join("file"), "").unwrap();
        let error = install(&root.path().join("file"), &authority()).unwrap_err().to_string();
        assert!(error.contains("add a certificate authority"), "{error}");
    }
}
