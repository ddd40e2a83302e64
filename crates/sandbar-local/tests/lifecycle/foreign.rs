//! Root file systems that other people made: a single program, and a Debian in which packages are installed.

use std::path::{Path, PathBuf};
use std::process::Command as HostCommand;
use std::sync::Arc;
use std::time::Duration;

use sandbar_core::{
    Command, CreateOptions, FilesExt, GuestPath, Output, RunOptions, Sandbox, SandboxProvider, TemplateId,
    UserName,
};
use sandbar_local::{FolderOwners, ImportOptions, TemplateSource};

use crate::support::{Bed, has_root_inside};

/// How long a package may take to be installed on a busy machine.
const INSTALL: Duration = Duration::from_secs(120);

fn id(name: &str) -> TemplateId {
    TemplateId::new(name).expect("an id")
}

async fn run(sandbox: &dyn Sandbox, user: Option<&str>, script: &str) -> Output {
    let mut options = RunOptions::default().with_timeout(INSTALL);
    options.user = user.map(|user| UserName::new(user).expect("a name"));
    sandbox.commands().run_opts(&Command::shell(script), options).await.expect("it ran")
}

async fn text(sandbox: &dyn Sandbox, user: Option<&str>, script: &str) -> String {
    let output = run(sandbox, user, script).await;
    assert!(output.status.is_success(), "{script}: {output:?}");
    output.stdout_lossy().trim().to_owned()
}

async fn from(bed: &Bed, template: &str) -> Arc<dyn Sandbox> {
    bed.provider().create(CreateOptions::new().with_template(id(template))).await.expect("a sandbox")
}

/// A program of this machine that needs no other file, if there is one.
fn alone(name: &str) -> Option<PathBuf> {
    let path = std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())?;
    let looked = HostCommand::new("ldd").arg(&path).output().ok()?;
    let said = [looked.stdout, looked.stderr].concat();
    String::from_utf8_lossy(&said).contains("not a dynamic executable").then_some(path)
}

#[tokio::test]
async fn a_root_of_one_program_boots_and_runs() {
    let Some(bed) = Bed::new() else { return };
    let Some(busybox) = alone("busybox") else {
        println!("skipped: there is no static `busybox` on this machine (Debian: busybox-static)");
        return;
    };
    let root = bed.scratch().join("root");
    std::fs::create_dir_all(root.join("bin")).expect("a folder");
    std::fs::copy(busybox, root.join("bin/busybox")).expect("copied");
    for name in ["sh", "cat", "echo", "id", "ls", "mkdir", "sleep", "stat", "test", "touch", "wc"] {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(name)).expect("a link");
    }
    let options = ImportOptions::new().with_owners(FolderOwners::Root);
    let imported =
        bed.provider().import_template(&id("busybox"), TemplateSource::Folder(root), options).await;
    imported.expect("imported");
    let sandbox = from(&bed, "busybox").await;
    assert_eq!(text(&*sandbox, None, "id -un; echo one > ~/file; cat ~/file").await, "user\none");
    assert_eq!(text(&*sandbox, None, "stat -c %a /tmp; touch /tmp/mine; ls /tmp").await, "1777\nmine");
    // What a sandbox needs beside it is there, and of this machine nothing is.
    assert_eq!(text(&*sandbox, None, "ls /proc/self/exe /dev/null >/dev/null; ls /usr").await, "local");
    if has_root_inside() {
        assert_eq!(
            text(&*sandbox, Some("root"), "id -u; mkdir -p /usr/share/x; ls /usr/share").await,
            "0\nx"
        );
    }
    let path = GuestPath::new("/home/user/file").expect("a path");
    assert_eq!(sandbox.files().read(&path).await.expect("read"), "one\n");
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after a root of one program").await;
}

