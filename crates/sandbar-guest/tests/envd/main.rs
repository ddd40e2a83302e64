//! The client of an `envd` that is not Sandbar's own: against Sandbar's agent with all of its extensions taken off, and against one that does what a script says.

mod conformance;
mod held;
mod imports;
mod plain;
mod provider;
mod scripted;
mod transfers;
