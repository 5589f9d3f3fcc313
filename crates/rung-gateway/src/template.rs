//! Addresses of one shape: whether an address could come of a template, as RFC 6570 writes them.

/// Whether `uri` could be what `template` becomes. An expression stands for anything but a slash; `{+x}` and `{/x*}` and the like for
/// anything at all.
pub(crate) fn fits(template: &str, uri: &str) -> bool {
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
    // The shortest first, and no further than the expression reaches.
    ends.take_while(|end| wide || !uri[..*end].contains('/'))
        .any(|end| fits(after, &uri[end..]))
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
            assert_eq!(fits(template, uri), expected, "{template} {uri}");
        }
    }
}
