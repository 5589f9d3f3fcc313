//! Wires downstream servers: the settings and files that name them, and the gateway that reaches them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rung_auth::Secret;
use rung_fault::{Code, Fault};
use rung_gateway::config::{
    self, Approvals, ConfigPaths, FileWatch, LoadedConfig, ServerEndpoint, ServerSpec, Sharing,
    Trust,
};
use rung_gateway::policy::CurrentPolicy;
use rung_gateway::redact::Redactor;
use rung_gateway::{
    AccessPolicy, Configuration, Gateway, GatewayOptions, Guidance, HttpAccess, LoadConfiguration,
    ServerDefinition, SignIn, SkippedServer, WithheldReason,
};
use rung_mcp::connect::{ServerAddress, ServerCommand, ServerTarget};

use crate::cli::GatewayFiles;
use crate::data_folder::DataFolder;
use crate::log;
use crate::settings::{Origin, SettingValue, Settings};

/// Default number of servers to start at once.
const DEFAULT_MAX_STARTS: usize = 8;

/// Behaviour of a gateway that flags and environment can change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GatewayMode {
    /// HTTP callers that reach downstream servers.
    pub(crate) open_to: HttpAccess,
    /// True if the gateway tools are listed while no server is configured.
    pub(crate) shown_empty: bool,
    /// Maximum number of servers to start at once.
    pub(crate) max_starts: usize,
    /// Maximum duration of any call.
    pub(crate) max_call_duration: Option<Duration>,
}

impl GatewayMode {
    /// Returns the default mode, of a gateway that is served together with other tools.
    pub(crate) fn default_for(settings: &Settings) -> Self {
        Self {
            open_to: settings.gateway_open_to(),
            shown_empty: false,
            max_starts: DEFAULT_MAX_STARTS,
            max_call_duration: None,
        }
    }
}

/// Builds the gateway with the default mode.
pub(crate) fn build_default_gateway(
    files: &GatewayFiles,
    settings: &Settings,
    results: &DataFolder,
) -> Result<Gateway, Fault> {
    build_gateway(GatewayMode::default_for(settings), files, settings, results)
}

/// Builds the gateway to the servers of the settings and files.
pub(crate) fn build_gateway(
    manner: GatewayMode,
    files: &GatewayFiles,
    settings: &Settings,
    results: &DataFolder,
) -> Result<Gateway, Fault> {
    let places = config_places(files)?;
    if let Some(file) = places.config.as_ref().filter(|file| !file.exists()) {
        let why = format!("{}: the file does not exist", file.display());
        return Err(Fault::new(Code::InvalidSetting, why)
            .with_hint("set --config or PMCP_CONFIG to the file that configures the servers"));
    }
    check_given_config(&places, settings)?;
    let setup = GatewaySetup {
        policy: CurrentPolicy::open(places.clone())?,
        settings_servers: servers_of_settings(settings)?,
        disabled_servers: disabled_servers(settings),
        approvals: approvals_file(settings)?,
        trust_project: files.trust_project,
        open_to: manner.open_to,
        watch: Mutex::default(),
        last_definitions: Mutex::default(),
        policy_error: Mutex::default(),
        guidance: Mutex::default(),
        places,
    };
    let options = GatewayOptions {
        start_timeout: settings.gateway_start(),
        idle_timeout: settings.gateway_idle(),
        max_starts: manner.max_starts,
        max_call_duration: manner.max_call_duration,
        surface: files.surface.into(),
        shown_empty: manner.shown_empty,
        registry_url: settings.gateway_registry(),
    };
    let keep = Arc::new(results.result_store.clone());
    Gateway::new(options, Box::new(setup), results.catalog(), keep)
}

/// Returns the names of the servers in the settings and in the default configuration files.
pub(crate) fn server_names(settings: &Settings) -> Result<Vec<String>, Fault> {
    let of_files = servers_of_files(settings)?.into_iter();
    let of_files = of_files.map(|(name, _)| name);
    let own = servers_of_settings(settings)?;
    let own = own.iter().map(|definition| definition.name.to_string());
    Ok(own.chain(of_files).collect())
}

/// Returns the servers of the default configuration files, each with its file.
pub(crate) fn servers_of_files(settings: &Settings) -> Result<Vec<(String, PathBuf)>, Fault> {
    let loaded = load_config(&config_places(&GatewayFiles::default())?, settings)?;
    let all = loaded.specs.into_iter();
    Ok(all.map(|spec| (spec.name.to_string(), spec.file)).collect())
}

fn load_config(places: &ConfigPaths, settings: &Settings) -> Result<LoadedConfig, Fault> {
    let approvals = Approvals::read(approvals_file(settings)?);
    let variable = |name: &str| std::env::var(name).ok();
    Ok(config::load(places, &variable, &approvals))
}

