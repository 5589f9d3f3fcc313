//! Wires other servers: the settings and files that name them to the gateway that reaches them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rung_auth::Secret;
use rung_fault::{Code, Fault};
use rung_gateway::config::{self, Approvals, Places, Reach, Sharing, Spec, Trust, Watch};
use rung_gateway::policy::Current;
use rung_gateway::redact::Redactor;
use rung_gateway::{
    Configuration, Configure, Definition, Gateway, Guidance, OpenTo, Options, Rules, SignIn,
    Skipped, Withheld,
};
use rung_mcp::connect::{Address, Command, Target};

use crate::cli::GatewayFiles;
use crate::log;
use crate::results::Results;
use crate::settings::{Origin, Settings, Value};

/// Servers that are started at once, where several are.
const STARTS: usize = 8;

/// How a gateway behaves, beside what the settings say.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    /// Who reaches other servers over HTTP.
    pub(crate) open_to: OpenTo,
    /// Whether its tools are there while there is no server.
    pub(crate) shown_empty: bool,
    /// Servers that are started at once, where several are.
    pub(crate) starts: usize,
    /// How long any call may take.
    pub(crate) longest: Option<Duration>,
}

impl Manner {
    /// The usual one, of a gateway that stands beside other tools.
    pub(crate) fn usual(settings: &Settings) -> Self {
        Self {
            open_to: settings.gateway_open_to(),
            shown_empty: false,
            starts: STARTS,
            longest: None,
        }
    }
}

/// The gateway to the servers that are named here.
pub(crate) fn gateway(
    files: &GatewayFiles,
    settings: &Settings,
    results: &Results,
) -> Result<Gateway, Fault> {
    gateway_that(Manner::usual(settings), files, settings, results)
}

/// The same, one that behaves like this.
pub(crate) fn gateway_that(
    manner: Manner,
    files: &GatewayFiles,
    settings: &Settings,
    results: &Results,
) -> Result<Gateway, Fault> {
    let places = places(files)?;
    if let Some(file) = places.config.as_ref().filter(|file| !file.exists()) {
        let why = format!("{}: there is no such file", file.display());
        return Err(Fault::new(Code::InvalidSetting, why)
            .with_hint("--config or PMCP_CONFIG names the file that has the servers"));
    }
    let setup = Setup {
        policy: Current::open(places.clone())?,
        own: own(settings)?,
        off: off(settings),
        approvals: approvals(settings)?,
        trust_project: files.trust_project,
        open_to: manner.open_to,
        watch: Mutex::default(),
        last: Mutex::default(),
        refused: Mutex::default(),
        guidance: Mutex::default(),
        places,
    };
    let options = Options {
        opening: settings.gateway_start(),
        idle: settings.gateway_idle(),
        starts: manner.starts,
        longest: manner.longest,
        count_tokens: |text| bpe_openai::o200k_base().count(text),
        surface: files.surface.into(),
        shown_empty: manner.shown_empty,
        registry: settings.gateway_registry(),
    };
    let keep = Arc::new(results.shelf.clone());
    Gateway::new(options, Box::new(setup), results.catalogue(), keep)
}

/// The names of the servers that the settings and the usual files have.
pub(crate) fn names(settings: &Settings) -> Result<Vec<String>, Fault> {
    let places = places(&GatewayFiles::default())?;
    let approvals = Approvals::read(approvals(settings)?);
    let variable = |name: &str| std::env::var(name).ok();
    let loaded = config::load(&places, &variable, &approvals);
    let of_files = loaded.specs.iter().map(|spec| spec.name.to_string());
    let own = own(settings)?;
    let own = own.iter().map(|definition| definition.name.to_string());
    Ok(own.chain(of_files).collect())
}

