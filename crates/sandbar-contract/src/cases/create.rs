use sandbar_core::{
    Base, CreateOptions, EnvVars, ErrorKind, FilesExt, Labels, ProjectId, ProviderExt, Query, RunOptions,
    State, TemplateId,
};

use crate::bed::Bed;
use crate::case::group;
use crate::check::{Checked, at, ensure, ensure_eq, expect_error, sh, sh_opts};
use crate::harness::Fault;

group!("create";
    answers_when_ready, ids_differ, state_is_running, project_is_in_the_record, name_is_in_the_record,
    labels_are_in_the_record, times_are_in_the_record, record_form_has_its_version, taken_name_is_already_exists,
    name_is_free_after_destroy, missing_template_is_an_error, missing_template_leaves_nothing,
    bogus_image_is_never_a_default, env_reaches_commands, env_values_arrive_unchanged,
    sandboxes_do_not_share_files, half_way_failure_leaves_nothing, concurrent_creates_are_independent,
    concurrent_creates_of_one_name_make_one, refused_input_leaves_nothing, reserved_label_is_refused,
    labels_do_not_override_the_record, options_debug_shows_no_value,
    self_delivered_env_is_not_in_the_record, self_delivered_env_is_not_in_the_listing,
    self_delivered_env_is_not_in_the_sandbox, self_delivered_env_is_not_on_its_disk,
    self_delivered_env_is_checked_like_env,
);

/// A value that must not turn up where it has no business.
const SECRET: &str = "s3cr3t-SENTINEL-value";

async fn answers_when_ready(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    ensure_eq!(sh(&*sandbox, "echo ready").await?.stdout_lossy(), "ready\n", "output at once");
    Ok(())
}

async fn ids_differ(bed: &Bed<'_>) -> Checked {
    let (one, other) = (bed.fresh().await?, bed.fresh().await?);
    ensure!(one.id() != other.id(), "two sandboxes have the id `{}`", one.id());
    Ok(())
}

async fn state_is_running(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    ensure_eq!(sandbox.record().await?.state, State::Running, "state after create");
    Ok(())
}

async fn project_is_in_the_record(bed: &Bed<'_>) -> Checked {
    let project = ProjectId::new(bed.unique("project"))?;
    let sandbox = bed.create(bed.options()?.with_project(project.clone())).await?;
    ensure_eq!(bed.describe(sandbox.id()).await?.project, Some(project), "project");
    let without = bed.shared().await?;
    ensure_eq!(bed.describe(without.id()).await?.project, None, "project of one without");
    Ok(())
}

async fn name_is_in_the_record(bed: &Bed<'_>) -> Checked {
    let name = bed.name()?;
    let sandbox = bed.create(bed.options()?.with_name(name.clone())).await?;
    ensure_eq!(bed.describe(sandbox.id()).await?.name, Some(name), "name");
    Ok(())
}

async fn labels_are_in_the_record(bed: &Bed<'_>) -> Checked {
    let mut options = bed.options()?;
    options.labels.insert("purpose", "a value with spaces, ünïcode and \"quotes\"")?;
    options.labels.insert("empty", "")?;
    let asked = options.labels.clone();
    let sandbox = bed.create(options).await?;
    let labels = bed.describe(sandbox.id()).await?.labels;
    ensure!(labels.contains_all(&asked), "labels asked for: {asked:?}, found: {labels:?}");
    Ok(())
}

async fn times_are_in_the_record(bed: &Bed<'_>) -> Checked {
    /// How far the backend's clock may be from this one, in seconds.
    const SKEW: i64 = 120;
    let sandbox = bed.fresh().await?;
    let record = bed.describe(sandbox.id()).await?;
    let now = jiff::Timestamp::now();
    for (what, time) in [("created_at", record.created_at), ("started_at", record.started_at)] {
        if let Some(time) = time {
            let off = (now.as_second() - time.as_second()).abs();
            ensure!(off < SKEW, "{what} is {time}, {off} s from now");
        }
    }
    ensure!(record.started_at.is_some(), "a sandbox that runs has no started_at");
    Ok(())
}

