//! The code interpreter in a real sandbox: made from packages that this machine's pip fetches, spoken to through the server as E2B's SDKs do.

mod common;

use std::time::{Duration, Instant};

use common::{Made, PATIENCE, Reply, Rig};
use http::{Method, StatusCode};
use sandbar::ProviderExt as _;
use sandbar_server::{CodeInterpreter, PackageSet};
use serde_json::{Value, json};

/// How long the template may take to be made where everything else runs at the same time.
const MADE_WITHIN: Duration = Duration::from_secs(600);

/// What is said where packages can't be had: a machine without a registry is no fault of ours.
const NO_PACKAGES: &[&str] = &["can't be fetched", "has no pip", "pip can't be run", "default template has"];

/// A sandbox of the template, once it is made; `None` where this machine can't make it.
async fn code_sandbox(rig: &Rig) -> Option<Made> {
    let started = Instant::now();
    loop {
        let body = json!({"templateID": "code-interpreter-v1", "envVars": {"OF_SANDBOX": "yes"}});
        let reply = rig.control(Method::POST, "/v2/sandboxes", body).await;
        match reply.status {
            StatusCode::CREATED => return Some(Made::of(&reply.json())),
            StatusCode::BAD_REQUEST if NO_PACKAGES.iter().any(|words| reply.text().contains(words)) => {
                println!("skipped: {}", reply.text());
                return None;
            }
            // It is still being made, and says so.
            StatusCode::SERVICE_UNAVAILABLE if started.elapsed() < MADE_WITHIN => {
                assert!(reply.headers.contains_key("retry-after"), "{}", reply.text());
            }
            status => panic!("{status}: {}", reply.text()),
        }
    }
}

/// A client of one sandbox' service.
struct Service<'a> {
    rig: &'a Rig,
    made: &'a Made,
}

impl Service<'_> {
    async fn ask(&self, method: Method, path: &str, body: Value) -> Reply {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let headers = [
            ("e2b-sandbox-id", self.made.id.as_str()),
            ("e2b-sandbox-port", "49999"),
            ("x-access-token", self.made.token.as_str()),
            ("e2b-traffic-access-token", self.made.traffic.as_str()),
            ("content-type", "application/json"),
        ];
        self.rig.ask(method, path, &headers, body).await
    }

    /// Runs a cell; all that it said, each line one object.
    async fn execute(&self, body: Value) -> Vec<Value> {
        let reply = self.ask(Method::POST, "/execute", body).await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
        let text = reply.text();
        let events: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect();
        assert_eq!(events.last().expect("something is said")["type"], "end_of_execution");
        events
    }

    async fn python(&self, code: &str) -> Vec<Value> {
        self.execute(json!({"code": code, "context_id": null, "language": null, "env_vars": null})).await
    }
}

/// What was printed on one output.
fn printed(events: &[Value], stream: &str) -> String {
    let of = events.iter().filter(|event| event["type"] == stream);
    of.map(|event| {
        assert!(event["timestamp"].is_string(), "{event}");
        event["text"].as_str().expect("a text")
    })
    .collect()
}

