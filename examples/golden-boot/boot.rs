//! The steps of a golden boot.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command as HostCommand;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use sandbar::build::{BuildContext, PreparedBuild};
use sandbar::{
    BuildFile, BuildLog, BuildSpec, ByteStream, Command, CreateOptions, GuestPath, Lifetime, LogEvent,
    LogOptions, MainCommand, ProviderExt as _, Sandbox, SandboxExt as _, SandboxProvider, Template,
    TemplateId,
};

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// How long a server may take until it answers.
const ANSWERS: Duration = Duration::from_secs(60);
/// Where the app lies in its sandbox, beside what the template has.
const APP: &str = "/home/user/app";

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Vite,
    FastApi,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Vite => "vite",
            Self::FastApi => "fastapi",
        }
    }

    fn port(self) -> u16 {
        match self {
            Self::Vite => 5173,
            Self::FastApi => 8000,
        }
    }

    /// Where its files are, in the repository.
    pub(crate) fn folder(self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/golden-boot").join(self.name())
    }

    fn files(self) -> &'static [&'static str] {
        match self {
            Self::Vite => &["package.json", "package-lock.json", "vite.config.js"],
            Self::FastApi => &["requirements.txt"],
        }
    }
}

/// Fetches packages as data, with the settings of this machine, into a folder that a build can copy from. Nothing of them is run.
pub(crate) fn fetch(kind: Kind) -> Outcome<tempfile::TempDir> {
    let context = tempfile::tempdir()?;
    for file in kind.files() {
        std::fs::copy(kind.folder().join(file), context.path().join(file))?;
    }
    match kind {
        Kind::Vite => {
            let scratch = tempfile::tempdir()?;
            for file in ["package.json", "package-lock.json"] {
                std::fs::copy(kind.folder().join(file), scratch.path().join(file))?;
            }
            let mut npm = HostCommand::new("npm");
            npm.args([
                "ci",
                "--ignore-scripts",
                "--no-audit",
                "--no-fund",
                "--no-update-notifier",
                "--cache",
            ]);
            run(npm.arg(context.path().join("npm-cache")).current_dir(scratch.path()))?;
            // What npm says of its own work, with the time in its names.
            let _ = std::fs::remove_dir_all(context.path().join("npm-cache/_logs"));
        }
        Kind::FastApi => {
            let mut pip = HostCommand::new("/usr/bin/python3");
            pip.args([
                "-m",
                "pip",
                "download",
                "--quiet",
                "--disable-pip-version-check",
                "--only-binary",
                ":all:",
            ]);
            run(pip
                .arg("-d")
                .arg(context.path().join("wheels"))
                .arg("-r")
                .arg(context.path().join("requirements.txt")))?;
        }
    }
    Ok(context)
}

fn run(command: &mut HostCommand) -> Outcome<()> {
    let output = command.output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{} failed: {}", command.get_program().display(), said.trim()).into());
    }
    Ok(())
}

/// Builds the template from its build file; `hear` gets a line of what goes on.
pub(crate) async fn build(
    provider: &dyn SandboxProvider,
    kind: Kind,
    context: &Path,
    hear: impl FnMut(String),
) -> Outcome<Template> {
    let template = TemplateId::new(format!("golden-{}", kind.name()))?;
    built(provider, &kind.folder().join("Buildfile"), context, template, None, hear).await
}

/// Builds a template with the app in it, over `base`, the one with its packages.
pub(crate) async fn build_app(
    provider: &dyn SandboxProvider,
    kind: Kind,
    base: &TemplateId,
) -> Outcome<Template> {
    let (file, context) = (kind.folder().join("Buildfile.app"), kind.folder().join("app"));
    let template = TemplateId::new(format!("golden-{}-app", kind.name()))?;
    built(provider, &file, &context, template, Some(base), drop).await
}

async fn built(
    provider: &dyn SandboxProvider,
    file: &Path,
    context: &Path,
    template: TemplateId,
    base: Option<&TemplateId>,
    mut hear: impl FnMut(String),
) -> Outcome<Template> {
    let file = BuildFile::parse(&std::fs::read_to_string(file)?)?;
    let prepared = PreparedBuild::new(&file, Some(&BuildContext::open(context)?))?;
    let mut spec = BuildSpec::new(template, prepared.steps().to_vec()).with_label("golden boot");
    spec.base = base.cloned();
    let mut words = provider.require_builds()?.build(spec).await?;
    while let Some(word) = words.next().await {
        match word? {
            BuildLog::Step { number, of, text, is_cached } => {
                hear(format!("[{number}/{of}] {text}{}", if is_cached { " (known)" } else { "" }));
            }
            BuildLog::Line(line) => hear(line),
            BuildLog::Done(template) => return Ok(template),
            _ => {}
        }
    }
    Err("the build ended without a last word".into())
}

