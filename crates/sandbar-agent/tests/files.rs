//! Downloads and uploads.

mod support;

use std::io::Write;
use std::os::unix::fs::MetadataExt;

use sandbar_agent::config::Token;
use sandbar_wire::envd::{Operation, sign};
use serde_json::json;
use support::{Agent, Answer, is_root, run, user_ids};

const OCTETS: (&str, &str) = ("content-type", "application/octet-stream");

async fn put(agent: &Agent, path: &str, headers: &[(&str, &str)], body: impl Into<bytes::Bytes>) -> Answer {
    let headers = [&[OCTETS], headers].concat();
    agent.call("POST", &format!("/files?path={path}"), &headers, body).await
}

#[test]
fn a_file_goes_up_and_comes_down() {
    let agent = Agent::start();
    run(async {
        let content: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
        let answer = put(&agent, "a/b/c.bin", &[], content.clone()).await;
        let path = agent.home_path("a/b/c.bin");
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        assert_eq!(answer.json(), json!([{"path": path, "name": "c.bin", "type": "file"}]));
        assert_eq!(answer.headers["content-type"], "application/json");
        for made in ["a", "a/b", "a/b/c.bin"] {
            let meta = std::fs::metadata(agent.home_path(made)).unwrap();
            assert_eq!((meta.uid(), meta.gid()), user_ids(), "{made}");
        }
        let answer = agent.get("/files?path=a/b/c.bin").await;
        assert_eq!(answer.bytes(), content);
        assert_eq!(answer.headers["content-length"], "3000000");
        assert_eq!(answer.headers["content-disposition"], "inline; filename=\"c.bin\"");
        assert_eq!(answer.headers["vary"], "Accept-Encoding");
        let head = agent.call("HEAD", "/files?path=a/b/c.bin", &[], "").await;
        assert_eq!((head.status, head.bytes().len()), (200, 0));
        assert_eq!(head.headers["content-length"], "3000000");
    });
}

#[test]
fn an_existing_file_stays_the_same_file() {
    let agent = Agent::start();
    run(async {
        let path = agent.home_path("f");
        std::fs::write(&path, "long old content").unwrap();
        std::fs::hard_link(&path, agent.home_path("link")).unwrap();
        assert_eq!(put(&agent, "f", &[], "new").await.status, 200);
        assert_eq!(std::fs::read(agent.home_path("link")).unwrap(), b"new");
    });
}

#[test]
fn empty_files_are_files() {
    let agent = Agent::start();
    run(async {
        assert_eq!(put(&agent, "empty", &[], "").await.status, 200);
        let answer = agent.get("/files?path=empty").await;
        assert_eq!((answer.status, answer.bytes().len()), (200, 0));
        assert_eq!(answer.headers["content-length"], "0");
    });
}

#[test]
fn what_is_not_a_file_is_refused() {
    let agent = Agent::start();
    run(async {
        let missing = agent.get("/files?path=none").await;
        let path = agent.home_path("none");
        let text = format!("path '{}' does not exist", path.display());
        assert_eq!((missing.status, missing.json()), (404, json!({"code": 404, "message": text})));
        let folder = agent.get("/files?path=~").await;
        let text = format!("path '{}' is a directory", agent.home().display());
        assert_eq!((folder.status, folder.json()), (400, json!({"code": 400, "message": text})));
        assert_eq!(put(&agent, "~", &[], "x").await.status, 400);
        for special in ["/dev/null", "/dev/zero"] {
            assert_eq!(agent.get(&format!("/files?path={special}")).await.status, 400, "{special}");
        }
        let fifo = agent.home_path("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o666.into(), 0).unwrap();
        assert_eq!(agent.get("/files?path=fifo").await.status, 400, "does not wait for a writer");
        assert!(put(&agent, "fifo", &[], "x").await.status >= 400);
        assert_eq!(agent.get("/files").await.status, 400);
        assert_eq!(agent.get("/files?path=x&username=nobody-here").await.status, 401);
        let answer = agent.call("POST", "/files?path=x", &[("content-type", "text/plain")], "x").await;
        assert_eq!(answer.status, 400);
    });
}

#[test]
fn procfs_files_are_read_to_their_end() {
    let agent = Agent::start();
    run(async {
        for path in ["/proc/version", "/proc/cpuinfo", "/proc/kallsyms"] {
            let expected = std::fs::read(path).unwrap();
            let plain = agent
                .call("GET", &format!("/files?path={path}"), &[("accept-encoding", "identity")], "")
                .await;
            assert_eq!(plain.status, 200);
            assert!(!expected.is_empty() && plain.bytes().len().abs_diff(expected.len()) < 4096, "{path}");
        }
    });
}

#[test]
fn ranges_and_conditions() {
    let agent = Agent::start();
    run(async {
        std::fs::write(agent.home_path("f"), "0123456789").unwrap();
        let get = async |headers: &[(&str, &str)]| agent.call("GET", "/files?path=f", headers, "").await;
        let part = get(&[("range", "bytes=2-4"), ("accept-encoding", "gzip")]).await;
        assert_eq!((part.status, part.text()), (206, "234"));
        assert_eq!(part.headers["content-range"], "bytes 2-4/10");
        assert!(!part.headers.contains_key("content-encoding"));
        assert_eq!(get(&[("range", "bytes=-3")]).await.text(), "789");
        let beyond = get(&[("range", "bytes=10-")]).await;
        assert_eq!((beyond.status, &beyond.headers["content-range"]), (416, &"bytes */10".parse().unwrap()));
        let whole = get(&[]).await;
        let tag = whole.headers["etag"].to_str().unwrap();
        assert_eq!(get(&[("if-none-match", tag)]).await.status, 304);
        assert_eq!(get(&[("if-match", "\"other\"")]).await.status, 412);
        let since = whole.headers["last-modified"].to_str().unwrap();
        assert_eq!(get(&[("if-modified-since", since)]).await.status, 304);
    });
}

#[test]
fn gzip_both_ways() {
    let agent = Agent::start();
    run(async {
        let content = "compressible ".repeat(200_000).into_bytes();
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&content).unwrap();
        let packed = encoder.finish().unwrap();
        assert_eq!(put(&agent, "f", &[("content-encoding", "gzip")], packed.clone()).await.status, 200);
        assert_eq!(std::fs::read(agent.home_path("f")).unwrap(), content);
        let answer = agent.call("GET", "/files?path=f", &[("accept-encoding", "gzip, deflate")], "").await;
        assert_eq!(answer.headers["content-encoding"], "gzip");
        assert!(answer.bytes().len() < content.len() / 10);
        let mut decoder = flate2::write::GzDecoder::new(Vec::new());
        decoder.write_all(answer.bytes()).unwrap();
        assert_eq!(decoder.finish().unwrap(), content);
        let none = agent.call("GET", "/files?path=f", &[("accept-encoding", "identity;q=0, br")], "").await;
        assert_eq!(none.status, 406);
        for damaged in [&packed[..packed.len() / 2], b"not gzip"] {
            let answer = put(&agent, "half", &[("content-encoding", "gzip")], damaged.to_vec()).await;
            assert_eq!(answer.status, 400);
            assert!(!agent.home_path("half").exists(), "no half of a new file is left");
        }
    });
}

