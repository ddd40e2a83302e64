use std::time::Duration;

use sandbar_archive::{ArchiveError, ErrorKind as ArchiveErrorKind, Rules};
use sandbar_core::{ByteStream, Error, ErrorKind, ExitStatus, GuestPath, ImportReport, Result, State};

use super::source::Source;
use crate::envd::EnvdClient;
use crate::envd::cleanup::Cleanup;
use crate::envd::files::text;
use crate::envd::script::{Done, Script};
use crate::operation::Operation;
use crate::random::word;

const IMPORT: &str = "import";
/// How long unpacking may take: the reference's own five minutes are for what is packed in a minute, and a tree of a million files takes longer.
const UNPACK: Duration = Duration::from_secs(1800);
/// What arrived is not what was sent.
const DAMAGED: i32 = 10;
/// The destination is no folder.
const NO_FOLDER: i32 = 20;
/// Something is in the way.
const IN_THE_WAY: i32 = 21;
/// The destination can't be written to.
const MAY_NOT: i32 = 23;
/// It could not be moved to its place.
const MOVE: i32 = 24;
/// Unpacks the pieces in `$1` to `$2`, if together they have `$3` bytes and the sum `$4`; `$5` is a name that nobody has.
///
/// They are unpacked beside the destination, or in it where it exists, on the same file system. What is new is then one rename. What is there already is
/// looked at first, and each move is written down, so that all of them are taken back where one fails.
const UNPACK_PIECES: &str = r#"
spool=$1 into=$2 size=$3 sum=$4 name=$5
LC_ALL=C; export LC_ALL
stage= made= moves=0
fail() { status=$1; shift; printf '%s\n' "$*" >&2; exit "$status"; }
discard() { rm -rf -- "$@" 2>/dev/null || { chmod -R u+rwx -- "$@"; rm -rf -- "$@"; } 2>/dev/null; }
back() {
  while [ "$moves" -gt 0 ]; do
    to=$(readlink -- "$stage/old/$moves.to"; printf x); to=${to%??}
    if [ -e "$stage/old/$moves.in" ]; then discard "$to"; fi
    if [ -e "$stage/old/$moves.was" ] || [ -L "$stage/old/$moves.was" ]; then mv -f -- "$stage/old/$moves.was" "$to"; fi
    moves=$((moves - 1))
  done
}
leave() {
  status=$?
  trap '' HUP INT TERM
  [ "$status" = 0 ] || back
  [ -z "$stage" ] || discard "$stage"
  if [ "$status" != 0 ] && [ -n "$made" ]; then find "$made" -depth -type d -exec rmdir -- {} \; 2>/dev/null; fi
  discard "$spool"
  exit "$status"
}
trap leave EXIT
trap 'exit 143' HUP INT TERM
set -- "$spool"/piece-*
set -- $(wc -c "$@" | tail -n 1)
[ "$1" = "$size" ] || fail 10 "$1 bytes arrived of $size"
set -- $(cat "$spool"/piece-* | sha256sum)
[ "$1" = "$sum" ] || fail 10 "the sum of what arrived is $1, of what was sent $sum"
if [ -d "$into" ]; then
  stage=$into/$name
elif [ -e "$into" ] || [ -L "$into" ]; then
  fail 20 "$into is no folder"
else
  up=${into%/*} top=
  while [ -n "$up" ] && [ ! -e "$up" ] && [ ! -L "$up" ]; do top=$up; up=${up%/*}; done
  [ -d "${up:-/}" ] || fail 20 "${up:-/} is no folder"
  made=$top
  mkdir -p -- "${into%/*}/" || fail 23 "the folders above $into can't be made"
  stage=${into%/*}/$name
fi
mkdir -m 700 -- "$stage" || { stage=; fail 23 "nothing can be made in ${into%/*}/"; }
mkdir -- "$stage/new" "$stage/old" || fail 23 "nothing can be made in $stage"
case $(tar --version 2>&1) in
  *GNU*) is_gnu=yes attributes="--xattrs --xattrs-include=user.* --xattrs-exclude=user.overlay.*";;
  *) is_gnu=no attributes=;;
esac
set -f
set -- $attributes
set +f
mask=$(umask)
umask 0
{ for piece in "$spool"/piece-*; do cat "$piece" && rm -f "$piece" || exit 1; done; } |
  tar -x -f - -C "$stage/new" --no-same-owner --no-same-permissions "$@" || fail 22 "tar failed with $?"
umask "$mask"
# Others than GNU's keep privilege bits all the same.
[ "$is_gnu" = yes ] ||
  find "$stage/new" ! -type l \( -perm -4000 -o -perm -2000 -o -perm -1000 \) -exec chmod u-s,g-s,-t -- {} + ||
  fail 22 "its privilege bits can't be dropped"
chmod "$(printf '%o' $((0777 & ~0$mask)))" -- "$stage/new" || fail 24 "its rights can't be set"
is_folder() { [ -d "$1" ] && [ ! -L "$1" ]; }
is_there() { [ -e "$1" ] || [ -L "$1" ]; }
look() {
  for thing in "$1"/* "$1"/.[!.]* "$1"/..?*; do
    is_there "$thing" || continue
    if is_folder "$thing"; then
      if is_folder "$2/${thing##*/}"; then look "$thing" "$2/${thing##*/}"
      elif is_there "$2/${thing##*/}"; then fail 21 "$2/${thing##*/} is there and is no folder"; fi
    elif is_folder "$2/${thing##*/}"; then fail 21 "$2/${thing##*/} is there and is a folder"; fi
  done
}
place() { # a folder that may not be written to may not be moved either
  if is_folder "$1" && [ ! -w "$1" ]; then
    mode=$(stat -c %a -- "$1") && chmod u+w -- "$1" && mv -fT -- "$1" "$2" && chmod "$mode" -- "$2"
  else
    mv -fT -- "$1" "$2"
  fi
}
merge() {
  for thing in "$1"/* "$1"/.[!.]* "$1"/..?*; do
    is_there "$thing" || continue
    if is_folder "$thing" && is_folder "$2/${thing##*/}"; then merge "$thing" "$2/${thing##*/}"; continue; fi
    moves=$((moves + 1))
    ln -s -- "$2/${thing##*/}" "$stage/old/$moves.to" || fail 24 "it can't be noted"
    if is_there "$2/${thing##*/}"; then
      mv -fT -- "$2/${thing##*/}" "$stage/old/$moves.was" || fail 24 "$2/${thing##*/} can't be replaced"
    fi
    : >"$stage/old/$moves.in" && place "$thing" "$2/${thing##*/}" || fail 24 "$2/${thing##*/} can't be made"
  done
}
if [ -d "$into" ]; then
  look "$stage/new" "$into"
  merge "$stage/new" "$into"
