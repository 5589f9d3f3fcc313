//! Reads and replaces single members of a JSON object; all other bytes stay as they are.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

/// Returns the members of an object in their order, with their raw values. `None` if the text is not an object.
pub fn members(object: &str) -> Option<Vec<(Cow<'_, str>, &RawValue)>> {
    struct Members;

    impl<'de> Visitor<'de> for Members {
        type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some(Name(name)) = map.next_key()? {
                members.push((name, map.next_value::<&'de RawValue>()?));
            }
            Ok(members)
        }
    }

    /// Borrowed where nothing in it is escaped.
    #[derive(serde::Deserialize)]
    #[serde(transparent)]
    struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

    let mut deserializer = serde_json::Deserializer::from_str(object);
    let members = deserializer.deserialize_map(Members).ok()?;
    deserializer.end().ok()?;
    Some(members)
}

/// Returns the raw value of a member. Of several with the same name, the last one counts, as usual.
pub fn member<'a>(object: &'a str, name: &str) -> Option<&'a RawValue> {
    // A name that is not in the text, plain or possibly escaped, is not a member.
    if !object.contains(name) && !object.contains('\\') {
        return None;
    }
    let members = members(object)?;
    let mut found = members.into_iter().rev();
    found.find(|(own, _)| own == name).map(|(_, value)| value)
}

/// Returns the object with one member set. Text that is not an object becomes one.
pub fn set_member(object: &str, name: &str, value: &str) -> String {
    if let Some(old) = member(object, name) {
        let start = old.get().as_ptr().addr() - object.as_ptr().addr();
        let (before, after) = (&object[..start], &object[start + old.get().len()..]);
        return [before, value, after].concat();
    }
    let name = serde_json::Value::from(name).to_string();
    let Some(rest) = object.trim_start().strip_prefix('{') else {
        return ["{", &name, ":", value, "}"].concat();
    };
    let comma = if rest.trim_start().starts_with('}') {
        ""
    } else {
        ","
    };
    ["{", &name, ":", value, comma, rest].concat()
}

/// Returns the object without a member. Text that is not an object stays as it is.
pub fn without_member(object: &str, name: &str) -> String {
    let Some(members) = members(object) else {
        return object.to_owned();
    };
    let others = members.iter().filter(|(own, _)| own != name);
    let others: Vec<String> = others
        .map(|(own, value)| format!("{}:{}", serde_json::Value::from(&**own), value.get()))
        .collect();
    format!("{{{}}}", others.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_member_changes_and_the_rest_is_as_it_was() {
        let odd = r#"{ "a" : 1.0e0, "a":2, "_meta": {"x":[ ]} , "b" :"\u0041" }"#;
        assert_eq!(member(odd, "a").unwrap().get(), "2");
        assert_eq!(
            set_member(odd, "_meta", "7"),
            r#"{ "a" : 1.0e0, "a":2, "_meta": 7 , "b" :"\u0041" }"#
        );
        assert_eq!(set_member("{}", "n", "1"), r#"{"n":1}"#);
        assert_eq!(set_member(" { }", "n", "1"), r#"{"n":1 }"#);
        assert_eq!(set_member(r#"{"a":0}"#, "n", "1"), r#"{"n":1,"a":0}"#);
        assert_eq!(set_member("null", "n", "1"), r#"{"n":1}"#);
        assert!(member("[1]", "n").is_none());
    }

    #[test]
    fn a_member_is_removed_and_the_others_keep_their_values() {
        let odd = r#"{ "a" : 1.0e0, "b\"":2, "a": [ 3 ] }"#;
        assert_eq!(without_member(odd, "a"), r#"{"b\"":2}"#);
        assert_eq!(without_member(odd, "b\""), r#"{"a":1.0e0,"a":[ 3 ]}"#);
        assert_eq!(without_member("7", "a"), "7");
    }
}
