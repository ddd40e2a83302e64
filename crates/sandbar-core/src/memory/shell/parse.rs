use super::ast::{Ending, Link, Node, Piece, Redirect, RedirectKind, Word};

/// Deepest nesting of compound commands, `elif`s, substitutions and defaults: far above any test, far below the stack's end.
const MAX_DEPTH: usize = 100;

/// Words that end a compound command's part, and so are no commands.
const CLOSING: &[&[u8]] = &[b"then", b"else", b"elif", b"fi", b"do", b"done", b"}"];

type Parsed<T> = Result<T, String>;

/// Parses a whole script.
pub(super) fn parse(script: &[u8]) -> Parsed<Node> {
    let mut parser = Parser { text: script, at: 0, depth: 0 };
    let list = parser.list()?;
    if parser.at < parser.text.len() {
        return Err(parser.unexpected());
    }
    Ok(list)
}

/// Says whether a script can be parsed.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn parse_script(script: &[u8]) -> Parsed<()> {
    parse(script).map(drop)
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn starts_with(&self, text: &[u8]) -> bool {
        self.text[self.at..].starts_with(text)
    }

    fn eat(&mut self, text: &[u8]) -> bool {
        let there = self.starts_with(text);
        if there {
            self.at += text.len();
        }
        there
    }

    fn unexpected(&self) -> String {
        match self.peek() {
            Some(byte) => format!("syntax error near unexpected `{}`", byte.escape_ascii()),
            None => "syntax error: unexpected end".to_owned(),
        }
    }

    fn blanks(&mut self) {
        loop {
            match self.peek() {
                Some(b' ' | b'\t') => self.at += 1,
                Some(b'\\') if self.starts_with(b"\\\n") => self.at += 2,
                Some(b'#') => {
                    while self.peek().is_some_and(|b| b != b'\n') {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    fn lines(&mut self) {
        self.blanks();
        while self.eat(b"\n") {
            self.blanks();
        }
    }

    /// Whether the next word is exactly `word`, unquoted.
    fn at_word(&self, word: &[u8]) -> bool {
        self.starts_with(word)
            && self.text.get(self.at + word.len()).is_none_or(|b| b" \t\n;&|()<>".contains(b))
    }

    fn eat_word(&mut self, word: &[u8]) -> bool {
        let there = self.at_word(word);
        if there {
            self.at += word.len();
        }
        there
    }

    fn expect_word(&mut self, word: &[u8]) -> Parsed<()> {
        self.lines();
        if self.eat_word(word) { Ok(()) } else { Err(self.unexpected()) }
    }

    /// Parses what is one level further in. Every way by which the parser comes back to itself goes through here.
    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("the script is nested too deeply".to_owned());
        }
        let parsed = inner(self)?;
        self.depth -= 1;
        Ok(parsed)
    }

    fn list(&mut self) -> Parsed<Node> {
        self.deeper(Self::items)
    }

    fn items(&mut self) -> Parsed<Node> {
        let mut items = Vec::new();
        loop {
            self.lines();
            if self.peek().is_none_or(|b| b == b')') || CLOSING.iter().any(|word| self.at_word(word)) {
                break;
            }
            let item = self.chain()?;
            self.blanks();
            let background = !self.starts_with(b"&&") && self.eat(b"&");
            items.push((item, if background { Ending::Background } else { Ending::Foreground }));
            if !background && !self.eat(b";") && !self.eat(b"\n") {
                break;
            }
        }
        Ok(Node::List(items))
    }

    fn chain(&mut self) -> Parsed<Node> {
        let first = self.pipeline()?;
        let mut rest = Vec::new();
        loop {
            self.blanks();
            let link = if self.eat(b"&&") {
                Link::And
            } else if self.eat(b"||") {
                Link::Or
            } else {
                break;
            };
            self.lines();
            rest.push((link, self.pipeline()?));
        }
        Ok(if rest.is_empty() { first } else { Node::Chain(Box::new(first), rest) })
    }

    fn pipeline(&mut self) -> Parsed<Node> {
        self.blanks();
        let negated = self.eat_word(b"!");
        let mut stages = vec![self.command()?];
        loop {
            self.blanks();
            if self.starts_with(b"||") || !self.eat(b"|") {
                break;
            }
            self.lines();
            stages.push(self.command()?);
        }
        if stages.len() == 1 && !negated {
            return Ok(stages.remove(0));
        }
        Ok(Node::Pipeline { negated, stages })
    }

    fn command(&mut self) -> Parsed<Node> {
        self.blanks();
        if self.eat(b"(") {
            let inner = self.list()?;
            if !self.eat(b")") {
                return Err(self.unexpected());
            }
            return Ok(Node::Subshell(Box::new(inner), self.redirects()?));
        }
        if self.eat_word(b"{") {
            let inner = self.list()?;
            self.expect_word(b"}")?;
            return Ok(Node::Group(Box::new(inner), self.redirects()?));
        }
        if self.eat_word(b"if") {
            return self.branch();
        }
        for (word, until) in [(b"while", false), (b"until", true)] {
            if self.eat_word(word) {
                let condition = Box::new(self.list()?);
                let body = Box::new(self.body()?);
                return Ok(Node::Loop { until, condition, body, redirects: self.redirects()? });
            }
        }
        if self.eat_word(b"for") {
            return self.each();
        }
        self.simple()
    }

    fn branch(&mut self) -> Parsed<Node> {
        let condition = Box::new(self.list()?);
        self.expect_word(b"then")?;
        let then = Box::new(self.list()?);
        self.lines();
        let otherwise = if self.eat_word(b"elif") {
            return Ok(Node::If {
                condition,
                then,
                otherwise: Some(Box::new(self.deeper(Self::branch)?)),
                redirects: Vec::new(),
            });
        } else if self.eat_word(b"else") {
            Some(Box::new(self.list()?))
        } else {
            None
        };
        self.expect_word(b"fi")?;
        Ok(Node::If { condition, then, otherwise, redirects: self.redirects()? })
    }

    fn body(&mut self) -> Parsed<Node> {
        self.expect_word(b"do")?;
        let body = self.list()?;
        self.expect_word(b"done")?;
        Ok(body)
    }

    fn each(&mut self) -> Parsed<Node> {
        self.blanks();
        let name = self.name();
        if name.is_empty() {
            return Err(self.unexpected());
        }
        self.expect_word(b"in")?;
        let mut words = Vec::new();
        self.blanks();
        while let Some(word) = self.word()? {
            words.push(word);
            self.blanks();
        }
        if !self.eat(b";") && !self.eat(b"\n") {
            return Err(self.unexpected());
        }
        let body = Box::new(self.body()?);
        Ok(Node::For { name, words, body, redirects: self.redirects()? })
    }

    fn simple(&mut self) -> Parsed<Node> {
        let (mut assignments, mut words, mut redirects) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            self.blanks();
            if let Some(redirect) = self.redirect()? {
                redirects.push(redirect);
            } else if words.is_empty()
                && let Some(name) = self.assignment()
            {
                assignments.push((name, self.word()?.unwrap_or_default()));
            } else if let Some(word) = self.word()? {
                words.push(word);
            } else {
                break;
            }
        }
        if assignments.is_empty() && words.is_empty() && redirects.is_empty() {
            return Err(self.unexpected());
        }
        Ok(Node::Simple { assignments, words, redirects })
    }

    fn name(&mut self) -> Vec<u8> {
        let start = self.at;
        while self
            .peek()
            .is_some_and(|b| b == b'_' || b.is_ascii_alphabetic() || (b.is_ascii_digit() && self.at > start))
        {
            self.at += 1;
        }
        self.text[start..self.at].to_vec()
    }

    /// Eats `name=`, if that is what is next.
    fn assignment(&mut self) -> Option<Vec<u8>> {
        let start = self.at;
        let name = self.name();
        if !name.is_empty() && self.eat(b"=") {
            return Some(name);
        }
        self.at = start;
        None
    }

    fn redirects(&mut self) -> Parsed<Vec<Redirect>> {
        let mut redirects = Vec::new();
        loop {
            self.blanks();
            match self.redirect()? {
                Some(redirect) => redirects.push(redirect),
                None => return Ok(redirects),
            }
        }
    }

    fn redirect(&mut self) -> Parsed<Option<Redirect>> {
        let start = self.at;
        let digit = self.peek().filter(u8::is_ascii_digit).map(|b| b - b'0');
        self.at += usize::from(digit.is_some());
        let (kind, usual) = if self.starts_with(b"<<") {
            return Err("syntax error: here-documents are not emulated".to_owned());
        } else if self.eat(b">>") {
            (RedirectKind::Append, 1)
        } else if self.eat(b">&") {
            (RedirectKind::Copy, 1)
        } else if self.eat(b">") {
            (RedirectKind::Write, 1)
        } else if self.eat(b"<&") {
            (RedirectKind::Copy, 0)
        } else if self.eat(b"<") {
            (RedirectKind::Read, 0)
        } else {
            self.at = start;
            return Ok(None);
        };
        self.blanks();
        let target = self.word()?.ok_or_else(|| self.unexpected())?;
        Ok(Some(Redirect { stream: digit.unwrap_or(usual), kind, target }))
    }

    fn word(&mut self) -> Parsed<Option<Word>> {
        let start = self.at;
        let mut word = Word::new();
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'(' | b')' | b'<' | b'>' => break,
                b'\'' => {
                    self.at += 1;
                    let end = self.text[self.at..].iter().position(|b| *b == b'\'');
                    let end = self.at + end.ok_or("syntax error: unterminated quoted string")?;
                    word.push(Piece::Quotes);
                    word.push(Piece::Text(self.text[self.at..end].to_vec()));
                    self.at = end + 1;
                }
                b'"' => {
                    self.at += 1;
                    word.push(Piece::Quotes);
                    self.double_quoted(&mut word)?;
                }
                b'\\' => {
                    self.at += 1;
                    match self.peek() {
                        Some(b'\n') => {}
                        Some(byte) => word.push(Piece::Text(vec![byte])),
                        None => word.push(Piece::Text(vec![b'\\'])),
                    }
                    self.at += 1;
                }
                b'`' => return Err("syntax error: backquotes are not emulated".to_owned()),
                b'$' => self.dollar(&mut word, false)?,
                byte => {
                    word.push(Piece::Text(vec![byte]));
                    self.at += 1;
                }
            }
        }
        self.at = self.at.min(self.text.len());
        Ok((self.at > start).then_some(word))
    }

    fn double_quoted(&mut self, word: &mut Word) -> Parsed<()> {
        loop {
            match self.peek() {
                None => return Err("syntax error: unterminated quoted string".to_owned()),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    let next = self.text.get(self.at + 1).copied();
                    match next {
                        Some(b'\n') => {}
                        Some(byte @ (b'"' | b'\\' | b'$' | b'`')) => word.push(Piece::Text(vec![byte])),
                        Some(byte) => word.push(Piece::Text(vec![b'\\', byte])),
                        None => return Err("syntax error: unterminated quoted string".to_owned()),
                    }
                    self.at += 2;
                }
                Some(b'$') => self.dollar(word, true)?,
                Some(b'`') => return Err("syntax error: backquotes are not emulated".to_owned()),
                Some(byte) => {
                    word.push(Piece::Text(vec![byte]));
                    self.at += 1;
                }
            }
        }
    }

    fn dollar(&mut self, word: &mut Word, quoted: bool) -> Parsed<()> {
        self.at += 1;
        if self.starts_with(b"((") {
            return Err("syntax error: arithmetic is not emulated".to_owned());
        }
        if self.eat(b"(") {
            let start = self.at;
            self.list()?;
            let script = self.text[start..self.at].to_vec();
            if !self.eat(b")") {
                return Err(self.unexpected());
            }
            word.push(Piece::Command { script, quoted });
            return Ok(());
        }
        if self.eat(b"{") {
            let name = self.variable().ok_or_else(|| self.unexpected())?;
            let default = if self.eat(b":-") {
                let mut default = Word::new();
                while self.peek().is_some_and(|b| b != b'}') {
                    if self.peek() == Some(b'$') {
                        self.deeper(|parser| parser.dollar(&mut default, quoted))?;
                    } else {
                        default.push(Piece::Text(vec![self.text[self.at]]));
                        self.at += 1;
                    }
                }
                Some(default)
            } else {
                None
            };
            if !self.eat(b"}") {
                return Err(self.unexpected());
            }
            word.push(Piece::Variable { name, default, quoted });
            return Ok(());
        }
        match self.variable() {
            Some(name) => word.push(Piece::Variable { name, default: None, quoted }),
            None => word.push(Piece::Text(vec![b'$'])),
        }
        Ok(())
    }

    fn variable(&mut self) -> Option<Vec<u8>> {
        let name = self.name();
        if !name.is_empty() {
            return Some(name);
        }
        let special = self.peek().filter(|b| b.is_ascii_digit() || b"?$!#@*".contains(b))?;
        self.at += 1;
        Some(vec![special])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_nesting_reaches_the_end_of_the_stack() {
        for (open, middle, close) in [
            ("{ ", ":", "; }"),
            ("(", ":", ")"),
            ("echo $(", ":", ")"),
            ("if :; then ", ":", "; fi"),
            ("while :; do ", ":", "; done"),
            ("for i in x; do ", ":", "; done"),
            ("if :; then :; el", "if :; then :; fi", ""),
            ("${x:-", "", "}"),
            ("\"${x:-", "", "}\""),
        ] {
            let nested = |depth: usize| [open.repeat(depth), middle.into(), close.repeat(depth)].concat();
            for depth in [1000, 100_000] {
                let error = parse(nested(depth).as_bytes()).unwrap_err();
                assert!(error.contains("too deeply"), "{open}: {error}");
            }
        }
    }
}
