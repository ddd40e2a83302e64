//! What an image says of itself: an OCI image layout, or what `docker save` writes, as files beneath a folder. Everything in it may be made up.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use sandbar_core::{ErrorKind, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use crate::error::{fail, io_error};

const OPERATION: &str = "import template";
/// Longest document of an image, in bytes: registries take manifests of 4 MiB.
const MAX_DOCUMENT: u64 = 4 << 20;
/// Most indexes in each other.
const MAX_NESTING: usize = 4;
/// Most layers of an image: no builder makes more than 127.
const MAX_LAYERS: usize = 512;
/// How often a path is looked up again: `openat2(2)` gives a `..` up where anything anywhere is renamed or mounted meanwhile, and says to try again.
const MOST_TRIES: u32 = 10_000;
/// Says that a folder is an OCI image layout.
const LAYOUT: &str = "oci-layout";

/// What to make a template of.
#[derive(Debug)]
pub(super) struct Image {
    /// The lowest first.
    pub(super) layers: Vec<ImageLayer>,
    pub(super) config: ImageConfig,
}

/// A layer of an image.
#[derive(Debug)]
pub(super) struct ImageLayer {
    /// SHA-256 of the plain archive, in hexadecimal digits.
    pub(super) diff_id: String,
    /// That of this layer together with all below it: what becomes of a layer depends on those.
    pub(super) chain_id: String,
    /// That of the file, where the image says it.
    pub(super) digest: Option<String>,
    /// Where it is, from the image's folder.
    pub(super) place: String,
}

/// What an image has for its containers.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct ImageConfig {
    env: Option<Vec<String>>,
    working_dir: Option<String>,
    user: Option<String>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
}

