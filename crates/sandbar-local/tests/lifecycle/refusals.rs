//! Bad input and bad surroundings: a clear error, and nothing made.

use std::fs;
use std::process::Command as HostCommand;
use std::time::Duration;

use sandbar_core::{
    Base, Command, CreateOptions, EgressPolicy, ErrorKind, GuestPath, HostMount, Isolation, LimitDemand,
    MainCommand, MountAccess, ProviderExt, Query, Resources, SandboxName, SandboxProvider, TemplateId,
    VolumeMount, VolumeName,
};
use sandbar_local::{LocalConfig, LocalProvider, Spare};

use crate::support::{Bed, create, eventually, is_alive, kill};

fn mount(source: impl Into<std::path::PathBuf>, target: &str) -> HostMount {
    HostMount {
        source: source.into(),
        target: GuestPath::new(target).expect("a path"),
        access: MountAccess::ReadOnly,
    }
}

#[tokio::test]
async fn what_is_refused_makes_nothing() {
    let allow = |rule: &str| EgressPolicy::allow([rule]).expect("a rule");
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    // The data folder is there, so that it can be refused as a mount.
    create(&provider).await.destroy().await.expect("destroyed");
    let file = bed.scratch().join("file");
    fs::write(&file, "x").expect("a file");
    let odd: std::ffi::OsString = std::os::unix::ffi::OsStringExt::from_vec(vec![0xff]);
    let main = MainCommand::new(Command::new("true").arg(odd));
    let volume = VolumeMount {
        volume: VolumeName::new("v").expect("a name"),
        path: GuestPath::new("/v").expect("a path"),
    };
    let cases = [
        (
            "template",
            CreateOptions::new().with_template(TemplateId::new("nope").expect("an id")),
            ErrorKind::NotFound,
        ),
        (
            "image",
            CreateOptions { base: Base::Image("x".into()), ..CreateOptions::new() },
            ErrorKind::Unsupported,
        ),
        ("main", CreateOptions::new().with_main(main), ErrorKind::Unsupported),
        ("volume", CreateOptions::new().with_volume(volume), ErrorKind::NotFound),
        (
            "egress by version 6",
            CreateOptions::new().with_egress(allow("2001:db8::/32")),
            ErrorKind::Unsupported,
        ),
        (
            "egress to the host",
            CreateOptions::new().with_egress(allow("127.0.0.1:80")),
            ErrorKind::InvalidInput,
        ),
        (
            "egress in the resolver's place",
            CreateOptions::new().with_egress(allow("a.test:53/udp")),
            ErrorKind::Unsupported,
        ),
        ("isolation", CreateOptions::new().with_min_isolation(Isolation::Gvisor), ErrorKind::Unsupported),
        ("port 0", CreateOptions::new().with_ports([0]), ErrorKind::InvalidInput),
        ("ports", CreateOptions::new().with_ports([1, 1]), ErrorKind::InvalidInput),
        ("deadline", CreateOptions::new().with_deadline(Duration::ZERO), ErrorKind::InvalidInput),
        ("long deadline", CreateOptions::new().with_deadline(Duration::MAX), ErrorKind::InvalidInput),
        (
            "memory",
            CreateOptions::new().with_resources(Resources::default().with_memory_bytes(0)),
            ErrorKind::InvalidInput,
        ),
        ("root mount", CreateOptions::new().with_host_mount(mount(&file, "/")), ErrorKind::InvalidInput),
        (
            "relative mount",
            CreateOptions::new().with_host_mount(mount("file", "/x")),
            ErrorKind::InvalidInput,
        ),
        (
            "absent mount",
            CreateOptions::new().with_host_mount(mount("/nonexistent-9", "/x")),
            ErrorKind::NotFound,
        ),
        (
            "data folder",
            CreateOptions::new().with_host_mount(mount(bed.home(), "/x")),
            ErrorKind::PermissionDenied,
        ),
        (
            "above it",
            CreateOptions::new().with_host_mount(mount(bed.scratch(), "/x")),
            ErrorKind::PermissionDenied,
        ),
        ("kernel", CreateOptions::new().with_host_mount(mount("/proc", "/x")), ErrorKind::PermissionDenied),
        ("target", CreateOptions::new().with_host_mount(mount(&file, "/proc/x")), ErrorKind::InvalidInput),
        (
            "disk",
            CreateOptions::new()
                .with_resources(Resources::default().with_disk_bytes(1 << 30))
                .with_limit_demand(LimitDemand::Enforced),
            ErrorKind::Unsupported,
        ),
    ];
    for (what, options, kind) in cases {
        let error = provider.create(options).await.err().unwrap_or_else(|| panic!("{what}: was made"));
        assert_eq!(error.kind(), kind, "{what}: {error:?}");
        assert_eq!(error.backend(), Some("local"), "{what}");
        assert!(error.left_behind().is_empty(), "{what}: {error}");
        bed.assert_empty(what).await;
    }
}

#[tokio::test]
async fn a_control_socket_is_not_mounted() {
    let Some(bed) = Bed::new() else { return };
    let Some(folder) = ["/run/dbus", "/run/systemd", "/run/docker.sock"]
        .iter()
        .find(|path| fs::exists(path).unwrap_or(false))
    else {
        println!("skipped: this machine has no control socket to try it with");
        return;
    };
    let error = bed
        .provider()
        .create(CreateOptions::new().with_host_mount(mount(*folder, "/x")))
        .await
        .expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error:?}");
    bed.assert_empty("after the refusal").await;
}

