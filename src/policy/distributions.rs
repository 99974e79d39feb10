//! The installed distributions: their top-level modules, and their requirements.
//!
//! Read from the metadata beside them. A distribution is what one installs (`scikit-learn`), its
//! modules what one imports (`sklearn`); native code is often in a third (`_duckdb`).
//! `importlib.metadata.packages_distributions()` takes a second where there are 300 packages.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use ahash::{AHashMap, AHashSet};

use crate::policy::sql::percent_decode;

/// The ends of the names of directories that packages are installed in.
pub const SITES: [&str; 2] = ["site-packages", "dist-packages"];

/// The end of the name of a directory with the metadata of a distribution.
const DIST_INFO: &str = ".dist-info";
/// The same, as setuptools, and so Debian, names it.
const EGG_INFO: &str = ".egg-info";

/// The directories that distributions in these ones lead to: those that are installed so that their
/// source can be edited, by a path of the import system or by a finder of their own.
pub fn editable(directories: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in entries(directories) {
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.ends_with(".pth") {
            let lines = fs::read_to_string(&path).unwrap_or_default();
            let paths = lines.lines().filter(|line| line.starts_with('/'));
            found.extend(paths.map(|line| PathBuf::from(line.trim_end())));
        } else if name.ends_with(DIST_INFO)
            && let Ok(text) = fs::read_to_string(path.join("direct_url.json"))
        {
            found.extend(edited(&text));
        }
    }
    // Of all files the top directory would tell nothing.
    found.retain(|path| path.parent().is_some());
    found
}

/// What is in some directories, as far as they can be read.
fn entries(directories: &[PathBuf]) -> impl Iterator<Item = fs::DirEntry> {
    let read = directories.iter().flat_map(fs::read_dir);
    read.flatten().flatten()
}

/// The directory that a `direct_url.json` names, if that is of an editable install:
/// <https://packaging.python.org/en/latest/specifications/direct-url/>.
fn edited(text: &str) -> Option<PathBuf> {
    let json: serde_json::Value = serde_json::from_str(text).ok()?;
    let is_editable = json["dir_info"]["editable"] == true;
    let path = json["url"].as_str()?.strip_prefix("file://")?;
    let path = String::from_utf8(percent_decode(path.as_bytes())).ok()?;
    (is_editable && path.starts_with('/')).then(|| PathBuf::from(path))
}

/// A distribution that is installed.
#[derive(Debug, Default)]
struct Distribution {
    /// Its name, normalised.
    name: String,
    /// The first components of its files' paths: modules, packages, directories of libraries.
    modules: Vec<String>,
    /// The names of those that it requires without an extra, normalised.
    requires: Vec<String>,
}

/// The distributions below some directories, as of a time. They are read when they are first asked
/// for: that takes longer than all else that a guard needs.
#[derive(Debug)]
pub struct InstalledPackages {
    /// No others have this number.
    pub id: u64,
    directories: Vec<PathBuf>,
    as_of: Time,
    found: OnceLock<Found>,
}

/// Seconds and nanoseconds, as files have them.
type Time = (i64, i64);

impl InstalledPackages {
    /// The metadata in these directories count as far as they can be read, and were changed before
    /// this time: guarded code may have written others.
    pub fn new(directories: Vec<PathBuf>, as_of: Time) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        Self { id, directories, as_of, found: OnceLock::new() }
    }

    pub fn found(&self) -> &Found {
        self.found.get_or_init(|| Found::read(&self.directories, self.as_of))
    }
}

/// The distributions that were read.
#[derive(Debug, Default)]
pub struct Found {
    distributions: Vec<Distribution>,
    by_name: AHashMap<String, usize>,
    by_module: AHashMap<String, Vec<usize>>,
}