/// An app that answers.
pub(crate) struct Booted {
    pub(crate) sandbox: Arc<dyn Sandbox>,
    pub(crate) url: String,
    pub(crate) page: String,
}

impl Booted {
    pub(crate) fn title(&self) -> &str {
        title(&self.page)
    }
}

pub(crate) fn title(page: &str) -> &str {
    let after = page.split_once("<title>").map_or("", |(_, after)| after);
    after.split_once("</title>").map_or("", |(title, _)| title)
}

/// Creates from the template, imports the app's source, and waits for its page.
pub(crate) async fn boot(
    provider: &dyn SandboxProvider,
    kind: Kind,
    template: &TemplateId,
) -> Outcome<Booted> {
    let options = CreateOptions::new()
        .with_template(template.clone())
        .with_lifetime(Lifetime::Owned)
        .with_ports([kind.port()])
        .with_main(MainCommand::new(start(kind)?).with_cwd(GuestPath::new(APP)?));
    let sandbox = provider.create(options).await?;
    let source = GuestPath::new(APP)?.join("source")?;
    sandbox.require_archive()?.import(&source, packed(&kind.folder().join("app"))?).await?;
    let url = sandbox.preview_url(kind.port()).await?;
    let address = url.strip_prefix("http://").ok_or("a preview without HTTP")?.to_owned();
    match tokio::task::spawn_blocking(move || await_page(&address)).await? {
        Ok(page) => Ok(Booted { sandbox, url, page }),
        Err(why) => Err(format!("{why}; the server: {}", said(&*sandbox).await?).into()),
    }
}

/// Creates from a template with the app in it: the page is there when that answers.
pub(crate) async fn boot_app(
    provider: &dyn SandboxProvider,
    kind: Kind,
    template: &TemplateId,
) -> Outcome<Booted> {
    let options = CreateOptions::new()
        .with_template(template.clone())
        .with_lifetime(Lifetime::Owned)
        .with_ports([kind.port()]);
    let sandbox = provider.create(options).await?;
    let url = sandbox.preview_url(kind.port()).await?;
    let address = url.strip_prefix("http://").ok_or("a preview without HTTP")?.to_owned();
    let page = tokio::task::spawn_blocking(move || page(&address)).await??;
    Ok(Booted { sandbox, url, page })
}

/// How the main command is and what it said: the reason of what went wrong.
async fn said(sandbox: &dyn Sandbox) -> Outcome<String> {
    let main = sandbox.require_main_command()?;
    let mut text = format!("{:?}\n", main.status().await?);
    let mut logs = main.logs(LogOptions::default()).await?;
    while let Some(event) = logs.next().await {
        if let LogEvent::Output(chunk) = event? {
            text.push_str(&String::from_utf8_lossy(&chunk.bytes));
        }
    }
    Ok(text)
}

/// The main command, as the build file has it.
fn start(kind: Kind) -> Outcome<Command> {
    let file = BuildFile::parse(&std::fs::read_to_string(kind.folder().join("Buildfile"))?)?;
    let start = file.lines().iter().find_map(|line| match &line.instruction {
        sandbar::BuildInstruction::Start(command) => Some(command.clone()),
        _ => None,
    });
    Ok(start.ok_or("the build file has no `START`")?)
}

/// A folder as a tar stream.
fn packed(folder: &Path) -> Outcome<ByteStream> {
    let mut tar = tar::Builder::new(Vec::new());
    tar.append_dir_all("", folder)?;
    let bytes = bytes::Bytes::from(tar.into_inner()?);
    Ok(futures::stream::iter([Ok(bytes)]).boxed())
}

/// The page at `/`, as soon as there is one.
pub(crate) fn await_page(address: &str) -> Result<String, String> {
    let end = Instant::now() + ANSWERS;
    loop {
        let tried = page(address);
        match tried {
            Ok(page) => return Ok(page),
            Err(why) if Instant::now() >= end => return Err(format!("{address} does not answer: {why}")),
            // There is no event for a server that begins to listen.
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// The page at `/`, if the answer is 200.
fn page(address: &str) -> Result<String, String> {
    let fetch = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let request =
            format!("GET / HTTP/1.1\r\nHost: {address}\r\nAccept: text/html\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = fetch().map_err(|cause| cause.to_string())?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200") => Ok(body.to_owned()),
        _ => Err(format!("the answer is `{}`", answer.lines().next().unwrap_or_default())),
    }
}
