/// Where the volume is, in the sandbox that serves its content.
pub(super) const ROOT: &str = "/volume";

/// Ends of a script, beside success.
pub(super) const OUTSIDE: i32 = 42;
pub(super) const MISSING: i32 = 44;
pub(super) const EXISTS: i32 = 45;
pub(super) const NO_FOLDER: i32 = 46;
pub(super) const NO_FILE: i32 = 47;
pub(super) const NO_ID: i32 = 48;

/// What all scripts begin with. `$1` is the path; what it leads through has to be in the volume, and with `whole` the path itself, links followed.
/// Each sandbox has one volume, so a link that is changed meanwhile leads to nothing of anybody else's.
pub(super) const BEGIN: &str = r#"set -e
inside() { case "$1" in /volume|/volume/*) ;; *) exit 42 ;; esac; }
around() { [ "$1" = /volume ] || inside "$(realpath -m -- "$(dirname -- "$1")")"; }
whole() { inside "$(realpath -m -- "$1")"; }
there() { [ -e "$1" ] || [ -L "$1" ] || exit 44; }
own() { [ "$1" = : ] || chown -h -- "$1" "$2" 2>/dev/null || exit 48; }
may() { try=$(mktemp); chown -- "$1" "$try" 2>/dev/null || { rm -f -- "$try"; exit 48; }; rm -f -- "$try"; }
folder() { [ -d "$1" ] || { folder "$(dirname -- "$1")"; mkdir -- "$1"; own "$2" "$1"; }; }
"#;

/// `$2` is the format.
pub(super) const STAT: &str = r#"around "$1"; there "$1"; find "$1" -maxdepth 0 -printf "$2""#;

/// `$2` is the format, `$3` the depth.
pub(super) const LIST: &str = r#"whole "$1"; there "$1"; [ -d "$1" ] || exit 46
find "$1/" -mindepth 1 -maxdepth "$3" -printf "$2""#;

/// `$2` is the owner as `uid:gid`, `$3` the mode or nothing.
pub(super) const CHANGE: &str = r#"around "$1"; there "$1"; own "$2" "$1"
[ -z "$3" ] || [ -L "$1" ] || chmod -- "$3" "$1""#;

pub(super) const REMOVE: &str = r#"around "$1"; there "$1"; rm -rf -- "$1""#;

/// `$2` is the owner, `$3` the mode or nothing, `$4` is `force` where folders above are made too.
pub(super) const MAKE_DIR: &str = r#"whole "$1"; up=$(dirname -- "$1")
if [ -d "$1" ]; then [ "$4" = force ] || exit 45; exit 0; fi
if [ -e "$1" ] || [ -L "$1" ]; then exit 45; fi
if [ ! -d "$up" ]; then
  if [ -e "$up" ]; then exit 46; fi
  [ "$4" = force ] || exit 44
fi
may "$2"
folder "$1" "$2"
[ -z "$3" ] || chmod -- "$3" "$1""#;

/// Whether there is a file to read.
pub(super) const READABLE: &str = r#"whole "$1"; there "$1"; [ -f "$1" ] || exit 47"#;

/// Whether a file may be written; folders above are made. `$2` is their owner, `$3` is `keep` where one that is there stays, `$4` whose it will be.
pub(super) const WRITABLE: &str = r#"whole "$1"; [ ! -d "$1" ] || exit 47
if [ -e "$1" ] && [ "$3" = keep ]; then exit 45; fi
may "$4"
folder "$(dirname -- "$1")" "$2""#;