impl Found {
    fn read(directories: &[PathBuf], as_of: Time) -> Self {
        let mut found = Self::default();
        for entry in entries(directories) {
            let name = entry.file_name();
            let name = name.to_str().unwrap_or_default();
            let metadata = Metadata { directory: entry.path(), as_of };
            if let Some(stem) = name.strip_suffix(DIST_INFO) {
                found.add(of_wheel(stem, &metadata));
            } else if let Some(stem) = name.strip_suffix(EGG_INFO) {
                found.add(of_egg(stem, &metadata));
            }
        }
        found
    }

    fn add(&mut self, distribution: Distribution) {
        // The first directory counts, as for imports.
        if self.by_name.contains_key(&distribution.name) {
            return;
        }
        let index = self.distributions.len();
        self.by_name.insert(distribution.name.clone(), index);
        for module in &distribution.modules {
            self.by_module.entry(module.clone()).or_default().push(index);
        }
        self.distributions.push(distribution);
    }

    /// The distributions of this name, as it is installed or imported.
    fn named(&self, name: &str) -> Vec<usize> {
        let by_name = self.by_name.get(&normalised(name)).into_iter();
        let by_module = self.by_module.get(name).into_iter().flatten();
        by_name.chain(by_module).copied().collect()
    }

    pub fn has(&self, name: &str) -> bool {
        !self.named(name).is_empty()
    }

    /// Returns whether some distribution has a top-level module of this name.
    pub fn has_module(&self, module: &str) -> bool {
        self.by_module.contains_key(module)
    }

    /// Returns the name by which one imports the distribution of a top-level module or directory:
    /// `duckdb` for `_duckdb`, and `polars` for `_polars_runtime_32`, whose distribution polars
    /// requires; its own name if it belongs to none.
    pub fn package_of<'a>(&'a self, module: &'a str) -> &'a str {
        let is_public = |name: &str| !name.starts_with('_') && !name.contains('.');
        if is_public(module) {
            return module;
        }
        let public = |owner: &'a Distribution| {
            let modules = || owner.modules.iter().map(String::as_str);
            let same = |name: &&str| is_public(name) && normalised(name) == owner.name;
            modules().find(same).or_else(|| modules().find(|name| is_public(name)))
        };
        let owners = || {
            let owners = self.by_module.get(module).into_iter().flatten();
            owners.map(|index| &self.distributions[*index])
        };
        let needs = |user: &Distribution| owners().any(|owner| user.requires.contains(&owner.name));
        let users = || self.distributions.iter().filter(|user| needs(user));
        let named = owners().find_map(public).or_else(|| users().find_map(public));
        named.unwrap_or(module)
    }

    /// Returns the modules of these names: top-level modules, and the distributions of these names
    /// with all their modules and, in turn, those of the distributions that they require.
    pub fn modules_of<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> AHashSet<String> {
        let mut modules = AHashSet::default();
        let mut seen = AHashSet::default();
        let mut waiting = Vec::new();
        for name in names {
            modules.insert(name.to_owned());
            waiting.extend(self.named(name));
        }
        while let Some(index) = waiting.pop() {
            if !seen.insert(index) {
                continue;
            }
            let distribution = &self.distributions[index];
            modules.extend(distribution.modules.iter().cloned());
            let required = distribution.requires.iter();
            waiting.extend(required.filter_map(|name| self.by_name.get(name)));
        }
        modules
    }

    /// Returns a name of something here that looks like this one.
    pub fn near(&self, name: &str) -> Option<&str> {
        let wanted = normalised(name);
        let names = self.by_name.keys().chain(self.by_module.keys());
        names
            .map(|known| (distance(&normalised(known), &wanted), known))
            .filter(|(distance, _)| *distance <= 2)
            .min()
            .map(|(_, known)| known.as_str())
    }
}

