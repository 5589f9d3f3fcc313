//! The reference pages say what the program says.

use crate::sandbox::{Sandbox, repository};

#[test]
fn the_settings_page_is_generated() {
    let page = std::fs::read_to_string(repository().join("docs/reference/settings.md")).unwrap();
    let table = Sandbox::new().ok(&["config", "reference"]);
    assert!(page.contains(&table), "run `cargo xtask docs`");
}
