//! The cases, by what they are about.

mod archive;
mod capabilities;
mod commands;
mod create;
mod deadline;
mod destroy;
mod errors;
mod files;
mod forking;
mod list;
mod lookup;
mod metrics;
mod options;
mod output;
mod pausing;
mod ports;
mod processes;
mod surroundings;
mod templates;
mod tree;
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
        processes::CASES,
        files::CASES,
        tree::CASES,
        watching::CASES,
        ports::CASES,
        metrics::CASES,
        pausing::CASES,
        forking::CASES,
        templates::CASES,
        volumes::CASES,
        archive::CASES,
        errors::CASES,
    ]
    .concat()
}