/// Where files are looked for.
pub(crate) fn places(files: &GatewayFiles) -> Result<Places, Fault> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let from = |flag: &Option<PathBuf>, variable: &str| {
        flag.clone()
            .or_else(|| std::env::var_os(variable).map(PathBuf::from))
    };
    let here = std::env::current_dir()
        .map_err(|error| Fault::new(Code::Internal, format!("there is no folder here: {error}")))?;
    let project = if let Some(project) = &files.project {
        Some(here.join(project))
    } else {
        let stops = [home.clone(), Some(std::env::temp_dir())];
        config::find_project(&here, stops.iter().flatten().map(PathBuf::as_path))
    };
    Ok(Places {
        config: from(&files.config, "PMCP_CONFIG").map(|file| here.join(file)),
        policy: from(&files.policy, "PMCP_POLICY").map(|file| here.join(file)),
        project,
        home,
    })
}

/// Where it is noted what of a project's file was approved.
pub(crate) fn approvals(settings: &Settings) -> Result<PathBuf, Fault> {
    Ok(settings.home()?.join("gateway-trust.json"))
}

/// Where the configuration comes from, and what it was when it was last read.
struct Setup {
    places: Places,
    policy: Current,
    /// What the settings name.
    own: Vec<Definition>,
    /// What the settings switch off.
    off: Vec<Skipped>,
    approvals: PathBuf,
    trust_project: bool,
    open_to: OpenTo,
    watch: Mutex<Option<Watch>>,
    /// The servers as they were last read.
    last: Mutex<Vec<Definition>>,
    /// What is wrong with a policy that was edited.
    refused: Mutex<Option<String>>,
    /// How much advice was last given.
    guidance: Mutex<Option<Guidance>>,
}

impl Configure for Setup {
    fn load(&self) -> Result<Configuration, Fault> {
        self.is_policy_edited();
        let mut problems: Vec<String> = self.refused.lock().iter().cloned().collect();
        let mut approvals = Approvals::read(&self.approvals);
        if self.trust_project {
            approvals = approvals.and_all();
        }
        let variable = |name: &str| std::env::var(name).ok();
        let loaded = config::load(&self.places, &variable, &approvals);
        let advice = self.places.home.as_deref().map(Guidance::read);
        let (seen, advice) = advice.unzip();
        *self.watch.lock() = Some(Watch::new(loaded.files.into_iter().chain(seen)));
        problems.extend(loaded.problems.iter().map(ToString::to_string));
        let guidance = match advice {
            None => Guidance::default(),
            Some(Ok(guidance)) => guidance,
            // What the user may have switched off is not said because of a slip.
            Some(Err(problem)) => {
                problems.push(problem.to_string());
                self.guidance.lock().clone().unwrap_or_else(Guidance::none)
            }
        };
        *self.guidance.lock() = Some(guidance.clone());
        let unknown = loaded.unknown.iter();
        problems.extend(unknown.map(|named| {
            let file = named.file.display();
            format!(
                "autoStart of {file} names {}, which is no server",
                named.name
            )
        }));
        let is_listed = |wait: &config::Waiting| {
            let mut specs = loaded.specs.iter();
            specs.any(|spec| *spec.name == *wait.name && spec.file == wait.file)
        };
        let waiting = loaded.waiting.iter().filter(|wait| !is_listed(wait));
        problems.extend(waiting.map(|wait| {
            let (name, file) = (&wait.name, wait.file.display());
            format!("{name} in {file} waits for approval (rung gateway trust {name}); until then another server has its name")
        }));
        let mut definitions = self.own.clone();
        // What stood in a file that cannot be read any more goes on as it was.
        let mut last = self.last.lock();
        let broken = |definition: &&Definition| {
            let file = definition.file.as_ref();
            loaded
                .problems
                .iter()
                .any(|problem| Some(&problem.file) == file)
        };
        definitions.extend(last.iter().filter(broken).cloned());
        for spec in loaded.specs {
            if definitions.iter().all(|own| own.name != spec.name) {
                definitions.push(definition(&spec));
            }
        }
        last.clone_from(&definitions);
        drop(last);
        let secrets = definitions.iter().flat_map(|of| &of.secrets);
        let secrets = secrets.map(|secret| secret.expose().as_str());
        let policy = self.policy.get();
        let redactor = Redactor::new(policy.patterns(), secrets);
        log::mask(&redactor);
        Ok(Configuration {
            skipped: loaded
                .skipped
                .iter()
                .map(skip)
                .chain(self.off.iter().cloned())
                .collect(),
            problems,
            rules: Rules {
                redactor,
                policy,
                open_to: self.open_to,
            },
            guidance,
            definitions,
        })
    }

