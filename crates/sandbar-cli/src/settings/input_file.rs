use std::fs::File;
use std::io::Read;
use std::path::Path;

use sandbar::Error;

use crate::failure::{Failure, Result};

/// The whole of a file that an argument names, within bounds. No error shows what stands in it.
pub(super) fn read_bounded(operation: &'static str, file: &Path, max: u64) -> Result<Vec<u8>> {
    let complain =
        |why: String| Failure::usage(Error::invalid(operation, format!("`{}`: {why}", file.display())));
    let mut content = Vec::new();
    File::open(file)
        .and_then(|opened| opened.take(max.saturating_add(1)).read_to_end(&mut content))
        .map_err(|error| complain(error.to_string()))?;
    if content.len() as u64 > max {
        return Err(complain(format!("larger than {max} bytes")));
    }
    Ok(content)
}
