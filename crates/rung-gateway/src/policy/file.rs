//! A policy as it is written: YAML or JSON, every name known, every pattern read.

use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::path::Path;

use regex::Regex;
use rung_fault::nearest;
use rung_tool::Reply;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};

use super::glob::Glob;
use crate::config::Problem;

/// What one file says.
#[derive(Debug, Default)]
pub(super) struct Rules {
    pub(super) servers: Lists,
    pub(super) tools: Lists,
    pub(super) gateway_tools: Lists,
    pub(super) resources: Lists,
    pub(super) prompts: Lists,
    pub(super) packages: Lists,
    pub(super) limits: Bounds,
    pub(super) redaction: Redaction,
}

/// What is let through, and what is not.
#[derive(Debug, Default)]
pub(super) struct Lists {
    pub(super) allowlist: Vec<Glob>,
    pub(super) denylist: Vec<Glob>,
}

/// The limits that a file names.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) max_tools_per_server: Option<NonZeroU64>,
    pub(super) max_output_bytes: Option<Output<LEAST_BYTES>>,
    pub(super) max_output_tokens: Option<Output<LEAST_TOKENS>>,
}

/// How much is sent for a result, in bytes or tokens, and no less than `LEAST`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "u64")]
pub(super) struct Output<const LEAST: u64>(u64);

/// What the way to a result that is kept takes. In tokens it is never more, and what stands around any reply is few of them.
pub(super) const LEAST_TOKENS: u64 = Reply::LEAST_BYTES as u64;
/// The same with what stands around it.
pub(super) const LEAST_BYTES: u64 = LEAST_TOKENS + 256;

impl<const LEAST: u64> From<Output<LEAST>> for u64 {
    fn from(most: Output<LEAST>) -> Self {
        most.0
    }
}

impl<const LEAST: u64> TryFrom<u64> for Output<LEAST> {
    type Error = String;

    fn try_from(most: u64) -> Result<Self, String> {
        if most < LEAST {
            return Err(format!(
                "{most} is too little: the way to a result that is kept takes {LEAST}"
            ));
        }
        Ok(Self(most))
    }
}

#[derive(Debug, Default)]
pub(super) struct Redaction {
    pub(super) patterns: Vec<Pattern>,
}

/// What is masked. Case makes no difference: a secret is one in either.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Pattern(pub(super) Regex);

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let regex = Regex::new(&format!("(?i){text}"));
        let regex = regex.map_err(|error| {
            // Its last line is the reason; those before it draw the pattern.
            let told = error.to_string();
            let reason = told.lines().last().unwrap_or_default();
            let reason = reason.trim_start_matches("error: ");
            format!("the pattern `{text}` is refused: {reason}")
        })?;
        if regex.is_match("") {
            return Err(format!("the pattern `{text}` matches everywhere"));
        }
        Ok(Self(regex))
    }
}

/// Reads a file: JSON where its name says so, else YAML.
pub(super) fn parse(path: &Path, text: &str) -> Result<Rules, Problem> {
    let is_json = path
        .extension()
        .is_some_and(|extension| extension == "json");
    if is_json {
        return serde_json::from_str(text).map_err(|error| Problem::in_json(path, &error));
    }
    // An emptied file is more often one that is just being written than one that means to allow everything.
    let rules: Option<Rules> =
        serde_saphyr::from_str(text).map_err(|error| Problem::in_yaml(path, &error))?;
    rules.ok_or_else(|| {
        Problem::new(
            path,
            "says nothing; write `{}` for a policy without rules, or remove the file",
        )
    })
}

/// A group of named members of which none may be unknown or named twice.
trait Members: Default {
    const NAMES: &'static [&'static str];

    fn take<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error>;
}

/// The name of a member. It is judged while it is read, so that a refusal knows its place.
struct Name<M>(String, PhantomData<M>);

impl<'de, M: Members> Deserialize<'de> for Name<M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if M::NAMES.contains(&name.as_str()) {
            return Ok(Self(name, PhantomData));
        }
        let advice = match nearest(&name, M::NAMES.iter().copied()) {
            Some(known) => format!("did you mean `{known}`?"),
            None => format!("there are {}", M::NAMES.join(", ")),
        };
        Err(D::Error::custom(format!("`{name}` is not known; {advice}")))
    }
}

struct Strict<M>(PhantomData<M>);

impl<'de, M: Members> Visitor<'de> for Strict<M> {
    type Value = M;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a group of {}", M::NAMES.join(", "))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<M, A::Error> {
        let mut members = M::default();
        let mut named: Vec<String> = Vec::new();
        while let Some(Name(name, _)) = map.next_key::<Name<M>>()? {
            if named.contains(&name) {
                return Err(A::Error::custom(format!("`{name}` is said twice")));
            }
            members.take(&name, &mut map)?;
            named.push(name);
        }
        Ok(members)
    }
}

/// Reads what a member says; one that is named and left empty says nothing.
macro_rules! members {
    ($kind:ty: $($name:ident),+) => {
        impl Members for $kind {
            const NAMES: &'static [&'static str] = &[$(stringify!($name)),+];

            fn take<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
                match name {
                    $(stringify!($name) => self.$name = map.next_value::<Option<_>>()?.unwrap_or_default(),)+
                    _ => {}
                }
                Ok(())
            }
        }

        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_map(Strict(PhantomData))
            }
        }
    };
}

members!(Rules: servers, tools, gateway_tools, resources, prompts, packages, limits, redaction);
members!(Lists: allowlist, denylist);
members!(Bounds: max_tools_per_server, max_output_bytes, max_output_tokens);
members!(Redaction: patterns);
