use crate::rules::{MAX_PATH, Names};
use crate::{ArchiveError, Rules};

/// A member's name as names of folders and a last one: no empty one, no `.`, no `..`. Empty is the destination itself.
pub(crate) fn inside(path: &[u8], rules: &Rules) -> Result<Vec<u8>, ArchiveError> {
    if path.is_empty() {
        return Err(ArchiveError::malformed("it has no name"));
    }
    if path.contains(&0) {
        return Err(ArchiveError::refused("its name has a NUL byte in it"));
    }
    if rules.names == Names::Strict && path.starts_with(b"/") {
        return Err(ArchiveError::refused(
            "its name is absolute: only names below the destination are taken",
        ));
    }
    let mut inside = Vec::with_capacity(path.len());
    let mut depth = 0;
    for segment in path.split(|byte| *byte == b'/').filter(|segment| !matches!(*segment, b"" | b".")) {
        if segment == b".." {
            return Err(ArchiveError::refused(
                "its name climbs with `..`: only names below the destination are taken",
            ));
        }
        if segment.len() > rules.max_name {
            let text =
                format!("a name of {} bytes is too long: {} is the most", segment.len(), rules.max_name);
            return Err(ArchiveError::refused(text));
        }
        if depth == 0 && rules.names == Names::Strict && segment.starts_with(b"-") {
            return Err(ArchiveError::refused("its name begins with `-` and could be taken for an option"));
        }
        depth += 1;
        if depth > rules.max_depth {
            let text = format!("its name is more than {} folders deep", rules.max_depth);
            return Err(ArchiveError::refused(text));
        }
        if !inside.is_empty() {
            inside.push(b'/');
        }
        inside.extend_from_slice(segment);
    }
    if inside.len() > MAX_PATH {
        let text = format!("its name is {} bytes long: {MAX_PATH} is the most", inside.len());
        return Err(ArchiveError::refused(text));
    }
    Ok(inside)
}

/// Checks where the symbolic link at `at`, a name as [`inside`] makes it, leads.
pub(crate) fn check_target(at: &[u8], target: &[u8], rules: &Rules) -> Result<(), ArchiveError> {
    if target.is_empty() || target.contains(&0) || target.len() > MAX_PATH {
        return Err(ArchiveError::refused(
            "it is a link whose target is empty, has a NUL byte, or is too long",
        ));
    }
    if rules.names == Names::Rootfs {
        return Ok(());
    }
    let leaves = || {
        let target = crate::error::escaped(target);
        ArchiveError::refused(format!("it is a link to `{target}`, which is outside of the destination"))
    };
    if target.starts_with(b"/") {
        return if leads_below(target, rules) { Ok(()) } else { Err(leaves()) };
    }
    // How many folders there are between the destination and the link.
    let mut above = at.split(|byte| *byte == b'/').count() - 1;
    let mut named = false;
    for segment in target.split(|byte| *byte == b'/').filter(|segment| !matches!(*segment, b"" | b".")) {
        if segment != b".." {
            named = true;
        } else if named {
            // What was named may be a link itself, and then the way up starts somewhere else than it seems.
            let target = crate::error::escaped(target);
            let text = format!(
                "it is a link to `{target}`, where `..` after a name may lead out of the destination"
            );
            return Err(ArchiveError::refused(text));
        } else {
            above = above.checked_sub(1).ok_or_else(leaves)?;
        }
    }
    Ok(())
}

/// Whether an absolute link leads below the destination, by its words: without `..`, each name on the way is one in it.
fn leads_below(target: &[u8], rules: &Rules) -> bool {
    let names = |path: &[u8]| -> Vec<Vec<u8>> {
        let names = path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
        names.map(<[u8]>::to_vec).collect()
    };
    let Some(destination) = rules.destination.as_deref().filter(|path| path.starts_with(b"/")) else {
        return false;
    };
    let (target, destination) = (names(target), names(destination));
    let climbs = target.iter().chain(&destination).any(|name| name == b"..");
    // Below `/` is everything, and nothing is unpacked there.
    !climbs && !destination.is_empty() && target.starts_with(&destination)
}

/// The folder's name, empty for the destination, and the last name.
pub(crate) fn split(inside: &[u8]) -> (&[u8], &[u8]) {
    match inside.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&inside[..slash], &inside[slash + 1..]),
        None => (&[], inside),
    }
}

#[cfg(test)]
mod tests;