else
  mv -T -- "$stage/new" "$into" || fail 24 "$into was made meanwhile"
fi
"#;

impl EnvdClient {
    pub(super) async fn import_tree(&self, path: &GuestPath, tar: ByteStream) -> Result<ImportReport> {
        let operation = self.guest.operation(IMPORT);
        let into = text(path, operation)?.to_owned();
        if path.is_root() {
            return Err(operation
                .fail(ErrorKind::InvalidInput, "nothing can be imported at `/`: name a folder below it"));
        }
        let rules = Rules::default().with_destination(path.as_bytes());
        let name = format!(".sandbar-import-{}", word());
        let spool = format!("/tmp/{name}");
        let cleanup = Cleanup::new(self, vec![spool.clone()], operation);
        let mut source = Source::open(tar, rules);
        match self.spool(&mut source, &spool, operation).await {
            Ok(()) => {}
            Err(error) => {
                cleanup.now().await;
                return Err(error);
            }
        }
        let verdict = match source.verdict().await {
            Ok(Ok(verdict)) => Ok(verdict),
            Ok(Err(cause)) => Err(refused(operation, &cause)),
            Err(error) => Err(error),
        };
        let (report, whole) = match verdict {
            Ok(verdict) => verdict,
            Err(error) => {
                cleanup.now().await;
                return Err(error);
            }
        };
        let arguments = vec![spool, into, whole.size.to_string(), whole.sum, name];
        let done = self.script(Script::new(UNPACK_PIECES, arguments, UNPACK), operation).await;
        match done {
            Ok(done) if done.status == ExitStatus::Code(0) => {
                // The script removed them.
                cleanup.done();
                Ok(ImportReport { entries: report.entries, bytes: report.bytes })
            }
            Ok(done) => {
                cleanup.done();
                Err(unpacking_failed(operation, path, &done))
            }
            Err(error) => {
                cleanup.now().await;
                Err(error)
            }
        }
    }

    /// Sends the pieces as they come, one after the other: the archive's bytes are never held but for three of them.
    async fn spool(&self, source: &mut Source, spool: &str, operation: Operation) -> Result<()> {
        let user = self.user(None, operation.name).await?;
        let mut number = 0_u64;
        while let Some(piece) = source.pieces.recv().await {
            let path = GuestPath::new(format!("{spool}/piece-{number:012}"))?;
            self.put(&path, piece, user.as_ref(), operation).await?;
            number += 1;
        }
        Ok(())
    }
}

/// Why an archive is not taken.
fn refused(operation: Operation, cause: &ArchiveError) -> Error {
    let kind = match cause.kind() {
        ArchiveErrorKind::Limit => ErrorKind::LimitExceeded,
        ArchiveErrorKind::Io | ArchiveErrorKind::Cancelled => ErrorKind::Unexpected,
        _ => ErrorKind::InvalidInput,
    };
    operation.fail(kind, cause.to_string())
}

fn unpacking_failed(operation: Operation, path: &GuestPath, done: &Done) -> Error {
    let complaint = done.complaint();
    let error = match done.status {
        ExitStatus::Code(DAMAGED) => {
            let message = format!("what arrived inside is not what was sent: {complaint}");
            operation.fail(ErrorKind::Unexpected, message).with_retry(sandbar_core::Retry::Safe)
        }
        ExitStatus::Code(NO_FOLDER) => operation.fail(ErrorKind::InvalidInput, complaint),
        ExitStatus::Code(IN_THE_WAY) => {
            Error::conflict(operation.name, State::Running, complaint).with_backend(operation.backend)
        }
        ExitStatus::Code(MAY_NOT) => operation.fail(ErrorKind::PermissionDenied, complaint),
        ExitStatus::Code(MOVE) => done.failed("move it to its place inside", operation),
        // A signal or a lost end: whether it came to moving is not known.
        ExitStatus::Signal(_) | ExitStatus::Unknown => {
            done.failed("unpack it inside", operation).with_retry(sandbar_core::Retry::OutcomeUnknown)
        }
        // tar's own troubles, with what it said of them.
        ExitStatus::Code(_) => done.failed("unpack it inside", operation),
    };
    error.with_resource(format!("`{path}`"))
}
