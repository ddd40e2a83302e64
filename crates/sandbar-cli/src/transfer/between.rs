use sandbar::{EntryKind, Error, Sandbox};

use crate::failure::{Failure, Result};
use crate::tar::{Decoder, Item, Kind, Member};
use crate::transfer::copy_error;
use crate::transfer::empties::Empties;
use crate::transfer::guest_program::{GuestProgram, bounded};
use crate::transfer::landing::{Destination, Landing, Top};
use crate::transfer::meter::Meter;
use crate::transfer::outward;
use crate::transfer::passage::Passage;
use crate::transfer::stop::{Stop, unless_stopped};
use crate::value::CopyBetween;

/// Copies a file or tree from one sandbox to another or to another place in the same, all or nothing. It belongs to the default user there.
pub(crate) async fn copy_between(
    from: &dyn Sandbox,
    to: &dyn Sandbox,
    copy: &CopyBetween,
    meter: &Meter,
    stop: Stop<'_>,
) -> Result<()> {
    let what = format!("`{}`", copy.source);
    let (Some(folder), Some(name)) = (copy.source.parent(), copy.source.file_name()) else {
        return Err(copy_error(&what, "it has no name of its own").into());
    };
    let found = bounded(from.files().stat(&copy.source)).await??;
    let found = found.ok_or_else(|| Error::not_found("copy", what.clone()))?;
    let is_folder = found.kind == EntryKind::Directory && found.link_target.is_none();
    let destination = Destination {
        source: what.clone(),
        name: name.to_vec(),
        top: if is_folder { Top::Folder } else { Top::File },
        target: &copy.target,
        placement: copy.placement,
        existing: copy.existing,
        parents: copy.parents,
    };
    let landing = Landing::start(to, destination).await?;
    let started = async { Ok((landing.tar().await?, outward::start(from, &folder, name, None).await?)) };
    let (mut unpacker, (mut packer, mut empties)) = match started.await {
        Ok(started) => started,
        Err(error) => return Err(landing.abort(error, Error::with_left_behind).await.into()),
    };
    let mut passage = Passage::new(name);
    let work = pass(&mut packer, &mut unpacker, &mut passage, &mut empties, (&what, meter));
    let passed = match unless_stopped(stop, work).await {
        Ok(()) => end(&mut unpacker, passage, &what).await.map_err(Failure::from),
        Err(failure) => Err(failure),
    };
    match passed {
        Ok(()) => Ok(landing.commit().await?),
        Err(failure) => {
            packer.kill().await;
            unpacker.kill().await;
            Err(landing.abort(failure, Failure::with_left_behind).await)
        }
    }
}

async fn pass(
    packer: &mut GuestProgram,
    unpacker: &mut GuestProgram,
    passage: &mut Passage,
    empties: &mut Empties<'_>,
    (what, meter): (&str, &Meter),
) -> Result<(), Error> {
    let mut decoder = Decoder::default();
    let in_words = |error| copy_error(what, error);
    while let Some(bytes) = packer.read().await? {
        decoder.push(bytes);
        while let Some(item) = decoder.next().map_err(|error| copy_error(what, error))? {
            match &item {
                Item::Member(member) => {
                    meter.file();
                    passage.member(member).map_err(in_words)?;
                }
                Item::Data(data) => {
                    meter.bytes(data.len());
                    passage.data(data).map_err(in_words)?;
                }
            }
            if let Item::Member(Member { path, kind: Kind::File(0), .. }) = &item {
                empties.add(path).await?;
            }
            if let Some(chunk) = passage.full()
                && let Err(error) = unpacker.write(chunk).await
            {
                // Its own words, where it has some, say more than a broken pipe.
                unpacker.kill().await;
                return Err(unpacker.end(what).await.err().unwrap_or(error));
            }
        }
    }
    // A `tar` that failed says why; only then is the archive's own shape of interest.
    packer.end(what).await?;
    decoder.finish().map_err(|error| copy_error(what, error))?;
    empties.check().await
}

async fn end(unpacker: &mut GuestProgram, passage: Passage, what: &str) -> Result<(), Error> {
    let rest = passage.finish().map_err(|error| copy_error(what, error))?;
    if let Err(error) = unpacker.write(rest).await {
        unpacker.kill().await;
        return Err(unpacker.end(what).await.err().unwrap_or(error));
    }
    unpacker.close().await?;
    unpacker.end(what).await
}
