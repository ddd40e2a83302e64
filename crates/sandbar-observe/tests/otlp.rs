//! Spans arrive at a real receiver of OTLP over HTTP, and a receiver that fails keeps nothing from being done.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use sandbar_core::{
    Command, CreateOptions, EnvVars, FilesExt, GuestPath, MemoryProvider, ProviderExt, RunOptions, SandboxId,
    SandboxProvider,
};
use sandbar_observe::otlp::{OtlpConfig, OtlpExporter};
use sandbar_observe::{Observation, Observed, TraceContext};
use tokio::net::TcpListener;

/// A request's path, its key, and its body.
type Sent = (String, Option<String>, Vec<u8>);

/// What a receiver was sent.
#[derive(Clone, Default)]
struct Received(Arc<Mutex<Vec<Sent>>>);

impl Received {
    async fn listen(self, status: u16) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                let received = self.clone();
                let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                    let received = received.clone();
                    async move {
                        let path = request.uri().path().to_owned();
                        let key =
                            request.headers().get("x-key").map(|key| key.to_str().expect("text").to_owned());
                        let body = request.into_body().collect().await.expect("a body").to_bytes();
                        received.0.lock().expect("nobody panics").push((path, key, body.to_vec()));
                        let answer = Response::builder().status(status).body(Full::new(Bytes::new()));
                        Ok::<_, Infallible>(answer.expect("an answer"))
                    }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        address
    }

    fn requests(&self) -> Vec<ExportTraceServiceRequest> {
        let received = self.0.lock().expect("nobody panics");
        received.iter().map(|(_, _, body)| Message::decode(&body[..]).expect("OTLP")).collect()
    }

    fn spans(&self) -> Vec<Span> {
        let requests = self.requests().into_iter();
        let scopes =
            requests.flat_map(|request| request.resource_spans).flat_map(|resource| resource.scope_spans);
        scopes.flat_map(|scope| scope.spans).collect()
    }
}

fn exporter(address: SocketAddr) -> Arc<OtlpExporter> {
    let config = OtlpConfig {
        traces_endpoint: Some(format!("http://{address}/v1/traces")),
        headers: vec![("x-key".into(), "canary-key".into())],
    };
    assert!(!format!("{config:?}").contains("canary"));
    Arc::new(OtlpExporter::start(config).expect("an exporter"))
}

#[tokio::test]
async fn otlp_spans_arrive_in_their_trace_and_without_secrets() {
    let received = Received::default();
    let exporter = exporter(received.clone().listen(200).await);
    let trace = TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Some("a=b"));
    let sink = Arc::clone(&exporter);
    let observation = Observation::new().with_trace(trace.expect("a trace")).with_spans(sink);
    let provider = Observed::new(MemoryProvider::new(), observation);
    let sandbox = provider.create(CreateOptions::new()).await.expect("a sandbox");
    let env = EnvVars::new().with("TOKEN", "canary-env").expect("a variable");
    let options = RunOptions::default().with_env(env).with_stdin("canary-stdin");
    sandbox
        .commands()
        .run_opts(&Command::new("printf").arg("canary-argument"), options)
        .await
        .expect("a run");
    let path = GuestPath::new("/tmp/file").expect("a path");
    sandbox.files().write(&path, "canary-content".into()).await.expect("written");
    let missing = GuestPath::new("/no/such/file").expect("a path");
    sandbox.files().read(&missing).await.expect_err("nothing there");
    assert!(sandbox.destroy().await.expect("destroyed"));
    assert_eq!(exporter.flush(Duration::from_secs(5)).await, 0);

    let spans = received.spans();
    let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["sandbar create", "sandbar run", "sandbar write", "sandbar read", "sandbar destroy"]);
    for span in &spans {
        assert_eq!(span.trace_id, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c_u128.to_be_bytes());
        assert_eq!(span.parent_span_id, 0xb7ad_6b71_6920_3331_u64.to_be_bytes());
        assert_eq!(span.trace_state, "a=b");
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
    }
    let codes: Vec<_> = spans.iter().map(|span| span.status.as_ref().expect("a status").code).collect();
    assert_eq!(codes, [1, 1, 1, 2, 1]);
    let requests = received.requests();
    let resource = requests[0].resource_spans[0].resource.as_ref().expect("a resource");
    let service = resource.attributes.iter().find(|attribute| attribute.key == "service.name");
    assert!(format!("{service:?}").contains("sandbar"), "{service:?}");
    let sent = received.0.lock().expect("nobody panics");
    assert!(sent.iter().all(|(path, key, _)| path == "/v1/traces" && key.as_deref() == Some("canary-key")));
    for (_, _, body) in sent.iter() {
        assert!(!body.windows(6).any(|window| window == b"canary"), "a secret was sent");
    }
}

#[tokio::test]
async fn otlp_receivers_that_fail_or_stand_still_keep_nothing_from_being_done() {
    let refusing = Received::default().listen(400).await;
    // Takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let silent_address = silent.local_addr().expect("an address");
    let gone = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("an address");
    for address in [refusing, silent_address, gone] {
        let exporter = exporter(address);
        let sink = Arc::clone(&exporter);
        let provider = Observed::new(MemoryProvider::new(), Observation::new().with_spans(sink));
        let sandbox = provider.create(CreateOptions::new()).await.expect("a sandbox");
        assert!(provider.destroy(sandbox.id()).await.expect("an answer"));
        assert!(provider.get(&SandboxId::new("unknown").expect("an id")).await.expect("an answer").is_none());
        let begun = Instant::now();
        assert!(exporter.flush(Duration::from_millis(500)).await > 0, "{address}");
        assert!(begun.elapsed() < Duration::from_secs(3), "{address}: {:?}", begun.elapsed());
    }
}