/// Returns the form of a name in which distributions are compared:
/// <https://packaging.python.org/en/latest/specifications/name-normalization/>.
fn normalised(name: &str) -> String {
    let mut normal = String::with_capacity(name.len());
    for letter in name.chars() {
        if !matches!(letter, '-' | '_' | '.') {
            normal.push(letter.to_ascii_lowercase());
        } else if !normal.ends_with('-') {
            normal.push('-');
        }
    }
    normal
}

/// Returns the number of letters to change, add or leave out to get from one name to another.
pub fn distance(from: &str, to: &str) -> usize {
    let to: Vec<_> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (above, from) in from.chars().enumerate() {
        let mut diagonal = above;
        row[0] = above + 1;
        for (left, to) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[left + 1];
            row[left + 1] = replaced.min(diagonal + 1).min(row[left] + 1);
        }
    }
    row[to.len()]
}

/// The files of a distribution's metadata.
struct Metadata {
    directory: PathBuf,
    as_of: Time,
}

impl Metadata {
    /// The content of a file; empty if there is none that was changed before the time.
    fn file(&self, name: &str) -> Vec<u8> {
        let read = || {
            let mut file = fs::File::open(self.directory.join(name)).ok()?;
            let status = file.metadata().ok()?;
            let mut content = Vec::with_capacity(usize::try_from(status.len()).ok()?);
            file.read_to_end(&mut content).ok()?;
            ((status.ctime(), status.ctime_nsec()) < self.as_of).then_some(content)
        };
        read().unwrap_or_default()
    }

    fn text(&self, name: &str) -> String {
        String::from_utf8(self.file(name)).unwrap_or_default()
    }
}

/// Reads `name-version.dist-info`.
fn of_wheel(stem: &str, metadata: &Metadata) -> Distribution {
    let mut modules = AHashSet::default();
    for line in metadata.file("RECORD").split(|byte| *byte == b'\n') {
        let path = line.split(|byte| *byte == b',').next().unwrap_or_default();
        let path = path.strip_prefix(b"\"").unwrap_or(path);
        modules.extend(std::str::from_utf8(path).ok().and_then(module_of));
    }
    let headers = metadata.text("METADATA");
    let headers = headers.lines().take_while(|line| !line.is_empty());
    let requires = headers.filter_map(|line| line.strip_prefix("Requires-Dist:"));
    Distribution {
        name: normalised(stem.split('-').next().unwrap_or(stem)),
        modules: modules.into_iter().collect(),
        requires: requires.filter_map(required).collect(),
    }
}

/// Reads `name-version.egg-info`, a directory.
fn of_egg(stem: &str, metadata: &Metadata) -> Distribution {
    let modules = metadata.text("top_level.txt");
    let requires = metadata.text("requires.txt");
    // Sections are extras and markers.
    let requires = requires.lines().take_while(|line| !line.starts_with('['));
    Distribution {
        name: normalised(stem.split('-').next().unwrap_or(stem)),
        modules: modules.lines().map(str::to_owned).collect(),
        requires: requires.filter_map(required).collect(),
    }
}

/// The distribution that a requirement names, unless it is that of an extra.
fn required(requirement: &str) -> Option<String> {
    let (wanted, marker) = requirement.split_once(';').unwrap_or((requirement, ""));
    let is_name = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.');
    let wanted = wanted.trim();
    let end = wanted.find(|letter| !is_name(letter)).unwrap_or(wanted.len());
    let name = wanted.get(..end).filter(|name| !name.is_empty())?;
    (!marker.contains("extra")).then(|| normalised(name))
}

