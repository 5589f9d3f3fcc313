//! Tests of policies, their patterns and their errors.

use std::fs;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

/// A home folder and a project in a temporary folder.
struct PolicyFixture {
    _folder: TempDir,
    places: ConfigPaths,
}

impl PolicyFixture {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let home = folder.path().join("home");
        let project = folder.path().join("project");
        fs::create_dir_all(home.join(".claude")).unwrap();
        fs::create_dir_all(&project).unwrap();
        let places = ConfigPaths {
            home: Some(home),
            project: Some(project),
            ..ConfigPaths::default()
        };
        Self {
            _folder: folder,
            places,
        }
    }

    fn user(self, text: &str) -> Self {
        let home = self.places.home.as_ref().unwrap();
        fs::write(home.join(".claude/gateway-policy.yaml"), text).unwrap();
        self
    }

    fn project(self, text: &str) -> Self {
        let project = self.places.project.as_ref().unwrap();
        fs::write(project.join(".mcp-gateway-policy.json"), text).unwrap();
        self
    }

    fn explicit(mut self, text: &str) -> Self {
        let file = self.places.home.as_ref().unwrap().join("given.yaml");
        fs::write(&file, text).unwrap();
        self.places.policy = Some(file);
        self
    }

    fn load(&self) -> Policy {
        Policy::load(&self.places).unwrap()
    }

    fn refusal(&self) -> Problem {
        Policy::load(&self.places).unwrap_err()
    }
}

fn tool(id: &str) -> PolicySubject<'_> {
    let (server, tool) = id.split_once("::").unwrap();
    PolicySubject::Tool { server, tool }
}

#[test]
fn a_glob_matches_what_it_says() {
    let rows = [
        ("*::delete_*", "db::delete_row", true),
        ("*::delete_*", "db::undelete_row", false),
        ("*::delete_*", "a::b::delete_", true),
        ("*", "", true),
        ("*", "a/b:c", true),
        ("?", "", false),
        ("?", "ü", true),
        ("?", "ab", false),
        ("a?c", "abc", true),
        ("a*c", "ac", true),
        ("a*c", "abcd", false),
        ("a*b*c", "a-b-b-c", true),
        ("[a-c]x", "bx", true),
        ("[a-c]x", "dx", false),
        ("[!a-c]x", "dx", true),
        ("[!a-c]x", "ax", false),
        ("[]x]", "]", true),
        ("[!]]", "]", false),
        ("[a-]", "-", true),
        ("[-a]", "-", true),
        ("[*]", "*", true),
        ("[*]", "a", false),
        ("Secret*", "secretserver", false),
        ("fs::file:///*", "fs::file:///etc/passwd", true),
        ("a.c", "abc", false),
        ("a\\*", "a\\b", true),
        ("x]", "x]", true),
    ];
    for (pattern, text, matches) in rows {
        let glob = Glob::try_from(pattern.to_owned()).unwrap();
        assert_eq!(glob.matches(text), matches, "{pattern} on {text}");
    }
}

#[test]
fn a_bad_glob_is_refused() {
    for pattern in ["", "[a", "[", "[]", "[!]", "[z-a]", "[^a]"] {
        assert!(Glob::try_from(pattern.to_owned()).is_err(), "{pattern}");
    }
}

#[test]
fn many_stars_take_no_time() {
    let pattern = format!("{}b", "a*".repeat(2_000));
    let glob = Glob::try_from(pattern).unwrap();
    let start = std::time::Instant::now();
    assert!(!glob.matches(&"a".repeat(20_000)));
    assert!(start.elapsed().as_secs() < 5);
}

