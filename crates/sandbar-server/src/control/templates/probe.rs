use std::time::Duration;

use sandbar_core::{
    Base, Command, CreateOptions, EgressPolicy, ErrorKind, Lifetime, Result, RunOptions, Sandbox, TemplateId,
    UserName,
};
use sandbar_wire::e2b::Metadata;

use crate::app::App;
use crate::marks::Marks;

/// How long a look into a template may take.
const TIME: Duration = Duration::from_secs(60);

/// How commands run in a template's sandboxes: what a step that names another user comes back to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Surroundings {
    /// Who runs them.
    pub(super) user: UserName,
    /// Home of that user.
    pub(super) home: String,
    /// Where they run.
    pub(super) workdir: String,
    /// Whether there is a root: not where sandboxes have a single id.
    pub(super) has_root: bool,
}

impl App {
    /// Looks into a template, by a sandbox that nobody sees.
    pub(super) async fn probe(&self, tenant: &str, template: Option<&TemplateId>) -> Result<Surroundings> {
        let marks = Marks { tenant: tenant.to_owned(), is_internal: true, ..Marks::default() };
        let labels = marks
            .to_labels(&Metadata::new())
            .map_err(|error| sandbar_core::Error::invalid("probe", error.message))?;
        let mut options = CreateOptions::new()
            .with_labels(labels)
            .with_egress(EgressPolicy::DenyAll)
            .with_deadline(TIME)
            .with_lifetime(Lifetime::Owned);
        if let Some(template) = template {
            options.base = Base::Template(template.clone());
        }
        let sandbox = self.provider.create(options).await?;
        let looked = look(&*sandbox).await;
        let destroyed = sandbox.destroy().await;
        let looked = looked?;
        destroyed?;
        Ok(looked)
    }
}

async fn look(sandbox: &dyn Sandbox) -> Result<Surroundings> {
    let options = RunOptions::default().with_timeout(TIME);
    let script = Command::shell("id -un && pwd && printf '%s\\n' \"$HOME\"");
    let output = sandbox.commands().run_opts(&script, options.clone()).await?;
    let text = output.stdout_lossy();
    let lines: Vec<_> = text.lines().collect();
    let [user, workdir, home] = lines.as_slice() else {
        return Err(sandbar_core::Error::new(
            ErrorKind::Unexpected,
            "probe",
            format!("the template does not say who runs its commands ({})", output.status),
        ));
    };
    let as_root = options.with_user(UserName::new("root")?);
    let has_root = match sandbox.commands().run_opts(&Command::new("true"), as_root).await {
        Ok(output) => output.status.is_success(),
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => false,
        Err(error) => return Err(error),
    };
    Ok(Surroundings {
        user: UserName::new(*user)?,
        home: (*home).to_owned(),
        workdir: (*workdir).to_owned(),
        has_root,
    })
}
