//! Images from a registry, which is one of our own making on this machine.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use sandbar_core::{ErrorKind, ProviderExt};
use sandbar_local::{ImportOptions, PullOptions};

use super::{boot, check_image, id, image_layers, layers_left, layout, reads};
use crate::support::Bed;

/// Answers for a layout: the image `team/app:1`, its blobs by way of a redirection, and all that only to who has the token for the right login.
struct Registry {
    address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Registry {
    fn serve(folder: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let index: serde_json::Value =
            serde_json::from_slice(&std::fs::read(folder.join("index.json")).unwrap()).unwrap();
        let manifest = index["manifests"][0]["digest"].as_str().unwrap().to_owned();
        let answers = Answers {
            folder: folder.to_owned(),
            address: address.clone(),
            manifest,
            asked: Arc::clone(&asked),
        };
        // It ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let answers = answers.clone();
                std::thread::spawn(move || answers.talk(&stream));
            }
        });
        Self { address, asked }
    }

    fn asked(&self, part: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|path| path.contains(part)).count()
    }
}

#[derive(Clone)]
struct Answers {
    folder: std::path::PathBuf,
    address: String,
    manifest: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Answers {
    fn talk(&self, stream: &TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        loop {
            let mut first = String::new();
            if reader.read_line(&mut first).unwrap_or(0) == 0 {
                return;
            }
            let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
            let mut headers = BTreeMap::new();
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                let Some((name, value)) = line.trim_end().split_once(':') else { break };
                headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
            }
            let length = headers.get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            self.asked.lock().unwrap().push(path.clone());
            let (head, body) = self.answer(&path, headers.get("authorization").map(String::as_str));
            let length = body.len();
            let mut stream = stream;
            let _ = write!(stream, "HTTP/1.1 {head}\r\nContent-Length: {length}\r\n\r\n");
            let _ = stream.write_all(&body);
        }
    }

    fn answer(&self, path: &str, authorization: Option<&str>) -> (String, Vec<u8>) {
        let blob = |digits: &str| std::fs::read(self.folder.join("blobs/sha256").join(digits));
        if path.starts_with("/token") {
            // `me:s3cret`.
            let good = authorization == Some("Basic bWU6czNjcmV0");
            return if good {
                ("200 OK\r\nContent-Type: application/json".into(), br#"{"token":"t0ken"}"#.to_vec())
            } else {
                ("401 Unauthorized".into(), Vec::new())
            };
        }
        if let Some(digits) = path.strip_prefix("/elsewhere/") {
            let digits = digits.split('?').next().unwrap_or_default();
            return match blob(digits) {
                Ok(bytes) => ("200 OK".into(), bytes),
                Err(_) => ("404 Not Found".into(), Vec::new()),
            };
        }
        if authorization != Some("Bearer t0ken") {
            let realm = format!("http://{}/token", self.address);
            let head =
                format!("401 Unauthorized\r\nWWW-Authenticate: Bearer realm=\"{realm}\",service=\"here\"");
            return (head, Vec::new());
        }
        if let Some(digits) = path.strip_prefix("/v2/team/app/blobs/sha256:") {
            let place = format!("http://{}/elsewhere/{digits}?signature=s3cret", self.address);
            return (format!("307 Temporary Redirect\r\nLocation: {place}"), Vec::new());
        }
        let digits = self.manifest.strip_prefix("sha256:").unwrap();
        match path.strip_prefix("/v2/team/app/manifests/") {
            Some(name) if name == "1" || name == self.manifest => {
                let kind = "application/vnd.oci.image.manifest.v1+json";
                (
                    format!("200 OK\r\nContent-Type: {kind}\r\nDocker-Content-Digest: {}", self.manifest),
                    blob(digits).unwrap(),
                )
            }
            _ if path == "/v2/" => ("200 OK".into(), Vec::new()),
            _ => ("404 Not Found".into(), br#"{"errors":[{"code":"MANIFEST_UNKNOWN"}]}"#.to_vec()),
        }
    }
}

#[tokio::test]
async fn an_image_is_pulled_and_only_what_lacks_of_it() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let layers = image_layers(bed.scratch());
    let folder = bed.scratch().join("image");
    layout(&folder, &layers, &serde_json::json!({ "Env": ["PATH=/bin"] }));
    let registry = Registry::serve(&folder);
    let image = format!("{}/team/app:1", registry.address);
    let login = || PullOptions::new().with_login("me", "s3cret");
    let error = provider
        .pull_template(&id("pulled"), &image, PullOptions::new(), ImportOptions::new())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
    assert!(layers_left(&bed).is_empty(), "{:?}", layers_left(&bed));
    provider.pull_template(&id("pulled"), &image, login(), ImportOptions::new()).await.unwrap();
    check_image(&provider, "pulled").await;
    // The configuration and two layers; the second time the configuration alone.
    assert_eq!(registry.asked("/elsewhere/"), 3);
    provider.pull_template(&id("again"), &image, login(), ImportOptions::new()).await.unwrap();
    assert_eq!(registry.asked("/elsewhere/"), 4);
    let sandbox = boot(&provider, "again").await;
    assert_eq!(reads(&*sandbox, "/data/kept").await.unwrap(), "low");
    sandbox.destroy().await.unwrap();

    let absent = format!("{}/team/app:2", registry.address);
    let error = provider.pull_template(&id("x"), &absent, login(), ImportOptions::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let nobody = "127.0.0.1:1/team/app:1";
    let error = provider.pull_template(&id("x"), nobody, login(), ImportOptions::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(!error.to_string().contains("s3cret"), "{error}");
    let error = provider.pull_template(&id("x"), "UPPER//", login(), ImportOptions::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
}

#[tokio::test]
async fn what_a_registry_sends_in_place_of_a_layer_is_refused() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let layers = image_layers(bed.scratch());
    let folder = bed.scratch().join("image");
    layout(&folder, &layers, &serde_json::json!({}));
    for file in std::fs::read_dir(folder.join("blobs/sha256")).unwrap().flatten() {
        let mut bytes = std::fs::read(file.path()).unwrap();
        // The layers are the only large ones.
        if bytes.len() >= 512 * 4 && bytes[0] != b'{' {
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            std::fs::write(file.path(), bytes).unwrap();
        }
    }
    let registry = Registry::serve(&folder);
    let image = format!("{}/team/app:1", registry.address);
    let login = PullOptions::new().with_login("me", "s3cret");
    let error = provider.pull_template(&id("bad"), &image, login, ImportOptions::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(provider.require_templates().unwrap().get(&id("bad")).await.unwrap().is_none());
    assert!(layers_left(&bed).is_empty(), "{:?}", layers_left(&bed));
}