/// Returns the top-level module of a file below a directory of installed modules, or the directory
/// of libraries (`numpy.libs`); `None` for metadata and scripts.
pub fn module_of(path: &str) -> Option<String> {
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    let is_metadata = first.ends_with(DIST_INFO) || first.ends_with(EGG_INFO);
    if first.is_empty() || matches!(first, "." | ".." | "__pycache__") || is_metadata {
        return None;
    }
    let name = match rest {
        // `_duckdb.cpython-313-x86_64-linux-gnu.so`, `six.py`
        "" => first.split('.').next().unwrap_or(first),
        _ => first,
    };
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site() -> tempfile::TempDir {
        let site = tempfile::tempdir().unwrap();
        let add = |name: &str, files: [(&str, &str); 2]| {
            let directory = site.path().join(name);
            fs::create_dir(&directory).unwrap();
            for (file, text) in files {
                fs::write(directory.join(file), text).unwrap();
            }
        };
        let wheel = |name: &str, record, metadata| {
            let name = format!("{name}.dist-info");
            add(&name, [("RECORD", record), ("METADATA", metadata)]);
        };
        let files = "_duckdb.cpython-313-x86_64-linux-gnu.so,sha256=x,1\nduckdb/__init__.py,,\n";
        wheel("duckdb-1.0", files, "Name: duckdb\n");
        let requires = "Requires-Dist: pydantic.Core (==2.1)\n\
                        Requires-Dist: e-mail; extra == 'email'\n\nRequires-Dist: duckdb\n";
        wheel("Fake_Pydantic-2", "pydantic/main.py,,\n", requires);
        wheel("pydantic_core-2", "pydantic_core/_a.so,,\n", "");
        wheel("e_mail-2", "email_x/_a.so,,\n", "");
        let requires = "Requires-Dist: frames-runtime\n";
        wheel("frames-1", "frames/__init__.py,,\n", requires);
        wheel("frames_runtime-1", "_frames_runtime/a.so,,\n", "");
        let requires = ("requires.txt", "duckdb>=1\n\n[extra]\ne-mail\n");
        add("old-1.egg-info", [("top_level.txt", "old\n_old\n"), requires]);
        site
    }

    #[test]
    fn what_was_changed_later_counts_for_nothing() {
        let site = site();
        let directories = vec![site.path().to_owned()];
        let begun = fs::metadata(site.path().join("duckdb-1.0.dist-info/RECORD")).unwrap();
        let installed = InstalledPackages::new(directories, (begun.ctime(), begun.ctime_nsec()));
        assert_eq!(installed.found().modules_of(["duckdb"]).len(), 1);
        assert_eq!(installed.found().modules_of(["old"]).len(), 1);
    }

    #[test]
    fn a_package_is_named_as_it_is_installed_or_imported() {
        let site = site();
        let installed = Found::read(&[site.path().to_owned()], (i64::MAX, 0));
        for (name, module, is_of) in [
            ("duckdb", "duckdb", true),
            ("DuckDB", "_duckdb", true),
            ("pydantic", "pydantic_core", true),
            ("fake-pydantic", "pydantic_core", true),
            ("pydantic", "email_x", false),
            ("pydantic", "_duckdb", false),
            ("pydantic_core", "pydantic", false),
            ("old", "_duckdb", true),
            ("old", "email_x", false),
            ("not_installed", "not_installed", true),
        ] {
            let modules = installed.modules_of([name]);
            assert_eq!(modules.contains(module), is_of, "{name} {module}");
        }
        for (module, package) in [
            ("_duckdb", "duckdb"),
            ("pydantic_core", "pydantic_core"),
            ("_frames_runtime", "frames"),
            ("_unknown", "_unknown"),
        ] {
            assert_eq!(installed.package_of(module), package);
        }
        assert!(installed.has("old") && !installed.has("older"));
    }

    #[test]
    fn files_are_of_top_level_modules() {
        for (path, module) in [
            ("numpy/core/x.so", Some("numpy")),
            ("numpy.libs/libopenblas.so", Some("numpy.libs")),
            ("_regex.cpython-313.so", Some("_regex")),
            ("six.py", Some("six")),
            ("__pycache__/six.pyc", None),
            ("../../bin/f2py", None),
            ("a-1.dist-info/RECORD", None),
            ("", None),
        ] {
            assert_eq!(module_of(path).as_deref(), module, "{path}");
        }
    }
}
