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

fn plain(mut card: Card) -> Card {
    if let Cow::Owned(name) = Names::Plain.show(&card.name) {
        // Where the description names the tool, it must be by its name here.
        card.description = card.description.replace(&*card.name, &name).into();
        card.name = name.into();
    }
    card
}

impl ToolSource for Plain {
    fn list<'a>(&'a self, permit: &'a Permit) -> Pending<'a, Result<Vec<Card>, Fault>> {
        Box::pin(async move {
            let cards = self.0.list(permit).await?;
            Ok(cards.into_iter().map(plain).collect())
        })
    }

    fn describe<'a>(
        &'a self,
        permit: &'a Permit,
        name: &'a str,
    ) -> Pending<'a, Result<Card, Fault>> {
        Box::pin(async move {
            let name = self.resolve(permit, name).await?;
            self.0.describe(permit, &name).await.map(plain)
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
