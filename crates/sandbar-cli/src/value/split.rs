use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Splits at colons, except at those written `\:`, which become colons. Any other backslash stays.
pub(crate) fn split_colons(text: OsString) -> Vec<Vec<u8>> {
    let mut parts = vec![Vec::new()];
    let mut bytes = text.into_vec().into_iter().peekable();
    while let Some(byte) = bytes.next() {
        let last = parts.last_mut().expect("there is always one part");
        match byte {
            b'\\' if bytes.peek() == Some(&b':') => last.extend(bytes.next()),
            b':' => parts.push(Vec::new()),
            _ => last.push(byte),
        }
    }
    parts
}

/// Puts parts of a host path that held colons together again.
pub(crate) fn join_colons(parts: &[Vec<u8>]) -> OsString {
    OsString::from_vec(parts.join(&b':'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_escaped_colon_does_not_split() {
        assert_eq!(split_colons(r"a\:b:c".into()), [b"a:b".to_vec(), b"c".to_vec()]);
        assert_eq!(split_colons(r"a\b:".into()), [br"a\b".to_vec(), b"".to_vec()]);
    }

    proptest! {
        #[test]
        fn what_was_escaped_comes_back(parts in proptest::collection::vec("[a-z/:]{0,8}", 1..5)) {
            let typed = parts.iter().map(|part| part.replace(':', r"\:")).collect::<Vec<_>>().join(":");
            let wanted: Vec<_> = parts.iter().map(|part| part.as_bytes().to_vec()).collect();
            prop_assert_eq!(split_colons(typed.into()), wanted);
        }
    }
}
