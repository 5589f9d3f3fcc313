//! The policy file format: YAML or JSON, with unknown names rejected and every pattern compiled.

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

/// The rules of one file.
#[derive(Debug, Default)]
pub(super) struct PolicyRules {
    pub(super) servers: RuleLists,
    pub(super) tools: RuleLists,
    pub(super) gateway_tools: RuleLists,
    pub(super) resources: RuleLists,
    pub(super) prompts: RuleLists,
    pub(super) packages: RuleLists,
    pub(super) limits: FileLimits,
    pub(super) redaction: RedactionRules,
}

/// The allow and deny patterns of one section.
#[derive(Debug, Default)]
pub(super) struct RuleLists {
    pub(super) allowlist: Vec<Glob>,
    pub(super) denylist: Vec<Glob>,
}

#[derive(Debug, Default, Clone, Copy)]
pub(super) struct FileLimits {
    pub(super) max_tools_per_server: Option<NonZeroU64>,
    pub(super) max_output_bytes: Option<OutputLimit<MIN_OUTPUT_BYTES>>,
    pub(super) max_output_tokens: Option<OutputLimit<MIN_OUTPUT_TOKENS>>,
}

/// A maximum size of a result, in bytes or tokens, of at least `LEAST`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "u64")]
pub(super) struct OutputLimit<const LEAST: u64>(u64);

/// The size of a link to a stored result. In tokens it is never larger, and the envelope of a reply adds only a few.
pub(super) const MIN_OUTPUT_TOKENS: u64 = Reply::MIN_BYTES as u64;
/// The minimum in bytes, including the envelope of the reply.
pub(super) const MIN_OUTPUT_BYTES: u64 = MIN_OUTPUT_TOKENS + 256;

impl<const LEAST: u64> From<OutputLimit<LEAST>> for u64 {
    fn from(most: OutputLimit<LEAST>) -> Self {
        most.0
    }
}

impl<const LEAST: u64> TryFrom<u64> for OutputLimit<LEAST> {
    type Error = String;

    fn try_from(most: u64) -> Result<Self, String> {
        if most < LEAST {
            return Err(format!(
                "{most} is too small: a reference to a stored result takes {LEAST}"
            ));
        }
        Ok(Self(most))
    }
}

#[derive(Debug, Default)]
pub(super) struct RedactionRules {
    pub(super) patterns: Vec<RedactionPattern>,
}

/// A pattern to mask, matched case-insensitively: a secret is one in either case.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct RedactionPattern(pub(super) Regex);

impl TryFrom<String> for RedactionPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let regex = Regex::new(&format!("(?i){text}"));
        let regex = regex.map_err(|error| {
            // The last line is the reason; the lines before it show the pattern.
            let told = error.to_string();
            let reason = told.lines().last().unwrap_or_default();
            let reason = reason.trim_start_matches("error: ");
            format!("the pattern `{text}` is invalid: {reason}")
        })?;
        if regex.is_match("") {
            return Err(format!(
                "the pattern `{text}` matches the empty string, so it would mask everything"
            ));
        }
        Ok(Self(regex))
    }
}

/// Parses a file: JSON if its extension is `json`, else YAML.
pub(super) fn parse(path: &Path, text: &str) -> Result<PolicyRules, Problem> {
    let is_json = path
        .extension()
        .is_some_and(|extension| extension == "json");
    if is_json {
        return serde_json::from_str(text).map_err(|error| Problem::in_json(path, &error));
    }
    // An empty file is more likely one that is being written than a policy that allows everything.
    let rules: Option<PolicyRules> =
        serde_saphyr::from_str(text).map_err(|error| Problem::in_yaml(path, &error))?;
    rules.ok_or_else(|| {
        Problem::new(
            path,
            "is empty; write `{}` for a policy without rules, or remove the file",
        )
    })
}

/// A group of named members that rejects unknown and repeated names.
trait Members: Default {
    const NAMES: &'static [&'static str];

    fn take<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error>;
}

/// The name of a member. It is validated during deserialization so that an error has its position.
struct MemberName<M>(String, PhantomData<M>);

impl<'de, M: Members> Deserialize<'de> for MemberName<M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if M::NAMES.contains(&name.as_str()) {
            return Ok(Self(name, PhantomData));
        }
        let advice = match nearest(&name, M::NAMES.iter().copied()) {
            Some(known) => format!("did you mean `{known}`?"),
            None => format!("the names are {}", M::NAMES.join(", ")),
        };
        Err(D::Error::custom(format!("`{name}` is unknown; {advice}")))
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
        while let Some(MemberName(name, _)) = map.next_key::<MemberName<M>>()? {
            if named.contains(&name) {
                return Err(A::Error::custom(format!("`{name}` is set twice")));
            }
            members.take(&name, &mut map)?;
            named.push(name);
        }
        Ok(members)
    }
}

/// Deserializes a member; an empty member keeps its default.
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

members!(PolicyRules: servers, tools, gateway_tools, resources, prompts, packages, limits, redaction);
members!(RuleLists: allowlist, denylist);
members!(FileLimits: max_tools_per_server, max_output_bytes, max_output_tokens);
members!(RedactionRules: patterns);
