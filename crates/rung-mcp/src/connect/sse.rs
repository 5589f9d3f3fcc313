//! A parser of server-sent events. The data of an event may be long; its other fields are bounded.

use super::incoming::{BufferError, MessageBuffer, ReceivedMessage};

/// Bytes of a field's name, and of a value other than data.
const MAX_LINE_BYTES: usize = 8 << 10;

#[derive(Debug)]
pub(super) struct SseEvent {
    /// The event type; `message` by default.
    pub(super) kind: String,
    pub(super) data: ReceivedMessage,
}

/// Parses events from chunks of any size.
#[derive(Debug, Default)]
pub(super) struct SseParser {
    line: SseLine,
    /// The last line ended with a carriage return: skip a line feed that follows.
    after_cr: bool,
    kind: String,
    data: MessageBuffer,
    has_data: bool,
    /// The id of the last complete event, for `Last-Event-ID`.
    pub(super) last_id: Option<String>,
    next_id: Option<String>,
    /// The server's reconnection time in milliseconds.
    pub(super) retry_ms: Option<u64>,
    /// Complete events so far.
    pub(super) count: u64,
}

#[derive(Debug, Default)]
struct SseLine {
    name: Vec<u8>,
    value: Vec<u8>,
    /// The colon has been read.
    in_value: bool,
    /// The optional space after the colon has been passed.
    past_space: bool,
}

impl SseLine {
    fn is_data(&self) -> bool {
        self.name == b"data"
    }
}

impl SseParser {
    /// Parses more bytes and returns the events that they complete.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<Vec<SseEvent>, BufferError> {
        let mut events = Vec::new();
        while let Some(&first) = bytes.first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = memchr::memchr2(b'\n', b'\r', bytes);
            self.push_line_part(&bytes[..end.unwrap_or(bytes.len())])?;
            let Some(end) = end else {
                break;
            };
            self.after_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            events.extend(self.finish_line());
        }
        Ok(events)
    }

    /// Drops an incomplete event: the resumed stream continues after the last complete one.
    pub(super) fn reset_incomplete(&mut self) {
        let (last_id, retry_ms, count) = (self.last_id.take(), self.retry_ms, self.count);
        *self = Self {
            last_id,
            retry_ms,
            count,
            ..Self::default()
        };
    }

    fn push_line_part(&mut self, mut part: &[u8]) -> Result<(), BufferError> {
        if part.is_empty() {
            return Ok(());
        }
        if !self.line.in_value {
            let colon = memchr::memchr(b':', part);
            let name = &part[..colon.unwrap_or(part.len())];
            let room = MAX_LINE_BYTES.saturating_sub(self.line.name.len());
            self.line
                .name
                .extend_from_slice(&name[..name.len().min(room)]);
            let Some(colon) = colon else {
                return Ok(());
            };
            part = &part[colon + 1..];
            self.line.in_value = true;
            if self.line.is_data() && self.has_data {
                self.data.push(b"\n")?;
            }
        }
        if part.is_empty() {
            return Ok(());
        }
        if !std::mem::replace(&mut self.line.past_space, true) && part[0] == b' ' {
            part = &part[1..];
        }
        if self.line.is_data() {
            return self.data.push(part);
        }
        let room = MAX_LINE_BYTES.saturating_sub(self.line.value.len());
        self.line
            .value
            .extend_from_slice(&part[..part.len().min(room)]);
        Ok(())
    }

    fn finish_line(&mut self) -> Option<SseEvent> {
        let line = std::mem::take(&mut self.line);
        if line.name.is_empty() && !line.in_value {
            return self.finish_event();
        }
        let text = || String::from_utf8_lossy(&line.value).into_owned();
        match line.name.as_slice() {
            b"data" => self.has_data = true,
            b"event" => self.kind = text(),
            b"id" if !line.value.contains(&0) => self.next_id = Some(text()),
            b"retry" => self.retry_ms = text().parse().ok().or(self.retry_ms),
            _ => {}
        }
        None
    }

    fn finish_event(&mut self) -> Option<SseEvent> {
        if let Some(id) = self.next_id.take() {
            self.last_id = Some(id).filter(|id| !id.is_empty());
        }
        self.count += 1;
        let kind = std::mem::take(&mut self.kind);
        let data = self.data.finish();
        std::mem::take(&mut self.has_data).then(|| SseEvent {
            kind: if kind.is_empty() {
                "message".to_owned()
            } else {
                kind
            },
            data,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(pieces: &[&[u8]]) -> (Vec<(String, String)>, Option<String>, Option<u64>) {
        let mut events = SseParser::default();
        let mut seen = Vec::new();
        for piece in pieces {
            for event in events.push(piece).unwrap() {
                let ReceivedMessage::Short(data) = event.data else {
                    panic!("long");
                };
                seen.push((event.kind, String::from_utf8(data).unwrap()));
            }
        }
        (seen, events.last_id, events.retry_ms)
    }

    #[test]
    fn events_are_read_as_they_are_written() {
        let stream = "id: 1\nretry: 250\ndata: \n\n: nothing\n\nevent: endpoint\ndata:/x\r\n\r\ndata: a\rdata:  b\r\ndata\n\nid: 2\n\ndata: cut";
        let (seen, last, retry) = all(&[stream.as_bytes()]);
        let expected = [("message", ""), ("endpoint", "/x"), ("message", "a\n b\n")];
        let expected = expected.map(|(kind, data)| (kind.to_owned(), data.to_owned()));
        assert_eq!(seen[..2], expected[..2]);
        assert_eq!(seen[2].1.trim_end(), "a\n b");
        assert_eq!((last.as_deref(), retry), (Some("2"), Some(250)));
    }

    proptest! {
        /// The chunk boundaries do not change the events.
        #[test]
        fn pieces_do_not_matter(
            stream in "(data: [a-z:]{0,4}(\n|\r|\r\n)|event: x\n|id: [0-9]\n|\n|\r\n|\r|: c\n|junk\n){0,20}",
            cuts in proptest::collection::vec(0_usize..200, 0..8),
        ) {
            let bytes = stream.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            cuts.push(bytes.len());
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts {
                pieces.push(&bytes[from..cut]);
                from = cut;
            }
            prop_assert_eq!(all(&pieces), all(&[bytes]));
        }
    }
}
