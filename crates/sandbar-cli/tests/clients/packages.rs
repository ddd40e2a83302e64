use std::path::Path;
use std::process::Command;

use sandbar_rig::{Rig, inside};
use serde_json::json;

use crate::inside::{Inside, has};

/// Makes a wheel that holds one module, and the page that leads to it.
const INDEX: &str = r#"
import os, sys, zipfile
site = sys.argv[1]
wheel = "demo-1.0-py3-none-any.whl"
for folder in ("packages", "simple/demo"):
    os.makedirs(f"{site}/{folder}")
with zipfile.ZipFile(f"{site}/packages/{wheel}", "w") as archive:
    archive.writestr("demo.py", "WORD = 'from the index'\n")
    archive.writestr("demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
    archive.writestr("demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    archive.writestr("demo-1.0.dist-info/RECORD", "demo.py,,\ndemo-1.0.dist-info/METADATA,,\ndemo-1.0.dist-info/WHEEL,,\ndemo-1.0.dist-info/RECORD,,\n")
with open(f"{site}/simple/demo/index.html", "w") as page:
    page.write(f'<!DOCTYPE html><html><body><a href="/packages/{wheel}">{wheel}</a></body></html>')
"#;

fn host(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().expect("the program is here");
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn pip_install() {
    inside("packages::pip_install", || {
        if !has("/usr/bin/python3") || !has("/usr/lib/python3/dist-packages/pip") {
            return;
        }
        let rig = Rig::connect();
        let ((name, _), (denied, _)) = (rig.host("pip"), rig.host("denied"));
        let site = tempfile::tempdir().expect("a folder");
        let root = site.path().join("site");
        host("/usr/bin/python3", &["-c", INDEX, root.to_str().expect("text")]);
        rig.serve_folder(&name, &root);
        let sandbox = Inside::allowed(rig, &[&name]);
        let index = |host: &str| format!("https://{host}/simple/");
        let pip = ["/usr/bin/python3", "-m", "pip", "install", "--no-cache-dir", "--target", "/tmp/got"];
        let pip = [&pip[..], &["--timeout", "1", "--retries", "1", "demo", "--index-url"]].concat();
        sandbox.fails(&[&pip[..], &[&index(&denied)]].concat(), 1, "Name or service not known");
        sandbox.is_denied(&denied);
        sandbox.works(&[&pip[..], &[&index(&name)]].concat());
        let script = "import sys; sys.path.insert(0, '/tmp/got'); import demo; print(demo.WORD)";
        assert_eq!(sandbox.works(&["/usr/bin/python3", "-c", script]), "from the index\n");
    });
}

/// A package as a registry has it: what describes it, and an archive.
fn registry(site: &Path, name: &str) {
    let content = site.join("content/package");
    let folder = site.join("site/demo/-");
    for folder in [&content, &folder] {
        std::fs::create_dir_all(folder).expect("a folder");
    }
    let about = json!({ "name": "demo", "version": "1.0.0", "main": "index.js" });
    std::fs::write(content.join("package.json"), about.to_string()).expect("a file");
    std::fs::write(content.join("index.js"), "module.exports = 'from the registry';\n").expect("a file");
    let archive = folder.join("demo-1.0.0.tgz");
    let (archive, from) = (archive.to_str().expect("text"), site.join("content"));
    host("tar", &["-czf", archive, "-C", from.to_str().expect("text"), "package"]);
    let tarball = format!("https://{name}/demo/-/demo-1.0.0.tgz");
    let version = json!({ "name": "demo", "version": "1.0.0", "dist": { "tarball": tarball } });
    let packument =
        json!({ "name": "demo", "dist-tags": { "latest": "1.0.0" }, "versions": { "1.0.0": version } });
    std::fs::write(site.join("site/demo/index.json"), packument.to_string()).expect("a file");
}

#[test]
fn npm_install() {
    inside("packages::npm_install", || {
        if !has("/usr/bin/npm") || !has("/usr/bin/node") {
            return;
        }
        let rig = Rig::connect();
        let ((name, _), (denied, _)) = (rig.host("npm"), rig.host("denied"));
        let site = tempfile::tempdir().expect("a folder");
        registry(site.path(), &name);
        rig.serve_folder(&name, &site.path().join("site"));
        let sandbox = Inside::allowed(rig, &[&name]);
        let npm = ["npm", "install", "--no-audit", "--no-fund", "--prefix", "/tmp/got", "--fetch-retries=0"];
        let npm = [&npm[..], &["--fetch-timeout=1000", "demo", "--registry"]].concat();
        sandbox.fails(&[&npm[..], &[&format!("https://{denied}/")]].concat(), 1, "ENOTFOUND");
        sandbox.is_denied(&denied);
        let npm = npm.iter().copied().filter(|word| !word.starts_with("--fetch-timeout"));
        let url = format!("https://{name}/");
        sandbox.works(&npm.chain([url.as_str()]).collect::<Vec<_>>());
        let script = "console.log(require('/tmp/got/node_modules/demo'))";
        assert_eq!(sandbox.works(&["node", "-e", script]), "from the registry\n");
    });
}
