//! Files in and out, also with agents of old, and with names and streams that are not what they should be.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Request, Response};
use sandbar_core::{
    Command, Commands, CreateOptions, Error, ErrorKind, Files, FilesExt, GuestPath, Processes, Result,
    RunOptions, SandboxId, SandboxProvider, Signal, SpawnOptions, StdinMode, WatchOptions, Watching,
    WriteOptions,
};
use sandbar_guest::{EnvdClient, EnvdVersion, Failure, RequestBody, ResponseBody, Reuse, Transport};

use crate::conformance::place;
use crate::plain::Plain;

/// An agent that says that it is older than it is.
#[derive(Debug)]
struct Old(Plain, EnvdVersion);

#[async_trait]
impl Transport for Old {
    fn backend(&self) -> &'static str {
        "plain"
    }

    fn sandbox(&self) -> &SandboxId {
        self.0.sandbox()
    }

    async fn send(
        &self,
        request: Request<RequestBody>,
        reuse: Reuse,
        bound: Duration,
        operation: &'static str,
    ) -> Result<Response<ResponseBody>> {
        if request.uri().path() == "/files" && request.method() == "POST" && self.1 < "0.5.7".parse().unwrap()
        {
            let kind = request.headers()["content-type"].to_str().unwrap();
            assert!(kind.starts_with("multipart/form-data"), "{kind}");
        }
        if request.uri().path() == "/process.Process/CloseStdin" {
            assert!(self.1 >= "0.5.2".parse().unwrap(), "it has no such call");
        }
        self.0.send(request, reuse, bound, operation).await
    }

    async fn lost(&self, operation: &'static str, failure: Failure) -> Error {
        self.0.lost(operation, failure).await
    }

    async fn envd_version(&self, _: &'static str) -> Result<EnvdVersion> {
        Ok(self.1)
    }
}

#[tokio::test]
async fn an_agent_of_old_is_told_what_it_needs_and_what_it_lacks_is_refused() {
    let Some((_folder, provider)) = place() else { return };
    let sandbox = provider.create(CreateOptions::new()).await.unwrap();
    let client = EnvdClient::new(Arc::new(Old(Plain(Arc::clone(&sandbox)), "0.1.3".parse().unwrap())));
    let file = GuestPath::new("/home/user/in/file").unwrap();
    for length in [0, 5, 3 << 20] {
        let content = Bytes::from(vec![b'-'; length]);
        let entry = client.write(&file, content.clone()).await.unwrap();
        assert_eq!((entry.size, entry.owner.as_str()), (length as u64, "user"));
        assert_eq!(client.read(&file).await.unwrap(), content);
    }
    // What reads its input finds none.
    let output = client.run(&Command::new("cat")).await.unwrap();
    assert!(output.status.is_success() && output.stdout.is_empty());
    let refused = [
        client.run_opts(&Command::new("cat"), RunOptions::default().with_stdin("x")).await.map(drop),
        client.watch(&GuestPath::new("/tmp").unwrap(), WatchOptions::Recursive).await.map(drop),
    ];
    for refusal in refused {
        let error = refusal.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains("0.1.3"), "{error}");
    }
    let process =
        client.spawn(&Command::new("cat"), SpawnOptions::new().with_stdin(StdinMode::Open)).await.unwrap();
    assert_eq!(process.control.close_stdin().await.unwrap_err().kind(), ErrorKind::Unsupported);
    assert!(process.control.signal(Signal::KILL).await.unwrap());
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn a_name_that_is_no_text_is_listed_and_otherwise_refused_by_name() {
    let Some((_folder, provider)) = place() else { return };
    let sandbox = provider.create(CreateOptions::new()).await.unwrap();
    let client = EnvdClient::new(Arc::new(Plain(Arc::clone(&sandbox))));
    let script = "cd /home/user && mkdir -p d/sub && printf five >\"d/$(printf 'o\\377dd')\" && ln -s sub d/link && printf x >'d/new\nline'";
    assert!(client.run(&Command::shell(script)).await.unwrap().status.is_success());
    let mut entries = FilesExt::list(&client, &GuestPath::new("/home/user/d").unwrap()).await.unwrap();
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    let names: Vec<&[u8]> = entries.iter().filter_map(|entry| entry.path.file_name()).collect();
    assert_eq!(names, [&b"link"[..], b"new\nline", b"o\xffdd", b"sub"]);
    assert_eq!(entries[0].link_target.as_deref(), Some(&b"/home/user/d/sub"[..]));
    assert_eq!((entries[2].size, entries[2].owner.as_str()), (4, "user"));
    let odd = &entries[2].path;
    for refused in [
        client.stat(odd).await.map(drop),
        client.read(odd).await.map(drop),
        client.write(odd, "x".into()).await.map(drop),
        client.remove(odd).await.map(drop),
        client.rename(odd, &GuestPath::new("/tmp/x").unwrap()).await.map(drop),
        client.make_dir(odd).await.map(drop),
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unsupported);
    }
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn a_long_body_that_breaks_off_leaves_no_new_file() {
    let Some((_folder, provider)) = place() else { return };
    let sandbox = provider.create(CreateOptions::new()).await.unwrap();
    let client = EnvdClient::new(Arc::new(Plain(Arc::clone(&sandbox))));
    let file = GuestPath::new("/home/user/new").unwrap();
    let broken = Error::new(ErrorKind::Unexpected, "read the source", "the source broke off");
    let chunks = (0..5).map(|_| Ok(Bytes::from(vec![1; 1 << 20]))).chain([Err(broken)]);
    let error =
        client.write_opts(&file, stream::iter(chunks).boxed(), WriteOptions::default()).await.unwrap_err();
    assert!(error.message().contains("the source broke off"), "{error}");
    assert!(client.stat(&file).await.unwrap().is_none());
    sandbox.destroy().await.unwrap();
}

/// Somebody on the way, who knows of no such page.
#[derive(Debug)]
struct Elsewhere(SandboxId);

#[async_trait]
impl Transport for Elsewhere {
    fn backend(&self) -> &'static str {
        "elsewhere"
    }

    fn sandbox(&self) -> &SandboxId {
        &self.0
    }

    async fn send(
        &self,
        _: Request<RequestBody>,
        _: Reuse,
        _: Duration,
        _: &'static str,
    ) -> Result<Response<ResponseBody>> {
        let page = Bytes::from_static(b"<html>404 page not found</html>");
        let mut response = Response::new(ResponseBody::new(http_body_util::Full::new(page)));
        *response.status_mut() = http::StatusCode::NOT_FOUND;
        Ok(response)
    }

    async fn lost(&self, operation: &'static str, _: Failure) -> Error {
        Error::new(ErrorKind::Unavailable, operation, "lost")
    }
}

#[tokio::test]
async fn a_page_that_is_not_found_on_the_way_is_no_absence() {
    let client = EnvdClient::new(Arc::new(Elsewhere(SandboxId::new("i0123456789abcdefghi").unwrap())));
    let file = GuestPath::new("/home/user/file").unwrap();
    for answer in [
        client.stat(&file).await.map(drop),
        client.read(&file).await.map(drop),
        client.remove(&file).await.map(drop),
        client.write(&file, "x".into()).await.map(drop),
        FilesExt::list(&client, &file).await.map(drop),
        client.signal(7, Signal::TERM).await.map(drop),
        client.attach(7).await.map(drop),
        client.run(&Command::new("true")).await.map(drop),
    ] {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Protocol);
    }
}