async fn record_form_has_its_version(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    let record = bed.describe(sandbox.id()).await?;
    ensure_eq!(record.version, sandbar_core::SandboxRecord::VERSION, "version");
    ensure_eq!(record.id, *sandbox.id(), "id");
    Ok(())
}

async fn taken_name_is_already_exists(bed: &Bed<'_>) -> Checked {
    let name = bed.name()?;
    bed.create(bed.options()?.with_name(name.clone())).await?;
    let (options, mark) = bed.marked_options()?;
    let second = bed.create(options.with_name(name)).await;
    expect_error(second, &[ErrorKind::AlreadyExists], "a second sandbox of the same name")?;
    nothing_left(bed, mark).await
}

async fn name_is_free_after_destroy(bed: &Bed<'_>) -> Checked {
    let name = bed.name()?;
    let first = bed.create(bed.options()?.with_name(name.clone())).await?;
    bed.provider().destroy(first.id()).await?;
    bed.create(bed.options()?.with_name(name)).await?;
    Ok(())
}

async fn nothing_left(bed: &Bed<'_>, mark: Labels) -> Checked {
    let left = bed.provider().list_all(Query::new().with_labels(mark)).await?;
    let ids: Vec<_> = left.iter().map(|record| record.id.clone()).collect();
    for id in &ids {
        bed.adopt(id);
    }
    ensure!(ids.is_empty(), "a create that failed left {ids:?}");
    Ok(())
}

async fn missing_template_is_an_error(bed: &Bed<'_>) -> Checked {
    let template = TemplateId::new(bed.unique("no-such-template"))?;
    let created = bed.create(bed.options()?.with_template(template)).await;
    expect_error(created, &[ErrorKind::NotFound], "create from a missing template")?;
    Ok(())
}

async fn missing_template_leaves_nothing(bed: &Bed<'_>) -> Checked {
    let template = TemplateId::new(bed.unique("no-such-template"))?;
    let (options, mark) = bed.marked_options()?;
    let created = bed.create(options.with_template(template)).await;
    ensure!(created.is_err(), "create from a missing template succeeded");
    nothing_left(bed, mark).await
}

async fn bogus_image_is_never_a_default(bed: &Bed<'_>) -> Checked {
    let (mut options, mark) = bed.marked_options()?;
    options.base = Base::Image("example.test/no/such/image:none".to_owned());
    let created = bed.create(options).await;
    ensure!(created.is_err(), "create from an image that does not exist succeeded");
    nothing_left(bed, mark).await
}

async fn env_reaches_commands(bed: &Bed<'_>) -> Checked {
    let env = EnvVars::new().with("KIT_VARIABLE", "from create")?;
    let sandbox = bed.create(bed.options()?.with_env(env)).await?;
    let output = sh(&*sandbox, "printf '%s' \"$KIT_VARIABLE\"").await?;
    ensure_eq!(output.stdout_lossy(), "from create", "the variable");
    Ok(())
}

async fn env_values_arrive_unchanged(bed: &Bed<'_>) -> Checked {
    let value = "a b\tc\nd \"e\" 'f' $HOME \\ = ünïcode *";
    let env = EnvVars::new().with("KIT_ODD", value)?.with("KIT_EMPTY", "")?;
    let sandbox = bed.create(bed.options()?.with_env(env)).await?;
    let output = sh(&*sandbox, "printf '%s[%s]' \"$KIT_ODD\" \"${KIT_EMPTY:-empty}\"").await?;
    ensure_eq!(output.stdout_lossy(), format!("{value}[empty]"), "the values");
    Ok(())
}

async fn sandboxes_do_not_share_files(bed: &Bed<'_>) -> Checked {
    let (one, other) = (bed.fresh().await?, bed.fresh().await?);
    let path = at("/tmp/only-in-one")?;
    one.files().write(&path, "x".into()).await?;
    ensure!(!other.files().exists(&path).await?, "a file of one sandbox is seen in another");
    Ok(())
}

