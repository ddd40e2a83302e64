use http::Method;

/// To which requests a fault happens.
#[derive(Clone, Debug)]
pub struct Rule {
    method: String,
    pattern: String,
    first: usize,
    count: usize,
}

impl Rule {
    /// All of this method (`*`: any) whose path is like `pattern`, in which `*` is anything.
    pub fn on(method: &str, pattern: &str) -> Self {
        Self { method: method.to_owned(), pattern: pattern.to_owned(), first: 1, count: usize::MAX }
    }

    /// Only the `nth` of them, from 1.
    pub fn nth(mut self, nth: usize) -> Self {
        self.first = nth;
        self.count = 1;
        self
    }

    /// From the one before, or the first, only so many.
    pub fn times(mut self, count: usize) -> Self {
        self.count = count;
        self
    }

    pub(crate) fn is_for(&self, method: &Method, path: &str) -> bool {
        (self.method == "*" || self.method == method.as_str()) && is_like(path, &self.pattern)
    }

    /// Whether it holds for the `nth` that it is for.
    pub(crate) fn holds(&self, nth: usize) -> bool {
        nth >= self.first && nth - self.first < self.count
    }
}

fn is_like(text: &str, pattern: &str) -> bool {
    let Some((before, rest)) = pattern.split_once('*') else { return text == pattern };
    let Some(text) = text.strip_prefix(before) else { return false };
    (0..=text.len()).any(|at| text.is_char_boundary(at) && is_like(&text[at..], rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_anything() {
        for (text, pattern, is) in [
            ("/sandboxes", "/sandboxes", true),
            ("/sandboxes/a", "/sandboxes", false),
            ("/v2/sandboxes/a/pause", "*/sandboxes/*/pause", true),
            ("/v2/sandboxes//pause", "*/sandboxes/*/pause", true),
            ("/v2/sandboxes/pause", "*/sandboxes/*/pause", false),
            ("", "*", true),
        ] {
            assert_eq!(is_like(text, pattern), is, "{text} {pattern}");
        }
    }

    #[test]
    fn a_rule_holds_for_those_that_it_counts() {
        let held = |rule: &Rule| (1..=5).filter(|nth| rule.holds(*nth)).collect::<Vec<_>>();
        assert_eq!(held(&Rule::on("*", "*")), [1, 2, 3, 4, 5]);
        assert_eq!(held(&Rule::on("*", "*").nth(3)), [3]);
        assert_eq!(held(&Rule::on("*", "*").times(2)), [1, 2]);
        assert_eq!(held(&Rule::on("*", "*").nth(2).times(3)), [2, 3, 4]);
    }
}
