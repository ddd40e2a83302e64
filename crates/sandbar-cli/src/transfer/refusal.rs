use sandbar::{Error, ErrorKind, GuestPath};

/// What a sandbox says of the temporary folder of a copy, in words of the destination that somebody typed.
pub(super) fn refusal(source: &str, target: &GuestPath, folder: &GuestPath, error: &Error) -> Error {
    let why = match error.kind() {
        ErrorKind::NotFound => format!("nothing can be made in `{folder}`"),
        _ if error.message().contains("ermission denied") => {
            format!("the sandbox's user may not write in `{folder}`")
        }
        _ => match reason(error.message()) {
            why if why.starts_with("is ") => format!("`{folder}` {why}"),
            why => why.to_owned(),
        },
    };
    let kind = match error.kind() {
        // What made no sense, or was not there, was a name of ours.
        ErrorKind::InvalidInput | ErrorKind::NotFound => ErrorKind::PermissionDenied,
        kind => kind,
    };
    let message = format!("{source} can't be copied to `{target}`: {why}");
    Error::new(kind, "copy", message)
        .with_hint("choose a place of the sandbox's user, such as `/home/user` or `/tmp`")
}

/// The end of a message that begins with the name of what it is about.
fn reason(message: &str) -> &str {
    match message.rfind(['\'', '`']).map(|quote| message[quote + 1..].trim_start_matches([':', ' '])) {
        Some(rest) if !rest.is_empty() => rest,
        _ => message,
    }
}

#[cfg(test)]
mod tests {
    use sandbar::GuestPath;

    use super::*;

    #[test]
    fn names_of_ours_are_not_shown() {
        let target = GuestPath::new("/ro/a").unwrap();
        let folder = GuestPath::new("/ro").unwrap();
        let told = |kind, message: &str| {
            refusal("`/a`", &target, &folder, &Error::new(kind, "make folder", message)).message().to_owned()
        };
        assert_eq!(
            told(ErrorKind::Unexpected, "make '/ro/.sandbar-copy-1': the file system is read-only"),
            "`/a` can't be copied to `/ro/a`: the file system is read-only"
        );
        assert_eq!(
            told(ErrorKind::InvalidInput, "cwd '/ro/.sandbar-copy-1': permission denied"),
            "`/a` can't be copied to `/ro/a`: the sandbox's user may not write in `/ro`"
        );
        assert_eq!(
            told(ErrorKind::NotFound, "path '/ro/.sandbar-copy-1' does not exist"),
            "`/a` can't be copied to `/ro/a`: nothing can be made in `/ro`"
        );
        assert_eq!(
            told(ErrorKind::Unexpected, "path '/ro/.sandbar-copy-1' is not a directory"),
            "`/a` can't be copied to `/ro/a`: `/ro` is not a directory"
        );
        assert_eq!(told(ErrorKind::Unexpected, "no"), "`/a` can't be copied to `/ro/a`: no");
    }
}
