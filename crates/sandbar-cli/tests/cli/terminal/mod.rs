//! What needs a terminal: each test types into a real one, a terminal multiplexer's, and reads its screen.

mod attach;
mod lifecycle;
mod pane;
mod programs;
mod shell;