/// A small Debian of the release that this machine has, as an archive. It is made once, which takes about a minute and a registry of packages, and kept beside what the build makes;
/// only the long sizes make one. `None`, with the reason printed, where there is none.
fn debian() -> Option<PathBuf> {
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("debian-minbase.tar");
    if kept.is_file() {
        return Some(kept);
    }
    let skip = |why: &str| {
        println!("skipped: {why}");
        None
    };
    if std::env::var_os("SANDBAR_SOAK").is_none() {
        return skip("no Debian was made yet: the long sizes make one");
    }
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let Some(codename) = codename else { return skip("this machine is no Debian") };
    if !rustix::process::geteuid().is_root() {
        return skip("only root can make a Debian");
    }
    let scratch = tempfile::tempdir().expect("a folder");
    let root = scratch.path().join("root");
    let made = HostCommand::new("debootstrap").args(["--variant=minbase", codename]).arg(&root).output();
    match made {
        Ok(made) if made.status.success() => {}
        Ok(made) => return skip(&format!("debootstrap: {}", String::from_utf8_lossy(&made.stdout).trim())),
        Err(error) => return skip(&format!("debootstrap: {error} (Debian: debootstrap)")),
    }
    // Whole before it has its name: another test may look for it.
    let part = scratch.path().join("root.tar");
    let packed = HostCommand::new("tar")
        .args(["--numeric-owner", "-cf"])
        .arg(&part)
        .arg("-C")
        .arg(&root)
        .arg(".")
        .status();
    assert!(packed.expect("tar is here").success());
    let beside = kept.with_extension(format!("{}", std::process::id()));
    std::fs::copy(&part, &beside).expect("copied");
    std::fs::rename(&beside, &kept).expect("named");
    Some(kept)
}

/// A package with a script that makes a user of its own.
fn package(scratch: &Path) -> Option<Vec<u8>> {
    use std::os::unix::fs::PermissionsExt as _;
    let tree = scratch.join("package");
    let write = |name: &str, mode: u32, content: &str| {
        let path = tree.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(&path, content).expect("a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("a mode");
    };
    write(
        "DEBIAN/control",
        0o644,
        "Package: probe\nVersion: 1.0\nArchitecture: all\nMaintainer: Nobody <nobody@example.test>\nDescription: a probe\n",
    );
    write(
        "DEBIAN/postinst",
        0o755,
        "#!/bin/sh\nset -e\ngetent passwd prober >/dev/null || useradd --system --no-create-home prober\ninstall -d -o prober -m 0750 /var/lib/probe\n",
    );
    write("usr/bin/probe", 0o755, "#!/bin/sh\necho probed\n");
    let file = scratch.join("probe.deb");
    let built =
        HostCommand::new("dpkg-deb").args(["--root-owner-group", "-b"]).arg(&tree).arg(&file).output();
    if !built.is_ok_and(|built| built.status.success()) {
        println!("skipped: there is no `dpkg-deb` on this machine");
        return None;
    }
    Some(std::fs::read(file).expect("a package"))
}

#[tokio::test]
async fn packages_are_installed_in_a_debian_as_its_root() {
    let Some(bed) = Bed::new() else { return };
    if !has_root_inside() {
        println!("skipped: sandboxes of this user have a single user id");
        return;
    }
    let (Some(archive), Some(package)) = (debian(), package(bed.scratch())) else { return };
    let imported = bed
        .provider()
        .import_template(&id("debian"), TemplateSource::File(archive), ImportOptions::new())
        .await;
    imported.expect("imported");
    let sandbox = from(&bed, "debian").await;
    let root = Some("root");
    sandbox
        .files()
        .write(&GuestPath::new("/tmp/probe.deb").expect("a path"), package.into())
        .await
        .expect("written");
    text(&*sandbox, root, "dpkg -i /tmp/probe.deb").await;
    let installed = "probe; dpkg-query -W -f '${Status}' probe; echo; stat -c '%U %a' /var/lib/probe; stat -c %U /usr/bin/probe";
    assert_eq!(text(&*sandbox, root, installed).await, "probed\ninstall ok installed\nprober 750\nroot");
    assert_eq!(text(&*sandbox, None, "probe; id -un").await, "probed\nuser");
    text(
        &*sandbox,
        root,
        "apt-get remove -y probe && ! test -e /usr/bin/probe && apt-get install -y /tmp/probe.deb",
    )
    .await;
    // A package of its own, taken apart and put in again: links, folders of other users, scripts.
    let again = "cd /tmp && dpkg --purge probe && dpkg -i probe.deb && dpkg --verify && dpkg --audit";
    text(&*sandbox, root, again).await;
    // No bit of privilege came along, and none can be set that means anything outside.
    assert_eq!(text(&*sandbox, root, "find / -xdev -perm /6000 -type f 2>/dev/null | wc -l").await, "0");
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after a Debian").await;
}
