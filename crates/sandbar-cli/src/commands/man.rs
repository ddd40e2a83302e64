use std::fs;
use std::io;
use std::path::Path;

use clap::CommandFactory;
use clap_mangen::Man;
use sandbar::{Error, ErrorKind};
use serde_json::json;

use crate::args::{Cli, ManArgs};
use crate::exit::ExitStatus;
use crate::failure::{Failure, Result};
use crate::output::{Printer, print_bytes, print_json};

/// Version of the JSON form.
const FORM: u32 = 1;

/// A manual page.
struct Page {
    /// Such as `sandbar-run`.
    name: String,
    content: Vec<u8>,
}

pub(crate) fn man(args: ManArgs, printer: Printer) -> Result<ExitStatus> {
    let ManArgs { command, to } = args;
    let pages = pages().map_err(|error| {
        Error::new(ErrorKind::Unexpected, "man", format!("no page was made: {error}")).with_source(error)
    })?;
    if let Some(folder) = to {
        let written = write(&pages, &folder)?;
        if printer.json() {
            let pages: Vec<_> =
                written.iter().map(|(name, path)| json!({"name": name, "path": path})).collect();
            print_json(&json!({"version": FORM, "pages": pages}))?;
        }
        return Ok(ExitStatus::Done);
    }
    let words = std::iter::once("sandbar").chain(command.iter().map(String::as_str));
    let wanted = words.collect::<Vec<_>>().join("-");
    let Some(page) = pages.iter().find(|page| page.name == wanted) else {
        let error = Error::invalid("man", format!("there is no command of the page `{wanted}`"));
        return Err(Failure::usage(error.with_hint("`sandbar help` shows the commands")));
    };
    if printer.json() {
        let content = String::from_utf8_lossy(&page.content);
        print_json(&json!({"version": FORM, "pages": [{"name": page.name, "content": content}]}))?;
    } else {
        print_bytes(&page.content)?;
    }
    Ok(ExitStatus::Done)
}

/// The page of `sandbar`, and one for each command and each command of a command.
fn pages() -> io::Result<Vec<Page>> {
    let mut root = Cli::command();
    root.build();
    let mut pages = Vec::new();
    add_pages("sandbar".to_owned(), &root, &mut pages)?;
    Ok(pages)
}

fn add_pages(name: String, command: &clap::Command, pages: &mut Vec<Page>) -> io::Result<()> {
    let mut content = Vec::new();
    Man::new(command.clone()).render(&mut content)?;
    let is_help = |command: &&clap::Command| command.get_name() == "help";
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set() && !is_help(command));
    let below: Vec<_> = commands.map(|below| (format!("{name}-{}", below.get_name()), below)).collect();
    pages.push(Page { name, content });
    below.into_iter().try_for_each(|(name, command)| add_pages(name, command, pages))
}

/// Writes each page whole or not at all; answers names and paths.
fn write(pages: &[Page], folder: &Path) -> Result<Vec<(String, String)>> {
    let fail = |path: &Path, error: io::Error| {
        let message = format!("`{}` can't be written: {error}", path.display());
        let hint = "name a folder that exists and that you may write in";
        Failure::usage(Error::invalid("man", message).with_hint(hint).with_source(error))
    };
    let mut written = Vec::new();
    for Page { name, content } in pages {
        let path = folder.join(format!("{name}.1"));
        let temporary = folder.join(format!(".{name}.1.{}", std::process::id()));
        let done = fs::write(&temporary, content).and_then(|()| fs::rename(&temporary, &path));
        if let Err(error) = done {
            // It may not even have been made.
            let _ = fs::remove_file(&temporary);
            return Err(fail(&path, error));
        }
        written.push((name.clone(), path.display().to_string()));
    }
    Ok(written)
}