impl ImageConfig {
    /// Variables that are none are left out.
    pub(super) fn env(&self) -> BTreeMap<String, String> {
        let all = self.env.iter().flatten().filter_map(|line| line.split_once('='));
        let good =
            all.filter(|(name, value)| !name.is_empty() && !name.contains('\0') && !value.contains('\0'));
        good.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    pub(super) fn workdir(&self) -> Option<&str> {
        self.working_dir
            .as_deref()
            .filter(|path| path.starts_with('/') && *path != "/" && !path.contains('\0'))
    }

    pub(super) fn user(&self) -> Option<&str> {
        self.user.as_deref().filter(|user| !user.is_empty())
    }

    pub(super) fn command(&self) -> Vec<String> {
        self.entrypoint.iter().chain(self.cmd.iter()).flatten().cloned().collect()
    }
}

#[derive(Debug, Deserialize)]
struct ConfigDocument {
    architecture: Option<String>,
    os: Option<String>,
    #[serde(default)]
    config: Option<ImageConfig>,
    rootfs: RootFs,
}

#[derive(Debug, Deserialize)]
struct RootFs {
    diff_ids: Vec<String>,
}

/// A manifest or an index, which tell themselves apart by what they have.
#[derive(Debug, Deserialize)]
struct Manifest {
    manifests: Option<Vec<Descriptor>>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Descriptor {
    digest: String,
    #[serde(default)]
    size: Option<u64>,
    platform: Option<Platform>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl Descriptor {
    /// What it is called in an index: most often a tag, and by some tools with the name before it.
    fn names(&self) -> impl Iterator<Item = &str> {
        ["org.opencontainers.image.ref.name", "io.containerd.image.name"]
            .into_iter()
            .filter_map(|key| self.annotations.get(key).map(String::as_str))
    }
}

#[derive(Clone, Debug, Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

/// An image in the list that `docker save` writes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// Something that is named by its content.
#[derive(Debug)]
pub(super) struct Blob {
    pub(super) digest: String,
    pub(super) size: Option<u64>,
}

/// What a registry sent first.
#[derive(Debug)]
pub(super) enum Fetched {
    /// A list: the digest of what is for this machine.
    Index(String),
    Image {
        config: Blob,
        layers: Vec<Blob>,
    },
}

/// Reads a manifest or an index.
pub(super) fn fetched(text: &[u8]) -> Result<Fetched> {
    let Manifest { manifests, config, layers } = parse(text, "the manifest")?;
    let blob = |of: Descriptor| digits(&of.digest).map(|_| Blob { digest: of.digest, size: of.size });
    match (config, layers) {
        (Some(config), Some(layers)) if layers.len() <= MAX_LAYERS => Ok(Fetched::Image {
            config: blob(config)?,
            layers: layers.into_iter().map(blob).collect::<Result<_>>()?,
        }),
        (Some(_), Some(_)) => Err(bad(&format!("it has more than {MAX_LAYERS} layers"))),
        _ => {
            let choice = choose(manifests.as_deref().unwrap_or_default(), None)?;
            digits(&choice.digest)?;
            Ok(Fetched::Index(choice.digest.clone()))
        }
    }
}

/// The names of an image's layers together with all below each, as its configuration says.
pub(super) fn layer_chain(folder: BorrowedFd<'_>, config: &str) -> Result<Vec<String>> {
    let document: ConfigDocument = parse(&blob(folder, config)?, "the image's configuration")?;
    Ok(chain(&digests(&document)?))
}

fn digests(document: &ConfigDocument) -> Result<Vec<String>> {
    document.rootfs.diff_ids.iter().map(|id| digits(id)).collect()
}

/// OCI image specification, "Layer `ChainID`".
fn chain(diff_ids: &[String]) -> Vec<String> {
    let mut chain: Vec<String> = Vec::with_capacity(diff_ids.len());
    for diff_id in diff_ids {
        chain.push(match chain.last() {
            None => diff_id.clone(),
            Some(below) => {
                let mut hash = Sha256::new();
                hash.update(format!("sha256:{below} sha256:{diff_id}"));
                crate::worker::hex(hash)
            }
        });
    }
    chain
}

/// This machine as images name it.
pub(super) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Reads what the folder says; `None` means that it holds no image.
pub(super) fn read(folder: BorrowedFd<'_>, reference: Option<&str>) -> Result<Option<Image>> {
    if open(folder, LAYOUT)?.is_some() {
        let index: Manifest = parse(&required(folder, "index.json")?, "index.json")?;
        return layout(folder, index, reference).map(Some);
    }
    // A root file system may have a file of this name; it also has one of these then.
    for name in ["etc", "usr", "bin"] {
        if exists(folder, name)? {
            return Ok(None);
        }
    }
    match bytes(folder, "manifest.json")? {
        Some(text) => saved(folder, &text, reference).map(Some),
        None => Ok(None),
    }
}

fn layout(folder: BorrowedFd<'_>, index: Manifest, reference: Option<&str>) -> Result<Image> {
    let (mut found, mut reference) = (index, reference);
    for _ in 0..MAX_NESTING {
        if let (Some(config), Some(layers)) = (&found.config, &found.layers) {
            let text = blob(folder, &config.digest)?;
            let layers = layers
                .iter()
                .map(|layer| Ok((Some(digits(&layer.digest)?), place(&layer.digest)?)))
                .collect::<Result<_>>()?;
            return image(&text, layers);
        }
        let choice = choose(found.manifests.as_deref().unwrap_or_default(), reference)?;
        found = parse(&blob(folder, &choice.digest)?, &choice.digest)?;
        // Names are those of the outermost.
        reference = None;
    }
    Err(bad("its index has more levels than are read"))
}

/// The image for this machine.
fn choose<'a>(manifests: &'a [Descriptor], reference: Option<&str>) -> Result<&'a Descriptor> {
    let named = |manifest: &&Descriptor| {
        reference.is_none_or(|wanted| manifest.names().any(|name| is_meant(name, wanted)))
    };
    let fits = |platform: &Platform| platform.os == "linux" && platform.architecture == architecture();
    let all: Vec<_> = manifests.iter().filter(named).collect();
    if let (Some(wanted), []) = (reference, all.as_slice()) {
        let there: Vec<_> = manifests.iter().flat_map(Descriptor::names).take(20).collect();
        let (wanted, there) = (wanted.escape_debug(), there.join(", "));
        return Err(bad(&format!("it has no image `{wanted}`, only these: {}", there.escape_debug()))
            .with_hint("say which, by its name and tag"));
    }
    let mut usable: Vec<_> = all.iter().filter(|one| one.platform.as_ref().is_none_or(fits)).collect();
    usable.dedup_by(|one, other| one.digest == other.digest || one.names().eq(other.names()));
    if usable.len() > 1 {
        let there: Vec<_> = usable.iter().flat_map(|one| one.names()).take(20).collect();
        return Err(bad(&format!("it has several images: {}", there.join(", ").escape_debug()))
            .with_hint("say which, by its name and tag"));
    }
    let exact = all.iter().find(|manifest| manifest.platform.as_ref().is_some_and(fits));
    if let Some(manifest) = exact.or_else(|| all.iter().find(|manifest| manifest.platform.is_none())) {
        return Ok(manifest);
    }
    let there: Vec<_> = all
        .iter()
        .filter_map(|manifest| manifest.platform.as_ref())
        .map(|platform| format!("{}/{}", platform.os, platform.architecture))
        .take(20)
        .collect();
    let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
    Err(bad(&format!("it has no image for linux/{}: there are {}", architecture(), there.escape_debug())))
}

/// A whole name with its tag, or the repository of one; what tools put before short names may be left out.
fn is_meant(name: &str, wanted: &str) -> bool {
    let repository = name.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')).map(|(name, _)| name);
    let short = |name: &str| {
        let name = name.strip_prefix("docker.io/").unwrap_or(name);
        name.strip_prefix("library/").unwrap_or(name) == wanted
    };
    [Some(name), repository].into_iter().flatten().any(|name| name == wanted || short(name))
}

fn saved(folder: BorrowedFd<'_>, text: &[u8], reference: Option<&str>) -> Result<Image> {
    let all: Vec<Saved> = parse(text, "manifest.json")?;
    let tags = |saved: &Saved| saved.repo_tags.clone().unwrap_or_default();
    let matching: Vec<_> = all
        .iter()
        .filter(|saved| reference.is_none_or(|wanted| tags(saved).iter().any(|tag| is_meant(tag, wanted))))
        .collect();
    let [saved] = matching.as_slice() else {
        let there: Vec<_> = all.iter().flat_map(tags).take(20).collect();
        return Err(bad(&format!(
            "it has {} images that were meant, of these: {}",
            matching.len(),
            there.join(", ").escape_debug()
        ))
        .with_hint("say which, by its tag"));
    };
    let layers = saved.layers.iter().map(|place| (None, place.clone())).collect();
    image(&required(folder, &saved.config)?, layers)
}

fn image(config: &[u8], layers: Vec<(Option<String>, String)>) -> Result<Image> {
    let document: ConfigDocument = parse(config, "the image's configuration")?;
    let (os, machine) = (document.os.as_deref(), document.architecture.as_deref());
    if os.is_some_and(|os| os != "linux") || machine.is_some_and(|machine| machine != architecture()) {
        let is = format!("{}/{}", os.unwrap_or("linux"), machine.unwrap_or("?"));
        return Err(bad(&format!(
            "it is for {}, this machine is linux/{}",
            is.escape_debug(),
            architecture()
        )));
    }
    let diff_ids = digests(&document)?;
    if diff_ids.len() != layers.len() || layers.len() > MAX_LAYERS {
        let why = format!("it has {} layers, and {} are named", layers.len(), diff_ids.len());
        return Err(bad(&why));
    }
    let layers = layers
        .into_iter()
        .zip(chain(&diff_ids))
        .zip(diff_ids)
        .map(|(((digest, place), chain_id), diff_id)| ImageLayer { diff_id, chain_id, digest, place })
        .collect();
    Ok(Image { layers, config: document.config.unwrap_or_default() })
}

/// Opens a file of the image. What leads out of its folder is not there.
pub(super) fn open_file(folder: BorrowedFd<'_>, place: &str) -> Result<OwnedFd> {
    open(folder, place)?.ok_or_else(|| bad(&format!("`{}` is missing in it", place.escape_debug())))
}

fn open(folder: BorrowedFd<'_>, place: &str) -> Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let mut tries = 0;
    let opened = loop {
        tries += 1;
        match openat2(folder, place, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) if tries < MOST_TRIES => {}
            opened => break opened,
        }
    };
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(Errno::XDEV | Errno::LOOP) => Err(bad(&format!("`{}` leads out of it", place.escape_debug()))),
        Err(cause) => Err(io_error(OPERATION, &format!("`{}` of the image", place.escape_debug()), cause)),
    }
}

