//! Resources of the conformance suite.

use rung_auth::Permit;
use rung_fault::Fault;
use rung_tool::{
    BoxFuture, Call, CompletionQuery, ResourceCard, ResourceContents, ResourceSource, SourceResult,
    TemplateCard,
};
use serde_json::json;

use super::{Fixtures, PNG};

const TEMPLATE: &str = "test://template/{id}/data";

impl ResourceSource for Fixtures {
    fn list<'a>(&'a self, _: &'a Permit) -> BoxFuture<'a, Result<Vec<ResourceCard>, Fault>> {
        let card = |uri: &str, kind: &str| ResourceCard {
            uri: uri.to_owned(),
            name: uri.to_owned(),
            description: Some("A fixture of the conformance suite".to_owned()),
            mime_type: Some(kind.to_owned()),
            ..ResourceCard::default()
        };
        let cards = vec![
            card("test://static-text", "text/plain"),
            card("test://static-binary", "image/png"),
            card("test://watched-resource", "text/plain"),
        ];
        Box::pin(std::future::ready(Ok(cards)))
    }

    fn templates<'a>(&'a self, _: &'a Permit) -> BoxFuture<'a, Result<Vec<TemplateCard>, Fault>> {
        let card = TemplateCard {
            uri_template: TEMPLATE.to_owned(),
            name: "template".to_owned(),
            mime_type: Some("application/json".to_owned()),
            ..TemplateCard::default()
        };
        Box::pin(std::future::ready(Ok(vec![card])))
    }

    fn read<'a>(
        &'a self,
        _: &'a Call,
        uri: &'a str,
    ) -> BoxFuture<'a, Result<Option<SourceResult<Vec<ResourceContents>>>, Fault>> {
        let id = uri
            .strip_prefix("test://template/")
            .and_then(|rest| rest.strip_suffix("/data"));
        let (kind, text, blob) = match (uri, id) {
            ("test://static-text", _) => ("text/plain", Some("a static text".to_owned()), None),
            ("test://watched-resource", _) => ("text/plain", Some("watched".to_owned()), None),
            ("test://static-binary", _) => ("image/png", None, Some(PNG.to_owned())),
            (_, Some(id)) => {
                let data =
                    json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
                ("application/json", Some(data.to_string()), None)
            }
            _ => return Box::pin(std::future::ready(Ok(None))),
        };
        let contents = ResourceContents {
            uri: uri.to_owned(),
            mime_type: Some(kind.to_owned()),
            text,
            blob,
            meta: None,
        };
        Box::pin(std::future::ready(Ok(Some(vec![contents].into()))))
    }

    fn complete<'a>(
        &'a self,
        _: &'a Permit,
        template: &'a str,
        partial: CompletionQuery<'a>,
    ) -> BoxFuture<'a, Result<Option<SourceResult<Vec<String>>>, Fault>> {
        let ids = (0..150).map(|id| id.to_string());
        let ids = ids.filter(|id| id.starts_with(partial.value));
        let ids: Vec<String> = ids.collect();
        let found = (template == TEMPLATE).then(|| ids.into());
        Box::pin(std::future::ready(Ok(found)))
    }

    fn tells_updates(&self) -> bool {
        true
    }
}
