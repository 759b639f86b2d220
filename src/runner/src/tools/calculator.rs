//! Evaluates arithmetic expressions for models, which are bad at it.
//!
//! The parser is a [recursive descent parser](https://en.wikipedia.org/wiki/Recursive_descent_parser) over `f64` for
//! `+ - * / % ^`, unary minus, parentheses, `pi`, `e` and the functions `abs ceil floor ln round sqrt`. `^` binds
//! tighter than a minus in front of it and is right-associative: `-2^2` is -4, `2^3^2` is 512. The nesting depth is
//! bounded, so no input can overflow the stack.

/// Maximum nesting of parentheses, signs and powers.
const DEPTH: usize = 100;

/// Evaluates `expression`.
///
/// # Errors
/// The problem and its character position, for the model.
pub(super) fn evaluate(expression: &str) -> Result<f64, String> {
    let mut parser = Parser { text: expression, at: 0 };
    let value = parser.sum(0)?;
    if parser.peek().is_some() {
        return Err(parser.unexpected());
    }
    if value.is_finite() { Ok(value) } else { Err("the result is not a number (division by zero or overflow)".into()) }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn sum(&mut self, depth: usize) -> Result<f64, String> {
        let mut value = self.product(depth)?;
        loop {
            match self.peek() {
                Some('+') => value += self.after(|this| this.product(depth))?,
                Some('-') => value -= self.after(|this| this.product(depth))?,
                _ => return Ok(value),
            }
        }
    }

    fn product(&mut self, depth: usize) -> Result<f64, String> {
        let mut value = self.signed(depth)?;
        loop {
            match self.peek() {
                Some('*') => value *= self.after(|this| this.signed(depth))?,
                Some('/') => value /= self.after(|this| this.signed(depth))?,
                Some('%') => value %= self.after(|this| this.signed(depth))?,
                _ => return Ok(value),
            }
        }
    }

    fn signed(&mut self, depth: usize) -> Result<f64, String> {
        if depth > DEPTH {
            return Err(format!("nested deeper than {DEPTH}"));
        }
        match self.peek() {
            Some('-') => Ok(-self.after(|this| this.signed(depth + 1))?),
            Some('+') => self.after(|this| this.signed(depth + 1)),
            _ => self.power(depth),
        }
    }

    fn power(&mut self, depth: usize) -> Result<f64, String> {
        let base = self.atom(depth)?;
        match self.peek() {
            Some('^') => Ok(base.powf(self.after(|this| this.signed(depth + 1))?)),
            _ => Ok(base),
        }
    }

    fn atom(&mut self, depth: usize) -> Result<f64, String> {
        match self.peek() {
            Some('(') => self.group(depth),
            Some(c) if c.is_ascii_digit() || c == '.' => self.number(),
            Some(c) if c.is_ascii_alphabetic() => {
                let start = self.at;
                let function: fn(f64) -> f64 = match self.take_while(|c| c.is_ascii_alphanumeric()) {
                    "pi" => return Ok(std::f64::consts::PI),
                    "e" => return Ok(std::f64::consts::E),
                    "abs" => f64::abs,
                    "ceil" => f64::ceil,
                    "floor" => f64::floor,
                    "ln" => f64::ln,
                    "round" => f64::round,
                    "sqrt" => f64::sqrt,
                    other => return Err(format!("`{other}` at character {start} is not known")),
                };
                Ok(function(self.group(depth)?))
            }
            _ => Err(self.unexpected()),
        }
    }

    fn group(&mut self, depth: usize) -> Result<f64, String> {
        if self.peek() != Some('(') {
            return Err(self.unexpected());
        }
        let value = self.after(|this| this.sum(depth + 1))?;
        if self.peek() != Some(')') {
            return Err(self.unexpected());
        }
        self.at += 1;
        Ok(value)
    }

    fn number(&mut self) -> Result<f64, String> {
        let start = self.at;
        self.take_while(|c| c.is_ascii_digit() || c == '.');
        let rest = &self.text.as_bytes()[self.at..];
        let sign = usize::from(matches!(rest.get(1), Some(b'+' | b'-')));
        if matches!(rest.first(), Some(b'e' | b'E')) && rest.get(1 + sign).is_some_and(u8::is_ascii_digit) {
            self.at += 1 + sign;
            self.take_while(|c| c.is_ascii_digit());
        }
        let text = &self.text[start..self.at];
        text.parse().map_err(|_| format!("`{text}` at character {start} is not a number"))
    }

    /// Skips one ASCII character, then runs `next`.
    fn after(&mut self, next: impl FnOnce(&mut Self) -> Result<f64, String>) -> Result<f64, String> {
        self.at += 1;
        next(self)
    }

    fn take_while(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let rest = &self.text[self.at..];
        let taken = &rest[..rest.find(|c| !belongs(c)).unwrap_or(rest.len())];
        self.at += taken.len();
        taken
    }

    fn peek(&mut self) -> Option<char> {
        self.take_while(char::is_whitespace);
        self.text[self.at..].chars().next()
    }

    fn unexpected(&mut self) -> String {
        match self.peek() {
            Some(c) => format!("`{c}` at character {} is not expected", self.at),
            None => "it ends too early".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_expressions_are_worth() {
        for (expression, value) in [
            ("1 + 2 * 3", 7.0),
            ("(1+2)*3", 9.0),
            ("-2^2", -4.0),
            ("2^3^2", 512.0),
            ("2^-1", 0.5),
            ("10 % 4 - -1", 3.0),
            ("8/2/2", 2.0),
            ("1.5e3 + .5", 1500.5),
            ("sqrt(16) + abs(-2) + round(2.5)", 9.0),
            ("floor(pi) + ceil(ln(e))", 4.0),
            ("2e", f64::NAN),
            ("", f64::NAN),
            ("1 +", f64::NAN),
            ("(1", f64::NAN),
            ("1)", f64::NAN),
            ("1 2", f64::NAN),
            ("1/0", f64::NAN),
            ("sqrt(-1)", f64::NAN),
            ("exit()", f64::NAN),
            ("1.2.3", f64::NAN),
            ("é", f64::NAN),
        ] {
            assert_eq!(evaluate(expression).ok(), Some(value).filter(|v| !v.is_nan()), "{expression}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        for one in ["(", "-", "2^", "abs("] {
            assert!(evaluate(&one.repeat(100_000)).unwrap_err().contains("nested"), "{one}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_judged_without_a_panic(text in "[-+*/%^().0-9a-eé ]*") {
            let _ = evaluate(&text);
        }
    }
}
