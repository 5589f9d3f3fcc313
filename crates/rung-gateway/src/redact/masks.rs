//! What is masked on the way to a caller: the one place that whatever a server says goes through, be it a result, an error, a
//! question or a description.

use std::borrow::Cow;
use std::io::{Read, Seek};
use std::sync::{Arc, LazyLock};

use rung_fault::Fault;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{MaskingReader, Redactor, usual_forms};

/// What is masked for a caller.
#[derive(Clone, Copy)]
pub(crate) struct Masks<'r> {
    /// Whatever the caller wants.
    pub(crate) always: &'r Redactor,
    /// What usually is a secret, too, where the caller wants that.
    pub(crate) usual: bool,
}

impl<'r> Masks<'r> {
    fn all(self) -> impl Iterator<Item = &'r Redactor> {
        static USUAL: LazyLock<Redactor> =
            LazyLock::new(|| Redactor::new(usual_forms().iter().cloned(), []));
        let usual = self.usual.then(|| &*USUAL);
        std::iter::once(self.always).chain(usual)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.always.is_empty() && !self.usual
    }

    /// A text without its secrets.
    pub(crate) fn text(self, text: &str) -> Cow<'_, str> {
        let mut masked = Cow::Borrowed(text);
        for redactor in self.all() {
            if let Cow::Owned(text) = redactor.text(&masked) {
                masked = Cow::Owned(text);
            }
        }
        masked
    }

    /// A document without its secrets, where it has any.
    pub(crate) fn in_json(self, raw: &RawValue) -> Option<Box<RawValue>> {
        let mut masked: Option<String> = None;
        for redactor in self.all() {
            let before = masked.as_deref().unwrap_or(raw.get());
            if let Cow::Owned(text) = redactor.json(before) {
                masked = Some(text);
            }
        }
        masked.map(|text| RawValue::from_string(text).expect("what is masked stays JSON"))
    }

    /// The same, where it has none as it is.
    pub(crate) fn json(self, raw: Box<RawValue>) -> Box<RawValue> {
        self.in_json(&raw).unwrap_or(raw)
    }

    /// The first `bytes` bytes of the input, which are a document that is too long to be held, without its secrets.
    pub(crate) fn reader<R: Read + Seek>(self, input: R, bytes: u64) -> MaskingReader<R> {
        if self.usual {
            let usual = usual_forms().iter().cloned();
            return self.always.and(usual).reader(input, bytes);
        }
        self.always.reader(input, bytes)
    }

    pub(crate) fn shared_json(self, raw: &Arc<RawValue>) -> Arc<RawValue> {
        self.in_json(raw).map_or_else(|| raw.clone(), Arc::from)
    }

    pub(crate) fn value(self, value: Value) -> Value {
        if self.is_empty() {
            return value;
        }
        let raw = RawValue::from_string(value.to_string()).expect("a value is JSON");
        match self.in_json(&raw) {
            Some(masked) => serde_json::from_str(masked.get()).expect("what is masked stays JSON"),
            None => value,
        }
    }

    /// What is told of a failure.
    pub(crate) fn fault(self, mut fault: Fault) -> Fault {
        if self.is_empty() {
            return fault;
        }
        for detail in fault.details_mut() {
            *detail = self.value(detail.take());
        }
        if let Cow::Owned(message) = self.text(fault.message()) {
            fault = fault.with_message(message);
        }
        match fault.hint().map(|hint| self.text(hint)) {
            Some(Cow::Owned(hint)) => fault.with_hint(hint),
            _ => fault,
        }
    }
}
