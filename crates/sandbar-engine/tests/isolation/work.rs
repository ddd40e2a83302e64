//! Ordinary work is not hurt.

use serde_json::json;

use crate::harness::{Bench, Options};
use crate::modes::in_every_mode;

/// Runs a script as `user` where there is one to become, and wants its last line to be `fine`.
fn works(bench: &Bench, program: &str, script: &str) {
    if !["/usr/bin", "/usr/local/bin"]
        .iter()
        .any(|folder| std::path::Path::new(folder).join(program).exists())
    {
        println!("not tried: {program} is not installed under /usr");
        return;
    }
    let become_user = if bench.ids().has_root() && std::path::Path::new("/usr/bin/setpriv").exists() {
        "setpriv --reuid=1000 --regid=1000 --clear-groups "
    } else {
        ""
    };
    let script = format!(
        "cd /home/user && export HOME=/home/user && exec {become_user}sh -ec '{}' 2>&1",
        script.replace('\'', "'\\''")
    );
    let report = bench.report(&json!({ "task": "shell", "script": script }).to_string(), &Options::default());
    let said = report["stdout"].as_str().unwrap_or_else(|| panic!("{report}"));
    assert!(said.trim_end().ends_with("fine"), "{program}: {report:#}");
}

#[test]
fn python_with_threads_processes_and_sockets() {
    in_every_mode("work::python_with_threads_processes_and_sockets", |bench| {
        let script = r#"/usr/bin/python3 - <<'END'
import http.server, urllib.request, multiprocessing, socket, ssl, subprocess, sqlite3, tempfile, threading, os
threading.Thread(target=lambda: None).start()
assert subprocess.run(["/bin/true"]).returncode == 0
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(abs, [-1, -2]) == [1, 2]
server = socket.create_server(("127.0.0.1", 0))
socket.create_connection(server.getsockname()).close()
class Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", "2"); self.end_headers(); self.wfile.write(b"ok")
    def log_message(self, *_): pass
web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
threading.Thread(target=web.serve_forever, daemon=True).start()
for _ in range(3):
    assert urllib.request.urlopen("http://127.0.0.1:%d/" % web.server_port).read() == b"ok"
web.shutdown()
assert ssl.create_default_context().cert_store_stats()["x509"] >= 0
sqlite3.connect(os.path.join(tempfile.mkdtemp(), "db")).execute("create table t (a)")
assert os.cpu_count() >= 1
assert socket.gethostbyname(socket.gethostname()).startswith("127.")
print("fine")
END"#;
        works(bench, "python3", script);
    });
}

#[test]
fn node_with_workers_and_watches() {
    in_every_mode("work::node_with_workers_and_watches", |bench| {
        let script = r#"node -e '
const fs = require("fs"), os = require("os"), { Worker } = require("worker_threads");
require("child_process").execFileSync("/bin/true");
if (os.cpus().length < 1) throw 1;
fs.writeFileSync("seen", ""); const watcher = fs.watch(".");
new Worker("process.exit(0)", { eval: true }).on("exit", () => {
  const server = require("http").createServer((q, r) => r.end("ok")).listen(0, "127.0.0.1", () =>
    require("http").get({ port: server.address().port, host: "127.0.0.1" }, () => { console.log("fine"); process.exit(0); }));
});'"#;
        works(bench, "node", script);
    });
}

#[test]
fn a_compiler_and_make() {
    in_every_mode("work::a_compiler_and_make", |bench| {
        let script = r#"printf '#include <stdio.h>\nint main(void){puts("fine");}\n' > a.c; printf 'a: a.c\n\tcc -O1 -o a a.c\n' > Makefile; make -s -j2 a; ./a"#;
        works(bench, "cc", script);
    });
}

#[test]
fn git() {
    in_every_mode("work::git", |bench| {
        let script = "git init -q r; cd r; echo a > a; git add a; git -c user.name=n -c user.email=e@example.com commit -qm m; git clone -q . ../s; git -C ../s fsck; git gc -q; echo fine";
        works(bench, "git", script);
    });
}

#[test]
fn a_jvm() {
    in_every_mode("work::a_jvm", |bench| {
        let script = r#"printf 'public class A { public static void main(String[] a) throws Exception { Thread t = new Thread(() -> {}); t.start(); t.join(); java.net.InetAddress.getLocalHost();
var web = com.sun.net.httpserver.HttpServer.create(new java.net.InetSocketAddress("127.0.0.1", 0), 0);
web.createContext("/", exchange -> { exchange.sendResponseHeaders(200, -1); exchange.close(); });
web.start();
var url = java.net.URI.create("http://127.0.0.1:" + web.getAddress().getPort() + "/").toURL();
if (((java.net.HttpURLConnection) url.openConnection()).getResponseCode() != 200) throw new Exception();
web.stop(0); System.out.println("fine"); } }\n' > A.java; java -Xshare:auto A.java"#;
        works(bench, "java", script);
    });
}

#[test]
fn postgres_with_a_server() {
    in_every_mode("work::postgres_with_a_server", |bench| {
        let script = r"bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
            $bin/initdb -D d -U user -A trust --no-sync > /dev/null
            $bin/pg_ctl -D d -w -t 30 -l log -o '-k /tmp -h 127.0.0.1' start > /dev/null
            $bin/psql -h 127.0.0.1 -U user -Atc 'select 40 + 2' postgres | grep -q 42
            $bin/pg_ctl -D d -m immediate stop > /dev/null
            echo fine";
        if std::path::Path::new("/usr/lib/postgresql").is_dir() {
            works(bench, "psql", script);
        } else {
            println!("not tried: no PostgreSQL under /usr/lib/postgresql");
        }
    });
}

#[test]
fn tracing_ones_own_child() {
    in_every_mode("work::tracing_ones_own_child", |bench| {
        works(bench, "strace", "strace -f -o trace sh -c 'echo hi > x'; grep -q execve trace; echo fine");
    });
}