#[tokio::test]
async fn a_name_belongs_to_one() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let named = || CreateOptions::new().with_name(SandboxName::new("web").expect("a name"));
    let first = provider.create(named()).await.expect("a sandbox");
    let error = provider.create(named()).await.expect_err("taken");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.message().contains(first.id().as_str()) && error.hint().is_some());
    assert_eq!(provider.list_all(Query::new()).await.expect("a listing").len(), 1);
    first.destroy().await.expect("destroyed");
    provider.create(named()).await.expect("it is free again").destroy().await.expect("destroyed");
    bed.assert_empty("after them").await;
}

#[tokio::test]
async fn without_its_executable_it_says_how_to_get_it() {
    let Some(bed) = Bed::new() else { return };
    let provider = LocalProvider::open(bed.config().with_helper("/nonexistent-9")).expect("a provider");
    let error = provider.create(CreateOptions::new()).await.expect_err("no executable");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.hint().expect("a hint").contains("cargo build -p sandbar-cli"));
    let provider = LocalProvider::open(bed.config().with_helper("/bin/true")).expect("a provider");
    let error = provider.create(CreateOptions::new()).await.expect_err("not an executable of ours");
    assert!(error.to_string().contains("/bin/true"), "{error}");
    assert!(!bed.home().join("sandboxes").exists());
}

#[tokio::test]
async fn a_data_folder_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let Some(bed) = Bed::new() else { return };
    create(&bed.provider()).await.destroy().await.expect("destroyed");
    fs::set_permissions(bed.home(), fs::Permissions::from_mode(0o755)).expect("opened up");
    let error = LocalProvider::open(LocalConfig::new().with_home(bed.home())).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.hint().expect("a hint").contains("chmod 700"));
}

/// On a disk that is full, what is asked for fails with the remedy, and what is there can still be listed and destroyed. Runs once more in a mount
/// namespace of its own, where the disk is.
#[tokio::test]
async fn a_full_disk_is_told_and_can_be_cleaned() {
    const INSIDE: &str = "SANDBAR_TEST_FULL_DISK";
    let Some(bed) = Bed::new() else { return };
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can mount a small disk");
        return;
    }
    let Some(disk) = std::env::var_os(INSIDE) else {
        let disk = bed.scratch().join("disk");
        fs::create_dir(&disk).expect("a folder");
        let name = "refusals::a_full_disk_is_told_and_can_be_cleaned";
        let script =
            "mount -t tmpfs -o size=24m,mode=700 small \"$1\" && exec \"$2\" --exact --nocapture \"$3\"";
        let status = HostCommand::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"])
            .arg(&disk)
            .arg(std::env::current_exe().expect("a path"))
            .arg(name)
            .env(INSIDE, &disk)
            .status()
            .expect("a mount namespace");
        assert!(status.success());
        return;
    };
    let disk = std::path::PathBuf::from(disk);
    let provider =
        LocalProvider::open(LocalConfig::new().with_home(disk.join("home")).with_spare(Spare::None))
            .expect("a provider");
    let sandbox = create(&provider).await;
    let mut filler = fs::File::create(disk.join("filler")).expect("a file");
    loop {
        use std::io::Write;
        if filler.write_all(&[1; 4096]).is_err() {
            break;
        }
    }
    let error = provider.create(CreateOptions::new()).await.expect_err("there is no room");
    assert_eq!(error.kind(), ErrorKind::LimitExceeded, "{error:?}");
    assert!(error.hint().is_some() && error.left_behind().is_empty(), "{error:?}");
    let listed = provider.list_all(Query::new()).await.expect("a listing");
    assert_eq!(listed.len(), 1);
    let output = sandbox.commands().run(&Command::new("echo").arg("still here")).await.expect("an output");
    assert_eq!(output.stdout_lossy(), "still here\n");
    // Nor does it keep a new shim out of it, which is not in the record yet.
    let record = disk.join("home/sandboxes").join(sandbox.id().as_str()).join("record.json");
    let shim = || -> i64 {
        let record = fs::read(&record).expect("a record");
        let record: serde_json::Value = serde_json::from_slice(&record).expect("JSON");
        record["private"]["shim"]["pid"].as_i64().expect("a number")
    };
    let first = shim();
    let pid = i32::try_from(first).expect("a process");
    kill(pid);
    eventually("the shim is gone", async || !is_alive(pid)).await;
    let output = sandbox.commands().run(&Command::new("echo").arg("and here")).await.expect("an output");
    assert_eq!(output.stdout_lossy(), "and here\n");
    assert_eq!(shim(), first, "there was room for another record");
    assert!(sandbox.destroy().await.expect("destroyed"));
    assert!(provider.list_all(Query::new()).await.expect("a listing").is_empty());
    drop(filler);
    fs::remove_file(disk.join("filler")).expect("removed");
    create(&provider).await.destroy().await.expect("destroyed");
    for folder in ["sandboxes", "names", "ids", "trash"] {
        assert_eq!(fs::read_dir(disk.join("home").join(folder)).expect("a folder").count(), 0, "{folder}");
    }
}
