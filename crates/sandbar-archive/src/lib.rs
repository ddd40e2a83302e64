//! Tar archives as streams, for trees that nobody has to trust.
//!
//! [`Unpack`] reads an archive into a folder that is given as a descriptor and never leaves it; [`Pack`] writes one of a folder. Both are synchronous, hold a
//! bounded amount of memory however large the tree is, tell how far they are and stop when they are told to. [`decompress`] takes gzip and zstd off.
//!
//! ```no_run
//! use std::os::fd::AsFd;
//!
//! use sandbar_archive::{Rules, Unpack, decompress};
//!
//! let folder = std::fs::File::open("staging")?;
//! let mut tar = decompress(std::io::stdin())?;
//! let report = Unpack::new(Rules::rootfs()).run(&mut tar, folder.as_fd())?;
//! println!("{} entries, {} bytes", report.entries, report.bytes);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod check;
mod decompress;
mod discard;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod hooks;
mod pack;
mod read;
mod rules;
mod unpack;

pub use check::Check;
pub use decompress::{MAX_WINDOW, decompress};
pub use discard::discard;
pub use error::{ArchiveError, ErrorKind};
pub use hooks::Progress;
pub use pack::{Pack, PackOwners, PackReport};
pub use rules::{
    MAX_BYTES, MAX_DEPTH, MAX_ENTRIES, MAX_FOLDER_NAMES, MAX_HEADER, MAX_ID, MAX_NAME, MAX_PATH,
    MAX_TRAILING, Names, Owners, Privileges, Rules, Special, Whiteouts, Xattrs,
};
pub use unpack::{Unpack, UnpackReport};
