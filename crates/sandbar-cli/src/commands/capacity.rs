use std::fmt::Write;

use sandbar::{Capacity, ProviderExt, SandboxProvider};

use crate::exit::ExitStatus;
use crate::failure::Result;
use crate::output::{Printer, escape, print_bytes, print_json, short_size};

pub(crate) async fn capacity(provider: &dyn SandboxProvider, printer: Printer) -> Result<ExitStatus> {
    let capacity = printer.progress("measuring", provider.require_capacity()?.measure()).await?;
    if printer.json() {
        let mut form = serde_json::to_value(&capacity).expect("own types always serialise");
        form["version"] = 1.into();
        print_json(&form)?;
    } else {
        print_bytes(text(&capacity).as_bytes())?;
    }
    Ok(ExitStatus::Done)
}

fn text(capacity: &Capacity) -> String {
    let Capacity { admits, detail, disk_bytes, inodes, memory_bytes } = capacity;
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let mut text = String::new();
    for (key, value) in [
        ("disk", or_dash(disk_bytes.map(short_size))),
        ("inodes", or_dash(inodes.map(|count| count.to_string()))),
        ("memory", or_dash(memory_bytes.map(short_size))),
        ("admits", or_dash(admits.map(|admits| if admits { "yes" } else { "no" }.to_owned()))),
    ] {
        // Writing to a string can't fail.
        let _ = writeln!(text, "{key:<7} {value}");
    }
    if !detail.is_empty() {
        let _ = writeln!(text, "unknown {}", escape(detail));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_measured_is_a_dash_with_the_reason() {
        let capacity = Capacity {
            disk_bytes: Some(5 << 30),
            detail: "memory: \u{1b}[2J".to_owned(),
            ..Capacity::default()
        };
        assert_eq!(
            text(&capacity),
            "disk    5G\ninodes  -\nmemory  -\nadmits  -\nunknown memory: \\u{1b}[2J\n"
        );
    }
}