fn exists(folder: BorrowedFd<'_>, name: &str) -> Result<bool> {
    use rustix::fs::{AtFlags, statat};
    let seen = crate::error::found(statat(folder, name, AtFlags::SYMLINK_NOFOLLOW));
    seen.map(|seen| seen.is_some()).map_err(|cause| io_error(OPERATION, &format!("`{name}`"), cause))
}

fn bytes(folder: BorrowedFd<'_>, place: &str) -> Result<Option<Vec<u8>>> {
    let Some(file) = open(folder, place)? else { return Ok(None) };
    let broken = |cause: std::io::Error| {
        io_error(OPERATION, &format!("`{}` of the image", place.escape_debug()), cause)
    };
    let is_file = rustix::fs::fstat(file.as_fd()).map_err(|cause| broken(cause.into()))?;
    if rustix::fs::FileType::from_raw_mode(is_file.st_mode) != rustix::fs::FileType::RegularFile {
        return Err(bad(&format!("`{}` is no file", place.escape_debug())));
    }
    let mut text = Vec::new();
    std::fs::File::from(file).take(MAX_DOCUMENT + 1).read_to_end(&mut text).map_err(broken)?;
    if text.len() as u64 > MAX_DOCUMENT {
        let why = format!("`{}` is longer than {MAX_DOCUMENT} bytes", place.escape_debug());
        return Err(bad(&why));
    }
    Ok(Some(text))
}

