use std::io::Write;
use std::panic::PanicHookInfo;
use std::process::exit;

use clap::Parser;
use clap::error::ErrorKind as ClapErrorKind;
use sandbar::{Error, ErrorKind, SandboxProvider};

use crate::args::{Cli, Command, DoctorArgs, GlobalArgs, TemplateAction};
use crate::commands;
use crate::env::Environment;
use crate::exit::ExitStatus;
use crate::failure::{Failure, Result};
use crate::host_limits;
use crate::observing::Observing;
use crate::output::{Printer, escape, print_bytes};
use crate::settings::{
    self, AuditSettings, BuildSettings, Caller, CpSettings, EgressSettings, ExecSettings, NetworkSettings,
    PortSettings, RunSettings, StatsSettings, provider_url,
};
use crate::signals::report_file_size_limit;
use crate::terminal;

/// The command line, from arguments to exit code.
pub(crate) fn main() -> ExitStatus {
    exit_on_panic();
    let env = Environment::read();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return not_parsed(&error, &env),
    };
    let printer = Printer::new(cli.global.json, cli.global.verbose, &env);
    let typed = cli.command.starts();
    match dispatch(cli, printer, &env) {
        Ok(status) => status,
        Err(failure) => {
            let failure = failure.in_words_of(typed);
            printer.failure(&failure);
            failure.status
        }
    }
}

