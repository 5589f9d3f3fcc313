//! Prompts of the conformance suite.

use rung_auth::Permit;
use rung_fault::{Code, Fault};
use rung_tool::{
    BoxFuture, Call, CompletionQuery, ContentBlock, Message, Prompt, PromptArgument, PromptCard,
    PromptSource, Question, ResourceContents, Role, SourceResult,
};
use serde_json::{Map, Value, json};

use super::{Fixtures, PNG};

impl PromptSource for Fixtures {
    fn list<'a>(&'a self, _: &'a Permit) -> BoxFuture<'a, Result<Vec<PromptCard>, Fault>> {
        let card = |name: &str, arguments: &[&str]| PromptCard {
            name: name.to_owned(),
            description: Some("A fixture of the conformance suite".to_owned()),
            arguments: arguments
                .iter()
                .map(|name| PromptArgument {
                    name: (*name).to_owned(),
                    description: Some("A word".to_owned()),
                    required: true,
                })
                .collect(),
            ..PromptCard::default()
        };
        let simple = PromptCard {
            description: Some(self.changing_description()),
            ..card("test_simple_prompt", &[])
        };
        let cards = vec![
            simple,
            card("test_prompt_with_arguments", &["arg1", "arg2"]),
            card("test_prompt_with_embedded_resource", &["resourceUri"]),
            card("test_prompt_with_image", &[]),
            card("test_input_required_result_prompt", &[]),
        ];
        Box::pin(std::future::ready(Ok(cards)))
    }

    fn get<'a>(
        &'a self,
        call: &'a Call,
        name: &'a str,
        arguments: &'a Map<String, Value>,
    ) -> BoxFuture<'a, Result<Option<SourceResult<Prompt>>, Fault>> {
        Box::pin(async move {
            let argument = |name: &str| {
                let given = arguments.get(name).and_then(Value::as_str);
                let missing =
                    || Fault::new(Code::InvalidArguments, format!("the prompt needs {name}"));
                given.ok_or_else(missing)
            };
            let content = match name {
                "test_simple_prompt" => text("a simple prompt".to_owned()),
                "test_prompt_with_arguments" => {
                    let (first, second) = (argument("arg1")?, argument("arg2")?);
                    text(format!("arg1 is {first}, arg2 is {second}"))
                }
                "test_prompt_with_embedded_resource" => ContentBlock::Resource {
                    resource: ResourceContents {
                        uri: argument("resourceUri")?.to_owned(),
                        mime_type: Some("text/plain".to_owned()),
                        text: Some("a resource that comes along".to_owned()),
                        ..ResourceContents::default()
                    },
                },
                "test_prompt_with_image" => ContentBlock::Image {
                    data: PNG.to_owned(),
                    mime_type: "image/png".to_owned(),
                },
                "test_input_required_result_prompt" => {
                    let schema = json!({
                        "type": "object",
                        "properties": {"context": {"type": "string"}},
                        "required": ["context"],
                    });
                    let question = Question::form("What context should the prompt use?", &schema);
                    let answers = call
                        .peer
                        .ask(vec![("user_context".to_owned(), question)])
                        .await?;
                    text(format!(
                        "in the context of {}",
                        answers["user_context"]["content"]
                    ))
                }
                _ => return Ok(None),
            };
            let prompt = Prompt {
                messages: vec![Message {
                    role: Role::User,
                    content,
                }],
                ..Prompt::default()
            };
            Ok(Some(prompt.into()))
        })
    }

    fn complete<'a>(
        &'a self,
        _: &'a Permit,
        name: &'a str,
        partial: CompletionQuery<'a>,
    ) -> BoxFuture<'a, Result<Option<SourceResult<Vec<String>>>, Fault>> {
        let words = ["paris", "park", "party"].into_iter();
        let words = words
            .filter(|word| word.starts_with(partial.value))
            .map(str::to_owned);
        let found =
            (name == "test_prompt_with_arguments").then(|| words.collect::<Vec<_>>().into());
        Box::pin(std::future::ready(Ok(found)))
    }
}

fn text(text: String) -> ContentBlock {
    ContentBlock::Text { text }
}
