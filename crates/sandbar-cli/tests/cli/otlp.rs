//! Spans of an invocation, to a receiver that the environment names.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;

use crate::harness::{Home, PATIENCE, both, code};

/// Takes one request and answers it: its head, and its body.
fn receive(listener: &TcpListener) -> (String, Vec<u8>) {
    let (mut stream, _) = listener.accept().expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a bound");
    let mut got = Vec::new();
    let head_end = loop {
        more(&mut stream, &mut got);
        if let Some(end) = got.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let head = String::from_utf8(got[..head_end].to_vec()).expect("text").to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
    let length: usize = length.trim().parse().expect("a number");
    while got.len() < head_end + length {
        more(&mut stream, &mut got);
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("answered");
    (head, got[head_end..].to_vec())
}

fn more(stream: &mut TcpStream, got: &mut Vec<u8>) {
    let mut chunk = [0; 4096];
    let count = stream.read(&mut chunk).expect("bytes");
    assert!(count > 0, "the request is cut short");
    got.extend_from_slice(&chunk[..count]);
}

#[test]
fn otlp_spans_go_where_the_environment_says_with_its_headers_and_names() {
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    let receiver = std::thread::spawn(move || receive(&listener));
    let mut command = home.sandbar(&["run", "--", "sh", "-c", "exit 3"]);
    let output = command
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-key=canary")
        .env("OTEL_SERVICE_NAME", "tests")
        .env("OTEL_RESOURCE_ATTRIBUTES", "team=core")
        .env("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .output()
        .expect("it starts");
    assert_eq!(code(&output), 3, "{}", both(&output));
    assert!(!both(&output).contains("canary") && output.stderr.is_empty(), "{}", both(&output));
    let (head, body) = receiver.join().expect("a request");
    assert!(head.starts_with("post /v1/traces http/1.1") && head.contains("x-key: canary"), "{head}");
    let request = ExportTraceServiceRequest::decode(&body[..]).expect("OTLP");
    let resource = format!("{:?}", request.resource_spans[0].resource);
    for word in ["service.name", "tests", "team", "core"] {
        assert!(resource.contains(word), "{resource}");
    }
    let spans: Vec<_> = request.resource_spans.iter().flat_map(|resource| &resource.scope_spans).collect();
    let names: Vec<_> = spans.iter().flat_map(|scope| &scope.spans).map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["sandbar create", "sandbar spawn", "sandbar destroy"]);
}

#[test]
fn otlp_collectors_that_are_not_there_are_told_and_change_no_exit_code() {
    let home = Home::new();
    let gone = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    for (endpoint, word) in
        [(format!("http://{gone}"), "could not be sent"), ("https://127.0.0.1".to_owned(), "TLS")]
    {
        let begun = Instant::now();
        let mut command = home.sandbar(&["run", "--", "echo", "done"]);
        let output = command
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
            .env("OTEL_EXPORTER_OTLP_HEADERS", "x-key=canary")
            .output()
            .expect("it starts");
        assert_eq!((code(&output), &output.stdout[..]), (0, &b"done\n"[..]), "{}", both(&output));
        assert!(both(&output).contains(word) && !both(&output).contains("canary"), "{}", both(&output));
        assert!(begun.elapsed() < Duration::from_secs(15));
    }
}