fn one<'a>(events: &'a [Value], kind: &str) -> &'a Value {
    events.iter().find(|event| event["type"] == kind).unwrap_or_else(|| panic!("no {kind}: {events:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn cells_run_in_contexts_and_what_they_say_is_streamed() {
    let rig = Rig::local_with(|_, config| {
        config.code_interpreter = CodeInterpreter::Download(PackageSet::Minimal);
    })
    .await;
    let Some(made) = code_sandbox(&rig).await else { return };
    let service = Service { rig: &rig, made: &made };

    python(&service).await;
    environment(&service).await;
    other_languages(&service).await;
    contexts(&service).await;
    refusals(&service).await;
    interrupts(&service).await;
    a_kernel_that_ends(&service).await;
    tokens(&rig, &made).await;
}

async fn python(service: &Service<'_>) {
    assert_eq!(service.ask(Method::GET, "/health", Value::Null).await.text(), "\"OK\"");
    let said = service
        .python("import sys\nx = 20\nprint('out')\nprint('err', file=sys.stderr)\n'it is ' + str(x)")
        .await;
    assert_eq!(one(&said, "number_of_executions")["execution_count"], 1);
    assert_eq!((printed(&said, "stdout").as_str(), printed(&said, "stderr").as_str()), ("out\n", "err\n"));
    let result = one(&said, "result");
    assert_eq!((&result["text"], &result["is_main_result"]), (&json!("it is 20"), &json!(true)));

    let said = service.python("x + 1").await;
    assert_eq!(one(&said, "result")["text"], "21", "the state is kept");
    let said = service.python("1/0").await;
    let error = one(&said, "error");
    assert_eq!((&error["name"], &error["value"]), (&json!("ZeroDivisionError"), &json!("division by zero")));
    assert!(error["traceback"].as_str().is_some_and(|text| text.contains("ZeroDivisionError")));

    let rich = "from IPython.display import *\ndisplay(HTML('<b>1</b>'), JSON({'a': 1}), Markdown('# m'), Latex('$x$'))";
    let said = service.python(rich).await;
    let results: Vec<_> = said.iter().filter(|event| event["type"] == "result").collect();
    assert!(results.iter().all(|result| result["is_main_result"] == false));
    assert_eq!(results[0]["html"], "<b>1</b>");
    assert_eq!(results[1]["json"], json!({"a": 1}));
    assert_eq!(results[2]["markdown"], "# m");
    assert_eq!(results[3]["latex"], "$x$");
    // Lines are ended by a newline and by nothing else, whatever a cell prints.
    let said = service.python("print('a\\u2028b\\rc\\x85d')").await;
    assert_eq!(printed(&said, "stdout"), "a\u{2028}b\rc\u{85}d\n");
    let said = service.python("for i in range(20000): print(i)").await;
    assert!(printed(&said, "stdout").ends_with("\n19998\n19999\n"), "nothing is lost of much");
}

async fn environment(service: &Service<'_>) {
    let code = "import os; (os.environ.get('OF_SANDBOX'), os.environ.get('OF_CALL'), os.getcwd())";
    let said = service.execute(json!({"code": code, "env_vars": {"OF_CALL": "it's \"1\""}})).await;
    assert_eq!(one(&said, "result")["text"], "('yes', 'it\\'s \"1\"', '/home/user')");
    let said = service.python(code).await;
    assert_eq!(one(&said, "result")["text"], "('yes', None, '/home/user')", "it was for one call");
    for (language, code) in [
        ("bash", "echo \"$OF_SANDBOX $OF_CALL\""),
        ("js", "console.log(`${process.env.OF_SANDBOX} ${process.env.OF_CALL ?? ''}`)"),
    ] {
        if language == "js" && !has_node(service).await {
            continue;
        }
        let said = service
            .execute(json!({"code": code, "language": language, "env_vars": {"OF_CALL": "a'b"}}))
            .await;
        assert_eq!(printed(&said, "stdout"), "yes a'b\n", "{language}");
        let said = service.execute(json!({"code": code, "language": language})).await;
        assert_eq!(printed(&said, "stdout"), "yes \n", "{language}");
    }
}

/// Node is the host's, which need not have it.
async fn has_node(service: &Service<'_>) -> bool {
    let said = service.python("import shutil; bool(shutil.which('node'))").await;
    one(&said, "result")["text"] == "True"
}

async fn other_languages(service: &Service<'_>) {
    let bash = |code: &str| json!({"code": code, "language": "bash"});
    let said = service.execute(bash("cd /tmp; v=1; f() { echo \"f $1\"; }; echo err >&2")).await;
    assert_eq!(printed(&said, "stderr"), "err\n");
    let said = service.execute(bash("pwd; echo $v; f 2; false")).await;
    assert_eq!(printed(&said, "stdout"), "/tmp\n1\nf 2\n");
    let said = service.execute(bash("echo (")).await;
    assert!(printed(&said, "stderr").contains("syntax error"), "{said:?}");

    let js = |code: &str| json!({"code": code, "language": "javascript"});
    if !has_node(service).await {
        let said = service.execute(js("1")).await;
        assert!(one(&said, "error")["value"].as_str().is_some_and(|why| why.contains("Node.js")));
        return;
    }
    let said = service.execute(js("const a = 1; console.log('hi'); console.error('no'); ({a})")).await;
    assert_eq!((printed(&said, "stdout").as_str(), printed(&said, "stderr").as_str()), ("hi\n", "no\n"));
    assert_eq!(one(&said, "result")["text"], "{ a: 1 }");
    let said = service.execute(js("const a = 2; await Promise.resolve(a + 1)")).await;
    assert_eq!(one(&said, "result")["text"], "3");
    let code = "import fs, { readFileSync as read } from 'fs'\nimport * as path from \"node:path\"\n`${typeof read} ${typeof path.join} import x from 'y' ${typeof (await import('os')).cpus}`";
    let said = service.execute(js(code)).await;
    assert_eq!(one(&said, "result")["text"], "function function import x from 'y' function");
    let said = service.execute(js("throw new TypeError('no')")).await;
    assert_eq!(
        (&one(&said, "error")["name"], &one(&said, "error")["value"]),
        (&json!("TypeError"), &json!("no"))
    );
    let said =
        service.execute(js("require('child_process').execSync('echo child', {stdio: 'inherit'}); 0")).await;
    assert_eq!(printed(&said, "stdout"), "child\n");
}

async fn contexts(service: &Service<'_>) {
    let listed = service.ask(Method::GET, "/contexts", Value::Null).await.json();
    let languages: Vec<_> =
        listed.as_array().expect("a list").iter().map(|context| &context["language"]).collect();
    assert!(languages.contains(&&json!("python")) && languages.contains(&&json!("javascript")), "{listed}");
    let made = service.ask(Method::POST, "/contexts", json!({"cwd": "/tmp"})).await.json();
    assert_eq!((&made["language"], &made["cwd"]), (&json!("python"), &json!("/tmp")));
    let id = made["id"].as_str().expect("an id");
    let said = service.execute(json!({"code": "import os; y = 1; os.getcwd()", "context_id": id})).await;
    assert_eq!(one(&said, "result")["text"], "/tmp");
    let said = service.python("'y' in globals()").await;
    assert_eq!(one(&said, "result")["text"], "False", "contexts share nothing");
    assert!(
        service.ask(Method::POST, &format!("/contexts/{id}/restart"), Value::Null).await.status.is_success()
    );
    let said = service.execute(json!({"code": "y", "context_id": id})).await;
    assert_eq!(one(&said, "error")["name"], "NameError", "a restart forgets");
    assert!(service.ask(Method::DELETE, &format!("/contexts/{id}"), Value::Null).await.status.is_success());
    for (method, path) in
        [(Method::DELETE, format!("/contexts/{id}")), (Method::POST, format!("/contexts/{id}/restart"))]
    {
        let reply = service.ask(method, &path, Value::Null).await;
        assert_eq!((reply.status, reply.text()), (StatusCode::NOT_FOUND, format!("Context {id} not found")));
    }
    let reply = service.ask(Method::POST, "/execute", json!({"code": "1", "context_id": id})).await;
    assert_eq!((reply.status, reply.text()), (StatusCode::NOT_FOUND, format!("Context {id} not found")));
}

async fn refusals(service: &Service<'_>) {
    for (body, word) in [
        (json!({"code": "1", "context_id": "x", "language": "python"}), "Only one"),
        (json!({"code": "1", "language": "r"}), "expected one of"),
        (json!({"code": "1", "language": "cobol"}), "unknown language"),
        (json!({"code": 1}), "code"),
        (json!({}), "code"),
        (json!({"code": "1", "env_vars": {"A-B": "1"}}), "A-B"),
        (json!({"code": "1", "env_vars": {"A": 1}}), "value of A"),
    ] {
        let reply = service.ask(Method::POST, "/execute", body.clone()).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{body}: {}", reply.text());
        assert!(reply.text().contains(word), "{body}: {}", reply.text());
    }
    let reply = service.ask(Method::POST, "/contexts", json!({"cwd": "/none"})).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    assert!(reply.text().contains("/none"), "{}", reply.text());
}

/// A client that goes away takes its cell along, and what it left behind is there for the next.
async fn interrupts(service: &Service<'_>) {
    let mut cells = vec![
        (
            json!({"code": "kept = 7\nimport time\nwhile True: time.sleep(0.05)"}),
            json!({"code": "kept"}),
            "result",
        ),
        (
            json!({"code": "kept=7; while true; do sleep 0.05; done", "language": "bash"}),
            json!({"code": "echo $kept", "language": "bash"}),
            "stdout",
        ),
    ];
    if has_node(service).await {
        cells.push((
            json!({"code": "var kept = 7; while (true);", "language": "js"}),
            json!({"code": "kept", "language": "js"}),
            "result",
        ));
        cells.push((
            json!({"code": "var kept = 7; await new Promise(() => {})", "language": "js"}),
            json!({"code": "kept", "language": "js"}),
            "result",
        ));
    }
    for (endless, then, kind) in cells {
        // It never ends by itself, so whatever ends this wait is the client that goes.
        let cell = service.execute(endless.clone());
        assert!(tokio::time::timeout(Duration::from_secs(1), cell).await.is_err(), "{endless}");
        let said = tokio::time::timeout(PATIENCE, service.execute(then)).await.expect("the next one runs");
        assert_eq!(one(&said, kind)["text"].as_str().expect("a text").trim(), "7", "{endless}");
    }
}

async fn a_kernel_that_ends(service: &Service<'_>) {
    for body in [json!({"code": "import os; os._exit(3)"}), json!({"code": "exit 3", "language": "bash"})] {
        let said = service.execute(body.clone()).await;
        assert_eq!(one(&said, "error")["name"], "UnexpectedEndOfExecution", "{body}");
    }
    let said = service.python("2 * 3").await;
    assert_eq!(one(&said, "result")["text"], "6", "the next cell has a fresh kernel");
}

/// No path of the service answers whoever has no token of the sandbox'.
async fn tokens(rig: &Rig, made: &Made) {
    let base = [("e2b-sandbox-id", made.id.as_str()), ("e2b-sandbox-port", "49999")];
    let paths = [
        (Method::GET, "/health"),
        (Method::GET, "/contexts"),
        (Method::POST, "/contexts"),
        (Method::POST, "/execute"),
        (Method::DELETE, "/contexts/x"),
        (Method::POST, "/contexts/x/restart"),
        (Method::GET, "/else"),
    ];
    for (method, path) in paths {
        for wrong in [None, Some(("x-access-token", "wrong")), Some(("e2b-traffic-access-token", "wrong"))] {
            let headers: Vec<_> = base.iter().copied().chain(wrong).collect();
            let reply = rig.ask(method.clone(), path, &headers, "{\"code\":\"1\"}").await;
            assert!(
                matches!(reply.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN),
                "{method} {path} {wrong:?}: {} {}",
                reply.status,
                reply.text()
            );
        }
    }
    let headers: Vec<_> =
        base.into_iter().chain([("e2b-traffic-access-token", made.traffic.as_str())]).collect();
    let reply = rig.ask(Method::GET, "/contexts", &headers, "").await;
    assert_eq!(reply.status, StatusCode::OK, "SDKs send this one alone there: {}", reply.text());
}

#[tokio::test]
async fn where_it_can_not_be_made_its_creation_says_why() {
    let rig = Rig::memory().await;
    let reply =
        rig.control(Method::POST, "/v2/sandboxes", json!({"templateID": "code-interpreter-v1"})).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{}", reply.text());
    assert!(reply.text().contains("--code-interpreter"), "{}", reply.text());
}

#[tokio::test]
async fn a_folder_without_packages_is_told_by_name() {
    let rig = Rig::local_with(|folder, config| {
        config.code_interpreter = CodeInterpreter::Folder(folder.join("none"));
    })
    .await;
    let reply =
        rig.control(Method::POST, "/v2/sandboxes", json!({"templateID": "code-interpreter-v1"})).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{}", reply.text());
    assert!(reply.text().contains("none"), "{}", reply.text());
    assert!(
        rig.provider.list_all(sandbar::Query::new()).await.expect("a listing").is_empty(),
        "the look left nothing"
    );
}
