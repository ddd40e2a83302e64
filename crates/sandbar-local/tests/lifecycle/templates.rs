//! Templates: where they come from, what sandboxes of them are like, and when they go.

mod registry;

use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use sandbar_archive::Pack;
use sandbar_core::{
    Command, CreateOptions, Error, ErrorKind, FilesExt, GuestPath, ProviderExt, Result, Sandbox,
    SandboxProvider, Template, TemplateId,
};
use sandbar_local::{FolderOwners, ImportOptions, LocalProvider, TemplateSource};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::support::{self, Bed};

fn id(name: &str) -> TemplateId {
    TemplateId::new(name).unwrap()
}

/// A static program that is there on every machine: our own.
fn put_tool(root: &Path) {
    let helper = std::env::var_os("SANDBAR_HELPER").map(PathBuf::from).filter(|path| path.is_file());
    let helper = helper.unwrap_or_else(|| {
        let beside = std::env::current_exe().unwrap();
        beside.ancestors().nth(2).unwrap().join("sandbar")
    });
    fs::create_dir_all(root.join("bin")).unwrap();
    fs::copy(helper, root.join("bin/tool")).unwrap();
    fs::set_permissions(root.join("bin/tool"), fs::Permissions::from_mode(0o755)).unwrap();
}

/// A shell, with what it is linked to.
fn put_shell(root: &Path) {
    let shell = fs::canonicalize("/bin/sh").unwrap();
    let linked = std::process::Command::new("ldd").arg(&shell).output().unwrap();
    let linked = String::from_utf8(linked.stdout).unwrap();
    for file in linked.split_whitespace().filter(|word| word.starts_with('/')) {
        let place = root.join(file.trim_start_matches('/'));
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(file, place).unwrap();
    }
    fs::create_dir_all(root.join("bin")).unwrap();
    fs::copy(shell, root.join("bin/sh")).unwrap();
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn pack(folder: &Path) -> Vec<u8> {
    let mut tar = Vec::new();
    Pack::new().run(fs::File::open(folder).unwrap().as_fd(), b"", &mut tar).unwrap();
    tar
}

fn digest(bytes: &[u8]) -> String {
    let hash: [u8; 32] = Sha256::digest(bytes).into();
    hash.iter().fold(String::from("sha256:"), |text, byte| format!("{text}{byte:02x}"))
}

/// An OCI image layout of these layers.
fn layout(folder: &Path, layers: &[Vec<u8>], config: &Value) {
    let blob = |bytes: &[u8]| {
        let digest = digest(bytes);
        let path = folder.join("blobs/sha256").join(digest.strip_prefix("sha256:").unwrap());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
        json!({ "digest": digest, "size": bytes.len() })
    };
    let architecture = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    let diff_ids: Vec<_> = layers.iter().map(|layer| digest(layer)).collect();
    let config = json!({
        "os": "linux", "architecture": architecture, "config": config,
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
    });
    let config = blob(config.to_string().as_bytes());
    let layers: Vec<_> = layers.iter().map(|layer| blob(layer)).collect();
    let manifest = blob(json!({ "config": config, "layers": layers }).to_string().as_bytes());
    fs::write(folder.join("index.json"), json!({ "manifests": [manifest] }).to_string()).unwrap();
    fs::write(folder.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
}

async fn import(provider: &LocalProvider, name: &str, source: TemplateSource) -> Result<Template> {
    provider.import_template(&id(name), source, ImportOptions::new()).await
}

async fn boot(provider: &LocalProvider, name: &str) -> std::sync::Arc<dyn Sandbox> {
    provider.create(CreateOptions::new().with_template(id(name))).await.expect("a sandbox of the template")
}

async fn says(sandbox: &dyn Sandbox, program: &str, arguments: &[&str]) -> String {
    let command = Command::new(program).args(arguments);
    let output = sandbox.commands().run(&command).await.expect("a command");
    assert!(output.status.is_success(), "{program} {arguments:?}: {output:?}");
    output.stdout_lossy().into_owned()
}

async fn reads(sandbox: &dyn Sandbox, path: &str) -> std::result::Result<String, Error> {
    let bytes = sandbox.files().read(&GuestPath::new(path).unwrap()).await?;
    Ok(String::from_utf8(bytes.to_vec()).unwrap())
}

fn layers_left(bed: &Bed) -> Vec<String> {
    let names = fs::read_dir(bed.home().join("layers")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != "lock").collect()
}

#[tokio::test]
async fn the_built_in_one_is_listed_and_stays() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let templates = provider.require_templates().unwrap();
    assert!(!templates.get(&id("host")).await.unwrap().unwrap().in_use);
    assert_eq!(templates.list("ho").await.unwrap().len(), 1);
    assert!(templates.list("other").await.unwrap().is_empty());
    assert_eq!(templates.remove(&id("host")).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert!(templates.get(&id("other")).await.unwrap().is_none());
    assert!(!templates.remove(&id("other")).await.unwrap());
    let source = TemplateSource::Folder(bed.scratch().to_owned());
    assert_eq!(import(&provider, "host", source).await.unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[tokio::test]
async fn an_archive_boots_is_in_use_and_goes() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let root = bed.scratch().join("root");
    put_tool(&root);
    write(&root.join("etc/motd"), "hello");
    let tar = bed.scratch().join("root.tar");
    fs::write(&tar, pack(&root)).unwrap();
    let template = import(&provider, "team/tool:1", TemplateSource::File(tar.clone())).await.unwrap();
    assert!(template.size_bytes.unwrap() > 5 && !template.in_use);
    let sandbox = boot(&provider, "team/tool:1").await;
    assert!(says(&*sandbox, "/bin/tool", &["version"]).await.contains("sandbar"));
    assert_eq!(reads(&*sandbox, "/etc/motd").await.unwrap(), "hello");
    assert_eq!(sandbox.record().await.unwrap().template.as_deref(), Some("team/tool:1"));
    // It is the user's own home that commands begin in, as in every sandbox.
    sandbox.files().write(&GuestPath::new("/home/user/note").unwrap(), "mine".into()).await.unwrap();

    let templates = provider.require_templates().unwrap();
    assert!(templates.get(&id("team/tool:1")).await.unwrap().unwrap().in_use);
    let error = templates.remove(&id("team/tool:1")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    // The same again is the same layer, and replaces it under those who use it.
    import(&provider, "team/tool:1", TemplateSource::File(tar)).await.unwrap();
    assert_eq!(layers_left(&bed).len(), 1);
    // Another one in its place leaves the layer to whoever uses it.
    write(&root.join("etc/motd"), "replaced");
    import(&provider, "team/tool:1", TemplateSource::Folder(root)).await.unwrap();
    assert_eq!(layers_left(&bed).len(), 2);
    assert_eq!(reads(&*sandbox, "/etc/motd").await.unwrap(), "hello");
    let other = boot(&provider, "team/tool:1").await;
    assert_eq!(reads(&*other, "/etc/motd").await.unwrap(), "replaced");
    sandbox.destroy().await.unwrap();
    other.destroy().await.unwrap();
    assert!(templates.remove(&id("team/tool:1")).await.unwrap());
    assert!(layers_left(&bed).is_empty(), "{:?}", layers_left(&bed));
    let error = provider.create(CreateOptions::new().with_template(id("team/tool:1"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    bed.assert_empty("at the end").await;
}

/// Layers: the second takes away what the first has, hides a folder, and has what an image says of itself.
fn image_layers(scratch: &Path) -> Vec<Vec<u8>> {
    let (low, high) = (scratch.join("low"), scratch.join("high"));
    put_shell(&low);
    write(&low.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\napp:x:33:33::/srv:/bin/sh\n");
    write(&low.join("etc/group"), "root:x:0:\napp:x:33:\n");
    write(&low.join("data/gone"), "low");
    write(&low.join("data/kept"), "low");
    write(&low.join("hidden/old"), "low");
    write(&high.join("data/.wh.gone"), "");
    write(&high.join("hidden/.wh..wh..opq"), "");
    write(&high.join("hidden/new"), "high");
    vec![pack(&low), pack(&high)]
}

async fn check_image(provider: &LocalProvider, name: &str) {
    let sandbox = boot(provider, name).await;
    assert_eq!(reads(&*sandbox, "/data/kept").await.unwrap(), "low");
    assert_eq!(reads(&*sandbox, "/hidden/new").await.unwrap(), "high");
    for gone in ["/data/gone", "/hidden/old"] {
        assert_eq!(reads(&*sandbox, gone).await.unwrap_err().kind(), ErrorKind::NotFound, "{gone}");
    }
    let passwd = reads(&*sandbox, "/etc/passwd").await.unwrap();
    assert!(passwd.contains("app:x:33:") && passwd.contains("user:x:1000:1000:"), "{passwd}");
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn an_image_boots_in_each_of_its_forms() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let layers = image_layers(bed.scratch());
    let config = json!({
        "Env": ["PATH=/bin", "COLOUR=red"], "WorkingDir": "/srv/here", "User": "app",
        "Entrypoint": ["/bin/tool"], "Cmd": ["version"],
    });
    let folder = bed.scratch().join("image");
    layout(&folder, &layers, &config);
    import(&provider, "oci", TemplateSource::Folder(folder.clone())).await.unwrap();
    check_image(&provider, "oci").await;
    // Two layers of the image, and one with the user and the working folder.
    assert_eq!(layers_left(&bed).len(), 3);

    let tar = bed.scratch().join("image.tar");
    fs::write(&tar, pack(&folder)).unwrap();
    import(&provider, "oci-archive", TemplateSource::File(tar)).await.unwrap();
    assert_eq!(layers_left(&bed).len(), 3);

    // As `docker save` has it.
    let saved = bed.scratch().join("saved");
    for (number, layer) in layers.iter().enumerate() {
        write(&saved.join(format!("{number}/VERSION")), "1.0");
        fs::write(saved.join(format!("{number}/layer.tar")), layer).unwrap();
    }
    let index: Value = serde_json::from_slice(&fs::read(folder.join("index.json")).unwrap()).unwrap();
    let blob = |digest: &Value| {
        let digits = digest.as_str().unwrap().strip_prefix("sha256:").unwrap().to_owned();
        fs::read(folder.join("blobs/sha256").join(digits)).unwrap()
    };
    let manifest: Value = serde_json::from_slice(&blob(&index["manifests"][0]["digest"])).unwrap();
    fs::write(saved.join("image.json"), blob(&manifest["config"]["digest"])).unwrap();
    let list =
        json!([{ "Config": "image.json", "RepoTags": ["a:1"], "Layers": ["0/layer.tar", "1/layer.tar"] }]);
    fs::write(saved.join("manifest.json"), list.to_string()).unwrap();
    let tar = bed.scratch().join("saved.tar");
    fs::write(&tar, pack(&saved)).unwrap();
    import(&provider, "saved", TemplateSource::File(tar.clone())).await.unwrap();
    check_image(&provider, "saved").await;
    let options = ImportOptions::new().with_reference("b:2");
    let error = provider.import_template(&id("b"), TemplateSource::File(tar), options).await.unwrap_err();
    assert!(error.message().contains("a:1"), "{error}");

    // What it says of itself holds for its sandboxes, and what they say themselves comes first.
    let sandbox = boot(&provider, "oci").await;
    let script = "echo $COLOUR; pwd; read name </proc/self/comm; echo $name";
    assert_eq!(says(&*sandbox, "sh", &["-c", script]).await, "red\n/srv/here\nsh\n");
    let user = says(&*sandbox, "sh", &["-c", "echo $USER $HOME"]).await;
    assert_eq!(user, if support::has_root_inside() { "app /srv\n" } else { "user /home/user\n" });
    sandbox.destroy().await.unwrap();
    let mut options = CreateOptions::new().with_template(id("oci"));
    options.env.insert("COLOUR", "blue").unwrap();
    let sandbox = provider.create(options).await.unwrap();
    assert_eq!(says(&*sandbox, "sh", &["-c", "echo $COLOUR"]).await, "blue\n");
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn commands_run_as_the_numbers_that_an_image_names() {
    let Some(bed) = Bed::new() else { return };
    if !support::has_root_inside() {
        println!("skipped: sandboxes of this user have a single user id");
        return;
    }
    let provider = bed.provider();
    let (root, bare) = (bed.scratch().join("low"), bed.scratch().join("bare"));
    put_shell(&root);
    put_shell(&bare);
    write(&root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\napp:x:33:33::/srv:/bin/sh\n");
    write(&root.join("etc/group"), "root:x:0:\napp:x:33:\n");
    let script = "while read key one rest; do case $key in Uid:|Gid:) echo $one;; esac; done \
                  </proc/self/status; cd; pwd";
    for (name, folder, user, expected) in [
        ("number", &root, "4242", "4242\n0\n/\n"),
        ("both", &root, "4242:4343", "4242\n4343\n/\n"),
        ("group", &root, "app:4343", "33\n4343\n/srv\n"),
        ("bare", &bare, "4242:4343", "4242\n4343\n/\n"),
    ] {
        fs::create_dir_all(root.join("srv")).unwrap();
        let image = bed.scratch().join(format!("image-{name}"));
        layout(&image, &[pack(folder)], &json!({ "Env": ["PATH=/bin"], "User": user }));
        import(&provider, name, TemplateSource::Folder(image)).await.unwrap();
        let sandbox = boot(&provider, name).await;
        assert_eq!(says(&*sandbox, "sh", &["-c", script]).await, expected, "{user}");
        sandbox.destroy().await.unwrap();
    }
}

/// A tar archive of one file; the folders that it lies in are not named.
fn lone_file(name: &str) -> Vec<u8> {
    let mut head = vec![0_u8; 512];
    let mut put = |at: usize, text: &[u8]| head[at..at + text.len()].copy_from_slice(text);
    put(0, name.as_bytes());
    put(100, b"0000644");
    put(108, b"0000000");
    put(116, b"0000000");
    put(124, b"00000000001");
    put(136, b"00000000000");
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
    head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    head.push(b'x');
    head.resize(512 * 4, 0);
    head
}

#[tokio::test]
async fn a_folder_that_a_layer_does_not_name_stays_as_it_is_below() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let (low, other) = (bed.scratch().join("low"), bed.scratch().join("other"));
    for (folder, mode) in [(&low, 0o777), (&other, 0o710)] {
        put_shell(folder);
        for name in ["work/inner", "gone/old"] {
            fs::create_dir_all(folder.join(name)).unwrap();
            fs::set_permissions(folder.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::set_permissions(folder.join("gone"), fs::Permissions::from_mode(mode)).unwrap();
        fs::set_permissions(folder.join("work"), fs::Permissions::from_mode(mode)).unwrap();
    }
    let high = bed.scratch().join("high");
    write(&high.join(".wh.gone"), "");
    let high = pack(&high);
    let added = ["work/inner/file", "gone/new", "fresh/er/file"].map(lone_file);
    for (name, folder, mode) in [("one", &low, 0o777), ("two", &other, 0o710)] {
        let layers: Vec<_> = [pack(folder), high.clone()].into_iter().chain(added.clone()).collect();
        let image = bed.scratch().join(name);
        layout(&image, &layers, &json!({ "Env": ["PATH=/bin"] }));
        import(&provider, name, TemplateSource::Folder(image)).await.unwrap();
        let sandbox = boot(&provider, name).await;
        let expected =
            [("work", mode), ("work/inner", mode), ("gone", 0o755), ("fresh", 0o755), ("fresh/er", 0o755)];
        for (place, mode) in expected {
            let path = GuestPath::new(format!("/{place}")).unwrap();
            let entry = sandbox.files().stat(&path).await.unwrap().unwrap();
            assert_eq!(entry.mode & 0o7777, mode, "{name}: {place}: {entry:?}");
        }
        sandbox.destroy().await.unwrap();
    }
    // What differs below differs in its reference.
    let reference = async |name: &str| {
        provider.require_templates().unwrap().get(&id(name)).await.unwrap().unwrap().reference
    };
    assert_ne!(reference("one").await, reference("two").await);
    // As the only layer, too.
    let tar = bed.scratch().join("lone.tar");
    fs::write(&tar, lone_file("opt/tool/file")).unwrap();
    import(&provider, "lone", TemplateSource::File(tar)).await.unwrap();
    let sandbox = boot(&provider, "lone").await;
    let entry = sandbox.files().stat(&GuestPath::new("/opt/tool").unwrap()).await.unwrap().unwrap();
    assert_eq!(entry.mode & 0o7777, 0o755, "{entry:?}");
    sandbox.destroy().await.unwrap();
}

/// The image's own command, where that is asked for.
#[tokio::test]
async fn the_command_of_an_image_is_the_main_command_if_that_is_asked_for() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let root = bed.scratch().join("low");
    put_shell(&root);
    let folder = bed.scratch().join("image");
    let config =
        json!({ "Entrypoint": ["/bin/sh", "-c"], "Cmd": ["echo up; read wait </dev/null; exec sleep 1000"] });
    layout(&folder, &[pack(&root)], &config);
    let source = || TemplateSource::Folder(folder.clone());
    import(&provider, "still", source()).await.unwrap();
    let sandbox = boot(&provider, "still").await;
    assert!(sandbox.record().await.unwrap().main.is_none());
    sandbox.destroy().await.unwrap();
    let options = ImportOptions::new().with_start(true);
    provider.import_template(&id("starts"), source(), options).await.unwrap();
    let sandbox = boot(&provider, "starts").await;
    assert!(sandbox.record().await.unwrap().main.is_some());
    sandbox.destroy().await.unwrap();
    let plain = bed.scratch().join("plain");
    layout(&plain, &[pack(&root)], &json!({}));
    let options = ImportOptions::new().with_start(true);
    let error =
        provider.import_template(&id("none"), TemplateSource::Folder(plain), options).await.unwrap_err();
    assert!(error.message().contains("no command"), "{error}");
}

#[tokio::test]
async fn an_image_of_many_layers_has_fewer_here() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let mut layers = image_layers(bed.scratch());
    for number in 0..45 {
        let folder = bed.scratch().join(format!("layer-{number}"));
        write(&folder.join("data/last"), &number.to_string());
        write(&folder.join(format!("data/{number}")), "here");
        layers.push(pack(&folder));
    }
    // The same layer twice, as empty ones often are.
    layers.push(layers[10].clone());
    let folder = bed.scratch().join("image");
    layout(&folder, &layers, &json!({ "Env": ["PATH=/bin"] }));
    import(&provider, "many", TemplateSource::Folder(folder)).await.unwrap();
    check_image(&provider, "many").await;
    let sandbox = boot(&provider, "many").await;
    assert_eq!(reads(&*sandbox, "/data/last").await.unwrap(), "8");
    assert_eq!(reads(&*sandbox, "/data/44").await.unwrap(), "here");
    sandbox.destroy().await.unwrap();
}

/// An overlay takes no notice of a mark on the root of a layer, so it has to be the lowest.
#[tokio::test]
async fn a_layer_that_hides_all_below_it_is_the_lowest() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let (low, high) = (bed.scratch().join("low"), bed.scratch().join("high"));
    write(&low.join("old/file"), "old");
    put_shell(&high);
    write(&high.join(".wh..wh..opq"), "");
    let image = bed.scratch().join("image");
    layout(&image, &[pack(&low), pack(&high)], &json!({ "Env": ["PATH=/bin"] }));
    // The second time its layers are there already.
    for name in ["one", "two"] {
        import(&provider, name, TemplateSource::Folder(image.clone())).await.unwrap();
        let sandbox = boot(&provider, name).await;
        assert_eq!(says(&*sandbox, "sh", &["-c", "echo here"]).await, "here\n");
        assert_eq!(reads(&*sandbox, "/old/file").await.unwrap_err().kind(), ErrorKind::NotFound);
        sandbox.destroy().await.unwrap();
    }
}

#[tokio::test]
async fn what_no_sandbox_could_start_with_is_refused() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let root = bed.scratch().join("low");
    put_shell(&root);
    write(&root.join("app/file"), "");
    let strange = bed.scratch().join("strange");
    put_shell(&strange);
    std::os::unix::fs::symlink("/elsewhere", strange.join("proc")).unwrap();
    let long = "x".repeat(3_000_000);
    let many: Vec<_> = (0..25).map(|number| format!("V{number}={}", "x".repeat(100_000))).collect();
    for (number, (folder, config, word)) in [
        (&root, json!({ "Env": [format!("A={long}")] }), "environment takes"),
        (&root, json!({ "Env": many }), "environment takes"),
        (&root, json!({ "Env": [format!("A={}", "x".repeat(131_072))] }), "`A` is longer"),
        (&root, json!({ "WorkingDir": "/app/file/below" }), "is no working folder"),
        (&strange, json!({}), "`/proc` is no folder"),
    ]
    .into_iter()
    .enumerate()
    {
        let image = bed.scratch().join(format!("image-{number}"));
        layout(&image, &[pack(folder)], &config);
        let error = import(&provider, "bad", TemplateSource::Folder(image)).await.expect_err(word);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.message().contains(word) && error.message().len() < 1000, "{word}: {error}");
    }
    // Variables of the template and of the caller, which would be too many together.
    let image = bed.scratch().join("image");
    let half: Vec<_> = (0..6).map(|number| format!("V{number}={}", "x".repeat(100_000))).collect();
    layout(&image, &[pack(&root)], &json!({ "Env": half }));
    import(&provider, "half", TemplateSource::Folder(image)).await.unwrap();
    let mut options = CreateOptions::new().with_template(id("half"));
    for number in 0..6 {
        options.env.insert(format!("W{number}"), "x".repeat(100_000)).unwrap();
    }
    let error = provider.create(options).await.unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidInput && error.message().contains("variables take"), "{error}");
    provider.require_templates().unwrap().remove(&id("half")).await.unwrap();
    // A copy that would hold itself.
    let holder = bed.home().parent().unwrap().to_owned();
    for folder in [holder, bed.home(), bed.home().join("layers")] {
        let error = import(&provider, "bad", TemplateSource::Folder(folder.clone())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{}: {error}", folder.display());
        assert!(error.message().contains("holds the data folder"), "{}: {error}", folder.display());
    }
    assert!(provider.require_templates().unwrap().get(&id("bad")).await.unwrap().is_none());
    assert!(layers_left(&bed).is_empty(), "{:?}", layers_left(&bed));
}

#[tokio::test]
async fn what_is_damaged_or_strange_is_refused_and_leaves_nothing() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let layers = image_layers(bed.scratch());
    let folder = bed.scratch().join("image");
    layout(&folder, &layers, &json!({}));
    let path = folder.join("blobs/sha256").join(digest(&layers[1]).strip_prefix("sha256:").unwrap());
    let mut changed = layers[1].clone();
    // In the padding of a header: it is a good archive, and another one.
    changed[505] = b'x';
    let sum: u32 =
        (0..512).map(|at| if (148..156).contains(&at) { 32 } else { u32::from(changed[at]) }).sum();
    changed[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    fs::write(&path, &changed).unwrap();
    let error = import(&provider, "bad", TemplateSource::Folder(folder.clone())).await.unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidInput && error.message().contains("layer 2"), "{error}");
    let config = json!({ "User": "stranger" });
    let other = bed.scratch().join("other");
    layout(&other, &layers, &config);
    let error = import(&provider, "bad", TemplateSource::Folder(other)).await.unwrap_err();
    assert!(error.message().contains("stranger"), "{error}");
    let file = bed.scratch().join("text");
    fs::write(&file, "this is no archive at all").unwrap();
    let error = import(&provider, "bad", TemplateSource::File(file)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    let empty = bed.scratch().join("empty.tar");
    fs::write(&empty, [0; 1024]).unwrap();
    let error = import(&provider, "bad", TemplateSource::File(empty)).await.unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidInput && error.message().contains("nothing"), "{error}");
    // Nothing is accepted that means nothing.
    let root = bed.scratch().join("low");
    let tar = bed.scratch().join("low.tar");
    fs::write(&tar, pack(&root)).unwrap();
    let good = bed.scratch().join("good");
    layout(&good, &layers, &json!({}));
    let (named, owned) =
        (ImportOptions::new().with_reference("app:1"), ImportOptions::new().with_owners(FolderOwners::Root));
    for (source, options) in [
        (TemplateSource::Folder(root), named.clone()),
        (TemplateSource::File(tar.clone()), named),
        (TemplateSource::File(tar), owned.clone()),
        (TemplateSource::Folder(good), owned),
    ] {
        let error = provider.import_template(&id("bad"), source, options).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    let missing = TemplateSource::File(bed.scratch().join("missing"));
    import(&provider, "bad", missing).await.unwrap_err();
    assert!(provider.require_templates().unwrap().get(&id("bad")).await.unwrap().is_none());
    assert!(layers_left(&bed).is_empty(), "{:?}", layers_left(&bed));
}

#[tokio::test]
async fn nothing_goes_that_a_sandbox_boots_from_whoever_is_first() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let root = bed.scratch().join("root");
    write(&root.join("etc/motd"), "hello");
    let rounds = if std::env::var_os("SANDBAR_SOAK").is_some() { 50 } else { 6 };
    for round in 0..rounds {
        let name = format!("race-{round}");
        import(&provider, &name, TemplateSource::Folder(root.clone())).await.unwrap();
        let create = || async {
            match provider.create(CreateOptions::new().with_template(id(&name))).await {
                Ok(sandbox) => {
                    assert_eq!(reads(&*sandbox, "/etc/motd").await.unwrap(), "hello");
                    Some(sandbox)
                }
                Err(error) => {
                    let kind = error.kind();
                    assert!(matches!(kind, ErrorKind::NotFound | ErrorKind::Conflict), "{error}");
                    None
                }
            }
        };
        let remove = || async { provider.require_templates().unwrap().remove(&id(&name)).await };
        let (one, first, two, second) = futures::join!(create(), remove(), create(), remove());
        let made: Vec<_> = [one, two].into_iter().flatten().collect();
        let is_there = provider.require_templates().unwrap().get(&id(&name)).await.unwrap().is_some();
        // Who has a sandbox of it has a template that stays.
        assert_eq!(is_there, !made.is_empty(), "{first:?} {second:?}");
        for sandbox in made {
            sandbox.destroy().await.unwrap();
        }
        let gone = provider.require_templates().unwrap().remove(&id(&name)).await.unwrap();
        assert_eq!(gone, is_there);
    }
    assert!(layers_left(&bed).is_empty(), "{:?}", layers_left(&bed));
}

#[tokio::test]
async fn the_owners_of_a_folder_are_as_asked() {
    let Some(bed) = Bed::new() else { return };
    if !support::has_root_inside() {
        println!("skipped: sandboxes of this user have a single user id");
        return;
    }
    let provider = bed.provider();
    let root = bed.scratch().join("root");
    write(&root.join("srv/file"), "text");
    for (owners, expected) in [(FolderOwners::Root, "root"), (FolderOwners::User, "user")] {
        let name = format!("of-{expected}");
        let options = ImportOptions::new().with_owners(owners);
        let source = TemplateSource::Folder(root.clone());
        provider.import_template(&id(&name), source, options).await.unwrap();
        let sandbox = boot(&provider, &name).await;
        let entry = sandbox.files().stat(&GuestPath::new("/srv/file").unwrap()).await.unwrap();
        assert_eq!(entry.unwrap().owner.as_str(), expected);
        sandbox.destroy().await.unwrap();
    }
}
