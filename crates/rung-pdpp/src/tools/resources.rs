//! The same data by address: `pdpp://stream/…`, `pdpp://record/…`, `pdpp://field-window/…`.

use std::fmt::Display;

use rung_auth::Permit;
use rung_fault::{Code, Fault};
use rung_ladder::{Budget, Path, fit, json_string_bytes};
use rung_tool::{
    Call, Contents, Partial, Pending, ResourceCard, ResourceSource, Served, TemplateCard,
};
use serde_json::{Value, json};

use super::ask::Ask;
use super::id::{Address, RecordId, RecordNames};
use super::json::{Json, Members};
use super::ladder::{Known, Ladder};
use super::longs::cut_json;
use super::refusal::Refusal;
use super::short::short_row;
use super::window::Window;
use super::{Asking, Tools};

const STREAM: &str = "pdpp://stream/{name}";
const RECORD: &str = "pdpp://record/{handle}";
const WINDOW: &str = "pdpp://field-window/{handle}";
const JSON: &str = "application/json";
/// Bytes of what is said of a stream, which is one whole thing.
const MAX_STREAM_BYTES: usize = 60_000;
/// Bytes of the address that an error repeats.
const SHOWN_URI_BYTES: usize = 2_000;

impl ResourceSource for Tools {
    fn list<'a>(&'a self, _: &'a Permit) -> Pending<'a, Result<Vec<ResourceCard>, Fault>> {
        // They are named by results, one by one.
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn templates<'a>(&'a self, _: &'a Permit) -> Pending<'a, Result<Vec<TemplateCard>, Fault>> {
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
                STREAM,
                "pdpp-stream",
                "A stream",
                JSON,
                "What a granted stream holds.",
            ),
            card(
                RECORD,
                "pdpp-record",
                "A record",
                JSON,
                "A record, by the handle or id that a result gave. Long texts are cut and say where they go on.",
            ),
            card(
                WINDOW,
                "pdpp-field-window",
                "Part of a field",
                "text/plain",
                "Part of a field of a record. What comes next is at the address that comes along.",
            ),
        ];
        Box::pin(std::future::ready(Ok(cards)))
    }

    fn read<'a>(
        &'a self,
        call: &'a Call,
        uri: &'a str,
    ) -> Pending<'a, Result<Option<Served<Vec<Contents>>>, Fault>> {
        Box::pin(async move {
            let Some(address) = Address::parse(uri) else {
                return Ok(None);
            };
            let address = address?;
            let refused = |refusal: &Refusal| {
                let max_bytes = self.options.usual_bytes(call);
                vec![refused(refusal, uri, self.providers.url(), max_bytes)]
            };
            let asking = match self.asking(call).await {
                Ok(Some(asking)) => asking,
                Ok(None) => return Ok(None),
                Err(refusal) => return Ok(Some(refused(&refusal).into())),
            };
            let read = match address {
                Address::Stream(name) => stream(&asking, uri, &name).await,
                Address::Record(id) => record(&asking, uri, id).await,
                Address::Window(window) => match Window::read(&asking, window).await {
                    Ok(window) => Ok(windowed(&asking, uri, window)),
                    Err(refusal) => Err(refusal),
                },
            };
            match read {
                Ok(contents) => Ok(Some(contents.into())),
                // What is wrong with the address itself is not what the provider says of it.
                Err(Refusal::Ours(fault)) if fault.code() == Code::InvalidFieldWindowSelector => {
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
        partial: Partial<'a>,
    ) -> Pending<'a, Result<Option<Served<Vec<String>>>, Fault>> {
        Box::pin(async move {
            if ![STREAM, RECORD, WINDOW].contains(&template) {
                return Ok(None);
            }
            if template != STREAM {
                return Ok(Some(Vec::new().into()));
            }
            let call = Call::new(permit.clone());
            let Ok(Some(asking)) = self.asking(&call).await else {
                return Ok(Some(Vec::new().into()));
            };
            let ask = Ask::at(&["v1", "schema"]).with("view", Some("compact"));
            let Ok(answer) = asking.provider.read(&ask).await else {
                return Ok(Some(Vec::new().into()));
            };
            let Ok(body) = answer.body() else {
                return Ok(Some(Vec::new().into()));
            };
            let document = super::schema::document(&body);
            let names = super::schema::streams(document);
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

fn contents(uri: &str, body: &impl Display) -> Contents {
    Contents {
        uri: uri.to_owned(),
        mime_type: Some(JSON.to_owned()),
        text: Some(format!("{body:#}")),
        ..Contents::default()
    }
}

fn refused(refusal: &Refusal, uri: &str, provider_url: &str, max_bytes: usize) -> Contents {
    let made = |body: &Value, text: fn(&Value) -> String| {
        let mut body = body.clone();
        body["provider_url"] = json!(provider_url);
        contents(rung_ladder::head(uri, SHOWN_URI_BYTES), &text(&body))
    };
    refusal.told(provider_url, max_bytes, made, bytes)
}

async fn stream(asking: &Asking<'_>, uri: &str, name: &str) -> Result<Vec<Contents>, Refusal> {
    let answer = asking
        .provider
        .read(&Ask::at(&["v1", "streams", name]))
        .await?;
    let whole = contents(uri, &answer.body()?);
    if bytes(&whole) <= asking.most_bytes().min(MAX_STREAM_BYTES) {
        return Ok(vec![whole]);
    }
    let why = "what is said of the stream is larger than a reply may be";
    Err(Fault::new(Code::ResultTooLarge, why)
        .with_hint("call schema with the stream")
        .into())
}

async fn record(asking: &Asking<'_>, uri: &str, id: RecordId) -> Result<Vec<Contents>, Refusal> {
    let answer = asking.provider.read(&id.ask(&[])).await?;
    let original = answer.body()?;
    if !original.is_object() {
        let why = "the provider's record is not an object";
        return Err(Refusal::new(Code::SourceFailed, why));
    }
    let known = Known {
        stream: Some(&id.stream),
        connection: id.connection.as_deref(),
    };
    let own = super::ladder::identity(&original, known).map(RecordNames::to_id);
    let id = own.unwrap_or_else(|| id.clone());
    let ladder = Ladder {
        key: &asking.options.key,
        authority: asking.provider.authority(),
        measuring: false,
    };
    for (chars, list_bytes) in [
        (usize::MAX, usize::MAX),
        (2_048, usize::MAX),
        (512, 4_096),
        (96, 1_024),
        (24, 256),
        (16, 64),
    ] {
        let mut body = original.clone();
        let lists = cut_lists(&mut body, list_bytes);
        let cut_to = (chars < usize::MAX).then_some(chars);
        let mut cut = cut_json(&original, known, chars);
        cut.extend(lists.iter().map(String::as_str));
        let told = ladder.record(id.names(), &original, cut_to, &cut);
        let mut body = short_row(&body, known, chars);
        if let (Some(told), Some(body)) = (told, body.as_object_mut()) {
            body.insert("content_ladder", json!(told));
        }
        // Set out for people where there is room, and without its spaces where there is not.
        let mut whole = contents(uri, &body);
        if bytes(&whole) > asking.usual_bytes() {
            whole.text = Some(body.to_string());
        }
        if bytes(&whole) <= asking.usual_bytes() {
            return Ok(vec![whole]);
        }
    }
    let why = "the record is larger than a reply may be";
    Err(Fault::new(Code::ResultTooLarge, why)
        .with_hint("read its fields one by one with fetch(fields)")
        .into())
}

/// Cuts the lists and objects of a record to so many bytes; gives the names of those that were cut.
fn cut_lists(body: &mut Json<'_>, max_bytes: usize) -> Vec<String> {
    let mut cut = Vec::new();
    let data = body.get_mut("data").and_then(Json::as_object_mut);
    for (name, value) in data.into_iter().flat_map(Members::iter_mut) {
        let list = value.is_array() || value.is_object();
        if list
            && value.bytes() > max_bytes
            && let Ok(fitted) = fit(&value.to_value(), &Path::root(), &Budget::bytes(max_bytes))
        {
            *value = fitted.value.into();
            cut.push(name.to_owned());
        }
    }
    cut
}

fn bytes(contents: &Contents) -> usize {
    json_string_bytes(contents.text.as_deref().unwrap_or_default())
        + json_string_bytes(&contents.uri)
        + 120
}

fn windowed(asking: &Asking<'_>, uri: &str, window: Window) -> Vec<Contents> {
    let (text, told) = window.resource(asking, json_string_bytes(uri));
    let next = told["resource"]["next_uri"].as_str().map(str::to_owned);
    let kind = told["field"]["mime_type"].as_str().unwrap_or("text/plain");
    let mut all = vec![Contents {
        uri: uri.to_owned(),
        mime_type: Some(kind.to_owned()),
        text: Some(text),
        meta: Some(json!({"pdpp/window": told})),
        ..Contents::default()
    }];
    if let Some(next) = next {
        // Not under the next one's own address, which holds something else.
        all.push(Contents {
            text: Some(format!("Not all of it. The next part is at {next}")),
            uri: format!("{uri}#next"),
            mime_type: Some("text/plain".to_owned()),
            meta: Some(json!({"pdpp/next_uri": next})),
            ..Contents::default()
        });
    }
    all
}