async fn half_way_failure_leaves_nothing(bed: &Bed<'_>) -> Checked {
    let faulty = bed.faulty().await?;
    faulty.arm(Fault::Create)?;
    let name = bed.name()?;
    let failed = faulty.provider().create(faulty.options.clone().with_name(name.clone())).await;
    let Err(error) = failed else { return crate::check::fail("a create that breaks half-way succeeded") };
    let left = faulty.provider().list_all(Query::new()).await?;
    ensure!(
        left.is_empty() || !error.left_behind().is_empty(),
        "{} sandboxes are left and the error does not name them: {error}",
        left.len()
    );
    if left.is_empty() {
        let again = faulty.provider().create(faulty.options.clone().with_name(name)).await?;
        faulty.provider().destroy(again.id()).await?;
    }
    Ok(())
}

async fn concurrent_creates_are_independent(bed: &Bed<'_>) -> Checked {
    const HOW_MANY: usize = 6;
    let create = || async {
        let sandbox = bed.fresh().await?;
        let id = sandbox.id().to_string();
        sh(&*sandbox, &format!("echo {id} > /tmp/mine")).await?;
        Checked::Ok(sandbox)
    };
    let made = futures::future::try_join_all((0..HOW_MANY).map(|_| create())).await?;
    for sandbox in &made {
        let mine = sh(&**sandbox, "cat /tmp/mine").await?;
        ensure_eq!(mine.stdout_lossy().trim(), sandbox.id().as_str(), "the file of each");
    }
    let mut ids: Vec<_> = made.iter().map(|sandbox| sandbox.id().clone()).collect();
    ids.sort();
    ids.dedup();
    ensure_eq!(ids.len(), HOW_MANY, "different ids");
    Ok(())
}

async fn concurrent_creates_of_one_name_make_one(bed: &Bed<'_>) -> Checked {
    let name = bed.name()?;
    let options = bed.options()?.with_name(name);
    let results = futures::future::join_all((0..4).map(|_| bed.create(options.clone()))).await;
    let made = results.iter().filter(|result| result.is_ok()).count();
    ensure_eq!(made, 1, "sandboxes made under one name");
    for result in results {
        if let Err(error) = result {
            ensure_eq!(error.kind(), ErrorKind::AlreadyExists, "kind of the others' error");
        }
    }
    Ok(())
}

async fn refused_input_leaves_nothing(bed: &Bed<'_>) -> Checked {
    let (options, mark) = bed.marked_options()?;
    let created = bed.create(options.with_ports([0])).await;
    expect_error(created, &[ErrorKind::InvalidInput], "create with port 0")?;
    nothing_left(bed, mark).await
}

async fn reserved_label_is_refused(bed: &Bed<'_>) -> Checked {
    let mut options: CreateOptions = bed.options()?;
    let inserted = options.labels.insert(format!("{}owner", Labels::RESERVED_PREFIX), "me");
    expect_error(inserted, &[ErrorKind::InvalidInput], "a label under the reserved prefix")?;
    let sandbox = bed.create(options).await?;
    let record = bed.describe(sandbox.id()).await?;
    let leaked = record.labels.iter().any(|(_, value)| value == "me");
    ensure!(!leaked, "the refused label is in the record");
    Ok(())
}

async fn labels_do_not_override_the_record(bed: &Bed<'_>) -> Checked {
    let (project, name) = (ProjectId::new(bed.unique("project"))?, bed.name()?);
    let mut options = bed.options()?.with_project(project.clone()).with_name(name.clone());
    for key in
        ["id", "name", "project", "projectId", "project_id", "state", "template", "managed", "deadline"]
    {
        options.labels.insert(key, "spoofed")?;
    }
    let sandbox = bed.create(options).await?;
    let record = bed.describe(sandbox.id()).await?;
    ensure_eq!(record.project, Some(project), "project");
    ensure_eq!(record.name, Some(name), "name");
    ensure_eq!(record.id, *sandbox.id(), "id");
    ensure!(record.template.as_deref() != Some("spoofed"), "a label became the template");
    ensure_eq!(record.labels.get("projectId"), Some("spoofed"), "the label itself");
    Ok(())
}

