//! The wording of a hint, by the place where the policy was written.

use toml::Value;

use crate::policy::environment::is_dangerous;
use crate::policy::learn::Need;
use crate::policy::network::{NetworkRules, Part};
use crate::policy::operation::Why;
use crate::policy::sql::{self, Database, UriTarget};
use crate::policy::written::fields::{self, FIELDS, NETWORK, name_of};
use crate::policy::written::spec::{NetworkUse, Spec};
use crate::policy::written::values::{Choice, Where};
use crate::policy::written::widening::{self, Lack, Places};

/// Writes a value as Python does.
pub type Literal<'a> = &'a dyn Fn(&Value) -> Option<String>;

/// The place where a policy was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Words {
    /// In Python, `Policy(write=[…])`.
    #[default]
    Policy,
    Toml,
    /// In Python, for a sandbox.
    Sandbox,
    /// As options of a command, or of a magic, that add up.
    Options,
    /// The same, for a sandbox.
    SandboxOptions,
    /// As a marker of a test, `@pytest.mark.audit(write=[…])`.
    Marker,
    /// As keyword arguments of the fixture `audit_perms`.
    Fixture,
}

impl Words {
    /// The wordings that the Python files of this package name.
    const NAMED: [(&'static str, Self); 7] = [
        ("policy", Self::Policy),
        ("toml", Self::Toml),
        ("sandbox", Self::Sandbox),
        ("options", Self::Options),
        ("sandbox options", Self::SandboxOptions),
        ("marker", Self::Marker),
        ("fixture", Self::Fixture),
    ];

    pub fn named(name: &str) -> Option<Self> {
        let found = Self::NAMED.iter().find(|(own, _)| *own == name);
        found.map(|(_, words)| *words)
    }

    pub fn name(self) -> &'static str {
        name_of(&Self::NAMED, &self).unwrap_or("policy")
    }
}

/// The comment that names the preset for sandboxes: a native library needs several fields.
const PRESET: &str =
    "  # Policy.preset('sandbox') allows variables, threads and native code, as numpy needs";

/// The placeholder for a policy that a marker was given.
const GIVEN_POLICY: &str = "...";

/// The wording of a policy in hints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HintStyle {
    pub words: Words,
    /// The text before the options; for a marker, the names of its arguments.
    pub line: String,
    /// The policy as it was written: a guard may allow more, its own directory for example.
    pub spec: Spec,
    /// Roots that denials leave out, since a guard keeps them for its own host.
    pub unnamed: Vec<String>,
}

impl HintStyle {
    /// A policy that is described as it is.
    pub fn new(words: Words, spec: Spec) -> Self {
        Self { words, line: String::new(), spec, unnamed: Vec::new() }
    }

    /// The words, the policy as TOML if that can hold it, the line and the unnamed roots.
    pub fn parts(&self) -> (&'static str, Option<String>, String, Vec<String>) {
        (self.words.name(), self.spec.to_toml(), self.line.clone(), self.unnamed.clone())
    }

    /// Returns the text to write in place of the policy; `None` if it is the same.
    pub fn change_to(&self, wide: &Spec, literal: Literal<'_>) -> Option<String> {
        let fields = changed(&self.spec, wide);
        if fields.is_empty() {
            return None;
        }
        let each = |show: &dyn Fn(&str, &Value) -> Option<String>| -> Option<Vec<String>> {
            let shown = fields.iter().map(|(field, value)| show(field, value));
            shown.collect()
        };
        let in_python = |field: &str, value: &Value| python(literal, field, value);
        let arguments = || self.arguments(wide, literal, &fields);
        match self.words {
            Words::Policy | Words::Sandbox => {
                let shown =
                    each(&|field, value| Some(format!("{field} = {}", in_python(field, value)?)))?;
                let more = if self.leads_to_preset(&fields) { PRESET } else { "" };
                Some(shown.join("\n") + more)
            }
            Words::Toml => {
                each(&|field, value| Some(format!("{field} = {value}"))).map(|all| all.join("\n"))
            }
            Words::Marker => Some(format!("@pytest.mark.audit({})", arguments()?)),
            Words::Fixture => Some(format!("audit_perms({})", arguments()?)),
            Words::Options | Words::SandboxOptions => {
                let options = each(&|field, value| Some(self.options(wide, field, value)))?;
                let words = [self.line.clone()].into_iter().chain(options);
                let words: Vec<_> = words.filter(|part| !part.is_empty()).collect();
                Some(words.join(" "))
            }
        }
    }

