//! Binary fields of records: described, never shown.

use serde_json::{Map, Value, json};

use super::json::{Json, JsonObject};

/// The least length of a string that may be base64.
const MIN_BASE64: usize = 256;

/// Describes a field that holds binary data; `None` if it holds none.
pub(super) fn describe_binary(value: &Json<'_>) -> Option<Map<String, Value>> {
    let mut told = Map::new();
    let mut begin = || {
        told.insert("binary_field".to_owned(), json!(true));
        told.insert("text_like".to_owned(), json!(false));
        told.insert("preview_status".to_owned(), json!("binary-only"));
    };
    match value {
        Json::String(text) if is_base64(text) => {
            begin();
            told.insert("encoding".to_owned(), json!("base64"));
            told.insert("size_chars".to_owned(), json!(text.len()));
        }
        Json::Object(members) if is_blob_reference(members) => {
            begin();
            for (known, names) in [
                ("blob_id", ["blob_id", "blobId", ""]),
                ("fetch_url", ["fetch_url", "fetchUrl", "url"]),
                ("mime_type", ["mime_type", "mimeType", "content_type"]),
                ("size_bytes", ["size_bytes", "sizeBytes", "size"]),
                ("digest", ["digest", "sha256", ""]),
            ] {
                let found = names.iter().find_map(|name| members.get(name));
                if let Some(found) = found.filter(|found| found.is_string() || found.is_number()) {
                    told.insert(known.to_owned(), found.to_value());
                }
            }
        }
        _ => return None,
    }
    Some(told)
}

/// True if an object is a blob reference.
fn is_blob_reference(members: &JsonObject<'_>) -> bool {
    let has = |names: &[&str]| names.iter().any(|name| members.contains(name));
    let mime = has(&["mime_type", "mimeType", "content_type", "contentType"]);
    let place = has(&[
        "fetch_url",
        "fetchUrl",
        "url",
        "href",
        "size",
        "size_bytes",
        "sizeBytes",
    ]);
    has(&["blob_id", "blobId"]) || (mime && place)
}

/// True if a string is base64 and not text.
pub(super) fn is_base64(text: &str) -> bool {
    if text.len() < MIN_BASE64 || !text.len().is_multiple_of(4) {
        return false;
    }
    let body = text.trim_end_matches('=');
    if text.len() - body.len() > 2 {
        return false;
    }
    let mut seen = [false; 256];
    for byte in body.bytes() {
        if !(byte.is_ascii_alphanumeric() || b"+/-_".contains(&byte)) {
            return false;
        }
        seen[usize::from(byte)] = true;
    }
    seen.iter().filter(|seen| **seen).count() >= 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_told_from_words() {
        let bytes: String = "iVBORw0KGgoAAAANSUhEUgAA+/xY".repeat(16);
        assert!(is_base64(&bytes));
        assert!(!is_base64(&bytes[..252]));
        assert!(!is_base64(&"a".repeat(400)), "one letter is no data");
        assert!(!is_base64(&"some words ".repeat(40)));
        assert!(describe_binary(&json!({"id": "x", "name": "y"}).into()).is_none());
        let blob = json!({"blob_id": "b1", "mime_type": "image/png", "size": 7});
        let blob = describe_binary(&Json::from(blob));
        assert_eq!(
            Value::Object(blob.unwrap()),
            json!({
                "binary_field": true, "text_like": false, "preview_status": "binary-only",
                "blob_id": "b1", "mime_type": "image/png", "size_bytes": 7,
            })
        );
    }
}
