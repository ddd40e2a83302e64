use std::sync::Arc;

use futures::StreamExt;
use sandbar_core::{
    BuildCache, BuildLog, BuildSpec, BuildStep, Builds, Command, CreateOptions, EnvVars, Error, ErrorKind,
    MainState, Result, Sandbox, SandboxExt, SandboxProvider, Template, TemplateId,
};

use crate::bed::Bed;
use crate::case::group;
use crate::check::{Checked, at, ensure, ensure_eq, eventually, expect_error, fail, provider_part, sh};

group!("builds";
    answers_the_template_last, steps_see_files_of_those_before, steps_see_no_process_of_those_before,
    environment_and_folder_hold_for_sandboxes, output_comes_line_by_line, steps_are_numbered,
    a_step_that_fails_names_itself_and_makes_nothing, a_failure_replaces_nothing, an_absent_base_is_not_found,
    no_steps_are_invalid, a_known_step_is_not_done_again, the_cache_can_be_ignored,
    a_scope_knows_its_own_results_alone, built_over_another,
    start_is_the_main_command, ready_is_waited_for, never_ready_is_no_sandbox, dropped_makes_nothing,
);

fn part(provider: &dyn SandboxProvider) -> Checked<&dyn Builds> {
    provider_part(provider.builds(), provider, "builds")
}

fn run(script: &str) -> BuildStep {
    BuildStep::Run(Command::shell(script))
}

/// What a build said.
#[derive(Debug, Default)]
struct Said {
    steps: Vec<(usize, usize, bool)>,
    lines: Vec<String>,
}

/// Builds, and answers what was said and what came of it.
async fn build(bed: &Bed<'_>, spec: BuildSpec) -> Checked<(Said, Result<Template>)> {
    let mut said = Said::default();
    let mut words = match part(bed.provider())?.build(spec).await {
        Ok(words) => words,
        Err(error) => return Ok((said, Err(error))),
    };
    while let Some(word) = words.next().await {
        match word {
            Ok(BuildLog::Step { number, of, is_cached, .. }) => said.steps.push((number, of, is_cached)),
            Ok(BuildLog::Line(line)) => said.lines.push(line),
            Ok(BuildLog::Done(template)) => {
                ensure!(words.next().await.is_none(), "something follows the last word");
                return Ok((said, Ok(template)));
            }
            Ok(_) => {}
            Err(error) => return Ok((said, Err(error))),
        }
    }
    fail("the stream of a build ended without a last word")
}

/// A template of these steps.
async fn built(bed: &Bed<'_>, steps: Vec<BuildStep>) -> Checked<(TemplateId, Said)> {
    part(bed.provider())?;
    let id = bed.template()?;
    let (said, template) = build(bed, BuildSpec::new(id.clone(), steps)).await?;
    ensure_eq!(template?.id, id, "the id");
    Ok((id, said))
}

async fn failed(bed: &Bed<'_>, spec: BuildSpec, kinds: &[ErrorKind], what: &str) -> Checked<Error> {
    let (_, result) = build(bed, spec).await?;
    expect_error(result, kinds, what)
}

fn options(bed: &Bed<'_>, id: &TemplateId) -> Checked<CreateOptions> {
    Ok(bed.options()?.with_template(id.clone()))
}

async fn from(bed: &Bed<'_>, id: &TemplateId) -> Checked<Arc<dyn Sandbox>> {
    Ok(bed.create(options(bed, id)?).await?)
}

async fn says(sandbox: &dyn Sandbox, script: &str, expected: &str) -> Checked {
    let output = sh(sandbox, script).await?;
    ensure_eq!(output.stdout_lossy().trim(), expected, format!("what `{script}` says"));
    Ok(())
}

async fn answers_the_template_last(bed: &Bed<'_>) -> Checked {
    let (id, _) = built(bed, vec![run("echo made > ~/made")]).await?;
    let templates = provider_part(bed.provider().templates(), bed.provider(), "templates")?;
    match templates.get(&id).await? {
        Some(template) => ensure_eq!(template.id, id, "the id found"),
        None => return fail("what was built is absent"),
    }
    says(&*from(bed, &id).await?, "cat ~/made", "made").await
}

async fn steps_see_files_of_those_before(bed: &Bed<'_>) -> Checked {
    let (id, _) = built(bed, vec![run("echo one > ~/a"), run("cat ~/a > ~/b; rm ~/a")]).await?;
    says(&*from(bed, &id).await?, "cat ~/b; ls ~/a 2>/dev/null; true", "one").await
}

