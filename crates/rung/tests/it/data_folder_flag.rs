//! `--home` on commands that only read.

use crate::sandbox::Sandbox;

/// Commands that never create a data folder.
const READING_COMMANDS: [&[&str]; 10] = [
    &["token", "list"],
    &["token", "revoke", "laptop"],
    &["result", "list"],
    &["result", "read", "res_00gjcscneqkvkxyct86vc2vzpw"],
    &["result", "export", "res_00gjcscneqkvkxyct86vc2vzpw"],
    &["pdpp", "grant", "list"],
    &["pdpp", "connections", "list"],
    &["pdpp", "disclosures"],
    &["gateway", "status"],
    &["backup", "copy"],
];

#[test]
fn a_mistyped_home_is_an_error_and_creates_nothing() {
    let sandbox = Sandbox::new();
    let mistyped = sandbox.home().join("dtaa");
    for command in READING_COMMANDS {
        let ran = sandbox.run(&[&["--home", mistyped.to_str().unwrap()], command].concat());
        assert_eq!(ran.status, 66, "{command:?}: {}", ran.stderr);
        assert!(
            ran.stderr.contains("error[not_found]") && ran.stderr.contains("dtaa"),
            "{command:?}: {}",
            ran.stderr
        );
        assert!(!mistyped.exists(), "{command:?}");
        assert!(!sandbox.home().join("project/copy").exists());
    }
}

#[test]
fn a_folder_of_other_files_is_no_data_folder() {
    let sandbox = Sandbox::new();
    sandbox.write("photos/one.jpg", "");
    let photos = sandbox.home().join("photos");
    for command in READING_COMMANDS {
        let ran = sandbox.run(&[&["--home", photos.to_str().unwrap()], command].concat());
        assert_eq!(ran.status, 66, "{command:?}: {}", ran.stderr);
    }
    assert_eq!(std::fs::read_dir(&photos).unwrap().count(), 1);
}

#[test]
fn a_command_that_stores_makes_the_folder_and_others_read_it() {
    let sandbox = Sandbox::new();
    let home = sandbox.home().join("new");
    let home = home.to_str().unwrap();
    sandbox.run_ok(&["--home", home, "token", "new", "laptop"]);
    let listed = sandbox.run_ok(&["--home", home, "token", "list"]);
    assert!(listed.contains("laptop"), "{listed}");
    // With the default folder, having no token yet is not an error.
    sandbox.run_ok(&["token", "list"]);
}