fn form(parts: &[(&str, &str)]) -> String {
    let part = |(name, content): &(&str, &str)| {
        let head = format!("Content-Disposition: form-data; name=\"file\"; filename=\"{name}\"");
        format!("--b\r\n{head}\r\nContent-Type: text/plain\r\n\r\n{content}\r\n")
    };
    let body: String = parts.iter().map(part).collect::<Vec<_>>().concat();
    body + "--b\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nignored\r\n--b--\r\n"
}

#[test]
fn forms_keep_whole_names() {
    let agent = Agent::start();
    let kind = [("content-type", "multipart/form-data; boundary=b")];
    run(async {
        let body = form(&[("a.txt", "A"), ("b/c d.txt", "B\r\n--"), ("é.txt", "")]);
        let answer = agent.call("POST", "/files", &kind, body).await;
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        assert_eq!(answer.json().as_array().unwrap().len(), 3);
        assert_eq!(std::fs::read(agent.home_path("b/c d.txt")).unwrap(), b"B\r\n--");
        assert_eq!(std::fs::read(agent.home_path("é.txt")).unwrap(), b"");
        let answer = agent.call("POST", "/files?path=given", &kind, form(&[("a.txt", "given")])).await;
        assert_eq!(answer.json()[0]["path"], json!(agent.home_path("given")));
        let twice = form(&[("x", "1"), ("./x", "2")]);
        assert_eq!(agent.call("POST", "/files", &kind, twice).await.status, 400);
        let cut = form(&[("cut", "1")]).replace("--b--", "");
        assert_eq!(agent.call("POST", "/files", &kind, cut).await.status, 400);
    });
}

#[test]
fn an_upload_that_breaks_off_leaves_nothing_new() {
    use tokio::io::Interest;
    let agent = Agent::start();
    run(async {
        let stream = tokio::net::UnixStream::connect(agent.socket()).await.unwrap();
        stream.ready(Interest::WRITABLE).await.unwrap();
        let head = "POST /files?path=broken HTTP/1.1\r\nhost: x\r\ncontent-type: application/octet-stream\r\n\
                    content-length: 9000000\r\n\r\n";
        let mut sent = head.as_bytes().to_vec();
        sent.resize(sent.len() + 3_000_000, b'x');
        let mut rest = sent.as_slice();
        while !rest.is_empty() {
            stream.writable().await.unwrap();
            if let Ok(count) = stream.try_write(rest) {
                rest = &rest[count..];
            }
        }
        let file = agent.home_path("broken");
        support::eventually_async("it has begun", || file.exists()).await;
        drop(stream);
        support::eventually_async("it is gone", || !file.exists()).await;
    });
}