#[expect(clippy::too_many_lines, reason = "an arm for each command, and nothing else")]
fn dispatch(cli: Cli, printer: Printer, env: &Environment) -> Result<ExitStatus> {
    let Cli { global, command } = cli;
    match command {
        Command::Run(args) => {
            let settings = RunSettings::resolve(*args, Caller { global: &global, env })?;
            with_provider(&global, env, async |provider| commands::run(provider, settings, printer).await)
        }
        Command::Create(args) => {
            let options = settings::create(*args)?;
            with_provider(&global, env, async |provider| commands::create(provider, options, printer).await)
        }
        Command::Exec(args) => {
            let settings = ExecSettings::resolve(*args, Caller { global: &global, env })?;
            with_provider(&global, env, async |provider| commands::exec(provider, settings, printer).await)
        }
        Command::Shell(args) => {
            let settings = ExecSettings::shell(*args, Caller { global: &global, env })?;
            with_provider(&global, env, async |provider| commands::exec(provider, settings, printer).await)
        }
        Command::Attach(args) => {
            with_provider(&global, env, async |provider| commands::attach(provider, args, printer).await)
        }
        Command::Ps(args) => {
            with_provider(&global, env, async |provider| commands::ps(provider, args, printer).await)
        }
        Command::Kill(args) => {
            with_provider(&global, env, async |provider| commands::kill(provider, args, printer).await)
        }
        Command::Watch(args) => {
            with_provider(&global, env, async |provider| commands::watch(provider, args, printer).await)
        }
        Command::Ls(args) => {
            let query = settings::query(args)?;
            with_provider(&global, env, async |provider| commands::ls(provider, query, printer).await)
        }
        Command::Describe(args) => with_provider(&global, env, async |provider| {
            commands::describe(provider, &args.id, printer).await
        }),
        Command::Destroy(args) => with_provider(&global, env, async |provider| {
            commands::destroy(provider, &args.ids, printer).await
        }),
        Command::Pause(args) => {
            with_provider(&global, env, async |provider| commands::pause(provider, &args.id, printer).await)
        }
        Command::Resume(args) => {
            with_provider(&global, env, async |provider| commands::resume(provider, &args.id, printer).await)
        }
        Command::Fork(args) => {
            let settings = settings::ForkSettings::resolve(*args)?;
            with_provider(&global, env, async |provider| commands::fork(provider, settings, printer).await)
        }
        Command::Template(args) => template(args.action, printer, &global, env),
        Command::Volume(args) => {
            with_provider(&global, env, async |provider| commands::volume(provider, args, printer).await)
        }
        Command::Cp(args) => {
            let settings = CpSettings::resolve(args)?;
            with_provider(&global, env, async |provider| commands::cp(provider, settings, printer).await)
        }
        Command::Import(args) => {
            with_provider(&global, env, async |provider| commands::import(provider, &args.to, printer).await)
        }
        Command::Export(args) => with_provider(&global, env, async |provider| {
            commands::export(provider, &args.from, printer).await
        }),
        Command::Port(args) => {
            let settings = PortSettings::resolve(args);
            with_provider(&global, env, async |provider| commands::port(provider, settings, printer).await)
        }
        Command::Network(args) => {
            let settings = NetworkSettings::resolve(args)?;
            with_provider(&global, env, async |provider| commands::network(provider, settings, printer).await)
        }
        Command::Egress(args) => {
            let settings = EgressSettings::resolve(args)?;
            with_provider(&global, env, async |provider| commands::egress(provider, settings, printer).await)
        }
        Command::Stats(args) => {
            let settings = StatsSettings::resolve(args)?;
            with_provider(&global, env, async |provider| commands::stats(provider, settings, printer).await)
        }
        Command::Logs(args) => {
            let options = settings::log_options(&args);
            with_provider(&global, env, async |provider| {
                commands::logs(provider, &args.id, options, printer).await
            })
        }
        Command::Resources(args) => {
            let change = settings::resources(&args)?;
            with_provider(&global, env, async |provider| {
                commands::resources(provider, &args.id, change, printer).await
            })
        }
        Command::Usage(args) => with_provider(&global, env, async |provider| {
            commands::usage(provider, args.id.as_deref(), printer).await
        }),
        Command::Serve(args) => {
            let settings = settings::ServeSettings::resolve(*args, Caller { global: &global, env })?;
            commands::serve(settings, &Observing::begin(&global, env)?, printer)
        }
        Command::Key(args) => {
            let url = provider_url(global.provider.as_deref(), env)?;
            on_a_loop(async || commands::key(&url, args, printer).await)
        }
        Command::Prune(args) => {
            let url = provider_url(global.provider.as_deref(), env)?;
            on_a_loop(async || commands::prune(&url, &args, printer).await)
        }
        Command::System(args) => {
            let url = provider_url(global.provider.as_deref(), env)?;
            on_a_loop(async || commands::system(&url, &args, printer).await)
        }
        Command::Capacity => {
            with_provider(&global, env, async |provider| commands::capacity(provider, printer).await)
        }
        Command::Doctor(DoctorArgs {}) => {
            commands::doctor(&provider_url(global.provider.as_deref(), env)?, printer)
        }
        Command::Completions(args) => commands::completions(&args, printer),
        Command::Man(args) => commands::man(args, printer),
        Command::Audit(args) => commands::audit(&AuditSettings::resolve(args, &global, env)?, printer),
        Command::Version => commands::version(printer),
    }
}

/// What makes a template of this machine's files, and the reverse, is no part of the contract.
fn template(
    action: TemplateAction,
    printer: Printer,
    global: &GlobalArgs,
    env: &Environment,
) -> Result<ExitStatus> {
    match action {
        TemplateAction::Import(args) => {
            let url = provider_url(global.provider.as_deref(), env)?;
            on_a_loop(async || commands::template_import(&url, args, printer).await)
        }
        TemplateAction::Pull(args) => {
            let url = provider_url(global.provider.as_deref(), env)?;
            let login = Environment::registry_login();
            on_a_loop(async || commands::template_pull(&url, args, login, printer).await)
        }
        TemplateAction::Export(args) => {
            let url = provider_url(global.provider.as_deref(), env)?;
            on_a_loop(async || commands::template_export(&url, args, printer).await)
        }
        TemplateAction::Build(args) => {
            let settings = BuildSettings::resolve(*args)?;
            with_provider(global, env, async |provider| {
                commands::template_build(provider, settings, printer).await
            })
        }
        TemplateAction::Commit(args) => with_provider(global, env, async |provider| {
            commands::template_commit(provider, args, printer).await
        }),
        TemplateAction::Ls(args) => with_provider(global, env, async |provider| {
            commands::template_list(provider, &args, printer).await
        }),
        TemplateAction::Show(args) => {
            let url = provider_url(global.provider.as_deref(), env)?;
            with_provider(global, env, async |provider| {
                commands::template_show(provider, &url, &args.id, printer).await
            })
        }
        TemplateAction::Rm(args) => with_provider(global, env, async |provider| {
            commands::template_remove(provider, &args.ids, printer).await
        }),
    }
}