/// Rejects a configuration file that was named explicitly and has no readable servers. Problems of discovered files, and of a
/// file that is edited later, are only reported.
fn check_given_config(places: &ConfigPaths, settings: &Settings) -> Result<(), Fault> {
    let Some(file) = &places.config else {
        return Ok(());
    };
    let loaded = load_config(places, settings)?;
    let is_read = loaded.specs.iter().any(|spec| spec.file == *file)
        || loaded.skipped.iter().any(|entry| entry.file == *file);
    let mut problems = loaded.problems.into_iter();
    match problems.find(|problem| problem.file == *file) {
        Some(problem) if !is_read => {
            Err(Fault::from(problem).with_hint("correct the file, then run the command again"))
        }
        _ => Ok(()),
    }
}

/// Returns the folders and files that hold the configuration.
pub(crate) fn config_places(files: &GatewayFiles) -> Result<ConfigPaths, Fault> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let from = |flag: &Option<PathBuf>, variable: &str| {
        flag.clone()
            .or_else(|| non_empty_variable(variable).map(PathBuf::from))
    };
    let here = std::env::current_dir().map_err(|error| {
        Fault::new(
            Code::Internal,
            format!("the working folder cannot be read: {error}"),
        )
    })?;
    let project = if let Some(project) = &files.project {
        Some(here.join(project))
    } else {
        let stops = [home.clone(), Some(std::env::temp_dir())];
        config::find_project(&here, stops.iter().flatten().map(PathBuf::as_path))
    };
    Ok(ConfigPaths {
        config: from(&files.config, "PMCP_CONFIG").map(|file| here.join(file)),
        policy: from(&files.policy, "PMCP_POLICY").map(|file| here.join(file)),
        project,
        home,
    })
}

/// Returns the value of a variable of this process. An empty value counts as unset.
fn non_empty_variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the path of the file of approvals.
pub(crate) fn approvals_file(settings: &Settings) -> Result<PathBuf, Fault> {
    Ok(settings.home()?.join("gateway-trust.json"))
}

/// Sources of the configuration, and its state when it was last read.
struct GatewaySetup {
    places: ConfigPaths,
    policy: CurrentPolicy,
    /// Servers that the settings define.
    settings_servers: Vec<ServerDefinition>,
    /// Servers that the settings disable.
    disabled_servers: Vec<SkippedServer>,
    approvals: PathBuf,
    trust_project: bool,
    open_to: HttpAccess,
    watch: Mutex<Option<FileWatch>>,
    /// Definitions as last read.
    last_definitions: Mutex<Vec<ServerDefinition>>,
    /// Why the edited policy was rejected.
    policy_error: Mutex<Option<String>>,
    /// Guidance level as last read.
    guidance: Mutex<Option<Guidance>>,
}

impl LoadConfiguration for GatewaySetup {
    fn load(&self) -> Result<Configuration, Fault> {
        self.refresh_policy();
        let mut problems: Vec<String> = self.policy_error.lock().iter().cloned().collect();
        let mut approvals = Approvals::read(&self.approvals);
        if self.trust_project {
            approvals = approvals.with_all_approved();
        }
        let variable = |name: &str| std::env::var(name).ok();
        let loaded = config::load(&self.places, &variable, &approvals);
        let advice = self.places.home.as_deref().map(Guidance::read);
        let (seen, advice) = advice.unzip();
        *self.watch.lock() = Some(FileWatch::new(loaded.files.into_iter().chain(seen)));
        problems.extend(loaded.problems.iter().map(ToString::to_string));
        let guidance = match advice {
            None => Guidance::default(),
            Some(Ok(guidance)) => guidance,
            // An unreadable file keeps the last guidance, or none: the user may have disabled it.
            Some(Err(problem)) => {
                problems.push(problem.to_string());
                self.guidance.lock().clone().unwrap_or_else(Guidance::off)
            }
        };
        *self.guidance.lock() = Some(guidance.clone());
        let unknown = loaded.unknown_auto_start.iter();
        problems.extend(unknown.map(|named| {
            let file = named.file.display();
            format!(
                "{file}: autoStart names {:?}, and no file configures that server",
                named.name
            )
        }));
        let is_listed = |wait: &config::PendingEntry| {
            let mut specs = loaded.specs.iter();
            specs.any(|spec| *spec.name == *wait.name && spec.file == wait.file)
        };
        let waiting = loaded.pending.iter().filter(|wait| !is_listed(wait));
        problems.extend(waiting.map(|wait| {
            let (name, file) = (&wait.name, wait.file.display());
            format!("{file}: {name} waits for approval (`rung gateway trust {name}`); until then, a server of another file has its name")
        }));
        let mut definitions = self.settings_servers.clone();
        // Servers of a file that no longer parses keep their last definition.
        let mut last = self.last_definitions.lock();
        let broken = |definition: &&ServerDefinition| {
            let file = definition.file.as_ref();
            loaded
                .problems
                .iter()
                .any(|problem| Some(&problem.file) == file)
        };
        definitions.extend(last.iter().filter(broken).cloned());
        for spec in loaded.specs {
            if definitions.iter().all(|own| own.name != spec.name) {
                definitions.push(server_definition(&spec));
            }
        }
        last.clone_from(&definitions);
        drop(last);
        let secrets = definitions.iter().flat_map(|of| &of.secrets);
        let secrets = secrets.map(|secret| secret.expose().as_str());
        let policy = self.policy.get();
        let redactor = Redactor::new(policy.redaction_patterns(), secrets);
        log::set_redactor(&redactor);
        Ok(Configuration {
            skipped: loaded
                .skipped
                .iter()
                .map(skipped_server)
                .chain(self.disabled_servers.iter().cloned())
                .collect(),
            problems,
            access: AccessPolicy {
                redactor,
                policy,
                http_access: self.open_to,
            },
            guidance,
            definitions,
        })
    }

