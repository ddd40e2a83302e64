//! What is sent, and what is made of each kind of answer: against a server that says what it is told to.

mod creating;
mod egress;
mod lifecycle;
mod listing;
mod lookup;
mod script;
mod secrets;
mod stores;