/// Runs `work` on the provider that was asked for, on a loop of one thread.
fn with_provider(
    global: &GlobalArgs,
    env: &Environment,
    work: impl AsyncFnOnce(&dyn SandboxProvider) -> Result<ExitStatus>,
) -> Result<ExitStatus> {
    on_a_loop(async || {
        let url = provider_url(global.provider.as_deref(), env)?;
        let observing = Observing::begin(global, env)?;
        let provider = observing.connect(&url).map_err(|error| match error.kind() {
            ErrorKind::InvalidInput => Failure::usage(error),
            _ => error.into(),
        })?;
        let done = work(provider.as_ref()).await;
        observing.end().await;
        done
    })
}

/// Runs `work` on a loop of one thread.
fn on_a_loop(work: impl AsyncFnOnce() -> Result<ExitStatus>) -> Result<ExitStatus> {
    // The loop itself does not bear it if it can't open what it needs.
    host_limits::check_descriptors()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
        Error::new(ErrorKind::Unexpected, "start", format!("no event loop: {error}")).with_source(error)
    })?;
    let done = runtime.block_on(async {
        report_file_size_limit()?;
        work().await
    });
    // A thread that waits for a slow reader or a slow disk is not waited for.
    runtime.shutdown_background();
    done
}

/// What the parser did not take: help, the version, or a mistake.
fn not_parsed(error: &clap::Error, env: &Environment) -> ExitStatus {
    let help = matches!(error.kind(), ClapErrorKind::DisplayHelp | ClapErrorKind::DisplayVersion);
    if help {
        return match print_bytes(error.render().to_string().as_bytes()) {
            Ok(()) => ExitStatus::Done,
            Err(failure) => failure.status,
        };
    }
    // The parser gave up, so whether JSON is wanted is looked for by hand, before the command's own arguments.
    let json = std::env::args_os().skip(1).take_while(|arg| arg != "--").any(|arg| arg == "--json");
    if error.kind() == ClapErrorKind::InvalidUtf8 {
        // The parser does not say which.
        let args = std::env::args_os().skip(1);
        let culprit = args.into_iter().find(|arg| arg.to_str().is_none()).unwrap_or_default();
        let shown = culprit.as_encoded_bytes().escape_ascii();
        let error = Error::invalid("parse arguments", format!("`{shown}` is not UTF-8"))
            .with_hint("only paths on this machine and the command itself may be other bytes");
        Printer::new(json, false, env).error(&error);
    } else if json {
        let text = error.render().to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        let message = text.split("\n\n").next().unwrap_or(text).trim().replace('\n', " ");
        let hint = "`sandbar COMMAND --help` shows what is expected";
        let error = Error::invalid("parse arguments", message).with_hint(hint);
        Printer::new(true, false, env).error(&error);
    } else {
        // Colours are its own affair; it knows `NO_COLOR` and terminals. Nobody can be told that standard error is broken.
        let _ = error.print();
    }
    ExitStatus::Usage
}

fn payload<'a>(info: &'a PanicHookInfo<'_>) -> &'a str {
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// A mistake of ours ends the process with the code for failure, whichever thread it is on. What belongs to this process ends with it.
fn exit_on_panic() {
    std::panic::set_hook(Box::new(|info| {
        terminal::restore();
        let place = info.location().map(|at| format!(" at {}:{}", at.file(), at.line())).unwrap_or_default();
        let message = payload(info);
        let text = format!(
            "error: internal error{place}: {}\n  hint: this is a bug of Sandbar; please report it\n",
            escape(message)
        );
        // Nobody can be told that standard error is broken.
        let _ = std::io::stderr().write_all(text.as_bytes());
        exit(ExitStatus::Failed.code().into());
    }));
}
