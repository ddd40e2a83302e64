//! The cases, by what they are about.

mod archive;
mod builds;
mod capabilities;
mod commands;
mod create;
mod deadline;
mod destroy;
mod errors;
mod files;
mod forking;
mod guest;
mod list;
mod lookup;
mod main_command;
mod metrics;
mod network;
mod options;
mod output;
mod pausing;
mod ports;
mod process_table;
mod processes;
mod resources;
mod starting;
mod surroundings;
mod templates;
mod tree;
mod usage;
mod volumes;
mod watching;

use crate::case::Case;

pub(crate) fn all() -> Vec<Case> {
    [
        capabilities::CASES,
        create::CASES,
        options::CASES,
        lookup::CASES,
        list::CASES,
        destroy::CASES,
        deadline::CASES,
        commands::CASES,
        output::CASES,
        surroundings::CASES,
        process_table::CASES,
        processes::CASES,
        files::CASES,
        tree::CASES,
        watching::CASES,
        ports::CASES,
        network::CASES,
        guest::CASES,
        metrics::CASES,
        main_command::CASES,
        resources::CASES,
        usage::CASES,
        pausing::CASES,
        forking::CASES,
        starting::CASES,
        templates::CASES,
        builds::CASES,
        volumes::CASES,
        archive::CASES,
        errors::CASES,
    ]
    .concat()
}
