//! The life of a sandbox as its user leads it, from the creation to the kill.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::api::{Api, Stream};
use crate::common::Made;

/// Bytes of the file that is written and read.
const FILE: u32 = 200_000;

/// Creates, runs, writes, watches, pauses, resumes, kills; an error says what was not as it should be.
pub(crate) async fn live(api: &Api, number: usize) -> Result<(), String> {
    let made = api.create().await?;
    let lived = inside(api, &made, number).await;
    let killed = api.kill(&made.id).await;
    lived.map_err(|why| format!("sandbox {} of life {number}: {why}", made.id))?;
    killed?;
    let (status, _) = api.ask(Method::GET, "/health", &made.guest(), "").await?;
    is("the health of one that was killed", &status, &StatusCode::BAD_GATEWAY)
}

async fn inside(api: &Api, made: &Made, number: usize) -> Result<(), String> {
    is("a command", &api.run(made, &format!("echo life {number}")).await?, &format!("life {number}\n"))?;
    let seed = u32::try_from(number).unwrap_or_default();
    let bytes: Vec<u8> = (seed..seed + FILE).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    write(api, made, "/home/user/file", bytes.clone()).await?;
    let (status, read) = api.ask(Method::GET, "/files?path=/home/user/file", &made.guest(), "").await?;
    is("reading a file", &status, &StatusCode::OK)?;
    is("whether the file is the same", &(read == bytes), &true)?;
    watch(api, made).await?;
    sleep(api, made).await?;
    is("a command after the pause", &api.run(made, "cat /home/user/seen").await?, &"seen".to_owned())
}

async fn write(api: &Api, made: &Made, path: &str, bytes: Vec<u8>) -> Result<(), String> {
    let headers = [&made.guest()[..], &[("content-type", "application/octet-stream")]].concat();
    let (status, _) = api.ask(Method::POST, &format!("/files?path={path}"), &headers, bytes).await?;
    is("writing a file", &status, &StatusCode::OK)
}

async fn watch(api: &Api, made: &Made) -> Result<(), String> {
    let folder = json!({"path": "/home/user"});
    let mut watch = api.stream(made, "/filesystem.Filesystem/WatchDir", &folder).await?;
    next(&mut watch).await?;
    write(api, made, "/home/user/seen", b"seen".to_vec()).await?;
    loop {
        let message = next(&mut watch).await?;
        if message["filesystem"]["name"] == "seen" {
            return Ok(());
        }
    }
}

/// A process lives through a pause; what was open on it does not.
async fn sleep(api: &Api, made: &Made) -> Result<(), String> {
    let (mut stream, pid) = api.start(made, "sleep 1000").await?;
    let target = format!("/sandboxes/{}/pause", made.id);
    api.control(Method::POST, &target, json!({}), StatusCode::NO_CONTENT).await?;
    // Signs of life may have been on their way.
    while let Ok(message) = stream.next().await {
        message.ok_or("a stream of a paused sandbox had a proper end")?;
    }
    let target = format!("/v2/sandboxes/{}/connect", made.id);
    api.control(Method::POST, &target, json!({"timeout": 600}), StatusCode::CREATED).await?;
    api.meet(made, &pid).await
}

async fn next(stream: &mut Stream) -> Result<Value, String> {
    stream.next().await?.ok_or_else(|| "a stream ended that should go on".to_owned())
}

fn is<T: PartialEq + std::fmt::Debug>(what: &str, given: &T, expected: &T) -> Result<(), String> {
    if given == expected { Ok(()) } else { Err(format!("{what}: {given:?}, expected {expected:?}")) }
}
