//! Golden boots, as `examples/golden-boot` has them, beside what there is to do without a template.

#[path = "../../../examples/golden-boot/boot.rs"]
mod boot;

use std::ffi::OsStr;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use sandbar::TemplateId;

use crate::bed::{Bed, finish};
use crate::row::{Bar, Peer, Row};
use crate::sample::Samples;

use boot::{Booted, Kind};

const NAME: &str = "golden-boot";
/// An installation takes ten seconds or more.
const ROUNDS: usize = 5;

/// From nothing to the page: out of a template, and by an installation of the packages on the host.
pub(crate) fn boots(bed: &Bed) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for kind in [Kind::Vite, Kind::FastApi] {
        // Packages that can't be had are no fault of ours.
        match boot::fetch(kind) {
            Ok(packages) => rows.extend(beside_installation(bed, kind, packages.path())?),
            Err(why) => {
                let peer = Peer::Absent(format!("not measured: packages can't be had: {why}"));
                rows.push(Row::new(NAME, imported(kind), "ms", Samples::default(), peer, bar(kind)));
            }
        }
    }
    Ok(rows)
}

fn beside_installation(bed: &Bed, kind: Kind, packages: &Path) -> Result<Vec<Row>, String> {
    let text = |why: Box<dyn std::error::Error>| why.to_string();
    let (template, app) = bed.runtime.block_on(async {
        let template = boot::build(&*bed.provider, kind, packages, drop).await.map_err(text)?.id;
        let app = boot::build_app(&*bed.provider, kind, &template).await.map_err(text)?.id;
        Ok::<_, String>((template, app))
    })?;
    let (mut with_import, mut with_app, mut theirs) =
        (Samples::default(), Samples::default(), Samples::default());
    for round in 0..bed.rounds(ROUNDS) {
        let folder = bed.folder().join(format!("installed-{round}"));
        let begun = Instant::now();
        let outcome = from_packages(kind, packages, &folder);
        theirs.took(begun.elapsed(), outcome);
        let _ = std::fs::remove_dir_all(&folder);
        boot_once(
            bed,
            &mut with_import,
            |bed, template| bed.runtime.block_on(boot::boot(&*bed.provider, kind, template)).map_err(text),
            &template,
        )?;
        boot_once(
            bed,
            &mut with_app,
            |bed, template| {
                bed.runtime.block_on(boot::boot_app(&*bed.provider, kind, template)).map_err(text)
            },
            &app,
        )?;
    }
    let peer = || Peer::measured(installation(kind), theirs.clone());
    Ok(vec![
        Row::new(NAME, imported(kind), "ms", with_import, peer(), bar(kind)),
        Row::new(
            NAME,
            format!("{}, the source in the template", name(kind)),
            "ms",
            with_app,
            peer(),
            bar(kind),
        ),
    ])
}

fn boot_once(
    bed: &Bed,
    samples: &mut Samples,
    boot: impl Fn(&Bed, &TemplateId) -> Result<Booted, String>,
    template: &TemplateId,
) -> Result<(), String> {
    let begun = Instant::now();
    let booted = boot(bed, template);
    let took = begun.elapsed();
    let sandbox = booted.as_ref().ok().map(|booted| booted.sandbox.clone());
    samples.took(took, booted.and_then(|booted| is_the_app(&booted.url, booted.title(), &booted.page)));
    if let Some(sandbox) = sandbox {
        bed.runtime.block_on(sandbox.destroy()).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn is_the_app(url: &str, title: &str, page: &str) -> Result<(), String> {
    if title == "golden boot" { Ok(()) } else { Err(format!("{url} has another page: {page}")) }
}

/// Ten times as fast at least as what npm does; the other is there to compare.
fn bar(kind: Kind) -> Bar {
    match kind {
        Kind::Vite => Bar::AtMostTimes(0.1),
        Kind::FastApi => Bar::None,
    }
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Vite => "golden boot of Vite and React, until the page is there",
        Kind::FastApi => "golden boot of FastAPI, until the page is there",
    }
}

fn imported(kind: Kind) -> String {
    format!("{}, the source imported", name(kind))
}

fn installation(kind: Kind) -> &'static str {
    match kind {
        Kind::Vite => "`npm ci --offline` from a full cache and the dev server, on the host",
        Kind::FastApi => "`pip install` from wheels and the server, on the host",
    }
}

/// What has to be done without a template: install, start, wait for the page. From packages that are there, so that no registry's speed counts,
/// and without their scripts.
fn from_packages(kind: Kind, packages: &Path, folder: &Path) -> Result<(), String> {
    let fail = |why: std::io::Error| format!("{}: {why}", folder.display());
    std::fs::create_dir(folder).map_err(fail)?;
    copy(&kind.folder().join("app"), &folder.join("source")).map_err(fail)?;
    let port = free_port()?;
    let server = match kind {
        Kind::Vite => {
            for file in ["package.json", "package-lock.json", "vite.config.js"] {
                std::fs::copy(packages.join(file), folder.join(file)).map_err(fail)?;
            }
            let quiet =
                ["ci", "--offline", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"];
            let mut npm = quietly("npm", folder);
            finish(npm.args(quiet).arg("--cache").arg(packages.join("npm-cache")))?;
            let mut vite = quietly("node", folder);
            vite.args(["node_modules/vite/bin/vite.js", "source", "--config", "vite.config.js", "--port"]);
            Server::start(vite.arg(port.to_string()))?
        }
        Kind::FastApi => {
            let mut pip = quietly("/usr/bin/python3", folder);
            pip.args(["-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check"]);
            pip.arg("--find-links").arg(packages.join("wheels")).args(["--target", "site", "-r"]);
            finish(pip.arg(packages.join("requirements.txt")))?;
            let mut uvicorn = quietly("/usr/bin/python3", folder);
            uvicorn.args(["-m", "uvicorn", "main:app", "--app-dir", "source", "--host", "127.0.0.1"]);
            uvicorn.args(["--loop", "asyncio", "--http", "h11", "--ws", "none", "--port"]);
            Server::start(uvicorn.arg(port.to_string()).env("PYTHONPATH", folder.join("site")))?
        }
    };
    let address = format!("127.0.0.1:{port}");
    let page = boot::await_page(&address)?;
    drop(server);
    is_the_app(&address, boot::title(&page), &page)
}

fn quietly(program: impl AsRef<OsStr>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|why| why.to_string())?;
    Ok(listener.local_addr().map_err(|why| why.to_string())?.port())
}

fn copy(from: &Path, to: &PathBuf) -> std::io::Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let there = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &there)?;
        } else {
            std::fs::copy(entry.path(), there)?;
        }
    }
    Ok(())
}

/// Ends with its owner.
struct Server(Child);

impl Server {
    fn start(command: &mut Command) -> Result<Self, String> {
        command.spawn().map(Self).map_err(|why| format!("{}: {why}", command.get_program().display()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
