//! `golden_boot vite|fastapi`: a template with all dependencies, and then an app in a moment. See the README beside this file.

mod boot;

use std::time::Instant;

use boot::Kind;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let kind = match std::env::args().nth(1).as_deref() {
        Some("vite") => Kind::Vite,
        Some("fastapi") => Kind::FastApi,
        _ => return Err("say which: `vite` or `fastapi`".into()),
    };
    let provider = sandbar::connect("local:")?;
    let packages = boot::fetch(kind)?;
    let template = boot::build(&*provider, kind, packages.path(), |line| println!("{line}")).await?;
    for _ in 0..3 {
        let begun = Instant::now();
        let booted = boot::boot(&*provider, kind, &template.id).await?;
        println!("{} answers after {} ms: {}", booted.url, begun.elapsed().as_millis(), booted.title());
        booted.sandbox.destroy().await?;
    }
    let app = boot::build_app(&*provider, kind, &template.id).await?;
    let begun = Instant::now();
    let booted = boot::boot_app(&*provider, kind, &app.id).await?;
    println!("{} with its source answers after {} ms", booted.url, begun.elapsed().as_millis());
    booted.sandbox.destroy().await?;
    Ok(())
}
