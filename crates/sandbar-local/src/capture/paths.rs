use sandbar_core::{ErrorKind, GuestPath, Result};

use super::copy::upper_of;
use super::lookup::{Last, Tree};
use super::mounted::mounted;
use crate::error::fail;
use crate::home::{Folder, Home, StoredRecord};
use crate::store::Layer;
use crate::template::Base;

const COMMIT: &str = "commit";
/// Folders that a sandbox has its own of, and whose content is none of its files.
const OWN_FOLDERS: &[&str] = &["/proc", "/sys", "/dev", "/run"];

/// Refuses paths that a template can't include: what does not exist, what is not on the sandbox' own file system, and what holds something that is not.
pub(super) fn check(
    home: &Home,
    folder: &Folder,
    record: &StoredRecord,
    below: &[Layer],
    paths: &[GuestPath],
) -> Result<()> {
    if paths.is_empty() {
        return Ok(());
    }
    let on_host = record.private.boot.as_ref().is_none_or(|boot| boot.on_host);
    let base = if on_host { Some(Base::observe()?) } else { None };
    let skeleton = base.as_ref().map(|base| base.skeleton(home)).transpose()?;
    let empty = if on_host { None } else { Some(crate::template::bare(home)?) };
    let upper = upper_of(folder, "upper", COMMIT)?;
    let usr_upper = upper_of(folder, "usr-upper", COMMIT)?;
    let tree = Tree::new(
        upper.as_ref(),
        usr_upper.as_ref(),
        below,
        skeleton.as_ref(),
        empty.as_ref(),
        base.as_ref(),
    )?;
    let mounted = mounted(folder, record)?;
    for path in paths {
        if let Some(own) = own_folder(path) {
            return Err(refuse(path, &format!("is in `{own}`, which is no part of a sandbox' files")));
        }
        let is_elsewhere = |real: &GuestPath| {
            own_folder(real).is_some() || mounted.iter().any(|place| real.is_within(place))
        };
        let Some(real) = tree.resolve(path, Last::Itself, is_elsewhere)? else {
            return Err(fail(ErrorKind::NotFound, COMMIT, format!("capture path `{path}` does not exist"))
                .with_resource(format!("capture path `{path}`")));
        };
        // A link is captured as one; where it leads is what somebody wants to find there.
        let led_to = tree.resolve(path, Last::Followed, is_elsewhere)?;
        if let Some(place) = led_to.and_then(|real| mounted.iter().find(|place| real.is_within(place))) {
            return Err(refuse(path, &format!("is on what is mounted at `{place}`, which is not captured")));
        }
        if let Some(own) = own_folder(&real) {
            return Err(refuse(path, &format!("leads to `{own}`, which is no part of a sandbox' files")));
        }
        for place in &mounted {
            if place.is_within(&real) {
                return Err(refuse(
                    path,
                    &format!("holds what is mounted at `{place}`, which is not captured"),
                ));
            }
        }
    }
    Ok(())
}

fn own_folder(path: &GuestPath) -> Option<&'static str> {
    let is_in = |own: &&&str| {
        path.as_bytes()
            .strip_prefix(own.as_bytes())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    };
    OWN_FOLDERS.iter().find(is_in).copied()
}

fn refuse(path: &GuestPath, why: &str) -> sandbar_core::Error {
    fail(ErrorKind::InvalidInput, COMMIT, format!("capture path `{path}` {why}"))
        .with_resource(format!("capture path `{path}`"))
        .with_hint(
            "name a path on the sandbox' own file system that holds no mount, or copy what is needed there",
        )
}