#[test]
fn metadata_is_stored_and_replaced() {
    let agent = Agent::start();
    run(async {
        let answer = put(&agent, "m", &[("x-metadata-Author", "me"), ("x-metadata-b", "2")], "x").await;
        if answer.status == 500 {
            eprintln!("skipped: the file system of the temporary folder has no user attributes");
            return;
        }
        assert_eq!(answer.json()[0]["metadata"], json!({"author": "me", "b": "2"}));
        let entry: serde_json::Value = agent.files("Stat", &json!({"path": "m"})).await.unwrap();
        assert_eq!(entry["entry"]["metadata"], json!({"author": "me", "b": "2"}));
        let answer = put(&agent, "m", &[("x-metadata-c", "3")], "x").await;
        assert_eq!(answer.json()[0]["metadata"], json!({"c": "3"}));
        assert_eq!(put(&agent, "m", &[("x-metadata-c", &"x".repeat(4096))], "x").await.status, 400);
    });
}

#[test]
fn parts_are_composed_in_one_step() {
    let agent = Agent::start();
    run(async {
        for (name, content) in [("p1", "one "), ("p2", "two")] {
            put(&agent, name, &[], content).await;
        }
        let request = json!({"source_paths": ["p1", "p2"], "destination": "sub/whole"}).to_string();
        let answer = agent.call("POST", "/files/compose", &[], request.clone()).await;
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        assert_eq!(answer.json()["path"], json!(agent.home_path("sub/whole")));
        assert_eq!(std::fs::read(agent.home_path("sub/whole")).unwrap(), b"one two");
        assert!(!agent.home_path("p1").exists() && !agent.home_path("p2").exists());
        assert_eq!(std::fs::metadata(agent.home_path("sub/whole")).unwrap().uid(), user_ids().0);
        let again = agent.call("POST", "/files/compose", &[], request).await;
        assert_eq!(again.status, 404);
        assert_eq!(std::fs::read(agent.home_path("sub/whole")).unwrap(), b"one two");
        assert_eq!(
            std::fs::read_dir(agent.home_path("sub")).unwrap().count(),
            1,
            "nothing temporary is left"
        );
    });
}

#[test]
fn a_full_disk_is_said_to_be_one() {
    if !is_root() {
        eprintln!("skipped: mounting a small file system needs root");
        return;
    }
    let agent = Agent::start();
    let small = agent.home_path("small");
    std::fs::create_dir(&small).unwrap();
    let options = Some(c"size=256k");
    rustix::mount::mount("none", &small, "tmpfs", rustix::mount::MountFlags::NODEV, options).unwrap();
    let status = run(async { put(&agent, "small/f", &[], vec![7; 1_000_000]).await.status });
    let left = small.join("f").exists();
    rustix::mount::unmount(&small, rustix::mount::UnmountFlags::DETACH).unwrap();
    assert_eq!((status, left), (507, false));
}

#[test]
fn signed_urls_replace_the_token() {
    let agent = Agent::with(|config| config.access_token = Some(Token("secret".into())));
    std::fs::write(agent.home_path("f"), "content").unwrap();
    run(async {
        let get = async |query: &str| agent.get(&format!("/files?path=f&username=user{query}")).await;
        let message =
            |answer: &Answer| (answer.status, answer.json()["message"].as_str().unwrap().to_owned());
        assert_eq!(message(&get("").await), (401, "missing signature query parameter".into()));
        assert_eq!(message(&get("&signature=v1_x").await), (401, "invalid signature".into()));
        let signed = |operation, expiration: Option<i64>| {
            let signature = sign("f", operation, "user", "secret", expiration);
            let signature = signature.replace('+', "%2B").replace('/', "%2F");
            let expiration = expiration.map(|at| format!("&signature_expiration={at}")).unwrap_or_default();
            format!("&signature={signature}{expiration}")
        };
        assert_eq!(get(&signed(Operation::Read, None)).await.text(), "content");
        assert_eq!(get(&signed(Operation::Read, Some(4_000_000_000))).await.text(), "content");
        assert_eq!(get(&signed(Operation::Write, None)).await.status, 401);
        let expired = get(&signed(Operation::Read, Some(1))).await;
        assert_eq!(expired.json(), json!({"code": 401, "message": "signature is already expired"}));
        let with =
            async |token: &str| agent.call("GET", "/files?path=f", &[("x-access-token", token)], "").await;
        assert_eq!((with("secret").await.status, with("wrong").await.status), (200, 401));
        let put = format!("/files?path=f&username=user{}", signed(Operation::Write, None));
        assert_eq!(agent.call("POST", &put, &[OCTETS], "new").await.status, 200);
    });
}

#[test]
fn links_to_what_is_no_file_are_refused_and_nothing_waits() {
    let agent = Agent::start();
    run(async {
        let script = "ln -s /proc/self/oom_score_adj a; ln -s /proc/self/comm b; mkfifo c; ln -s d d; ln -s /dev/zero e";
        agent.run(script).await;
        for (name, get, post) in
            [("a", 200, 403), ("b", 200, 403), ("c", 400, 400), ("d", 400, 400), ("e", 400, 400)]
        {
            let uri = format!("/files?path={}", agent.home_path(name).display());
            assert_eq!(agent.get(&uri).await.status, get, "{name}");
            let kind = [("content-type", "application/octet-stream")];
            assert_eq!(agent.call("POST", &uri, &kind, "500").await.status, post, "{name}");
        }
    });
}