    fn is_edited(&self) -> bool {
        let mut watch = self.watch.lock();
        let edited = watch.as_mut().is_none_or(Watch::changed);
        self.is_policy_edited() || edited
    }

    fn read_from(&self) -> String {
        let policy = self.policy.get();
        let rules = policy.files().iter().map(|seen| (&seen.path, &seen.digest));
        let rules: Vec<_> = rules.collect();
        let read = (&self.places, self.trust_project, self.open_to, rules);
        format!("{read:?}")
    }
}

fn skip(entry: &config::Skipped) -> Skipped {
    Skipped {
        name: entry.name.clone(),
        file: entry.file.display().to_string(),
        why: entry.reason.to_string(),
    }
}

impl Setup {
    /// Reads an edited policy. One that is refused is remembered as such, and the one from before holds.
    fn is_policy_edited(&self) -> bool {
        let refreshed = self.policy.refresh();
        let edited = !matches!(refreshed, Ok(false));
        if edited {
            let refused = refreshed.err();
            *self.refused.lock() =
                refused.map(|problem| format!("{problem}; the policy from before holds"));
        }
        edited
    }
}

/// A server of a file, as it is reached.
fn definition(spec: &Spec) -> Definition {
    let (target, wrong) = match target(&spec.reach) {
        Ok(target) => (target, None),
        // It is listed with what is wrong, and never started.
        Err(why) => (Target::Command(Command::new("", [""; 0])), Some(why)),
    };
    let withheld = match (&spec.trust, wrong) {
        (Trust::Wanted, _) => Some(Withheld::Untrusted),
        _ if !spec.missing.is_empty() => Some(Withheld::Missing(spec.missing.clone())),
        (_, wrong) => wrong.map(Withheld::Unusable),
    };
    Definition {
        name: spec.name.clone(),
        target,
        sharing: spec.sharing,
        era: spec.era,
        eager: spec.eager,
        origin: match spec.origin {
            config::Origin::Given => "custom",
            config::Origin::Project => "project",
            config::Origin::User => "user",
        },
        file: Some(spec.file.clone()),
        withheld,
        edit_waits: spec.trust == Trust::Kept,
        sign_in: spec.sign_in.clone(),
        secrets: spec
            .secrets()
            .map(|secret| Secret::new(secret.to_owned()))
            .collect(),
        digest: spec.digest.clone(),
        shown: spec.shown().to_owned(),
    }
}

fn target(reach: &Reach) -> Result<Target, String> {
    match reach {
        Reach::Command {
            program,
            args,
            dir,
            env,
        } => {
            let mut command = Command::new(program, args);
            command.dir.clone_from(dir);
            let env = env.iter();
            command.env = env
                .map(|(name, value)| (name.clone(), value.expose().clone()))
                .collect();
            command.keeper = keeper();
            Ok(Target::Command(command))
        }
        Reach::Address { url, headers, .. } => {
            let url = url.parse().map_err(|error| format!("its url: {error}"))?;
            let mut address = Address::new(url);
            for (name, value) in headers {
                address.add_header(name, value.expose())?;
            }
            Ok(Target::Address(address))
        }
    }
}

