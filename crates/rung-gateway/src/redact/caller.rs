//! Redaction for one caller. Everything that a server sends passes through it: results, errors, elicitations and
//! descriptions.

use std::borrow::Cow;
use std::io::{Read, Seek};
use std::sync::{Arc, LazyLock};

use rung_fault::Fault;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{MaskingReader, Redactor, usual_forms};

/// The redaction that applies to a caller.
#[derive(Clone, Copy)]
pub(crate) struct CallerRedactor<'r> {
    /// Applied to every caller.
    pub(crate) always: &'r Redactor,
    /// True if common secret formats are masked too, as requested by the call.
    pub(crate) usual: bool,
}

impl<'r> CallerRedactor<'r> {
    fn redactors(self) -> impl Iterator<Item = &'r Redactor> {
        static USUAL: LazyLock<Redactor> =
            LazyLock::new(|| Redactor::new(usual_forms().iter().cloned(), []));
        let usual = self.usual.then(|| &*USUAL);
        std::iter::once(self.always).chain(usual)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.always.is_empty() && !self.usual
    }

    /// Masks the secrets of a text.
    pub(crate) fn redact_text(self, text: &str) -> Cow<'_, str> {
        let mut masked = Cow::Borrowed(text);
        for redactor in self.redactors() {
            if let Cow::Owned(text) = redactor.text(&masked) {
                masked = Cow::Owned(text);
            }
        }
        masked
    }

    /// Masks the secrets of a document. Returns `None` if it has none.
    pub(crate) fn redact_if_secret(self, raw: &RawValue) -> Option<Box<RawValue>> {
        let mut masked: Option<String> = None;
        for redactor in self.redactors() {
            let before = masked.as_deref().unwrap_or(raw.get());
            if let Cow::Owned(text) = redactor.json(before) {
                masked = Some(text);
            }
        }
        masked.map(|text| RawValue::from_string(text).expect("what is masked stays JSON"))
    }

    /// Masks the secrets of a document.
    pub(crate) fn redact_json(self, raw: Box<RawValue>) -> Box<RawValue> {
        self.redact_if_secret(&raw).unwrap_or(raw)
    }

    /// Masks the first `bytes` bytes of the input, a document too long to hold in memory, while it is read.
    pub(crate) fn redact_reader<R: Read + Seek>(self, input: R, bytes: u64) -> MaskingReader<R> {
        if self.usual {
            let usual = usual_forms().iter().cloned();
            return self.always.with_patterns(usual).reader(input, bytes);
        }
        self.always.reader(input, bytes)
    }

    pub(crate) fn redact_shared_json(self, raw: &Arc<RawValue>) -> Arc<RawValue> {
        self.redact_if_secret(raw)
            .map_or_else(|| raw.clone(), Arc::from)
    }

    pub(crate) fn redact_value(self, value: Value) -> Value {
        if self.is_empty() {
            return value;
        }
        let raw = RawValue::from_string(value.to_string()).expect("a value is JSON");
        match self.redact_if_secret(&raw) {
            Some(masked) => serde_json::from_str(masked.get()).expect("what is masked stays JSON"),
            None => value,
        }
    }

    /// Masks the message, details and hint of a fault.
    pub(crate) fn redact_fault(self, mut fault: Fault) -> Fault {
        if self.is_empty() {
            return fault;
        }
        for detail in fault.details_mut() {
            *detail = self.redact_value(detail.take());
        }
        if let Cow::Owned(message) = self.redact_text(fault.message()) {
            fault = fault.with_message(message);
        }
        match fault.hint().map(|hint| self.redact_text(hint)) {
            Some(Cow::Owned(hint)) => fault.with_hint(hint),
            _ => fault,
        }
    }
}
