//! `sandbar-bench [NAME...] [--quick] [--json]`: measures what `docs/benchmarks.md` shows, as whoever runs it. The `sandbar` executable is the one
//! that `SANDBAR_HELPER` names. `cargo xtask bench` builds both, runs this and renders what it prints.

mod archive;
mod bed;
mod create;
mod crowd;
mod egress;
mod exec;
mod flow;
mod fork;
mod golden;
mod memory;
mod pause;
mod peer;
mod row;
mod sample;
mod server;
mod size;
mod store;
mod template;
mod tree;

use std::process::ExitCode;

use bed::Bed;
use row::Row;

/// What can be measured: the name on the command line, and what measures it.
type Measure = fn(&Bed) -> Result<Vec<Row>, String>;

const MEASURES: &[(&str, Measure)] = &[
    ("create", create::library),
    ("create-template", template::create_from_large),
    ("run", create::command_line),
    ("exec", exec::exec),
    ("crowd", crowd::at_once),
    ("idle", crowd::idle),
    ("stdout", flow::stdout),
    ("download", flow::download),
    ("cp", tree::copy),
    ("archive", archive::both_ways),
    ("fork-layer", fork::by_layer),
    ("fork-subvolume", fork::by_subvolume),
    ("fork-reflink", fork::by_reflink),
    ("fork-copy", fork::by_copy),
    ("pause", pause::both_ways),
    ("golden-boot", golden::boots),
    ("server-sdk", server::create_and_run),
    ("server-run", server::latency),
    ("server-throughput", server::throughput),
    ("server-file", server::both_ways),
    ("server-watch", server::events),
    ("server-port", server::proxy),
    ("size", size::executable),
];

/// What takes an outside: measured in a rig, and nothing else is measured there.
const IN_RIG: &[(&str, Measure)] = &[
    ("egress-connect", egress::connect),
    ("egress-download", egress::download),
    ("egress-create", egress::create_with_policy),
];

fn main() -> ExitCode {
    let (flags, names): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|word| word.starts_with("--"));
    if let Some(unknown) = flags.iter().find(|flag| flag.as_str() != "--quick") {
        eprintln!("sandbar-bench: unknown option `{unknown}`: expected `--quick`");
        return ExitCode::from(2);
    }
    let measures = if std::env::var_os(sandbar_rig::FOLDER).is_some() { IN_RIG } else { MEASURES };
    let known: Vec<_> = measures.iter().map(|(name, _)| *name).collect();
    if let Some(unknown) = names.iter().find(|wanted| !known.iter().any(|name| is_named(name, wanted))) {
        eprintln!("sandbar-bench: nothing here is called `{unknown}`; there are: {}", known.join(", "));
        return ExitCode::from(2);
    }
    let bed = match Bed::new(!flags.is_empty()) {
        Ok(bed) => bed,
        Err(why) => {
            eprintln!("sandbar-bench: {why}");
            return ExitCode::FAILURE;
        }
    };
    let mut code = ExitCode::SUCCESS;
    let wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| is_named(name, wanted));
    for (name, measure) in measures.iter().filter(|(name, _)| wanted(name)) {
        eprintln!("measuring {name}");
        match measure(&bed) {
            Ok(rows) => {
                for row in rows {
                    if row.ours.failed > 0 {
                        code = ExitCode::FAILURE;
                    }
                    match serde_json::to_string(&row) {
                        Ok(line) => println!("{line}"),
                        Err(why) => eprintln!("sandbar-bench: {name}: {why}"),
                    }
                }
            }
            Err(why) => {
                eprintln!("sandbar-bench: {name}: {why}");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

/// Whether a word means this measurement: by its name, or by the first word of it, which several may have.
fn is_named(name: &str, wanted: &str) -> bool {
    name.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}
