use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use sandbar::{EntryKind, Error, ErrorKind, GuestPath, Sandbox, StdinMode, UserName};

use crate::failure::{Failure, Result};
use crate::tar::{Decoder, Item, Kind, Member};
use crate::transfer::copy_error;
use crate::transfer::download::{Download, download};
use crate::transfer::empties::Empties;
use crate::transfer::guest_program::{GuestProgram, ProgramOptions, bounded};
use crate::transfer::meter::Meter;
use crate::transfer::stop::{Stop, unless_stopped};
use crate::transfer::unpack::Unpacking;
use crate::value::CopyOut;

/// Copies a file or tree out of the sandbox, all or nothing, read with the rights of `user` in it.
pub(crate) async fn copy_out(
    sandbox: &dyn Sandbox,
    copy: &CopyOut,
    user: Option<&UserName>,
    meter: &Meter,
    mut stop: Stop<'_>,
) -> Result<()> {
    let what = format!("`{}`", copy.source);
    // `/` was refused when the argument was read.
    let (Some(folder), Some(name)) = (copy.source.parent(), copy.source.file_name()) else {
        return Err(copy_error(&what, "it has no name of its own").into());
    };
    let mut unpacking = Unpacking::start(&copy.target, copy.placement, copy.existing, name)
        .map_err(|error| copy_error(&what, error))?;
    let unpacked = async {
        if is_plain_file(sandbox, &copy.source).await? {
            let work = download(sandbox, copy, user, &mut unpacking, meter);
            if unless_stopped(stop.as_mut(), work).await? == Download::Done {
                return Ok(());
            }
        }
        let (mut tar, mut empties) = start(sandbox, &folder, name, user).await?;
        let work = unpack(&mut tar, &mut unpacking, &mut empties, &what, meter);
        let unpacked = unless_stopped(stop, work).await;
        if unpacked.is_err() {
            tar.kill().await;
        }
        unpacked
    }
    .await;
    match unpacked {
        Ok(()) => unpacking.commit().map_err(|error| copy_error(&what, error).into()),
        Err(failure) => Err(match unpacking.abort() {
            Ok(()) => failure,
            Err(path) => Failure::with_left_behind(failure, format!("`{}`", path.display())),
        }),
    }
}

/// Whether it surely is a file with content, and no link. Who can't look gets the words of `tar`; what seems empty may be made up by the kernel as
/// it is read, and by whom.
async fn is_plain_file(sandbox: &dyn Sandbox, path: &GuestPath) -> Result<bool, Error> {
    let found = bounded(sandbox.files().stat(path)).await?;
    Ok(found.is_ok_and(|found| {
        found.is_some_and(|entry| {
            entry.kind == EntryKind::File && entry.size > 0 && entry.link_target.is_none()
        })
    }))
}

/// Starts a `tar` that packs `name` in `folder`.
pub(super) async fn start<'a>(
    sandbox: &'a dyn Sandbox,
    folder: &GuestPath,
    name: &[u8],
    user: Option<&'a UserName>,
) -> Result<(GuestProgram, Empties<'a>), Error> {
    // A leading `./`, so that no name is taken for an option.
    let member = OsStr::from_bytes(&[b"./", name].concat()).to_owned();
    // Arguments are text; a name that is none is read from standard input, which not every `tar` does.
    let is_text = member.to_str().is_some();
    let mut arguments: Vec<OsString> = ["-c", "-f", "-"].map(Into::into).into();
    if is_text {
        arguments.push(member.clone());
    } else {
        arguments.extend(["--null", "-T", "-"].map(Into::into));
    }
    let options = ProgramOptions {
        name: "tar",
        arguments,
        folder: folder.clone(),
        user: user.cloned(),
        stdin: if is_text { StdinMode::Null } else { StdinMode::Open },
    };
    let mut tar = GuestProgram::start(sandbox, options).await.map_err(|error| match error.kind() {
        ErrorKind::InvalidInput => {
            copy_error(&format!("`{folder}`"), "the folder that holds it does not exist")
        }
        _ => error,
    })?;
    if !is_text {
        tar.write_names(std::slice::from_ref(&member)).await?;
    }
    Ok((tar, Empties::new(sandbox, folder.clone(), user)))
}

async fn unpack(
    tar: &mut GuestProgram,
    unpacking: &mut Unpacking,
    empties: &mut Empties<'_>,
    what: &str,
    meter: &Meter,
) -> Result<(), Error> {
    let mut decoder = Decoder::default();
    while let Some(bytes) = tar.read().await? {
        decoder.push(bytes);
        while let Some(item) = decoder.next().map_err(|error| copy_error(what, error))? {
            match &item {
                Item::Member(member) => {
                    meter.file();
                    unpacking.member(member)
                }
                Item::Data(data) => {
                    meter.bytes(data.len());
                    unpacking.data(data)
                }
            }
            .map_err(|error| copy_error(what, error))?;
            if let Item::Member(Member { path, kind: Kind::File(0), .. }) = &item {
                empties.add(path).await?;
            }
        }
    }
    // A `tar` that failed says why; only then is the archive's own shape of interest.
    tar.end(what).await?;
    decoder.finish().map_err(|error| copy_error(what, error))?;
    empties.check().await
}
