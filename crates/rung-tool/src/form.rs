//! The limits of one form of a reply: its content, or its structured content.
//!
//! A client shows its model one form, so each is limited by itself and not their sum.

/// What one form of a reply may cost, with everything of the reply but the other form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FormLimit {
    pub(crate) max_bytes: usize,
    pub(crate) max_tokens: usize,
}

/// Percentages of the byte limit that are tried one after the other until the tokens fit. The first try is all of it.
const SHARES: [usize; 4] = [90, 70, 45, 20];

impl FormLimit {
    /// Returns true if this many bytes, of which `text` are what a model reads, are within both limits.
    pub(crate) fn allows(self, bytes: usize, text: &str) -> bool {
        // No token is shorter than a byte.
        bytes <= self.max_bytes
            && (text.len() <= self.max_tokens || rung_tokens::has_at_most(text, self.max_tokens))
    }

    /// Returns the limit that is left beside `bytes` of other JSON.
    pub(crate) fn less(self, bytes: usize) -> Self {
        /// Bytes of JSON syntax and names that are a token, at the least.
        const BYTES_PER_TOKEN: usize = 2;
        Self {
            max_bytes: self.max_bytes.saturating_sub(bytes),
            max_tokens: self.max_tokens.saturating_sub(bytes / BYTES_PER_TOKEN),
        }
    }

    /// Returns the first rendering that is within both limits. `render` gets the bytes that it may use, and `text` returns the
    /// rendering as a model reads it. `None` if no rendering is small enough.
    pub(crate) fn fit<T>(
        self,
        mut render: impl FnMut(usize) -> Option<T>,
        text: impl Fn(&T) -> String,
    ) -> Option<T> {
        let mut max_bytes = self.max_bytes;
        let mut shares = SHARES.into_iter();
        loop {
            let rendered = render(max_bytes)?;
            let text = text(&rendered);
            let tokens = self.tokens(&text);
            if tokens <= self.max_tokens {
                return Some(rendered);
            }
            let fitting = text.len() * self.max_tokens / tokens;
            max_bytes = max_bytes.min(fitting) * shares.next()? / 100;
        }
    }

    /// Counts the tokens of a text, if there may be too many. No token is shorter than a byte.
    fn tokens(self, text: &str) -> usize {
        if text.len() <= self.max_tokens {
            return text.len();
        }
        rung_tokens::count_tokens(text)
    }
}
