use std::sync::Arc;
use std::time::{Duration, Instant};

use sandbar::local::{LocalConfig, LocalProvider, Spare};
use sandbar::{
    Command, CommitOptions, CreateOptions, Lifetime, ProviderExt as _, Sandbox, SandboxProvider, TemplateId,
};

use crate::bed::{Bed, create};
use crate::row::{Bar, Peer, Row};
use crate::sample::Samples;

const ROUNDS: usize = 150;
/// Rounds before anything is noted: caches of the kernel, and the prepared ones.
const WARM_UP: usize = 10;
/// Between two rounds: what is prepared aside is not counted to the next, whoever's it is.
const REST: Duration = Duration::from_millis(10);
/// MiB that the large template has in files of [`FILE_KIB`], and in quick runs.
const SIZE: u32 = 1024;
const QUICK_SIZE: u32 = 64;
const FILE_KIB: u32 = 64;
/// Where they are.
const DATA: &str = "/home/user/data";

/// Create from a template that is large, beside the built-in one.
pub(crate) fn create_from_large(bed: &Bed) -> Result<Vec<Row>, String> {
    let mib = if bed.quick { QUICK_SIZE } else { SIZE };
    let template = TemplateId::new("large").map_err(|error| error.to_string())?;
    bed.runtime.block_on(make(bed, &template, mib))?;
    let mut rows = Vec::new();
    for (spare, how) in [(Spare::Kept, "the next one prepared in between"), (Spare::None, "nothing prepared")]
    {
        // Each keeps a prepared one of its own shape.
        let (large, plain) = (open(bed, spare)?, open(bed, spare)?);
        let (mut ours, mut theirs) = (Samples::default(), Samples::default());
        for turn in 0..bed.rounds(ROUNDS) + WARM_UP {
            let kinds = [(&plain, None, &mut theirs), (&large, Some(&template), &mut ours)];
            for (provider, template, samples) in kinds {
                let (took, outcome) = bed.runtime.block_on(cycle(provider, template))?;
                if turn >= WARM_UP {
                    samples.took(took, outcome);
                }
                std::thread::sleep(REST);
            }
        }
        let what = format!("create from a template of {mib} MiB, {how}");
        let peer = Peer::measured("create from `host`", theirs);
        rows.push(Row::new("create-template", what, "ms", ours, peer, Bar::AtMostTimes(1.1)));
    }
    Ok(rows)
}

/// How long a creation takes; its sandbox works, and is gone afterwards.
async fn cycle(
    provider: &Arc<dyn SandboxProvider>,
    template: Option<&TemplateId>,
) -> Result<(Duration, Result<(), String>), String> {
    let mut options = CreateOptions::new().with_lifetime(Lifetime::Owned);
    if let Some(template) = template {
        options = options.with_template(template.clone());
    }
    let begun = Instant::now();
    let sandbox = provider.create(options).await.map_err(|error| error.to_string())?;
    let took = begun.elapsed();
    // It has the template's files, and nobody else has.
    let has = if template.is_some() { "-e" } else { "! -e" };
    let outcome = run(&*sandbox, &format!("[ {has} {DATA}/faaaa ]")).await;
    sandbox.destroy().await.map_err(|error| error.to_string())?;
    Ok((took, outcome))
}

/// A template with so many MiB over the built-in one.
async fn make(bed: &Bed, template: &TemplateId, mib: u32) -> Result<(), String> {
    let sandbox = create(&bed.provider).await?;
    let script =
        format!("mkdir {DATA} && head -c {mib}M /dev/urandom | split -a 4 -b {FILE_KIB}k - {DATA}/f && sync");
    run(&*sandbox, &script).await?;
    let options = CommitOptions {
        sandbox: sandbox.id().clone(),
        template: template.clone(),
        capture_paths: Vec::new(),
        label: None,
    };
    let templates = bed.provider.require_templates().map_err(|error| error.to_string())?;
    let made = templates.commit(options).await.map_err(|error| error.to_string())?;
    sandbox.destroy().await.map_err(|error| error.to_string())?;
    match made.size_bytes {
        Some(bytes) if bytes >= u64::from(mib) << 20 => Ok(()),
        other => Err(format!("the template has {other:?} bytes instead of {mib} MiB")),
    }
}

async fn run(sandbox: &dyn Sandbox, script: &str) -> Result<(), String> {
    let output = sandbox.commands().run(&Command::shell(script)).await.map_err(|error| error.to_string())?;
    if output.status.is_success() {
        return Ok(());
    }
    Err(format!("`{script}`: {:?}: {}", output.status, output.stderr_lossy()))
}

fn open(bed: &Bed, spare: Spare) -> Result<Arc<dyn SandboxProvider>, String> {
    let config = LocalConfig::new().with_home(bed.home()).with_spare(spare);
    Ok(Arc::new(LocalProvider::open(config).map_err(|error| error.to_string())?))
}