    fn is_edited(&self) -> bool {
        let mut watch = self.watch.lock();
        let edited = watch.as_mut().is_none_or(FileWatch::has_changed);
        self.refresh_policy() || edited
    }

    fn fingerprint(&self) -> String {
        let policy = self.policy.get();
        let rules = policy.files().iter().map(|seen| (&seen.path, &seen.digest));
        let rules: Vec<_> = rules.collect();
        let read = (&self.places, self.trust_project, self.open_to, rules);
        format!("{read:?}")
    }
}

fn skipped_server(entry: &config::SkippedEntry) -> SkippedServer {
    SkippedServer {
        name: entry.name.clone(),
        file: entry.file.display().to_string(),
        reason: entry.reason.to_string(),
    }
}

impl GatewaySetup {
    /// Reloads an edited policy and returns true if it was edited. A rejected policy is reported, and the previous one applies.
    fn refresh_policy(&self) -> bool {
        let refreshed = self.policy.refresh();
        let edited = !matches!(refreshed, Ok(false));
        if edited {
            let refused = refreshed.err();
            *self.policy_error.lock() =
                refused.map(|problem| format!("{problem}; the previous policy applies"));
        }
        edited
    }
}

/// Converts a server entry of a configuration file.
fn server_definition(spec: &ServerSpec) -> ServerDefinition {
    let (target, wrong) = match server_target(&spec.endpoint) {
        Ok(target) => (target, None),
        // List the server with its error and never start it.
        Err(why) => (
            ServerTarget::Command(ServerCommand::new("", [""; 0])),
            Some(why),
        ),
    };
    let withheld = match (&spec.trust, wrong) {
        (Trust::ApprovalRequired, _) => Some(WithheldReason::Untrusted),
        _ if !spec.missing.is_empty() => {
            Some(WithheldReason::MissingVariables(spec.missing.clone()))
        }
        (_, wrong) => wrong.map(WithheldReason::Unusable),
    };
    ServerDefinition {
        name: spec.name.clone(),
        target,
        sharing: spec.sharing,
        era: spec.era,
        eager: spec.auto_start,
        origin: match spec.origin {
            config::Origin::Explicit => "custom",
            config::Origin::Project => "project",
            config::Origin::User => "user",
        },
        file: Some(spec.file.clone()),
        withheld,
        has_pending_edit: spec.trust == Trust::EditPending,
        sign_in: spec.sign_in.clone(),
        variables: spec.credential_variables(),
        secrets: spec
            .secrets()
            .map(|secret| Secret::new(secret.to_owned()))
            .collect(),
        digest: spec.digest.clone(),
        summary: spec.summary().to_owned(),
    }
}

fn server_target(reach: &ServerEndpoint) -> Result<ServerTarget, String> {
    match reach {
        ServerEndpoint::Command {
            program,
            args,
            dir,
            env,
        } => {
            let mut command = ServerCommand::new(program, args);
            command.dir.clone_from(dir);
            let env = env.iter();
            command.env = env
                .map(|(name, value)| (name.clone(), value.expose().clone()))
                .collect();
            command.supervisor = keeper();
            Ok(ServerTarget::Command(command))
        }
        ServerEndpoint::Http { url, headers, .. } => {
            let url = url
                .parse()
                .map_err(|error| format!("its url does not parse: {error}"))?;
            let mut address = ServerAddress::new(url);
            for (name, value) in headers {
                address.add_header(name, value.expose())?;
            }
            Ok(ServerTarget::Address(address))
        }
    }
}