    /// Returns whether the preset for sandboxes allows what these fields would.
    fn leads_to_preset(&self, changed: &[(&'static str, Value)]) -> bool {
        let is_in_preset = |(field, value): &(&'static str, Value)| match (*field, value) {
            ("env", Value::Array(names)) => {
                !names.iter().filter_map(Value::as_str).any(|name| is_dangerous(name.as_bytes()))
            }
            (field, _) => ["import_allow", "threads", "native", "packages"].contains(&field),
        };
        self.words == Words::Sandbox
            && self.spec.native != Choice::All(true)
            && changed.iter().any(is_in_preset)
    }

    /// The arguments of a marker: those given, and those that changed.
    fn arguments(
        &self,
        wide: &Spec,
        literal: Literal<'_>,
        changed: &[(&'static str, Value)],
    ) -> Option<String> {
        let mut arguments = Vec::new();
        if self.line.split(' ').any(|name| name == GIVEN_POLICY) {
            arguments.push(GIVEN_POLICY.to_owned());
        }
        for field in &FIELDS {
            let value = match changed.iter().find(|(name, _)| *name == field.name) {
                Some((_, value)) => value.clone(),
                None if self.line.split(' ').any(|name| name == field.name) => {
                    without_defaults(field.name, field.toml(wide)?)
                }
                None => continue,
            };
            // A network is a dict there: a test need not import anything.
            arguments.push(format!("{}={}", field.name, literal(&value)?));
        }
        Some(arguments.join(", "))
    }

    /// The reason that no policy allows an event.
    pub fn never(&self, event: &str) -> String {
        match self.words {
            Words::Policy => format!("a before_deny that returns True for {event:?}"),
            Words::Toml => format!("no policy allows {event}; a before_deny of the host can"),
            Words::Sandbox => format!("no policy allows {event} in a sandbox"),
            Words::Options | Words::SandboxOptions => format!("no option allows {event}"),
            Words::Marker | Words::Fixture => {
                format!("no policy allows {event}; @pytest.mark.audit(False) guards nothing")
            }
        }
    }

    /// The options that add the missing values of a field.
    fn options(&self, wide: &Spec, field: &str, value: &Value) -> String {
        let added = match field {
            "write" => added_places("write", &self.spec.write, &wide.write),
            "read" => added_places("read", &self.spec.read, &wide.read),
            "commands" => added_names("run", &self.spec.commands, &wide.commands),
            "env" => added_variables(&self.spec.env, &wide.env),
            "network" => added_hosts(&self.spec.network, &wide.network),
            _ => None,
        };
        added.unwrap_or_else(|| format!("--set {}", shell_word(&format!("{field}={value}"))))
    }
}

/// The fields of a policy that differ in another one, with its values.
pub fn changed(spec: &Spec, wide: &Spec) -> Vec<(&'static str, Value)> {
    let fields = FIELDS.iter().filter_map(|field| {
        let (own, other) = (field.toml(spec)?, field.toml(wide)?);
        (own != other).then(|| (field.name, without_defaults(field.name, other)))
    });
    fields.collect()
}

/// A field without its defaults.
fn without_defaults(field: &str, value: Value) -> Value {
    match value {
        Value::Table(mut table) if field == "network" => {
            let usual = NetworkRules::default();
            table.retain(|key, value| {
                let field = fields::find(&NETWORK, key);
                field.and_then(|field| field.toml(&usual)).as_ref() != Some(value)
            });
            Value::Table(table)
        }
        value => value,
    }
}

/// A field as an expression of Python.
fn python(literal: Literal<'_>, field: &str, value: &Value) -> Option<String> {
    match value {
        Value::Table(table) if field == "network" => {
            let arguments =
                table.iter().map(|(key, value)| Some(format!("{key}={}", literal(value)?)));
            let arguments = arguments.collect::<Option<Vec<_>>>()?;
            Some(format!("Network({})", arguments.join(", ")))
        }
        value => literal(value),
    }
}

fn added_places(option: &str, own: &Where, wide: &Where) -> Option<String> {
    match (own, wide) {
        (Where::Below(own), Where::Below(wide)) => added(option, own, wide),
        _ => None,
    }
}

/// The option adds to all that do no harm, which stay without a star.
fn added_variables(own: &Choice, wide: &Choice) -> Option<String> {
    match own {
        Choice::All(true) => added("env", &["*".to_owned()], wide.names()),
        own => added("env", own.names(), wide.names()),
    }
}

fn added_names(option: &str, own: &Choice, wide: &Choice) -> Option<String> {
    added(option, own.names(), wide.names())
}

/// The hosts that are added, and the addresses to listen at, if nothing else is.
fn added_hosts(own: &NetworkUse, wide: &NetworkUse) -> Option<String> {
    let NetworkUse::Rules(wide) = wide else {
        return None;
    };
    let base = own.rules();
    let (Where::Below(before), Where::Below(hosts)) = (&base.hosts, &wide.hosts) else {
        return None;
    };
    let with_more =
        NetworkRules { hosts: wide.hosts.clone(), listen: wide.listen.clone(), ..base.clone() };
    if with_more != **wide {
        return None;
    }
    let listen = added_names("listen", &base.listen, &wide.listen);
    if listen.is_none() && base.listen != wide.listen {
        return None;
    }
    let parts: Vec<_> = [added("net", before, hosts), listen].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(" "))
}

fn added(option: &str, own: &[String], wide: &[String]) -> Option<String> {
    let new: Vec<_> = wide
        .iter()
        .filter(|name| !own.contains(name))
        .map(|name| format!("--{option} {}", shell_word(name)))
        .collect();
    (!new.is_empty()).then(|| new.join(" "))
}

/// A word as a shell reads it, as `shlex.quote` writes it; characters that act on a terminal are
/// escapes of bash, zsh and POSIX's newer shells (`$'..'`).
pub fn shell_word(word: &str) -> String {
    if word.chars().any(acts_on_a_terminal) {
        let escaped = word.chars().map(escaped).collect::<String>();
        return format!("$'{escaped}'");
    }
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "@%+=:,./-_".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\"'\"'"))
}

/// A text on one line that does not act on a terminal.
pub fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for letter in text.chars() {
        match acts_on_a_terminal(letter) {
            true => printable.extend(letter.escape_default()),
            false => printable.push(letter),
        }
    }
    printable
}

