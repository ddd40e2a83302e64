use sandbar_core::{BuildCache, Command, EnvVars, TemplateId, UserName};
use sandbar_wire::e2b::{BuildOrder, OrderedStep};

use super::name::shown;
use crate::app::App;
use crate::error::{ApiError, ApiResult};
use crate::tenant::Tenant;

/// Most steps of a build: each becomes a few of the backend's, which has its own bound.
const MAX_STEPS: usize = 200;

/// Images that E2B's SDKs name without being told to, and the built-in templates that stand for them.
const KNOWN_IMAGES: [(&str, &str); 2] =
    [("e2bdev/base", "base"), ("e2bdev/code-interpreter", "code-interpreter-v1")];

/// What is to be built, checked.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) base: Base,
    pub(super) steps: Vec<Step>,
    pub(super) start: Option<String>,
    pub(super) ready: Option<String>,
    pub(super) cache: BuildCache,
}

/// What it is built over.
#[derive(Clone, Debug, Default)]
pub(super) struct Base {
    /// The provider's template; `None` is its default.
    pub(super) provider: Option<TemplateId>,
    /// As the order names it.
    pub(super) name: String,
}

/// A step, checked.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Copy(Copy),
    Run { command: String, user: Option<UserName> },
    Workdir(String),
    User(UserName),
    Env(EnvVars),
}

/// What a step copies.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) user: Option<UserName>,
    pub(super) mode: Option<u32>,
    pub(super) hash: String,
}

impl Step {
    /// In a line, for the log: without values of variables.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Copy(copy) => format!("COPY {} {}", copy.from, copy.to),
            Self::Run { command, .. } => format!("RUN {command}"),
            Self::Workdir(path) => format!("WORKDIR {path}"),
            Self::User(user) => format!("USER {user}"),
            Self::Env(env) => {
                format!("ENV {}", env.iter().map(|(name, _)| name).collect::<Vec<_>>().join(" "))
            }
        }
    }
}

impl App {
    /// Checks an order: what is wrong with it is said before anything is done.
    pub(super) async fn check_order(&self, tenant: &Tenant, asked: BuildOrder) -> ApiResult<Order> {
        let BuildOrder { from_image, from_template, from_image_registry, start_cmd, ready_cmd, force, steps } =
            asked;
        if from_image_registry.is_some_and(|registry| !registry.is_null()) {
            return Err(ApiError::bad_request(
                "fromImageRegistry is not available here: the operator fetches images by `sandbar template pull`, and fromImage names them",
            ));
        }
        let given = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        let base = match (given(from_image), given(from_template)) {
            (Some(image), None) => self.base_of_image(tenant, &image).await?,
            (None, Some(template)) => self.base_of_template(tenant, &template).await?,
            _ => {
                return Err(ApiError::bad_request("expected exactly one of fromImage and fromTemplate"));
            }
        };
        let asked = steps.unwrap_or_default();
        if asked.len() > MAX_STEPS {
            return Err(ApiError::bad_request(format!(
                "{} steps: expected at most {MAX_STEPS}",
                asked.len()
            )));
        }
        let mut is_forced = force == Some(true);
        let mut steps = Vec::with_capacity(asked.len());
        for (index, step) in asked.into_iter().enumerate() {
            // The backend's cache is for a whole build: where one step is to be done again, all are.
            is_forced |= step.force == Some(true);
            let kind = shown(&step.kind);
            let step = read(step)
                .map_err(|why| ApiError::bad_request(format!("step {} ({kind}): {why}", index + 1)))?;
            if let Step::Copy(copy) = &step {
                let file = self.uploaded(&tenant.id, &copy.hash)?;
                if !tokio::fs::try_exists(&file).await.unwrap_or(false) {
                    return Err(ApiError::bad_request(format!(
                        "step {} (COPY): its files were not uploaded: send them to the address that `GET /templates/{{id}}/files/{{hash}}` gives",
                        index + 1
                    )));
                }
            }
            steps.push(step);
        }
        Ok(Order {
            base,
            steps,
            start: given(start_cmd),
            ready: given(ready_cmd),
            cache: if is_forced { BuildCache::Ignore } else { BuildCache::Use },
        })
    }

    async fn base_of_template(&self, tenant: &Tenant, name: &str) -> ApiResult<Base> {
        let found = self.resolve_template(tenant, name).await.map_err(|mut error| {
            error.message = format!("fromTemplate: {}", error.message);
            if error.status == http::StatusCode::NOT_FOUND {
                error.status = http::StatusCode::BAD_REQUEST;
            }
            error
        })?;
        Ok(Base { provider: found.provider, name: name.to_owned() })
    }

    /// Images are what the operator fetched, by their names.
    async fn base_of_image(&self, tenant: &Tenant, image: &str) -> ApiResult<Base> {
        let image = image.trim();
        let bare = image.strip_prefix("docker.io/").unwrap_or(image);
        let bare = bare.strip_prefix("library/").unwrap_or(bare);
        let untagged = bare.strip_suffix(":latest").unwrap_or(bare);
        if let Some((_, name)) = KNOWN_IMAGES.iter().find(|(known, _)| *known == untagged) {
            return self.base_of_template(tenant, name).await;
        }
        for candidate in [image, bare, untagged] {
            if let Some(found) = self.operator_template(candidate).await? {
                return Ok(Base { provider: found.provider, name: image.to_owned() });
            }
        }
        let image = shown(image);
        Err(ApiError::bad_request(format!(
            "fromImage: image '{image}' is not here: the operator can fetch it by `sandbar template pull {image} HOST/{image}`, or start from a template by fromTemplate"
        )))
    }
}

