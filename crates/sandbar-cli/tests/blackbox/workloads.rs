//! Ordinary work is not hurt.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::{Home, Ids, both, host_has, ids, shared_folder};

/// Runs a shell script in a new sandbox and answers its output.
fn script(options: &[&str], text: &str) -> String {
    Home::new().text(&[&["run", "--timeout", "240s"], options, &["--", "bash", "-ec", text]].concat())
}

#[test]
fn python_with_threads_processes_sqlite_and_venv() {
    let text = script(
        &[],
        r#"
cat > t.py <<'P'
import concurrent.futures, multiprocessing, sqlite3, subprocess, tempfile, threading
def square(n): return n * n
if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool: assert pool.map(square, range(5)) == [0, 1, 4, 9, 16]
    with concurrent.futures.ThreadPoolExecutor(8) as pool: assert sum(pool.map(square, range(10))) == 285
    db = sqlite3.connect("t.db"); db.execute("create table t(x)"); db.executemany("insert into t values(?)", [(n,) for n in range(1000)]); db.commit()
    assert db.execute("select sum(x) from t").fetchone() == (499500,)
    assert subprocess.run(["sh", "-c", "exit 3"]).returncode == 3
    print("fine")
P
python3 t.py
"#,
    );
    assert_eq!(text, "fine");
}

#[test]
fn git_commits_and_clones() {
    if !host_has("git") {
        return;
    }
    let text = script(
        &[],
        r"
git init -q a; cd a; git config user.email a@example.com; git config user.name a
echo x > f; git add f; git commit -qm one; cd ..; git clone -q a b; cat b/f; git -C b log --format=%s
",
    );
    assert_eq!(text, "x\none");
}

#[test]
fn gcc_and_make_build_a_program() {
    if !host_has("gcc") || !host_has("make") {
        return;
    }
    let text = script(
        &[],
        r#"
printf '#include <stdio.h>\n#include <pthread.h>\nvoid*f(void*a){return a;}\nint main(){pthread_t t;pthread_create(&t,0,f,0);pthread_join(t,0);puts("built");}\n' > m.c
printf 'm: m.c\n\tgcc -O2 -pthread -o m m.c\n' > Makefile
make -s; ./m
"#,
    );
    assert_eq!(text, "built");
}

#[test]
fn a_child_can_be_traced() {
    if !host_has("strace") {
        return;
    }
    let text =
        script(&[], "strace -f -e trace=execve -o trace sh -c 'true; /bin/true'; grep -c execve trace");
    assert_eq!(text, "2");
}

#[test]
fn a_jvm_compiles_and_runs() {
    if !host_has("javac") {
        return;
    }
    let text = script(
        &["--memory", "1G"],
        r#"
printf 'public class M { public static void main(String[] a) throws Exception { var t = new Thread(() -> System.out.println("jvm " + a.length)); t.start(); t.join(); } }' > M.java
javac M.java; java -Xmx256m M one two
"#,
    );
    assert_eq!(text, "jvm 2");
}

#[test]
fn postgres_initialises_serves_and_stops() {
    let Some(bin) = std::fs::read_dir("/usr/lib/postgresql").ok().and_then(|versions| {
        versions.flatten().map(|version| version.path().join("bin")).find(|bin| bin.join("initdb").exists())
    }) else {
        eprintln!("skipped: this host has no PostgreSQL below /usr/lib");
        return;
    };
    let text = script(
        &[],
        &format!(
            r#"
export PATH={}:$PATH
initdb -D db -U me >/dev/null
pg_ctl -D db -w -l log -o "-k /tmp -h 127.0.0.1" start >/dev/null || {{ cat log >&2; exit 1; }}
psql -h 127.0.0.1 -U me -Atc 'create table t as select generate_series(1,1000) x; select sum(x) from t' postgres
pg_ctl -D db -w stop >/dev/null
"#,
            bin.display()
        ),
    );
    assert_eq!(text, "SELECT 1000\n500500");
}

#[test]
fn node_runs_scripts_workers_and_a_server() {
    if !host_has("node") {
        return;
    }
    let text = script(
        &[],
        r#"
cat > package.json <<'J'
{"name":"a","version":"1.0.0","scripts":{"start":"node main.js"}}
J
cat > main.js <<'J'
const http = require("http"), { Worker } = require("worker_threads");
const server = http.createServer((q, r) => r.end("served")).listen(3000, "127.0.0.1", async () => {
  const text = await (await fetch("http://127.0.0.1:3000/")).text();
  new Worker("require('worker_threads').parentPort.postMessage('worked')", { eval: true }).on("message", (m) => { console.log(text, m); server.close(); });
});
J
npm run --silent start
"#,
    );
    assert_eq!(text, "served worked");
}

/// Vite's version is one that the Node.js of the oldest supported Debian takes.
const VITE: &str = "vite@7";

#[test]
fn vite_builds_and_serves() {
    if !host_has("node") || !host_has("npm") {
        return;
    }
    let Some(modules) = installed("vite", VITE) else { return };
    let mount = format!("{}:/mnt/modules", modules.display());
    let text = script(
        &["--memory", "2G", "--mount", &mount],
        r#"
mkdir app; cd app; cp -r /mnt/modules node_modules
echo '<!doctype html><title>t</title><script type="module" src="/main.js"></script>' > index.html
echo 'document.title = `built ${6 * 7}`' > main.js
node node_modules/vite/bin/vite.js build --logLevel error --outDir /tmp/dist
grep -l 'built' /tmp/dist/assets/*.js >/dev/null && echo built
node node_modules/vite/bin/vite.js --port 5173 --host 127.0.0.1 --logLevel error > /tmp/log 2>&1 &
for n in $(seq 100); do
  if node -e 'fetch("http://127.0.0.1:5173/main.js").then(r => r.text()).then(t => { console.log(t.includes("built") ? "served" : t); }).catch(() => process.exit(1))' 2>/dev/null; then exit 0; fi
  sleep 0.1
done
cat /tmp/log >&2; exit 1
"#,
    );
    assert_eq!(text, "built\nserved");
}

/// Installs an npm package once for the whole test run and answers its `node_modules`.
fn installed(name: &str, package: &str) -> Option<std::path::PathBuf> {
    let folder = shared_folder().join(format!("npm-{name}"));
    let modules = folder.join("node_modules");
    let done = folder.join("done");
    if !done.exists() {
        if ids() != Ids::Range && std::env::var_os("SANDBAR_TEST_MODE").is_some() {
            eprintln!("skipped: `{package}` was not installed by the run as root");
            return None;
        }
        std::fs::create_dir_all(&folder).expect("a folder");
        let output = Command::new("npm")
            .args(["install", "--no-audit", "--no-fund", "--prefix"])
            .arg(&folder)
            .arg(package)
            .stdin(Stdio::null())
            .output()
            .expect("npm");
        assert!(output.status.success(), "npm install {package}: {}", both(&output));
        std::fs::write(&done, "").expect("write");
    }
    Path::new(&modules).is_dir().then_some(modules)
}