fn required(folder: BorrowedFd<'_>, place: &str) -> Result<Vec<u8>> {
    bytes(folder, place)?.ok_or_else(|| bad(&format!("`{}` is missing in it", place.escape_debug())))
}

/// A document that is named by its content.
fn blob(folder: BorrowedFd<'_>, digest: &str) -> Result<Vec<u8>> {
    let text = required(folder, &place(digest)?)?;
    let mut hash = Sha256::new();
    hash.update(&text);
    if crate::worker::hex(hash) != digits(digest)? {
        return Err(bad(&format!("`{digest}` does not hold what its name says")));
    }
    Ok(text)
}

/// Where a layout has it.
pub(super) fn place(digest: &str) -> Result<String> {
    Ok(format!("blobs/sha256/{}", digits(digest)?))
}

/// The digits of a digest. It becomes part of a path, so its form is checked.
fn digits(digest: &str) -> Result<String> {
    let digits = digest.strip_prefix("sha256:").filter(|digits| {
        digits.len() == 64 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    });
    let digits = digits.ok_or_else(|| bad(&format!("`{}` is no SHA-256 digest", digest.escape_debug())))?;
    Ok(digits.to_owned())
}

fn parse<T: DeserializeOwned>(text: &[u8], what: &str) -> Result<T> {
    serde_json::from_slice(text)
        .map_err(|cause| bad(&format!("{} can't be read: {cause}", what.escape_debug())))
}

/// The image is at fault.
pub(super) fn bad(why: &str) -> sandbar_core::Error {
    fail(ErrorKind::InvalidInput, OPERATION, format!("the image can't be used: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_for_this_machine_is_chosen() {
        let of = |text: &str| serde_json::from_str::<Vec<Descriptor>>(text).unwrap();
        let (here, there) = (architecture(), "sparc");
        let list = of(&format!(
            r#"[{{"digest":"sha256:1","platform":{{"os":"linux","architecture":"{there}"}}}},
                {{"digest":"sha256:2","platform":{{"os":"linux","architecture":"{here}"}}}}]"#
        ));
        assert_eq!(choose(&list, None).unwrap().digest, "sha256:2");
        let error = choose(&list[..1], None).unwrap_err();
        assert!(error.message().contains("linux/sparc"), "{error}");
        let name = "org.opencontainers.image.ref.name";
        let several = of(&format!(
            r#"[{{"digest":"sha256:4","annotations":{{"{name}":"team/app:1"}}}},
                {{"digest":"sha256:5","annotations":{{"{name}":"other:1"}}}}]"#
        ));
        assert!(choose(&several, None).is_err());
        for (wanted, found) in [("team/app:1", "sha256:4"), ("other", "sha256:5")] {
            assert_eq!(choose(&several, Some(wanted)).unwrap().digest, found, "{wanted}");
        }
        for wanted in ["app:1", "1", "x/team/app:1", "team", "team/app:2"] {
            assert!(choose(&several, Some(wanted)).is_err(), "{wanted}");
        }
        let any = of(r#"[{"digest":"sha256:3"}]"#);
        assert!(choose(&any, Some("x")).is_err());
        assert_eq!(choose(&any, None).unwrap().digest, "sha256:3");
    }

    #[test]
    fn names_lead_nowhere_else() {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::write(scratch.path().join("secret"), "x").unwrap();
        let inner = scratch.path().join("image");
        std::fs::create_dir(&inner).unwrap();
        std::os::unix::fs::symlink("../secret", inner.join("link")).unwrap();
        let folder = std::fs::File::open(&inner).unwrap();
        for name in ["../secret", "link", "/etc/passwd"] {
            assert!(open(folder.as_fd(), name).is_err(), "{name}");
        }
        for digest in ["sha256:../../x", "md5:0", "sha256:00", ""] {
            assert!(digits(digest).is_err(), "{digest}");
        }
    }
}