/// Reads a step; the error says what was wrong with it.
fn read(step: OrderedStep) -> Result<Step, String> {
    let OrderedStep { kind, args, files_hash, force: _ } = step;
    let args = args.unwrap_or_default();
    if args.iter().any(|arg| arg.contains('\0')) {
        return Err("an argument holds a NUL byte".to_owned());
    }
    let user = |text: &String| UserName::new(text.as_str()).map_err(|error| error.message().to_owned());
    let some_user = |index: usize| match args.get(index) {
        None => Ok(None),
        Some(text) if text.is_empty() => Ok(None),
        Some(text) => user(text).map(Some),
    };
    match (kind.to_uppercase().as_str(), args.as_slice()) {
        ("COPY", [from, to] | [from, to, _] | [from, to, _, _]) if !from.is_empty() && !to.is_empty() => {
            let mode = match args.get(3).filter(|mode| !mode.is_empty()) {
                None => None,
                Some(text) => Some(
                    u32::from_str_radix(text, 8)
                        .ok()
                        .filter(|mode| *mode <= 0o7777)
                        .ok_or("its mode is not valid: expected an octal number such as 0644")?,
                ),
            };
            if mode.is_some_and(|mode| mode & 0o6000 != 0) {
                return Err(
                    "its mode is not valid: setuid and setgid bits are not kept in templates".to_owned()
                );
            }
            let hash = files_hash.ok_or("filesHash is missing")?;
            Ok(Step::Copy(Copy { from: from.clone(), to: to.clone(), user: some_user(2)?, mode, hash }))
        }
        ("RUN", [command] | [command, _]) if !command.trim().is_empty() => {
            Ok(Step::Run { command: command.clone(), user: some_user(1)? })
        }
        ("WORKDIR", [path]) if !path.is_empty() => Ok(Step::Workdir(path.clone())),
        ("USER", [name]) => user(name).map(Step::User),
        ("ENV", pairs) if !pairs.is_empty() && pairs.len() % 2 == 0 => {
            let mut env = EnvVars::new();
            for pair in pairs.chunks_exact(2) {
                env.insert(&pair[0], &pair[1]).map_err(|error| error.message().to_owned())?;
            }
            Ok(Step::Env(env))
        }
        ("COPY", _) => Err("expected a source, a destination, and at most a user and a mode".to_owned()),
        ("RUN", _) => Err("expected a command and at most a user".to_owned()),
        ("WORKDIR", _) => Err("expected one folder".to_owned()),
        ("USER", _) => Err("expected one user".to_owned()),
        ("ENV", _) => Err("expected names and values in turn".to_owned()),
        _ => Err("there is no such step: expected COPY, RUN, WORKDIR, USER or ENV".to_owned()),
    }
}

/// A command as E2B runs it, by a login shell; by a plain one where the template has no other.
pub(super) fn shell(command: &str) -> Command {
    const CHOOSE: &str = "if [ -x /bin/bash ]; then exec /bin/bash -l -c \"$1\"; fi; exec /bin/sh -c \"$1\"";
    Command::new("/bin/sh").args(["-c", CHOOSE, "sh", command])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(kind: &str, args: &[&str]) -> OrderedStep {
        OrderedStep {
            kind: kind.to_owned(),
            args: Some(args.iter().map(|&arg| arg.to_owned()).collect()),
            files_hash: Some("0".repeat(64)),
            force: None,
        }
    }

    #[test]
    fn steps_are_read_or_refused() {
        let Ok(Step::Copy(copy)) = read(step("COPY", &["a", "b/", "", "0755"])) else { panic!("no copy") };
        assert_eq!((copy.user, copy.mode), (None, Some(0o755)));
        assert!(matches!(read(step("RUN", &["ls", "root"])), Ok(Step::Run { user: Some(_), .. })));
        assert!(matches!(read(step("ENV", &["A", "1", "B", "2"])), Ok(Step::Env(_))));
        for (kind, args) in [
            ("COPY", &["a"] as &[&str]),
            ("COPY", &["a", "b", "", "9"]),
            ("COPY", &["a", "b", "", "4755"]),
            ("COPY", &["a", "b", "no user"]),
            ("RUN", &[]),
            ("RUN", &["  "]),
            ("RUN", &["a\0b"]),
            ("ENV", &["A"]),
            ("ENV", &["1A", "x"]),
            ("USER", &["a:b"]),
            ("WORKDIR", &["/a", "/b"]),
            ("ADD", &["a", "b"]),
        ] {
            assert!(read(step(kind, args)).is_err(), "{kind} {args:?}");
        }
    }

    #[test]
    fn what_a_log_says_of_variables_is_their_names() {
        let Ok(env) = read(step("ENV", &["TOKEN", "s3cret"])) else { panic!("no ENV") };
        assert_eq!(env.text(), "ENV TOKEN");
    }
}