async fn steps_see_no_process_of_those_before(bed: &Bed<'_>) -> Checked {
    let leave = "sleep 600 </dev/null >/dev/null 2>&1 & echo $! > ~/pid";
    let look = "kill -0 $(cat ~/pid) 2>/dev/null && echo lives || echo gone";
    let (_, said) = built(bed, vec![run(leave), run(look)]).await?;
    ensure!(said.lines.iter().any(|line| line == "gone"), "a process of a step before: {:?}", said.lines);
    Ok(())
}

async fn environment_and_folder_hold_for_sandboxes(bed: &Bed<'_>) -> Checked {
    let steps = vec![
        BuildStep::Env(EnvVars::new().with("KIT_MODE", "fast")?),
        BuildStep::Workdir(at("/home/user/kit")?),
        run("echo $KIT_MODE > mode"),
    ];
    let (id, _) = built(bed, steps).await?;
    let sandbox = from(bed, &id).await?;
    says(&*sandbox, "cat mode; echo $KIT_MODE; pwd", "fast\nfast\n/home/user/kit").await
}

async fn output_comes_line_by_line(bed: &Bed<'_>) -> Checked {
    let (_, said) = built(bed, vec![run("echo out; echo err >&2; printf 'no end'")]).await?;
    for line in ["out", "err", "no end"] {
        ensure!(said.lines.iter().any(|said| said == line), "`{line}` is not among {:?}", said.lines);
    }
    Ok(())
}

async fn steps_are_numbered(bed: &Bed<'_>) -> Checked {
    let (_, said) = built(bed, vec![run("true"), run("true")]).await?;
    let numbers: Vec<_> = said.steps.iter().map(|(number, of, _)| (*number, *of)).collect();
    ensure_eq!(numbers, [(1, 2), (2, 2)], "the steps");
    Ok(())
}

async fn a_step_that_fails_names_itself_and_makes_nothing(bed: &Bed<'_>) -> Checked {
    part(bed.provider())?;
    let id = bed.template()?;
    let spec = BuildSpec::new(id.clone(), vec![run("true"), run("echo some reason >&2; exit 7")]);
    let error = failed(bed, spec, &[ErrorKind::Unexpected], "a step that exits with 7").await?;
    for part in ["2", "7", "some reason"] {
        ensure!(error.message().contains(part), "`{part}` is not in: {error}");
    }
    let boot = bed.provider().create(options(bed, &id)?).await;
    expect_error(boot, &[ErrorKind::NotFound], "a template whose build failed").map(drop)
}

async fn a_failure_replaces_nothing(bed: &Bed<'_>) -> Checked {
    let (id, _) = built(bed, vec![run("echo first > ~/which")]).await?;
    let spec = BuildSpec::new(id.clone(), vec![run("echo second > ~/which"), run("false")]);
    failed(bed, spec, &[ErrorKind::Unexpected], "a step that fails").await?;
    says(&*from(bed, &id).await?, "cat ~/which", "first").await
}

async fn an_absent_base_is_not_found(bed: &Bed<'_>) -> Checked {
    part(bed.provider())?;
    let spec = BuildSpec::new(bed.template()?, vec![run("true")]).with_base(bed.template()?);
    failed(bed, spec, &[ErrorKind::NotFound], "a build over what is not there").await.map(drop)
}

async fn no_steps_are_invalid(bed: &Bed<'_>) -> Checked {
    part(bed.provider())?;
    let spec = BuildSpec::new(bed.template()?, Vec::new());
    failed(bed, spec, &[ErrorKind::InvalidInput], "a build without steps").await.map(drop)
}

async fn a_known_step_is_not_done_again(bed: &Bed<'_>) -> Checked {
    let unique = bed.unique("cache");
    let steps = || vec![run(&format!("echo {unique}; date +%s%N > ~/stamp"))];
    let (first, said) = built(bed, steps()).await?;
    ensure!(said.steps.iter().all(|(_, _, is_cached)| !is_cached), "what was never done is known");
    let (second, said) = built(bed, steps()).await?;
    ensure!(said.steps.iter().all(|(_, _, is_cached)| *is_cached), "what was done is not known");
    let stamp = async |id: &TemplateId| Checked::Ok(sh(&*from(bed, id).await?, "cat ~/stamp").await?.stdout);
    ensure_eq!(stamp(&first).await?, stamp(&second).await?, "the stamp");
    Ok(())
}

async fn the_cache_can_be_ignored(bed: &Bed<'_>) -> Checked {
    part(bed.provider())?;
    let step = run(&format!("echo {}", bed.unique("cache")));
    built(bed, vec![step.clone()]).await?;
    let spec = BuildSpec::new(bed.template()?, vec![step]).with_cache(BuildCache::Ignore);
    let (said, template) = build(bed, spec).await?;
    template?;
    ensure!(said.steps.iter().all(|(_, _, is_cached)| !is_cached), "a step was not done");
    Ok(())
}