/// Returns whether a character moves the cursor, ends a line or turns the direction of writing.
fn acts_on_a_terminal(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A character between `$'` and `'`: bytes in octal have three digits, so that none follows.
fn escaped(letter: char) -> String {
    if acts_on_a_terminal(letter) {
        let mut bytes = [0; 4];
        let bytes = letter.encode_utf8(&mut bytes).bytes();
        return bytes.map(|byte| format!("\\{byte:03o}")).collect();
    }
    match letter {
        '\'' | '\\' => format!("\\{letter}"),
        letter => letter.to_string(),
    }
}

// The permissions that would allow a denied event, in words.

/// The advice for reading a database without the files that SQLite makes for that.
pub const READ_COPY: &str = "a copy of the database in a root, or 'mode=ro&immutable=1' in its URI if nobody writes to it: \
     reading a database with a write-ahead log makes files beside it";

/// Returns whether a database was to be opened for reading alone.
pub fn reads_logged_database(event: &str, why: Option<Why>, name: &[u8]) -> bool {
    why == Some(Why::Unapproved)
        && event.starts_with("sqlite3.")
        && matches!(sql::database_of(name), Database::Uri(UriTarget::ReadShared(_)))
}

/// Returns the hint for an extension module that may not be loaded; without a field that denies, its
/// file is in a root.
pub fn import_before(module: &str, why: Option<Why>) -> String {
    let place = match why {
        None => "its file is in a root, where guarded code may have written it",
        Some(_) => "its file is not where packages are installed",
    };
    format!("import {module} before the guard is entered: it is native code, and {place}")
}

/// Returns the hint for an event that a written policy denies, and the policy that would allow it
/// where one does.
pub fn of_policy(
    told: &HintStyle,
    event: &str,
    why: Option<Why>,
    mut lacks: Vec<Lack>,
    places: &impl Places,
    literal: Literal<'_>,
) -> (String, Option<Spec>) {
    if matches!(told.words, Words::Sandbox | Words::SandboxOptions) {
        for lack in &mut lacks {
            as_the_kernel_can_hold(lack);
        }
    }
    let wide = widening::widened(&told.spec, &lacks, places);
    if let Some(text) = told.change_to(&wide, literal) {
        return (text, Some(wide));
    }
    let text = match event {
        _ if why == Some(Why::Command) => {
            "nothing would: there is no such program that can be executed; if there is, name it by \
             its full path"
                .to_owned()
        }
        // A name could be taken from `protect`.
        _ if why == Some(Why::Protected) => {
            "nothing would: the host's policy, answers or log are in that file".to_owned()
        }
        _ if why == Some(Why::Network(Part::Http)) => {
            "nothing would: its requests are held to network.http, which a sandbox alone reads: \
             Sandbox(policy)"
                .to_owned()
        }
        _ if lacks.iter().any(|lack| is_without_a_name(&lack.need)) => {
            "nothing would: it is no host name, no full address, and no socket with a name"
                .to_owned()
        }
        "os.fork" | "os.forkpty" => {
            let asked = match told.words {
                Words::Policy => format!(", or {}", told.never(event)),
                _ => String::new(),
            };
            format!("a fork while no other thread runs{asked}")
        }
        _ => told.never(event),
    };
    (text, None)
}

fn is_without_a_name(need: &Need) -> bool {
    matches!(need, Need::Connect(..) | Need::Unix(_)) && need.entry().is_none()
}

/// Changes a place to one that the kernel can enforce: an existing file, or the directory of
/// entries that are made or removed.
fn as_the_kernel_can_hold(lack: &mut Lack) {
    let (Need::Write(path), Some(root)) = (&mut lack.need, &lack.root) else {
        return;
    };
    if !lack.is_file && root != b"/" {
        path.clone_from(root);
    }
}
