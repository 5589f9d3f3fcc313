//! The reference pages match the program.

use crate::sandbox::{Sandbox, repository_root};

#[test]
fn the_settings_page_is_generated() {
    let page =
        std::fs::read_to_string(repository_root().join("docs/reference/settings.md")).unwrap();
    let table = Sandbox::new().run_ok(&["config", "reference"]);
    assert!(page.contains(&table), "run `cargo xtask docs`");
}
