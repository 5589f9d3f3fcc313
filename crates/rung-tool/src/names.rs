//! Names with dots, and without them for clients that refuse dots.

use std::borrow::Cow;
use std::sync::Arc;

use rung_auth::Permit;
use rung_fault::Fault;
use serde_json::value::RawValue;

use crate::card::Card;
use crate::reply::Reply;
use crate::source::{Call, Pending, ToolSource, unknown_tool};

/// How tools are called towards this caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Names {
    /// By their own names.
    #[default]
    Dotted,
    /// With `_` for every dot.
    Plain,
}

impl Names {
    /// The name as the caller knows it.
    pub fn show(self, name: &str) -> Cow<'_, str> {
        match self {
            Self::Plain if name.contains('.') => name.replace('.', "_").into(),
            Self::Plain | Self::Dotted => name.into(),
        }
    }
}

/// A source whose tools have plain names.
///
/// A name that is taken as it stands keeps its owner: of `a.b` and `a_b`, a call of `a_b` reaches the second.
pub struct Plain(pub Arc<dyn ToolSource>);

impl Plain {
    async fn resolve(&self, permit: &Permit, name: &str) -> Result<Arc<str>, Fault> {
        let cards = self.0.list(permit).await?;
        let own = cards.iter().find(|card| &*card.name == name);
        let shown = || {
            cards
                .iter()
                .find(|card| Names::Plain.show(&card.name) == name)
        };
        let found = own.or_else(shown).map(|card| card.name.clone());
        found.ok_or_else(|| {
            let names: Vec<_> = cards
                .iter()
                .map(|card| Names::Plain.show(&card.name))
                .collect();
            unknown_tool(name, names.iter().map(|name| &**name))
        })
    }
}

/// A tool by its plain name. Where it names itself or another of `names`, it must be by the name here.
fn plain(mut card: Card, names: &[Arc<str>]) -> Card {
    let Cow::Owned(name) = Names::Plain.show(&card.name) else {
        return card;
    };
    let renamed = |text: &str| {
        let mut text = Cow::Borrowed(text);
        for name in names.iter().filter(|name| name.contains('.')) {
            if text.contains(&**name) {
                text = text.replace(&**name, &Names::Plain.show(name)).into();
            }
        }
        text.into_owned()
    };
    card.description = renamed(&card.description).into();
    // No name has what JSON writes in another way.
    let listed = card.listed.as_ref();
    let listed = listed.and_then(|listed| RawValue::from_string(renamed(listed.get())).ok());
    card.listed = listed.map(Arc::from).or(card.listed);
    card.name = name.into();
    card
}

fn names(cards: &[Card]) -> Vec<Arc<str>> {
    let mut names: Vec<Arc<str>> = cards.iter().map(|card| card.name.clone()).collect();
    // A name that begins as another one does goes before it.
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    names
}

impl ToolSource for Plain {
    fn list<'a>(&'a self, permit: &'a Permit) -> Pending<'a, Result<Vec<Card>, Fault>> {
        Box::pin(async move {
            let cards = self.0.list(permit).await?;
            let names = names(&cards);
            Ok(cards.into_iter().map(|card| plain(card, &names)).collect())
        })
    }

    fn describe<'a>(
        &'a self,
        permit: &'a Permit,
        name: &'a str,
    ) -> Pending<'a, Result<Card, Fault>> {
        Box::pin(async move {
            let name = self.resolve(permit, name).await?;
            let names = names(&self.0.list(permit).await?);
            let card = self.0.describe(permit, &name).await?;
            Ok(plain(card, &names))
        })
    }

    fn call<'a>(
        &'a self,
        call: &'a Call,
        name: &'a str,
        arguments: &'a RawValue,
    ) -> Pending<'a, Reply> {
        Box::pin(async move {
            let call = Call {
                names: Names::Plain,
                ..call.clone()
            };
            match self.resolve(&call.permit, name).await {
                Ok(name) => self.0.call(&call, &name, arguments).await,
                Err(fault) => Reply::failed(&fault, rung_fault::Face::Rung, &call),
            }
        })
    }
}
