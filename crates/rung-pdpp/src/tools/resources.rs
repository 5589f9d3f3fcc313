//! The MCP resources: `pdpp://stream/…`, `pdpp://record/…`, `pdpp://field-window/…`.

use std::fmt::Display;

use rung_auth::Permit;
use rung_fault::{Code, Fault};
use rung_ladder::{Budget, Path, fit, json_string_bytes};
use rung_tool::{
    BoxFuture, Call, CompletionQuery, ResourceCard, ResourceContents, ResourceSource, SourceResult,
    TemplateCard, ToolSet as _, first_fitting, first_fitting_or_last,
};
use serde_json::json;

use super::id::{RecordId, RecordNames, ResourceAddress};
use super::json::{Json, JsonObject};
use super::ladder::{ImpliedIdentity, Ladder};
use super::long_fields::cut_json;
use super::provider_error::ProviderError;
use super::provider_request::ProviderRequest;
use super::short::short_row;
use super::window::Window;
use super::{RecordContext, Tools};

const STREAM_TEMPLATE: &str = "pdpp://stream/{name}";
const RECORD_TEMPLATE: &str = "pdpp://record/{handle}";
const WINDOW_TEMPLATE: &str = "pdpp://field-window/{handle}";
const JSON_TYPE: &str = "application/json";
/// Bytes of a stream's description, at most. More than a usual reply, because it is not cut.
const MAX_STREAM_BYTES: usize = 60_000;
/// Bytes of the URI that an error repeats, at most.
const SHOWN_URI_BYTES: usize = 2_000;

impl ResourceSource for Tools {
    fn list<'a>(&'a self, _: &'a Permit) -> BoxFuture<'a, Result<Vec<ResourceCard>, Fault>> {
        // Results name the resources one by one.
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn templates<'a>(&'a self, _: &'a Permit) -> BoxFuture<'a, Result<Vec<TemplateCard>, Fault>> {
        let card =
            |template: &str, name: &str, title: &str, kind: &str, description: &str| TemplateCard {
                uri_template: template.to_owned(),
                name: name.to_owned(),
                title: Some(title.to_owned()),
                description: Some(description.to_owned()),
                mime_type: Some(kind.to_owned()),
                listed: None,
            };
        let cards = vec![
            card(
                STREAM_TEMPLATE,
                "pdpp-stream",
                "A stream",
                JSON_TYPE,
                "The schema of a granted stream.",
            ),
            card(
                RECORD_TEMPLATE,
                "pdpp-record",
                "A record",
                JSON_TYPE,
                "A record, by the handle or id from a result. Long texts are cut and name the URI of the rest.",
            ),
            card(
                WINDOW_TEMPLATE,
                "pdpp-field-window",
                "Part of a field",
                "text/plain",
                "Part of a field of a record, with the URI of the next part.",
            ),
        ];
        Box::pin(std::future::ready(Ok(cards)))
    }

    fn read<'a>(
        &'a self,
        call: &'a Call,
        uri: &'a str,
    ) -> BoxFuture<'a, Result<Option<SourceResult<Vec<ResourceContents>>>, Fault>> {
        Box::pin(async move {
            let Some(address) = ResourceAddress::parse(uri) else {
                return Ok(None);
            };
            let address = address?;
            let refused = |refusal: &ProviderError| {
                let max_bytes = self.set().options.usual_bytes(call);
                vec![error_contents(
                    refusal,
                    uri,
                    self.set().providers.url(),
                    max_bytes,
                )]
            };
            let provider = match self.set().resolve(&call.permit).await {
                Ok(Some(provider)) => provider,
                Ok(None) => return Ok(None),
                Err(refusal) => return Ok(Some(refused(&refusal).into())),
            };
            let context = self.set().context(call, &provider);
            let read = match address {
                ResourceAddress::Stream(name) => read_stream(&context, uri, &name).await,
                ResourceAddress::Record(id) => read_record(&context, uri, id).await,
                ResourceAddress::Window(window) => match Window::read(&context, window).await {
                    Ok(window) => Ok(window_contents(&context, uri, window)),
                    Err(refusal) => Err(refusal),
                },
            };
            match read {
                Ok(contents) => Ok(Some(contents.into())),
                // An invalid URI is an error of the request, not content from the provider.
                Err(ProviderError::Adapter(fault))
                    if fault.code() == Code::InvalidFieldWindowSelector =>
                {
                    Err(fault)
                }
                Err(refusal) => Ok(Some(refused(&refusal).into())),
            }
        })
    }

    fn complete<'a>(
        &'a self,
        permit: &'a Permit,
        template: &'a str,
        partial: CompletionQuery<'a>,
    ) -> BoxFuture<'a, Result<Option<SourceResult<Vec<String>>>, Fault>> {
        Box::pin(async move {
            if ![STREAM_TEMPLATE, RECORD_TEMPLATE, WINDOW_TEMPLATE].contains(&template) {
                return Ok(None);
            }
            if template != STREAM_TEMPLATE {
                return Ok(Some(Vec::new().into()));
            }
            let Ok(Some(provider)) = self.set().resolve(permit).await else {
                return Ok(Some(Vec::new().into()));
            };
            let ask = ProviderRequest::new(&["v1", "schema"]).with_param("view", Some("compact"));
            let Ok(answer) = provider.get_json(&ask).await else {
                return Ok(Some(Vec::new().into()));
            };
            let Ok(body) = answer.body() else {
                return Ok(Some(Vec::new().into()));
            };
            let document = super::schema::schema_document(&body);
            let names = super::schema::schema_streams(document);
            let mut names: Vec<String> = names
                .iter()
                .filter_map(|(_, row)| row["name"].as_str())
                .filter(|name| name.starts_with(partial.value))
                .map(str::to_owned)
                .collect();
            names.sort_unstable();
            names.dedup();
            Ok(Some(names.into()))
        })
    }
}

