/// A parsed script or a part of it.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// An assignment or a program with its arguments.
    Simple { assignments: Vec<(Vec<u8>, Word)>, words: Vec<Word>, redirects: Vec<Redirect> },
    /// `a | b`, possibly with `!` before it.
    Pipeline { negated: bool, stages: Vec<Node> },
    /// `a && b || c`.
    Chain(Box<Node>, Vec<(Link, Node)>),
    /// `a; b & c`.
    List(Vec<(Node, Ending)>),
    /// `( … )`.
    Subshell(Box<Node>, Vec<Redirect>),
    /// `{ … }`.
    Group(Box<Node>, Vec<Redirect>),
    /// `if … then … else … fi`, with its `elif`s nested.
    If { condition: Box<Node>, then: Box<Node>, otherwise: Option<Box<Node>>, redirects: Vec<Redirect> },
    /// `while` and `until`.
    Loop { until: bool, condition: Box<Node>, body: Box<Node>, redirects: Vec<Redirect> },
    /// `for name in words`.
    For { name: Vec<u8>, words: Vec<Word>, body: Box<Node>, redirects: Vec<Redirect> },
}

/// What binds two commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    And,
    Or,
}

/// What ends a command of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Foreground,
    Background,
}

/// A word, before its expansion.
pub(super) type Word = Vec<Piece>;

/// A part of a word.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    Text(Vec<u8>),
    /// `''` or `""`: makes a word even if nothing else does.
    Quotes,
    /// `$name`, `${name}`, `${name:-default}`.
    Variable {
        name: Vec<u8>,
        default: Option<Word>,
        quoted: bool,
    },
    /// `$(…)`.
    Command {
        script: Vec<u8>,
        quoted: bool,
    },
}

/// One redirection.
#[derive(Clone, Debug)]
pub(super) struct Redirect {
    pub(super) stream: u8,
    pub(super) kind: RedirectKind,
    pub(super) target: Word,
}

/// What a redirection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RedirectKind {
    Read,
    Write,
    Append,
    Copy,
}