/// We ourselves stay with a child, under another name.
#[cfg(target_os = "linux")]
pub(crate) fn keeper() -> Option<Vec<OsString>> {
    let own = std::env::current_exe().ok()?;
    Some(vec![own.into(), "keep-child".into()])
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn keeper() -> Option<Vec<OsString>> {
    None
}

/// The servers that the settings switch off.
fn off(settings: &Settings) -> Vec<Skipped> {
    let off = settings.iter().filter_map(|(key, value, origin)| {
        let name = key.strip_prefix("sources.")?.strip_suffix(".off")?;
        matches!(value, Value::Switch(true)).then(|| Skipped {
            name: name.to_owned(),
            file: origin.to_string(),
            why: format!("it is disabled: {key} is true"),
        })
    });
    off.collect()
}

/// The servers that the settings name.
fn own(settings: &Settings) -> Result<Vec<Definition>, Fault> {
    let keys = settings.iter().filter_map(|(key, ..)| {
        let (name, _) = key.strip_prefix("sources.")?.split_once('.')?;
        Some(name)
    });
    let mut names: Vec<&str> = keys.collect();
    names.dedup();
    let mut definitions = Vec::new();
    for name in names {
        let said = |member: &str| {
            let key = format!("sources.{name}.{member}");
            settings.iter().find(|(own, ..)| *own == key)
        };
        if matches!(said("off"), Some((_, Value::Switch(true), _))) {
            continue;
        }
        let target = match (said("command"), said("url")) {
            (Some((_, Value::Command(words), _)), _) => {
                let [program, args @ ..] = words.as_slice() else {
                    continue;
                };
                let mut command = Command::new(program, args);
                if let Some((_, Value::Folder(dir), _)) = said("dir") {
                    command.dir = Some(dir.clone());
                }
                command.keeper = keeper();
                Target::Command(command)
            }
            (_, Some((_, Value::Url(url), _))) => {
                let wrong = |error| {
                    let why = format!("sources.{name}.url does not parse: {error}");
                    Fault::new(Code::InvalidSetting, why)
                };
                Target::Address(Address::new(url.parse().map_err(wrong)?))
            }
            _ => continue,
        };
        let words: Vec<String> = match &target {
            Target::Command(command) => {
                let args = command.args.iter();
                args.map(|arg| arg.to_string_lossy().into_owned()).collect()
            }
            Target::Address(address) => vec![address.url.to_string()],
        };
        let credentials = config::credentials_in(words.iter().map(String::as_str));
        let shown = credentials
            .iter()
            .fold(format!("{target:?}"), |shown, credential| {
                shown.replace(credential, "…")
            });
        let secrets = credentials.into_iter().map(str::to_owned);
        let secrets = secrets.map(Secret::new).collect();
        // A project's file may name an address; nothing is sent there before the user approved it.
        let of_stranger = said("url").is_some_and(|(.., origin)| settings.is_strangers(origin));
        definitions.push(Definition {
            name: name.into(),
            digest: format!("{target:?}"),
            shown,
            target,
            sharing: Sharing::Shared,
            era: None,
            eager: false,
            origin: "settings",
            file: None,
            withheld: of_stranger.then_some(Withheld::Untrusted),
            edit_waits: false,
            sign_in: SignIn::default(),
            secrets,
        });
    }
    Ok(definitions)
}

impl Settings {
    /// How long a server that nobody uses stays.
    pub(crate) fn gateway_idle(&self) -> Duration {
        Duration::from_secs(self.number("gateway.idle_s"))
    }

    /// How long a server may take to start.
    pub(crate) fn gateway_start(&self) -> Duration {
        Duration::from_secs(self.number("gateway.start_s"))
    }

    /// The registry that may be asked, if one may.
    fn gateway_registry(&self) -> Option<String> {
        let mut said = self.iter().filter(|(key, ..)| *key == "gateway.registry");
        match said.next() {
            Some((_, Value::Url(url), _)) => Some(url.clone()),
            _ => None,
        }
    }

    /// Who reaches other servers over HTTP.
    pub(crate) fn gateway_open_to(&self) -> OpenTo {
        match self.word("gateway.open_to") {
            "anybody" => OpenTo::Anybody,
            "granted" => OpenTo::Granted,
            _ => OpenTo::Tokens,
        }
    }

    /// Whether anybody said who does.
    pub(crate) fn says_gateway_open_to(&self) -> bool {
        let said = |(key, _, origin): (&str, &Value, &Origin)| {
            key == "gateway.open_to" && !matches!(origin, Origin::Default)
        };
        self.iter().any(said)
    }
}
