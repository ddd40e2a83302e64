//! How the agent puts the certificate that a sandbox alone trusts among those that its system trusts: what is put there comes out again, from the inside at the
//! next start and from the outside where files of a sandbox are copied.

/// Name of the certificate's file, without its ending; that of links to it and of files made from it follows from it.
pub const NAME: &str = "sandbar-egress";
/// The folder of trusted certificates, below `/etc`, in which OpenSSL finds one by a hash of its subject.
pub const FOLDER: &str = "ssl/certs";
/// Where Debian's `update-ca-certificates` looks for what it adds to the list, below the root.
pub const ADDED: &str = "usr/local/share/ca-certificates";
/// Lists of trusted certificates, below `/etc`: Debian and its kin, Fedora and its kin, openSUSE, Alpine.
pub const LISTS: &[&str] = &[
    "ssl/certs/ca-certificates.crt",
    "pki/tls/certs/ca-bundle.crt",
    "pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "ssl/ca-bundle.pem",
    "ssl/cert.pem",
];
/// Longest list that is read, in bytes: the world's authorities take a quarter of a MiB.
pub const MAX_LIST: u64 = 16 << 20;

/// The line before the certificate in a list. What is outside of a certificate's own lines is a comment.
const BEGIN: &[u8] = b"# sandbar-egress begin: of this sandbox alone, replaced at each start\n";
/// The line after it.
const END: &[u8] = b"# sandbar-egress end\n";
/// Longest text between the two, in bytes: a certificate takes one or two KiB. What is longer somebody else wrote.
const MAX_BLOCK: usize = 64 << 10;

/// The certificate as it is in a list.
#[must_use]
pub fn block(certificate: &str) -> Vec<u8> {
    let end: &[u8] = if certificate.ends_with('\n') { b"" } else { b"\n" };
    [b"\n", BEGIN, certificate.as_bytes(), end, END].concat()
}

/// A list without what any sandbox put there, and without those certificates wherever they came from.
#[must_use]
pub fn without(list: &[u8], certificates: &[&str]) -> Vec<u8> {
    let mut left = Vec::with_capacity(list.len());
    let mut rest = list;
    // How much was left where the last line ends that was looked for: each byte is looked at once, however many first lines there are.
    let mut ends: Option<usize> = None;
    while let Some(start) = find(rest, BEGIN) {
        let after = &rest[start + BEGIN.len()..];
        if ends.is_none_or(|ends| ends >= after.len()) {
            ends = Some(find(after, END).map_or(0, |end| after.len() - end));
        }
        match ends {
            Some(ends) if ends > 0 && after.len() - ends <= MAX_BLOCK => {
                left.extend_from_slice(ended(&rest[..start]));
                rest = &after[after.len() - ends + END.len()..];
            }
            // The line alone does nothing, and what follows may be anybody's.
            _ => {
                left.extend_from_slice(&rest[..start]);
                rest = after;
            }
        }
    }
    left.extend_from_slice(rest);
    for certificate in certificates.iter().map(|text| text.trim().as_bytes()).filter(|text| !text.is_empty())
    {
        let mut kept = Vec::with_capacity(left.len());
        let mut rest = &left[..];
        while let Some(start) = find(rest, certificate) {
            kept.extend_from_slice(ended(&rest[..start]));
            rest = &rest[start + certificate.len()..];
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        kept.extend_from_slice(rest);
        left = kept;
    }
    left
}

/// What is before a certificate, without the end of a line that was put there with it.
fn ended(before: &[u8]) -> &[u8] {
    match before {
        [b'\n'] => b"",
        [.., b'\n', b'\n'] => &before[..before.len() - 1],
        _ => before,
    }
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    let first = *wanted.first()?;
    let mut from = 0;
    while let Some(next) = text[from..].iter().position(|byte| *byte == first) {
        let at = from + next;
        if text[at..].starts_with(wanted) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    const TWO: &str = "-----BEGIN CERTIFICATE-----\nBBBB\n-----END CERTIFICATE-----\n";

    #[test]
    fn what_sandboxes_put_there_comes_out_and_nothing_else() {
        let list = [b"others\n".as_slice(), &block(ONE), &block(TWO), &block(TWO), b"later\n"].concat();
        assert_eq!(without(&list, &[]), b"others\nlater\n");
        let unmarked = [b"others\n\n", ONE.as_bytes(), TWO.as_bytes(), b"\n", ONE.as_bytes()].concat();
        assert_eq!(without(&unmarked, &[ONE]), [b"others\n", TWO.as_bytes()].concat());
        assert_eq!(without(&unmarked, &[]), unmarked);
        assert_eq!(without(&unmarked, &[" \n"]), unmarked, "an empty one is none");
        assert_eq!(without(&block(ONE), &[]), b"");
    }

    #[test]
    fn a_first_line_without_a_last_one_takes_nothing_along() {
        let list = [b"a\n".as_slice(), BEGIN, &vec![b'x'; MAX_BLOCK + 1], END, b"b\n"].concat();
        assert_eq!(
            without(&list, &[]),
            [b"a\n".as_slice(), &vec![b'x'; MAX_BLOCK + 1], END, b"b\n"].concat()
        );
        assert_eq!(without(BEGIN, &[]), b"");
        let nested = [BEGIN, &block(ONE)].concat();
        assert_eq!(without(&nested, &[]), b"");
    }
}
