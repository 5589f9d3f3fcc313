//! Stored results as resources: `rung://result/{handle}`, with the selectors of `rung.read` as the query.

use rung_auth::Permit;
use rung_fault::{Code, Fault};
use rung_ladder::{Handle, ResultEntry, json_string_bytes};
use rung_tool::{
    BoxFuture, Call, CompletionQuery, ResourceCard, ResourceContents, ResourceSource, SourceResult,
    TemplateCard,
};
use serde_json::json;

use crate::result_store::AnyResultStore;
use crate::tools::{ReadInput, ResultReader};

const TEMPLATE: &str = "rung://result/{handle}{?cursor,path,offset_chars,limit_chars,lines,pattern,q,before_chars,after_chars}";
const PREFIX: &str = "rung://result/";
/// Bytes that a resource reply needs beyond the tool's own reply: the URI of the next part occurs twice more.
const OVERHEAD_BYTES: usize = 900;

/// Resource source of stored results.
pub(crate) struct ResultResources {
    store: AnyResultStore,
    reader: ResultReader,
}

impl ResultResources {
    pub(crate) fn new(store: AnyResultStore, reader: ResultReader) -> Self {
        Self { store, reader }
    }
}

impl ResourceSource for ResultResources {
    fn list<'a>(&'a self, permit: &'a Permit) -> BoxFuture<'a, Result<Vec<ResourceCard>, Fault>> {
        Box::pin(async move {
            let kept = self.store.list_async(permit).await?;
            let card = |kept: ResultEntry| ResourceCard {
                uri: kept.handle.uri(),
                name: kept.handle.to_string(),
                description: Some("a stored result".to_owned()),
                mime_type: Some(kept.summary.content_type),
                size: Some(kept.summary.bytes),
                ..ResourceCard::default()
            };
            Ok(kept.into_iter().map(card).collect())
        })
    }

    fn templates<'a>(&'a self, _: &'a Permit) -> BoxFuture<'a, Result<Vec<TemplateCard>, Fault>> {
        let card = TemplateCard {
            uri_template: TEMPLATE.to_owned(),
            name: "result".to_owned(),
            title: Some("A stored result, or part of it".to_owned()),
            description: Some("Any part of a stored result. If it does not fit, the second content names the URI of the next part.".to_owned()),
            ..TemplateCard::default()
        };
        Box::pin(std::future::ready(Ok(vec![card])))
    }

    fn read<'a>(
        &'a self,
        call: &'a Call,
        uri: &'a str,
    ) -> BoxFuture<'a, Result<Option<SourceResult<Vec<ResourceContents>>>, Fault>> {
        Box::pin(async move {
            let Some(rest) = uri.strip_prefix(PREFIX) else {
                return Ok(None);
            };
            let (handle, query) = rest.split_once('?').unwrap_or((rest, ""));
            let input = parse_selectors(handle, query)?;
            let mut call = call.clone();
            call.budget = call.budget.less(OVERHEAD_BYTES + json_string_bytes(uri));
            let (read, uri) = (self.reader.clone(), uri.to_owned());
            let part = tokio::task::spawn_blocking(move || read.read_part(&call, &input))
                .await
                .map_err(|error| Fault::new(Code::Internal, error.to_string()))?;
            let part = match part {
                // Results of other callers are reported as absent, too.
                Err(fault) if fault.code() == Code::NotFound => return Ok(None),
                part => part?,
            };
            let mut contents = vec![ResourceContents {
                uri,
                mime_type: Some(part.content_type),
                text: part.text,
                blob: part.blob,
                meta: Some(json!({"rung/part": part.metadata})),
            }];
            if let Some(cursor) = part.next_cursor {
                let next = format!("{PREFIX}{handle}?cursor={cursor}");
                contents.push(ResourceContents {
                    text: Some(format!("The result continues. The next part is at {next}")),
                    uri: next,
                    mime_type: Some("text/plain".to_owned()),
                    ..ResourceContents::default()
                });
            }
            Ok(Some(contents.into()))
        })
    }

    fn complete<'a>(
        &'a self,
        permit: &'a Permit,
        template: &'a str,
        partial: CompletionQuery<'a>,
    ) -> BoxFuture<'a, Result<Option<SourceResult<Vec<String>>>, Fault>> {
        Box::pin(async move {
            if template != TEMPLATE {
                return Ok(None);
            }
            if partial.argument != "handle" {
                return Ok(Some(Vec::new().into()));
            }
            let handles = self.store.list_async(permit).await?.into_iter();
            let handles = handles.map(|kept| kept.handle.to_string());
            let handles = handles.filter(|handle| handle.starts_with(partial.value));
            Ok(Some(handles.collect::<Vec<_>>().into()))
        })
    }
}

/// Parses the selectors of a resource URI.
fn parse_selectors(handle: &str, query: &str) -> Result<ReadInput, Fault> {
    // Report an invalid handle before an invalid query.
    handle.parse::<Handle>()?;
    let mut input = ReadInput {
        handle: handle.to_owned(),
        ..ReadInput::default()
    };
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let invalid = |why: &str| {
            let why = format!("{:?} in the URI {why}", rung_ladder::head(name, 40));
            Fault::new(Code::InvalidArguments, why)
                .with_hint("use the selectors of the resource template")
        };
        let text = percent_decode(value).ok_or_else(|| invalid("is not UTF-8"))?;
        let number = || {
            text.parse::<u64>()
                .map_err(|_| invalid("is not a whole number"))
        };
        match name {
            "cursor" => input.cursor = Some(text),
            "path" => input.path = Some(text),
            "offset_chars" => input.offset_chars = Some(number()?),
            "limit_chars" => input.limit_chars = Some(number()?),
            "lines" => input.lines = Some(text),
            "pattern" => input.pattern = Some(text),
            "q" => input.q = Some(text),
            "before_chars" => input.before_chars = Some(number()?),
            "after_chars" => input.after_chars = Some(number()?),
            _ => return Err(invalid("is not a selector")),
        }
    }
    Ok(input)
}

/// Decodes a percent-encoded query value. Returns `None` if it is not UTF-8.
fn percent_decode(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let escaped = || {
            let digits = std::str::from_utf8(behind.get(..2)?).ok()?;
            u8::from_str_radix(digits, 16).ok()
        };
        match (first, escaped) {
            (b'%', escaped) if escaped().is_some() => {
                bytes.extend(escaped());
                rest = &behind[2..];
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = behind;
            }
            _ => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    String::from_utf8(bytes).ok()
}