async fn a_scope_knows_its_own_results_alone(bed: &Bed<'_>) -> Checked {
    part(bed.provider())?;
    let step = run(&format!("echo {}; date +%s%N > ~/stamp", bed.unique("cache")));
    let scopes = [Some(bed.unique("one")), Some(bed.unique("other")), None];
    let build_in = async |scope: &Option<String>, cache: BuildCache| {
        let id = bed.template()?;
        let mut spec = BuildSpec::new(id.clone(), vec![step.clone()]).with_cache(cache);
        spec.scope.clone_from(scope);
        let (said, template) = build(bed, spec).await?;
        template?;
        let stamp = sh(&*from(bed, &id).await?, "cat ~/stamp").await?.stdout;
        Checked::Ok((said.steps.iter().all(|(_, _, is_cached)| *is_cached), stamp))
    };
    let mut stamps = Vec::new();
    for scope in &scopes {
        let (is_cached, stamp) = build_in(scope, BuildCache::Use).await?;
        ensure!(!is_cached, "a result of another scope is known in {scope:?}");
        ensure!(!stamps.contains(&stamp), "two scopes have one result");
        stamps.push(stamp);
    }
    // One who has it done again changes nobody else's.
    let (_, again) = build_in(&scopes[0], BuildCache::Ignore).await?;
    stamps[0] = again;
    for (scope, expected) in scopes.iter().zip(&stamps) {
        let (is_cached, stamp) = build_in(scope, BuildCache::Use).await?;
        ensure!(is_cached, "what was done in {scope:?} is not known there");
        ensure_eq!(stamp, *expected, format!("the result in {scope:?}"));
    }
    Ok(())
}

async fn built_over_another(bed: &Bed<'_>) -> Checked {
    let (base, _) = built(bed, vec![run("echo below > ~/below")]).await?;
    let id = bed.template()?;
    let spec = BuildSpec::new(id.clone(), vec![run("cat ~/below; echo above > ~/above")]).with_base(base);
    let (_, template) = build(bed, spec).await?;
    template?;
    says(&*from(bed, &id).await?, "cat ~/below ~/above", "below\nabove").await
}

async fn start_is_the_main_command(bed: &Bed<'_>) -> Checked {
    let start = BuildStep::Start(Command::shell("touch /tmp/begun; exec sleep 600"));
    let (id, _) = built(bed, vec![start]).await?;
    let sandbox = from(bed, &id).await?;
    let Some(main) = sandbox.require_main_command()?.status().await? else {
        return fail("there is no main command");
    };
    ensure_eq!(main.state, MainState::Running, "the state of the main command");
    eventually("the main command's file", || async {
        Ok(sh(&*sandbox, "test -e /tmp/begun && echo yes || true").await?.stdout_lossy() == "yes\n")
    })
    .await
}

async fn ready_is_waited_for(bed: &Bed<'_>) -> Checked {
    let steps = vec![
        BuildStep::Start(Command::shell("sleep 1; touch /tmp/ready; exec sleep 600")),
        BuildStep::Ready(Command::shell("test -e /tmp/ready")),
    ];
    let (id, _) = built(bed, steps).await?;
    says(&*from(bed, &id).await?, "test -e /tmp/ready && echo yes", "yes").await
}

async fn never_ready_is_no_sandbox(bed: &Bed<'_>) -> Checked {
    let steps = vec![
        BuildStep::Start(Command::shell("echo some reason >&2; exit 3")),
        BuildStep::Ready(Command::shell("test -e /tmp/ready")),
    ];
    let (id, _) = built(bed, steps).await?;
    let (marked, mark) = bed.marked_options()?;
    let made = bed.create(marked.with_template(id)).await;
    let error = expect_error(made, &[ErrorKind::Unexpected], "a main command that fails")?;
    ensure!(error.message().contains("/tmp/ready"), "the command is not in: {error}");
    let left =
        sandbar_core::ProviderExt::list_all(bed.provider(), sandbar_core::Query::new().with_labels(mark));
    ensure!(left.await?.is_empty(), "something is left of a creation that failed");
    Ok(())
}

async fn dropped_makes_nothing(bed: &Bed<'_>) -> Checked {
    part(bed.provider())?;
    let id = bed.template()?;
    let spec = BuildSpec::new(id.clone(), vec![run("echo begun; sleep 600")]);
    let mut words = part(bed.provider())?.build(spec).await?;
    while let Some(word) = words.next().await {
        if matches!(word?, BuildLog::Line(_)) {
            break;
        }
    }
    drop(words);
    let boot = bed.provider().create(options(bed, &id)?).await;
    expect_error(boot, &[ErrorKind::NotFound], "a template whose build was given up").map(drop)
}
