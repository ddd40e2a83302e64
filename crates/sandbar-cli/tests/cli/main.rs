//! The command line from outside: whole invocations, with what they print, how they end, and what they leave.

mod archive;
mod audit;
mod bad_input;
mod bytes;
mod copies;
mod cp;
mod doctor;
mod e2b;
mod egress;
mod ends;
mod forks;
mod harness;
mod help;
mod json;
mod lifecycle;
mod limits;
mod main_command;
#[cfg(feature = "otlp")]
mod otlp;
mod ports;
mod processes;
mod resources;
mod serve;
mod shell_help;
mod stats;
mod templates;
mod terminal;
mod users;
mod volumes;
mod watch;
