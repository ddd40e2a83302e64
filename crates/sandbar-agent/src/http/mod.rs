//! Plain HTTP: bodies, answers, who may ask.

mod auth;
mod body;
mod reply;

pub(crate) use auth::{basic_user, token_allows};
pub(crate) use body::{Body, BodyWriter, next_piece, read_all};
pub(crate) use reply::{Request, Response, empty, error, from_rpc, json, with_cors};