/// The naive implementation: every split is tried.
fn naive_match(parts: &[char], text: &[char]) -> bool {
    match parts.split_first() {
        None => text.is_empty(),
        Some(('*', rest)) => (0..=text.len()).any(|at| naive_match(rest, &text[at..])),
        Some((part, rest)) => text
            .split_first()
            .is_some_and(|(c, after)| (*part == '?' || part == c) && naive_match(rest, after)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_glob_equals_its_naive_twin(pattern in "[ab*?ü]{1,9}", text in "[abü]{0,9}") {
        let parts: Vec<char> = pattern.chars().collect();
        let chars: Vec<char> = text.chars().collect();
        let glob = Glob::try_from(pattern).unwrap();
        prop_assert_eq!(glob.matches(&text), naive_match(&parts, &chars));
    }

    #[test]
    fn any_text_is_a_glob_or_is_refused(pattern in any::<String>(), text in any::<String>()) {
        if let Ok(glob) = Glob::try_from(pattern) {
            glob.matches(&text);
        }
    }

    #[test]
    fn any_text_is_a_policy_or_is_refused(text in any::<String>(), near in "[a-z:\\[\\]{}\"' \n-]{0,30}") {
        for text in [text, near] {
            for file in ["p.yaml", "p.json"] {
                let _read_or_refused = file::parse(Path::new(file), &text);
            }
        }
    }

    #[test]
    fn a_set_holds_what_lies_between(low in any::<char>(), high in any::<char>(), c in any::<char>()) {
        prop_assume!(low <= high && ![low, high].iter().any(|c| "]!^-".contains(*c)));
        let inside = Glob::try_from(format!("[{low}-{high}]")).unwrap();
        let outside = Glob::try_from(format!("[!{low}-{high}]")).unwrap();
        let text = c.to_string();
        prop_assert_eq!(inside.matches(&text), (low..=high).contains(&c));
        prop_assert_ne!(inside.matches(&text), outside.matches(&text));
    }
}

#[test]
fn nothing_said_allows_everything() {
    let policy = PolicyFixture::new().load();
    assert_eq!(policy.verdict(tool("a::b")), Verdict::Allowed(None));
    let limits = PolicyLimits {
        max_tools_per_server: None,
        max_output_bytes: 50_000,
        max_output_tokens: 4_000,
    };
    assert_eq!(policy.limits(), limits);
    assert_eq!(policy.files().len(), 4, "all places are watched");
}

#[test]
fn denied_first_then_the_allowlist() {
    let world = PolicyFixture::new().user(
        "servers:\n  allowlist: []\n  denylist: [dangerous-server]\n\
         tools:\n  allowlist: ['tenant::get_*', 'tenant::run']\n  denylist:\n    - \"*::run\"\n\
         gateway_tools:\n  denylist: [gateway.provision]\n\
         resources:\n  denylist: ['fs::file:///etc/*']\n\
         prompts:\n  allowlist: ['tenant::*']\n",
    );
    let policy = world.load();
    let rows = [
        (PolicySubject::Server("tenant"), true),
        (PolicySubject::Server("dangerous-server"), false),
        (tool("tenant::get_it"), true),
        (tool("tenant::run"), false),
        (tool("tenant::put_it"), false),
        (tool("dangerous-server::get_it"), false),
        (PolicySubject::GatewayTool("gateway.provision"), false),
        (PolicySubject::GatewayTool("gateway.invoke"), true),
        (
            PolicySubject::Resource {
                server: "fs",
                uri: "file:///etc/passwd",
            },
            false,
        ),
        (
            PolicySubject::Resource {
                server: "fs",
                uri: "file:///home/x",
            },
            true,
        ),
        (
            PolicySubject::Prompt {
                server: "tenant",
                name: "x",
            },
            true,
        ),
        (
            PolicySubject::Prompt {
                server: "other",
                name: "x",
            },
            false,
        ),
    ];
    for (thing, allowed) in rows {
        assert_eq!(policy.verdict(thing).is_allowed(), allowed, "{thing:?}");
    }
}

#[test]
fn a_verdict_names_its_rule() {
    let world = PolicyFixture::new()
        .user("tools:\n  denylist: ['*::drop_*']\n  allowlist: ['db::*']\n")
        .project(r#"{"tools": {"allowlist": ["db::r*"]}}"#);
    let policy = world.load();
    let told = |id| match policy.verdict(tool(id)) {
        Verdict::Denied(rule) | Verdict::Allowed(Some(rule)) => {
            assert!(
                rule.file
                    .starts_with(world.places.home.as_ref().unwrap().parent().unwrap())
            );
            rule.to_string().split(" of ").next().unwrap().to_owned()
        }
        Verdict::Allowed(None) => String::new(),
    };
    assert_eq!(told("db::drop_it"), "`*::drop_*` in tools.denylist");
    assert_eq!(told("db::read"), "`db::r*` in tools.allowlist");
    assert!(policy.verdict(tool("db::read")).is_allowed());
    assert_eq!(told("db::write"), "nothing in tools.allowlist");
    assert!(!policy.verdict(tool("db::write")).is_allowed());
}

#[test]
fn a_project_only_narrows() {
    let world = PolicyFixture::new()
        .user(
            "servers: {denylist: [bad]}\nlimits: {max_output_bytes: 90000, max_output_tokens: 300}\n\
             redaction: {patterns: [aaa]}\npackages: {denylist: ['evil*']}\n",
        )
        .project(
            r#"{"servers": {"allowlist": ["bad", "good"]},
                "limits": {"max_output_bytes": 600, "max_output_tokens": 500, "max_tools_per_server": 5},
                "redaction": {"patterns": ["aaa", "bbb"]},
                "packages": {"allowlist": ["*"]}}"#,
        );
    let policy = world.load();
    assert!(!policy.verdict(PolicySubject::Server("bad")).is_allowed());
    assert!(policy.verdict(PolicySubject::Server("good")).is_allowed());
    assert!(!policy.verdict(PolicySubject::Server("other")).is_allowed());
    let limits = PolicyLimits {
        max_tools_per_server: Some(5),
        max_output_bytes: 600,
        max_output_tokens: 300,
    };
    assert_eq!(policy.limits(), limits);
    let patterns = policy.redaction_patterns();
    let patterns: Vec<_> = patterns.iter().map(Regex::as_str).collect();
    assert_eq!(patterns, ["(?i)aaa", "(?i)bbb"]);
    assert_eq!(
        policy.package_verdict("left-pad"),
        PackageVerdict::Unspecified
    );
    assert!(matches!(
        policy.package_verdict("evil-pad"),
        PackageVerdict::Denied(_)
    ));
}

#[test]
fn the_user_may_raise_what_we_set() {
    let world = PolicyFixture::new()
        .explicit("limits: {max_output_bytes: 200000}\npackages: {allowlist: ['@own/*']}\n")
        .user("limits: {max_output_bytes: 300000}\n");
    let policy = world.load();
    assert_eq!(policy.limits().max_output_bytes, 200_000);
    assert!(matches!(
        policy.package_verdict("@own/x"),
        PackageVerdict::Granted(_)
    ));
    assert!(matches!(
        policy.package_verdict("other"),
        PackageVerdict::Denied(_)
    ));
    let origins: Vec<_> = policy.sources().map(|(origin, _)| origin).collect();
    assert_eq!(origins, [Origin::Explicit, Origin::User]);
}

#[test]
fn a_bad_file_is_refused_with_its_place() {
    let rows = [
        (
            "servers:\n  denylst: [a]\n",
            Some(2),
            "did you mean `denylist`?",
        ),
        (
            "server:\n  denylist: [a]\n",
            Some(1),
            "did you mean `servers`?",
        ),
        (
            "tools:\n  denylist:\n    - a\n    - 'x[y'\n",
            Some(4),
            "not closed",
        ),
        (
            "redaction:\n  patterns:\n    - '(x'\n",
            Some(3),
            "unclosed group",
        ),
        (
            "redaction:\n  patterns: ['x*']\n",
            Some(2),
            "the empty string",
        ),
        (
            "limits:\n  max_output_bytes: 255\n",
            Some(2),
            "255 is too small",
        ),
        ("limits:\n  max_output_tokens: 10\n", Some(2), "takes 256"),
        ("limits:\n  max_tools_per_server: 0\n", Some(2), "nonzero"),
        ("limits:\n  max_output_bytes: many\n", Some(2), ""),
        ("servers:\n  denylist: [a]\nservers: {}\n", Some(3), ""),
        ("servers: [\n", None, ""),
        ("- a\n", Some(1), "mapping"),
        ("", None, "is empty"),
        ("# only a remark\n", None, "is empty"),
    ];
    for (text, line, reason) in rows {
        let problem = PolicyFixture::new().user(text).refusal();
        assert!(problem.reason.contains(reason), "{text:?}: {problem}");
        assert!(
            !problem.reason.contains('\n') || text.contains("unclosed group"),
            "{problem}"
        );
        if line.is_some() {
            assert_eq!(
                problem.position.map(|place| place.0),
                line,
                "{text:?}: {problem}"
            );
        }
        assert!(problem.to_string().contains("gateway-policy.yaml"));
    }
    let problem = PolicyFixture::new()
        .project("{\"tools\": {\n  \"denylist\": [\"[\"]}}")
        .refusal();
    assert_eq!(problem.position.map(|place| place.0), Some(2), "{problem}");
    let problem = PolicyFixture::new().project("{\"tools\": {},\n}").refusal();
    assert_eq!(problem.position.map(|place| place.0), Some(2), "{problem}");
    assert!(!problem.reason.contains("line 2"), "{problem}");
}

#[test]
fn a_file_that_was_asked_for_must_be_there() {
    let mut world = PolicyFixture::new();
    world.places.policy = Some(world.places.home.as_ref().unwrap().join("none.yaml"));
    assert!(world.refusal().reason.contains("not there"));
}

#[test]
fn members_that_are_left_empty_say_nothing() {
    let policy = PolicyFixture::new()
        .user(
            "servers:\n  denylist:\ntools:\n{}\n"
                .replace("{}\n", "")
                .as_str(),
        )
        .load();
    assert!(policy.verdict(tool("a::b")).is_allowed());
}

#[test]
fn a_change_is_taken_and_a_bad_one_is_not() {
    let world = PolicyFixture::new().user("servers: {denylist: [a]}\n");
    let current = CurrentPolicy::open(world.places.clone()).unwrap();
    let denies = |name| {
        !current
            .get()
            .verdict(PolicySubject::Server(name))
            .is_allowed()
    };
    assert!(denies("a") && !denies("b"));
    assert_eq!(current.refresh(), Ok(false));
    let world = world.user("servers: {denylist: [b]}\n");
    assert_eq!(current.refresh(), Ok(true));
    assert!(!denies("a") && denies("b"));
    let world = world.user("servers: {denylist: [");
    assert!(current.refresh().is_err());
    assert!(denies("b"), "the old one holds");
    assert_eq!(current.refresh(), Ok(false), "told once");
    let world = world.user("servers: {denylist: [c]}\n");
    assert_eq!(current.refresh(), Ok(true));
    assert!(denies("c"));
    // A file that did not exist before.
    let _world = world.project(r#"{"servers": {"denylist": ["d"]}}"#);
    assert_eq!(current.refresh(), Ok(true));
    assert!(denies("c") && denies("d"));
}
