//! `sandbar serve` as its clients see it, beside the library or the plain thing on the same machine.

mod client;
mod command;
mod file;
mod plain;
mod port;
mod sdk;
mod served;
mod watch;

pub(crate) use command::{latency, throughput};
pub(crate) use file::both_ways;
pub(crate) use port::proxy;
pub(crate) use sdk::create_and_run;
pub(crate) use watch::events;