/// Returns the command that supervises a child process: this binary with `keep-child`.
#[cfg(target_os = "linux")]
pub(crate) fn keeper() -> Option<Vec<OsString>> {
    let own = std::env::current_exe().ok()?;
    Some(vec![own.into(), "keep-child".into()])
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn keeper() -> Option<Vec<OsString>> {
    None
}

/// Returns the servers that the settings disable.
fn disabled_servers(settings: &Settings) -> Vec<SkippedServer> {
    let off = settings.iter().filter_map(|(key, value, origin)| {
        let name = key.strip_prefix("sources.")?.strip_suffix(".off")?;
        matches!(value, SettingValue::Switch(true)).then(|| SkippedServer {
            name: name.to_owned(),
            file: origin.to_string(),
            reason: format!("it is disabled by {key}"),
        })
    });
    off.collect()
}

/// Returns the servers that the settings define.
fn servers_of_settings(settings: &Settings) -> Result<Vec<ServerDefinition>, Fault> {
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
        if matches!(said("off"), Some((_, SettingValue::Switch(true), _))) {
            continue;
        }
        let target = match (said("command"), said("url")) {
            (Some((_, SettingValue::Command(words), _)), _) => {
                let [program, args @ ..] = words.as_slice() else {
                    continue;
                };
                let mut command = ServerCommand::new(program, args);
                if let Some((_, SettingValue::Folder(dir), _)) = said("dir") {
                    command.dir = Some(dir.clone());
                }
                command.supervisor = keeper();
                ServerTarget::Command(command)
            }
            (_, Some((_, SettingValue::Url(url), _))) => {
                let wrong = |error| {
                    let why = format!("sources.{name}.url does not parse: {error}");
                    Fault::new(Code::InvalidSetting, why)
                };
                ServerTarget::Address(ServerAddress::new(url.parse().map_err(wrong)?))
            }
            _ => continue,
        };
        let words: Vec<String> = match &target {
            ServerTarget::Command(command) => {
                let args = command.args.iter();
                args.map(|arg| arg.to_string_lossy().into_owned()).collect()
            }
            ServerTarget::Address(address) => vec![address.url.to_string()],
        };
        let credentials = config::find_credentials(words.iter().map(String::as_str));
        let shown = credentials
            .iter()
            .fold(format!("{target:?}"), |shown, credential| {
                shown.replace(credential, "…")
            });
        let secrets = credentials.into_iter().map(str::to_owned);
        let secrets = secrets.map(Secret::new).collect();
        // An unapproved project file may name a URL; nothing is sent there before the user approves it.
        let of_stranger =
            said("url").is_some_and(|(.., origin)| settings.is_from_unapproved_project(origin));
        definitions.push(ServerDefinition {
            name: name.into(),
            digest: format!("{target:?}"),
            summary: shown,
            target,
            sharing: Sharing::Shared,
            era: None,
            eager: false,
            origin: "settings",
            file: None,
            withheld: of_stranger.then_some(WithheldReason::UntrustedSettings),
            has_pending_edit: false,
            sign_in: SignIn::default(),
            variables: Vec::new(),
            secrets,
        });
    }
    Ok(definitions)
}

impl Settings {
    /// Returns how long an unused server keeps running.
    pub(crate) fn gateway_idle(&self) -> Duration {
        Duration::from_secs(self.number("gateway.idle_s"))
    }

    /// Returns how long a server may take to start.
    pub(crate) fn gateway_start(&self) -> Duration {
        Duration::from_secs(self.number("gateway.start_s"))
    }

    /// Returns the URL of the configured registry.
    fn gateway_registry(&self) -> Option<String> {
        let mut said = self.iter().filter(|(key, ..)| *key == "gateway.registry");
        match said.next() {
            Some((_, SettingValue::Url(url), _)) => Some(url.clone()),
            _ => None,
        }
    }

    /// Returns the HTTP callers that reach downstream servers.
    pub(crate) fn gateway_open_to(&self) -> HttpAccess {
        match self.word("gateway.open_to") {
            "anybody" => HttpAccess::Anyone,
            "granted" => HttpAccess::ByGrant,
            _ => HttpAccess::Tokens,
        }
    }

    /// Returns true if `gateway.open_to` is set explicitly.
    pub(crate) fn is_gateway_open_to_set(&self) -> bool {
        let said = |(key, _, origin): (&str, &SettingValue, &Origin)| {
            key == "gateway.open_to" && !matches!(origin, Origin::Default)
        };
        self.iter().any(said)
    }
}
