//! Runs Python that nobody should trust, with a time limit and a memory limit, and shows what came of it.
//!
//! `cargo build --release -p sandbar-cli && cargo run --release -p sandbar --example run_python`

use std::time::Duration;

use sandbar::{Command, CreateOptions, ErrorKind, Lifetime, Resources, RunOptions};

const PROGRAM: &str = "
import os, platform
print('hello from', platform.node(), 'as uid', os.getuid())
print('6 * 7 =', 6 * 7)
print('what it sees of the host home folders:', os.listdir('/home'))
";

#[tokio::main(flavor = "current_thread")]
async fn main() -> sandbar::Result<()> {
    let provider = sandbar::connect("local:")?;
    let options = CreateOptions::new()
        .with_resources(Resources::default().with_memory_bytes(512 << 20))
        // However this program ends, its sandbox ends with it.
        .with_lifetime(Lifetime::Owned);
    let sandbox = provider.create(options).await?;

    let python = Command::new("python3").arg("-c").arg(PROGRAM);
    let output = sandbox.commands().run(&python).await?;
    print!("{}", output.stdout_lossy());
    eprint!("{}", output.stderr_lossy());
    println!("it ended with {} after {:?}", output.status, output.duration);

    // A program that does not come to an end is ended, with all that it started.
    let endless = Command::new("python3").arg("-c").arg("while True: pass");
    let limited = RunOptions::default().with_timeout(Duration::from_millis(500));
    match sandbox.commands().run_opts(&endless, limited).await {
        Err(error) if error.kind() == ErrorKind::Timeout => println!("the endless one: {error}"),
        other => println!("the endless one came to an end by itself: {other:?}"),
    }

    sandbox.destroy().await?;
    Ok(())
}