fn json_contents(uri: &str, body: &impl Display) -> ResourceContents {
    ResourceContents {
        uri: uri.to_owned(),
        mime_type: Some(JSON_TYPE.to_owned()),
        text: Some(format!("{body:#}")),
        ..ResourceContents::default()
    }
}

fn error_contents(
    refusal: &ProviderError,
    uri: &str,
    provider_url: &str,
    max_bytes: usize,
) -> ResourceContents {
    let contents = refusal.renderings(provider_url, max_bytes, |body, print| {
        let mut body = body.clone();
        body["provider_url"] = json!(provider_url);
        json_contents(rung_ladder::head(uri, SHOWN_URI_BYTES), &print(&body))
    });
    first_fitting_or_last(contents, max_bytes).expect("the whole error is always rendered")
}

async fn read_stream(
    context: &RecordContext<'_>,
    uri: &str,
    name: &str,
) -> Result<Vec<ResourceContents>, ProviderError> {
    let answer = context
        .provider
        .get_json(&ProviderRequest::new(&["v1", "streams", name]))
        .await?;
    let whole = json_contents(uri, &answer.body()?);
    let whole = first_fitting([whole], context.most_bytes().min(MAX_STREAM_BYTES));
    whole.map(|whole| vec![whole]).ok_or_else(|| {
        let why = "the schema of the stream is larger than a reply may be";
        let fault = Fault::new(Code::ResultTooLarge, why);
        fault.with_hint("call schema with the stream").into()
    })
}

async fn read_record(
    context: &RecordContext<'_>,
    uri: &str,
    id: RecordId,
) -> Result<Vec<ResourceContents>, ProviderError> {
    let answer = context.provider.get_json(&id.to_request(&[])).await?;
    let original = answer.body()?;
    if !original.is_object() {
        let why = "the provider's record is not an object";
        return Err(ProviderError::new(Code::SourceFailed, why));
    }
    let known = ImpliedIdentity {
        stream: Some(&id.stream),
        connection: id.connection.as_deref(),
    };
    let own = super::ladder::identity(&original, known).map(RecordNames::to_id);
    let id = own.unwrap_or_else(|| id.clone());
    let ladder = Ladder {
        key: &context.options.key,
        authority: context.provider.authority(),
    };
    let levels = RECORD_LEVELS.into_iter().flat_map(|(chars, list_bytes)| {
        let mut body = original.clone();
        let lists = cut_lists(&mut body, list_bytes);
        let cut_to = (chars < usize::MAX).then_some(chars);
        let mut cut = cut_json(&original, known, chars);
        cut.extend(lists.iter().map(String::as_str));
        let record = ladder.record(id.names(), &original, cut_to, &cut);
        let mut body = short_row(&body, known, chars);
        if let (Some(record), Some(body)) = (record, body.as_object_mut()) {
            body.insert("content_ladder", json!(record));
        }
        // Pretty-printed if that fits, else compact.
        let pretty = json_contents(uri, &body);
        let compact = ResourceContents {
            text: Some(body.to_string()),
            ..pretty.clone()
        };
        [pretty, compact]
    });
    let fitting = first_fitting(levels, context.usual_bytes());
    fitting.map(|contents| vec![contents]).ok_or_else(|| {
        let why = "the record is larger than a reply may be";
        let fault = Fault::new(Code::ResultTooLarge, why);
        fault
            .with_hint("read its fields one by one with fetch(fields)")
            .into()
    })
}

/// Code points of each text of a record, and bytes of each list and object, in the order in which they are tried.
const RECORD_LEVELS: [(usize, usize); 6] = [
    (usize::MAX, usize::MAX),
    (2_048, usize::MAX),
    (512, 4_096),
    (96, 1_024),
    (24, 256),
    (16, 64),
];

/// Cuts the arrays and objects of a record to `max_bytes` each; returns the names of the cut fields.
fn cut_lists(body: &mut Json<'_>, max_bytes: usize) -> Vec<String> {
    let mut cut = Vec::new();
    let data = body.get_mut("data").and_then(Json::as_object_mut);
    for (name, value) in data.into_iter().flat_map(JsonObject::iter_mut) {
        let list = value.is_array() || value.is_object();
        if list
            && value.json_bytes() > max_bytes
            && let Ok(fitted) = fit(&value.to_value(), &Path::root(), &Budget::bytes(max_bytes))
        {
            *value = fitted.value.into();
            cut.push(name.to_owned());
        }
    }
    cut
}

fn window_contents(
    context: &RecordContext<'_>,
    uri: &str,
    window: Window,
) -> Vec<ResourceContents> {
    let (text, told) = window.resource(context, json_string_bytes(uri));
    let next = told["resource"]["next_uri"].as_str().map(str::to_owned);
    let kind = told["field"]["mime_type"].as_str().unwrap_or("text/plain");
    let mut all = vec![ResourceContents {
        uri: uri.to_owned(),
        mime_type: Some(kind.to_owned()),
        text: Some(text),
        meta: Some(json!({"pdpp/window": told})),
        ..ResourceContents::default()
    }];
    if let Some(next) = next {
        // The next window's own URI has other content.
        all.push(ResourceContents {
            text: Some(format!("More follows. The next part is at {next}")),
            uri: format!("{uri}#next"),
            mime_type: Some("text/plain".to_owned()),
            meta: Some(json!({"pdpp/next_uri": next})),
            ..ResourceContents::default()
        });
    }
    all
}
