use futures::FutureExt;
use futures::future::BoxFuture;

use super::ast::{Piece, Word};
use super::parse::parse;
use super::run::{Shell, end_of};
use crate::ExitStatus;
use crate::memory::process::{Broken, Output, pipe};

/// Bytes that separate fields in an unquoted expansion.
const SEPARATORS: &[u8] = b" \t\n";

/// Fields under construction.
#[derive(Default)]
struct Fields {
    done: Vec<Vec<u8>>,
    open: Option<Vec<u8>>,
}

impl Fields {
    fn push(&mut self, bytes: &[u8]) {
        self.open.get_or_insert_default().extend_from_slice(bytes);
    }

    fn cut(&mut self) {
        self.done.extend(self.open.take());
    }

    fn split(&mut self, value: &[u8]) {
        for byte in value {
            if SEPARATORS.contains(byte) { self.cut() } else { self.push(&[*byte]) }
        }
    }
}

impl Shell {
    /// The fields that `words` become.
    pub(super) async fn expand_all(&mut self, words: &[Word]) -> Result<Vec<Vec<u8>>, Broken> {
        let mut fields = Fields::default();
        for word in words {
            self.expand(word, &mut fields).await?;
            fields.cut();
        }
        Ok(fields.done)
    }

    /// What `word` becomes where it is not split: in assignments and redirections.
    pub(super) async fn expand_one(&mut self, word: &Word) -> Result<Vec<u8>, Broken> {
        let unsplit: Word = word
            .iter()
            .cloned()
            .map(|piece| match piece {
                Piece::Variable { name, default, .. } => Piece::Variable { name, default, quoted: true },
                Piece::Command { script, .. } => Piece::Command { script, quoted: true },
                other => other,
            })
            .collect();
        let mut fields = Fields::default();
        self.expand(&unsplit, &mut fields).await?;
        fields.cut();
        Ok(fields.done.join(&b' '))
    }

    fn expand<'a>(&'a mut self, word: &'a Word, fields: &'a mut Fields) -> BoxFuture<'a, Result<(), Broken>> {
        async move {
            for piece in word {
                match piece {
                    Piece::Text(text) => fields.push(text),
                    Piece::Quotes => fields.push(b""),
                    Piece::Variable { name, quoted: true, .. } if name == b"@" => {
                        for (number, argument) in self.args.iter().skip(1).enumerate() {
                            if number > 0 {
                                fields.cut();
                            }
                            fields.push(argument);
                        }
                        if self.args.len() <= 1 && fields.open.as_ref().is_some_and(Vec::is_empty) {
                            // `"$@"` without arguments is no field at all.
                            fields.open = None;
                        }
                    }
                    Piece::Variable { name, default, quoted } => {
                        let value = self.lookup(name).filter(|value| default.is_none() || !value.is_empty());
                        let value = match (value, default) {
                            (Some(value), _) => value,
                            (None, Some(default)) => self.expand_one(default).await?,
                            (None, None) => Vec::new(),
                        };
                        if *quoted { fields.push(&value) } else { fields.split(&value) }
                    }
                    Piece::Command { script, quoted } => {
                        let value = self.output_of(script).await?;
                        if *quoted { fields.push(&value) } else { fields.split(&value) }
                    }
                }
            }
            Ok(())
        }
        .boxed()
    }

    fn lookup(&self, name: &[u8]) -> Option<Vec<u8>> {
        match name {
            b"?" => Some(self.status.to_code().to_string().into_bytes()),
            b"$" => Some(self.context.pid.to_string().into_bytes()),
            b"!" => self.background.map(|pid| pid.to_string().into_bytes()),
            b"#" => Some(self.args.len().saturating_sub(1).to_string().into_bytes()),
            b"@" | b"*" => Some(self.args.get(1..).unwrap_or_default().join(&b' ')),
            [digit @ b'0'..=b'9'] => self.args.get(usize::from(digit - b'0')).cloned(),
            _ => self.variables.get(name).or_else(|| self.context.env.get(name)).cloned(),
        }
    }

    /// Runs a command substitution and answers its output without the newlines at its end.
    async fn output_of(&mut self, script: &[u8]) -> Result<Vec<u8>, Broken> {
        let node = match parse(script) {
            Ok(node) => node,
            Err(message) => {
                self.context.complain(message, 2).await?;
                self.status = ExitStatus::Code(2);
                return Ok(Vec::new());
            }
        };
        let (writer, reader) = pipe();
        let mut twin = self.clone();
        twin.context.streams.stdout = Output::Pipe(writer);
        let launched = twin.start(node);
        let mut output = Vec::new();
        loop {
            let chunk = reader.read(usize::MAX).await;
            if chunk.is_empty() {
                break;
            }
            output.extend_from_slice(&chunk);
        }
        self.status = end_of(launched.ended).await;
        while output.last() == Some(&b'\n') {
            output.pop();
        }
        Ok(output)
    }
}
