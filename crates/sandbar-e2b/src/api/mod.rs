//! The control plane: one method a call of E2B's API. What an answer means is told here and nowhere else.

mod answer;
mod client;
mod page;
mod sandboxes;
mod snapshots;
mod volumes;

pub(crate) use answer::{is_absent, refusal};
pub(crate) use client::Api;
pub(crate) use sandboxes::Paused;
