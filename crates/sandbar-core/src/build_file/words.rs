use std::iter::Peekable;
use std::str::Chars;

/// Words as of `ENV` and `COPY`: parted by blanks; in double quotes a backslash keeps the next character as it is, single quotes keep everything. Nothing is
/// expanded, and a `$` that would be elsewhere is refused.
pub(super) fn words(text: &str) -> Result<Vec<String>, String> {
    let mut characters = text.chars().peekable();
    let mut words = Vec::new();
    loop {
        while characters.next_if(|c| c.is_whitespace()).is_some() {}
        if characters.peek().is_none() {
            return Ok(words);
        }
        words.push(word(&mut characters)?);
    }
}

fn word(characters: &mut Peekable<Chars<'_>>) -> Result<String, String> {
    let mut word = String::new();
    while let Some(character) = characters.next_if(|c| !c.is_whitespace()) {
        match character {
            '\'' => loop {
                match characters.next() {
                    Some('\'') => break,
                    Some(character) => word.push(character),
                    None => return Err("a `'` has no second one".into()),
                }
            },
            '"' => loop {
                match characters.next() {
                    Some('"') => break,
                    Some('\\') => word.push(kept(characters)?),
                    Some('$') => return Err(expansion()),
                    Some(character) => word.push(character),
                    None => return Err("a `\"` has no second one".into()),
                }
            },
            '\\' => word.push(kept(characters)?),
            '$' => return Err(expansion()),
            character => word.push(character),
        }
    }
    Ok(word)
}

fn kept(characters: &mut Peekable<Chars<'_>>) -> Result<char, String> {
    characters.next().ok_or_else(|| "nothing follows the `\\`".into())
}

fn expansion() -> String {
    "variables are not expanded here: write the value out, or `\\$` for the character itself".into()
}