async fn options_debug_shows_no_value(bed: &Bed<'_>) -> Checked {
    let env = EnvVars::new().with("KIT_SECRET", SECRET)?;
    let options = bed.options()?.with_env(env.clone()).with_self_delivered_env(env.clone());
    ensure!(!format!("{options:?}").contains(SECRET), "the options' Debug shows a value");
    ensure!(!format!("{:?}", RunOptions::default().with_env(env)).contains(SECRET), "RunOptions' Debug does");
    Ok(())
}

/// Options with a secret that the caller delivers itself.
fn with_secret(bed: &Bed<'_>) -> Checked<CreateOptions> {
    Ok(bed.options()?.with_self_delivered_env(EnvVars::new().with("KIT_SECRET", SECRET)?))
}

async fn self_delivered_env_is_not_in_the_record(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.create(with_secret(bed)?).await?;
    let record = bed.describe(sandbox.id()).await?;
    let json = serde_json::to_string(&record).unwrap_or_default();
    ensure!(!json.is_empty(), "the record has no JSON form");
    for (what, text) in [("JSON", json), ("Debug", format!("{record:?}")), ("handle", format!("{sandbox:?}"))]
    {
        ensure!(!text.contains(SECRET), "the secret is in the {what}");
    }
    Ok(())
}

async fn self_delivered_env_is_not_in_the_listing(bed: &Bed<'_>) -> Checked {
    let (mut options, mark) = bed.marked_options()?;
    options.self_delivered_env = EnvVars::new().with("KIT_SECRET", SECRET)?;
    bed.create(options).await?;
    let records = bed.provider().list_all(Query::new().with_labels(mark)).await?;
    ensure_eq!(records.len(), 1, "records");
    let json = serde_json::to_string(&records).unwrap_or_default();
    ensure!(!json.contains(SECRET), "the secret is in the listing");
    Ok(())
}

async fn self_delivered_env_is_not_in_the_sandbox(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.create(with_secret(bed)?).await?;
    let output = sh_opts(&*sandbox, "env", RunOptions::default()).await?;
    ensure!(!output.stdout_lossy().contains(SECRET), "the secret is in the environment of a command");
    Ok(())
}

async fn self_delivered_env_is_not_on_its_disk(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.create(with_secret(bed)?).await?;
    for folder in ["/tmp", "/etc", "/run"] {
        let folder = at(folder)?;
        if !sandbox.files().exists(&folder).await? {
            continue;
        }
        for entry in sandbox.files().list(&folder).await? {
            if entry.kind != sandbar_core::EntryKind::File || entry.size > 65_536 {
                continue;
            }
            if let Ok(content) = sandbox.files().read(&entry.path).await {
                let found = String::from_utf8_lossy(&content).contains(SECRET);
                ensure!(!found, "the secret is in `{}`", entry.path);
            }
        }
    }
    Ok(())
}

async fn self_delivered_env_is_checked_like_env(bed: &Bed<'_>) -> Checked {
    for (name, value) in [("1BAD", "x"), ("", "x"), ("A=B", "x"), ("GOOD", "nul\0")] {
        let mut options = bed.options()?;
        let env = options.env.insert(name, value);
        let delivered = options.self_delivered_env.insert(name, value);
        let env = expect_error(env, &[ErrorKind::InvalidInput], "env")?;
        let delivered = expect_error(delivered, &[ErrorKind::InvalidInput], "self-delivered env")?;
        ensure_eq!(env.message(), delivered.message(), "the two messages");
    }
    Ok(())
}
