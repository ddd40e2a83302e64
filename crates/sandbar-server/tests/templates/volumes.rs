use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::common::{Reply, Rig};
use crate::support::has_root;

struct Volume<'a> {
    rig: &'a Rig,
    id: String,
    token: String,
}

impl<'a> Volume<'a> {
    async fn new(rig: &'a Rig, name: &str) -> Self {
        let reply = rig.post("/volumes", json!({ "name": name })).await;
        assert_eq!(reply.status, StatusCode::CREATED, "{}", reply.text());
        let answer = reply.json();
        let text = |name: &str| answer[name].as_str().unwrap().to_owned();
        Self { rig, id: text("volumeID"), token: text("token") }
    }

    async fn ask(&self, method: Method, rest: &str, body: &str) -> Reply {
        let token = format!("Bearer {}", self.token);
        let headers = [("authorization", token.as_str()), ("content-type", "application/json")];
        self.rig.ask(method, &format!("/volumecontent/{}/{rest}", self.id), &headers, body.to_owned()).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_content_of_a_volume_is_served_and_sandboxes_see_it() {
    let rig = Rig::local().await;
    let volume = Volume::new(&rig, "data").await;
    assert_eq!(rig.post("/volumes", json!({ "name": "data" })).await.status, StatusCode::CONFLICT);
    assert_eq!(rig.post("/volumes", json!({ "name": "a/b" })).await.status, StatusCode::BAD_REQUEST);

    let written = volume.ask(Method::PUT, "file?path=/new/folder/file.txt", "hello").await;
    assert_eq!(written.status, StatusCode::CREATED, "{}", written.text());
    let entry = written.json();
    assert_eq!(
        (&entry["type"], &entry["size"], &entry["name"]),
        (&json!("file"), &json!(5), &json!("file.txt"))
    );
    assert_eq!(
        volume.ask(Method::PUT, "file?path=new/folder/file.txt&mode=384", "hello you").await.json()["mode"],
        json!(384)
    );
    let kept = volume.ask(Method::PUT, "file?path=new/folder/file.txt&force=false", "x").await;
    assert_eq!(kept.status, StatusCode::CONFLICT, "{}", kept.text());
    let read = volume.ask(Method::GET, "file?path=new/folder/file.txt", "").await;
    assert_eq!((read.status, read.text().as_str()), (StatusCode::OK, "hello you"));
    assert_eq!(read.headers["content-type"], "application/octet-stream");

    let made = volume.ask(Method::POST, "dir?path=/a/b/c", "").await;
    assert_eq!(made.status, StatusCode::NOT_FOUND, "{}", made.text());
    let made = volume.ask(Method::POST, "dir?path=/a/b/c&force=true&mode=448", "").await;
    assert_eq!((made.status, &made.json()["mode"]), (StatusCode::CREATED, &json!(448)));
    assert_eq!(volume.ask(Method::POST, "dir?path=/a/b/c", "").await.status, StatusCode::CONFLICT);
    let listed = volume.ask(Method::GET, "dir?path=/&depth=2", "").await.json();
    let paths: Vec<_> =
        listed.as_array().unwrap().iter().map(|entry| entry["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["/a", "/a/b", "/new", "/new/folder"]);
    let changed = volume.ask(Method::PATCH, "path?path=/a", "{\"mode\":493}").await;
    assert_eq!((changed.status, &changed.json()["mode"]), (StatusCode::OK, &json!(493)));
    if has_root() {
        let changed = volume.ask(Method::PATCH, "path?path=/a", "{\"uid\":0,\"gid\":0}").await;
        assert_eq!(changed.json()["uid"], json!(0), "{}", changed.text());
    }

    // What a sandbox writes is there, and links lead nowhere else.
    let mount = json!([{ "name": "data", "path": "/mnt/data" }]);
    let sandbox = rig.create(json!({ "templateID": "base", "volumeMounts": mount })).await;
    let links = "cat new/folder/file.txt; ln -s /etc out; ln -s /etc/passwd passwd; ln -s new inside; ln -s loop loop";
    assert_eq!(rig.said(&sandbox.id, &format!("cd /mnt/data; {links}")).await, "hello you");
    for (method, rest) in [
        (Method::GET, "file?path=passwd"),
        (Method::GET, "file?path=out/passwd"),
        (Method::GET, "dir?path=out"),
        (Method::GET, "path?path=out/passwd"),
        (Method::PUT, "file?path=out/new"),
        (Method::PUT, "file?path=passwd"),
        (Method::POST, "dir?path=out/new"),
        (Method::DELETE, "path?path=out/passwd"),
        (Method::GET, "path?path=../etc/passwd"),
        (Method::GET, "file?path=/a/../../etc/passwd"),
        (Method::DELETE, "path?path=/"),
        (Method::GET, "file?path=/a"),
    ] {
        let reply = volume.ask(method.clone(), rest, "x").await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{method} {rest}: {}", reply.text());
        assert_eq!(reply.json()["code"], json!("invalid_argument"));
    }
    let link = volume.ask(Method::GET, "path?path=out", "").await.json();
    assert_eq!((&link["type"], &link["target"]), (&json!("symlink"), &json!("/etc")));
    assert_eq!(volume.ask(Method::GET, "file?path=inside/folder/file.txt", "").await.text(), "hello you");

    // An owner that can't be given leaves nothing.
    for rest in ["file?path=owned&uid=4294967295", "file?path=owned&gid=4000000000"] {
        let refused = volume.ask(Method::PUT, rest, "x").await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{rest}: {}", refused.text());
        assert!(!refused.text().contains("chown"), "{}", refused.text());
        let left = volume.ask(Method::GET, "path?path=owned", "").await;
        assert_eq!(left.status, StatusCode::NOT_FOUND, "{rest}");
    }

    let held = rig.delete(&format!("/volumes/{}", volume.id)).await;
    assert_eq!(held.status, StatusCode::CONFLICT, "{}", held.text());
    assert!(held.text().contains("volume 'data' is attached"), "{}", held.text());
    assert_eq!(rig.delete(&format!("/sandboxes/{}", sandbox.id)).await.status, StatusCode::NO_CONTENT);
    assert_eq!(volume.ask(Method::DELETE, "path?path=new", "").await.status, StatusCode::NO_CONTENT);
    assert_eq!(volume.ask(Method::DELETE, "path?path=new", "").await.status, StatusCode::NOT_FOUND);
    assert_eq!(rig.get("/v2/sandboxes").await.json(), json!([]), "what serves a volume is nobody's sandbox");
    let gone = rig.delete(&format!("/volumes/{}", volume.id)).await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT, "{}", gone.text());
    assert_eq!(rig.delete(&format!("/volumes/{}", volume.id)).await.status, StatusCode::NOT_FOUND);
    assert_eq!(volume.ask(Method::GET, "path?path=/", "").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_are_of_their_tenant_and_content_of_who_has_the_token() {
    let mut rig = Rig::local().await;
    let other = rig.other_key().await;
    let volume = Volume::new(&rig, "mine").await;
    let second = Volume::new(&rig, "second").await;
    let (id, token) = (volume.id.clone(), volume.token.clone());
    let target = format!("/volumes/{id}");
    let got = rig.get(&target).await.json();
    assert_eq!(got["token"], json!(token));
    let as_other = async |method: Method, target: &str, body: &str| {
        rig.ask(method, target, &[("x-api-key", other.as_str())], body.to_owned()).await
    };
    let unknown = as_other(Method::GET, "/volumes/unknown", "").await;
    for method in [Method::GET, Method::DELETE] {
        let foreign = as_other(method, &target, "").await;
        assert_eq!((foreign.status, foreign.text()), (StatusCode::NOT_FOUND, unknown.text()));
    }
    assert_eq!(as_other(Method::GET, "/volumes", "").await.json(), json!([]));
    // The same name is another volume.
    let body = json!({ "name": "mine" }).to_string();
    assert_eq!(as_other(Method::POST, "/volumes", &body).await.status, StatusCode::CREATED);
    let body =
        json!({ "templateID": "base", "volumeMounts": [{ "name": "second", "path": "/mnt/x" }] }).to_string();
    assert_eq!(as_other(Method::POST, "/v2/sandboxes", &body).await.status, StatusCode::NOT_FOUND);

    let content = format!("/volumecontent/{id}/path?path=/");
    let mut answers = Vec::new();
    for bearer in
        [String::new(), format!("Bearer {}", second.token), format!("Bearer {token}x"), token.clone()]
    {
        let reply = rig.ask(Method::GET, &content, &[("authorization", bearer.as_str())], "").await;
        assert_eq!(
            (reply.status, &reply.json()["code"]),
            (StatusCode::UNAUTHORIZED, &json!("unauthenticated"))
        );
        answers.push(reply.text());
    }
    let of_unknown = rig.ask(Method::GET, "/volumecontent/unknown/path?path=/", &[], "").await;
    assert_eq!((of_unknown.status, of_unknown.text()), (StatusCode::UNAUTHORIZED, answers[0].clone()));
    assert_eq!(volume.ask(Method::GET, "path?path=/", "").await.status, StatusCode::OK);
    let many: Vec<_> = (0..8).map(|n| format!("path?path=/missing{n}")).collect();
    let asked = many.iter().map(|rest| volume.ask(Method::GET, rest, ""));
    for reply in futures::future::join_all(asked).await {
        assert_eq!(reply.status, StatusCode::NOT_FOUND, "{}", reply.text());
    }
    drop((volume, second));
    // What serves a volume ends with the server.
    rig.stop().await;
    rig.has_no_sandbox().await;
    let memory = Rig::memory().await;
    let reply = memory.ask(Method::GET, "/volumecontent/x/path", &[], "").await;
    assert_eq!(reply.status, StatusCode::UNAUTHORIZED);
    assert!(matches!(memory.get("/volumes").await.json(), Value::Array(_)));
}
