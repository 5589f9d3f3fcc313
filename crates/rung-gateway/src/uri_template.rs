//! Matching of URIs against URI templates (RFC 6570).

/// Returns true if `uri` could be an expansion of `template`. A simple expression matches anything without a slash; `{+x}`,
/// `{/x*}` and the like match anything.
pub(crate) fn matches_template(template: &str, uri: &str) -> bool {
    let Some((before, rest)) = template.split_once('{') else {
        return template == uri;
    };
    let Some(uri) = uri.strip_prefix(before) else {
        return false;
    };
    let Some((expression, after)) = rest.split_once('}') else {
        return false;
    };
    let wide =
        expression.starts_with(['+', '#', '/', '.', ';', '?', '&']) || expression.ends_with('*');
    let ends = uri.char_indices().map(|(at, _)| at).chain([uri.len()]);
    // Shortest match first, up to the first slash if the expression is simple.
    ends.take_while(|end| wide || !uri[..*end].contains('/'))
        .any(|end| matches_template(after, &uri[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_fits_the_template_it_could_come_of() {
        for (template, uri, expected) in [
            ("test://static/{id}", "test://static/7", true),
            ("test://static/{id}", "test://static/a/b", false),
            ("file:///{+path}", "file:///a/b.txt", true),
            ("a://{x}/b/{y}", "a://1/b/2", true),
            ("a://{x}/b/{y}", "a://1/c/2", false),
            ("a://x", "a://x", true),
            ("a://x", "a://y", false),
            ("a://{broken", "a://7", false),
        ] {
            assert_eq!(
                matches_template(template, uri),
                expected,
                "{template} {uri}"
            );
        }
    }
}
