//! What the conformance kit does not see of the reference backend: its programs, its shell, its tasks.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sandbar_core::{
    Command, CreateOptions, ErrorKind, MemoryProvider, Program, ProgramContext, RunOptions, Sandbox,
    SandboxProvider,
};

async fn sandbox() -> Arc<dyn Sandbox> {
    MemoryProvider::new().create(CreateOptions::new()).await.unwrap()
}

async fn check(script: &str, code: i32, stdout: &str) {
    let options = RunOptions::default().with_timeout(Duration::from_secs(10));
    let output = sandbox().await.commands().run_opts(&Command::shell(script), options).await.unwrap();
    let found = (output.status.to_code(), output.stdout_lossy().into_owned());
    assert_eq!(found, (code, stdout.to_owned()), "{script}: {}", output.stderr_lossy());
}

#[tokio::test]
async fn shell_does_what_a_shell_does() {
    for (script, code, stdout) in [
        ("", 0, ""),
        ("# nothing\n", 0, ""),
        ("echo a b  c", 0, "a b c\n"),
        ("echo 'a  b' \"c  d\" e\\ f", 0, "a  b c  d e f\n"),
        ("x='1 2'; echo $x \"$x\"; y=$x; echo \"$y\"", 0, "1 2 1 2\n1 2\n"),
        ("echo \"[$none]\" ${none:-default} \"${none:-a b}\"", 0, "[] default a b\n"),
        ("echo $(echo a; echo b) \"$(echo a; echo b)\"", 0, "a b a\nb\n"),
        ("false && echo no || echo yes", 0, "yes\n"),
        ("true && false || false; echo $?", 0, "1\n"),
        ("! true; echo $?; ! false; echo $?", 0, "1\n0\n"),
        ("if false; then echo a; elif true; then echo b; else echo c; fi", 0, "b\n"),
        ("for i in 1 2 '3 4'; do echo \"<$i>\"; done", 0, "<1>\n<2>\n<3 4>\n"),
        ("printf '1\\n2\\n' | while read n; do echo \"n=$n\"; done", 0, "n=1\nn=2\n"),
        ("i=x; until [ $i = xxx ]; do i=x$i; done; echo $i", 0, "xxx\n"),
        ("(cd /tmp; exit 3); echo $? $(pwd)", 0, "3 /home/user\n"),
        ("{ echo a; echo b >&2; } 2>&1 | cat", 0, "a\nb\n"),
        ("echo x > f; echo y >> f; cat < f; cat f > g; cat g", 0, "x\ny\nx\ny\n"),
        ("cat /none 2>/dev/null; echo $?", 0, "1\n"),
        ("exit 256", 0, ""),
        ("nonsense; echo $?", 0, "127\n"),
        ("yes | head -n 2; echo $?", 0, "y\ny\n0\n"),
        ("sleep 5 & kill $!; wait $!; echo $?", 0, "143\n"),
        ("export A=1; B=2; env | grep x; sh -c 'echo $A-$B'", 0, "1-\n"),
        ("A=1 sh -c 'echo $A'; echo \"[$A]\"", 0, "1\n[]\n"),
        ("exec echo replaced; echo never", 0, "replaced\n"),
        ("cd /none || echo stays; pwd", 0, "stays\n/home/user\n"),
        ("unset HOME; echo \"[$HOME]\"", 0, "[]\n"),
        ("printf '%s-%d|' a 1 b 2", 0, "a-1|b-2|"),
        ("test -f /etc/passwd && [ ! -d /etc/passwd ] && echo file", 0, "file\n"),
        ("echo abc | tr ac xy; seq 3 | tail -n 1; seq 3 | wc -l", 0, "xby\n3\n3\n"),
        ("mkdir -p a/b && ln -s b a/c && readlink a/c && ls a && rm -r a && ls", 0, "b\nb\nc\n"),
        ("echo 'a;b' > 'x y'; mv 'x y' z; cp z w; cat w; rmdir w 2>/dev/null || echo kept", 0, "a;b\nkept\n"),
    ] {
        check(script, code, stdout).await;
    }
}

#[tokio::test]
async fn shell_refuses_what_it_does_not_know() {
    for script in
        ["(", "echo 'open", "if true", "$((1 + 1))", "cat <<END", "echo `id`", "echo )", "| cat", "a &&"]
    {
        check(script, 2, "").await;
    }
    check(&"(".repeat(5000), 2, "").await;
}

struct Upper;

#[async_trait]
impl Program for Upper {
    async fn run(&self, context: ProgramContext) -> i32 {
        loop {
            let bytes = context.read_stdin(4096).await;
            if bytes.is_empty() {
                return i32::try_from(context.argv().len()).unwrap_or(i32::MAX);
            }
            if !context.write_stdout(&bytes.to_ascii_uppercase()).await {
                return 1;
            }
        }
    }
}

#[tokio::test]
async fn registered_program_runs_by_name_and_in_a_script() {
    let provider = MemoryProvider::builder().with_program("upper", Arc::new(Upper)).build();
    let sandbox = provider.create(CreateOptions::new()).await.unwrap();
    let command = Command::new("upper").arg("one");
    let options = RunOptions::default().with_stdin("text");
    let output = sandbox.commands().run_opts(&command, options).await.unwrap();
    assert_eq!((output.status.to_code(), &*output.stdout), (2, b"TEXT".as_slice()));
    let output = sandbox.commands().run(&Command::shell("echo piped | /bin/upper")).await.unwrap();
    assert_eq!((output.status.to_code(), &*output.stdout), (1, b"PIPED\n".as_slice()));
}

struct Alive(#[expect(dead_code, reason = "held for its count only")] Arc<()>);

#[async_trait]
impl Program for Alive {
    async fn run(&self, _context: ProgramContext) -> i32 {
        std::future::pending().await
    }
}

#[tokio::test]
async fn nothing_runs_on_once_the_provider_and_its_handles_are_gone() {
    let count = Arc::new(());
    let program = Arc::new(Alive(count.clone()));
    let provider = MemoryProvider::builder().with_program("stay", program).build();
    let sandbox = provider.create(CreateOptions::new()).await.unwrap();
    let started = "stay & sh -c 'stay & stay' & sleep 600 & true";
    sandbox.commands().run(&Command::shell(started)).await.unwrap();
    drop((provider, sandbox));
    let gone = async {
        // The registry and every running program hold the count; ours is the last.
        while Arc::strong_count(&count) > 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone).await.expect("a task outlives its provider");
}

#[test]
fn create_without_a_runtime_says_so() {
    let created = futures::executor::block_on(MemoryProvider::new().create(CreateOptions::new()));
    assert_eq!(created.map(drop).unwrap_err().kind(), ErrorKind::Config);
}
