//! Tool names with dots, and without dots for clients that refuse them.

use std::borrow::Cow;
use std::sync::Arc;

use rung_auth::Permit;
use rung_fault::Fault;
use serde_json::value::RawValue;

use crate::card::Card;
use crate::reply::Reply;
use crate::source::{BoxFuture, Call, ToolSource, unknown_tool};

/// The form of tool names that the caller uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NameStyle {
    /// The tools' own names.
    #[default]
    Dotted,
    /// Every dot is replaced by `_`.
    Plain,
}

impl NameStyle {
    /// Returns `name` in this form.
    pub fn apply(self, name: &str) -> Cow<'_, str> {
        match self {
            Self::Plain if name.contains('.') => name.replace('.', "_").into(),
            Self::Plain | Self::Dotted => name.into(),
        }
    }
}

/// A source that shows the tools of another source under plain names.
///
/// A tool's own name takes precedence: if there are `a.b` and `a_b`, a call of `a_b` reaches the second.
pub struct PlainNames(pub Arc<dyn ToolSource>);

impl PlainNames {
    async fn resolve(&self, permit: &Permit, name: &str) -> Result<Arc<str>, Fault> {
        let cards = self.0.list(permit).await?;
        let own = cards.iter().find(|card| &*card.name == name);
        let shown = || {
            cards
                .iter()
                .find(|card| NameStyle::Plain.apply(&card.name) == name)
        };
        let found = own.or_else(shown).map(|card| card.name.clone());
        found.ok_or_else(|| {
            let names: Vec<_> = cards
                .iter()
                .map(|card| NameStyle::Plain.apply(&card.name))
                .collect();
            unknown_tool(name, names.iter().map(|name| &**name))
        })
    }
}

/// Renames a tool to its plain name, and replaces every dotted name of `names` in its description and definition.
fn rename_card(mut card: Card, names: &[Arc<str>]) -> Card {
    let Cow::Owned(name) = NameStyle::Plain.apply(&card.name) else {
        return card;
    };
    let renamed = |text: &str| {
        let mut text = Cow::Borrowed(text);
        for name in names.iter().filter(|name| name.contains('.')) {
            if text.contains(&**name) {
                text = text.replace(&**name, &NameStyle::Plain.apply(name)).into();
            }
        }
        text.into_owned()
    };
    card.description = renamed(&card.description).into();
    // Names contain no characters that JSON escapes.
    let listed = card.listed.as_ref();
    let listed = listed.and_then(|listed| RawValue::from_string(renamed(listed.get())).ok());
    card.listed = listed.map(Arc::from).or(card.listed);
    card.name = name.into();
    card
}

fn sorted_names(cards: &[Card]) -> Vec<Arc<str>> {
    let mut names: Vec<Arc<str>> = cards.iter().map(|card| card.name.clone()).collect();
    // Longer names first: a name may be a prefix of another.
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    names
}

impl ToolSource for PlainNames {
    fn list<'a>(&'a self, permit: &'a Permit) -> BoxFuture<'a, Result<Vec<Card>, Fault>> {
        Box::pin(async move {
            let cards = self.0.list(permit).await?;
            let names = sorted_names(&cards);
            Ok(cards
                .into_iter()
                .map(|card| rename_card(card, &names))
                .collect())
        })
    }

    fn describe<'a>(
        &'a self,
        permit: &'a Permit,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Card, Fault>> {
        Box::pin(async move {
            let name = self.resolve(permit, name).await?;
            let names = sorted_names(&self.0.list(permit).await?);
            let card = self.0.describe(permit, &name).await?;
            Ok(rename_card(card, &names))
        })
    }

    fn call<'a>(
        &'a self,
        call: &'a Call,
        name: &'a str,
        arguments: &'a RawValue,
    ) -> BoxFuture<'a, Reply> {
        Box::pin(async move {
            let call = Call {
                name_style: NameStyle::Plain,
                ..call.clone()
            };
            match self.resolve(&call.permit, name).await {
                Ok(name) => self.0.call(&call, &name, arguments).await,
                Err(fault) => Reply::failed(&fault, rung_fault::Face::Rung, &call),
            }
        })
    }
}
