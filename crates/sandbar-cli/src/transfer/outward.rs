use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use sandbar::{Error, ErrorKind, Sandbox, StdinMode, UserName};

use crate::tar::{Decoder, Item, Kind, Member};
use crate::transfer::copy_error;
use crate::transfer::empties::Empties;
use crate::transfer::guest_program::{GuestProgram, ProgramOptions};
use crate::transfer::unpack::Unpacking;
use crate::value::CopyOut;

/// Copies a file or tree out of the sandbox, all or nothing, read with the rights of `user` in it.
pub(crate) async fn copy_out(
    sandbox: &dyn Sandbox,
    copy: &CopyOut,
    user: Option<&UserName>,
) -> Result<(), Error> {
    let what = format!("`{}`", copy.source);
    // `/` was refused when the argument was read.
    let (Some(folder), Some(name)) = (copy.source.parent(), copy.source.file_name()) else {
        return Err(copy_error(&what, "it has no name of its own"));
    };
    let mut unpacking = Unpacking::start(&copy.target, copy.placement, copy.existing, name)
        .map_err(|error| copy_error(&what, error))?;
    let unpacked = async {
        // A leading `./`, so that no name is taken for an option.
        let member = OsStr::from_bytes(&[b"./", name].concat()).to_owned();
        let options = ProgramOptions {
            name: "tar",
            arguments: vec!["-c".into(), "-f".into(), "-".into(), member],
            folder: folder.clone(),
            user: user.cloned(),
            stdin: StdinMode::Null,
        };
        let mut tar = GuestProgram::start(sandbox, options).await.map_err(|error| match error.kind() {
            ErrorKind::InvalidInput => copy_error(&what, "the folder that holds it does not exist"),
            _ => error,
        })?;
        let mut empties = Empties::new(sandbox, folder, user);
        let unpacked = unpack(&mut tar, &mut unpacking, &mut empties, &what).await;
        if unpacked.is_err() {
            tar.kill().await;
        }
        unpacked
    }
    .await;
    match unpacked {
        Ok(()) => unpacking.commit().map_err(|error| copy_error(&what, error)),
        Err(error) => {
            let left = unpacking.abort();
            Err(match left {
                Ok(()) => error,
                Err(path) => error.with_left_behind(format!("`{}`", path.display())),
            })
        }
    }
}

async fn unpack(
    tar: &mut GuestProgram,
    unpacking: &mut Unpacking,
    empties: &mut Empties<'_>,
    what: &str,
) -> Result<(), Error> {
    let mut decoder = Decoder::default();
    while let Some(bytes) = tar.read().await? {
        decoder.push(&bytes);
        while let Some(item) = decoder.next().map_err(|error| copy_error(what, error))? {
            match &item {
                Item::Member(member) => unpacking.member(member),
                Item::Data(data) => unpacking.data(data),
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
