//! Makes many sandboxes at once, runs a command in each, and destroys them.
//!
//! `cargo build --release -p sandbar-cli && cargo run --release -p sandbar --example many_at_once -- 50`

use std::time::Instant;

use futures::future::try_join_all;
use sandbar::{Command, CreateOptions, Labels, Lifetime, ProviderExt, Query};

/// Sandboxes unless told otherwise.
const COUNT: usize = 20;

#[tokio::main(flavor = "current_thread")]
async fn main() -> sandbar::Result<()> {
    let count = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(COUNT);
    let provider = sandbar::connect("local:")?;
    let labels = Labels::new().with("example", "many-at-once")?;

    let started = Instant::now();
    let options = CreateOptions::new().with_labels(labels.clone()).with_lifetime(Lifetime::Owned);
    let sandboxes = try_join_all((0..count).map(|_| provider.create(options.clone()))).await?;
    println!("{count} sandboxes after {:?}", started.elapsed());

    let listed = provider.list_all(Query::new().with_labels(labels)).await?;
    println!("the list has {} of them", listed.len());

    let answers = try_join_all(sandboxes.iter().enumerate().map(|(number, sandbox)| async move {
        let command = Command::shell(format!("echo number {number} is $(hostname)"));
        sandbox.commands().run(&command).await
    }))
    .await?;
    println!("all answered after {:?}; the last one said:", started.elapsed());
    if let Some(last) = answers.last() {
        print!("{}", last.stdout_lossy());
    }

    try_join_all(sandboxes.iter().map(|sandbox| sandbox.destroy())).await?;
    println!("all gone after {:?}", started.elapsed());
    Ok(())
}
