//! The answers of a host that are kept, and the file that they are in.

use toml::{Table, Value};

use crate::policy::written::approved;
use crate::policy::written::spec::Spec;
use crate::policy::written::values::SpecError;
use crate::policy::written::wording::changed;

/// The table of a file of answers with those that deny.
const NEVER: &str = "never";

/// The first lines of a file of answers.
const HEADER: &str = "# Answers that were kept: what they allow beside the policy.\n";

/// The line before the denials among them.
const NEVER_HEADER: &str = "# Nobody is asked for what these would allow: it is denied.\n";

/// Answers that are kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kept {
    /// The permissions that they give, beside a policy.
    pub allowed: Spec,
    /// The permissions that they deny: nobody is asked.
    pub never: Spec,
}

impl Kept {
    /// Reads the text of a file of answers.
    ///
    /// # Errors
    /// The text is no TOML, or has something else than answers.
    pub fn from_toml(text: &str) -> Result<Self, SpecError> {
        let mut table: Table = text.parse().map_err(|error: toml::de::Error| {
            SpecError::Syntax(error.to_string().trim().to_owned())
        })?;
        let never = match table.remove(NEVER) {
            None => Spec::default(),
            Some(Value::Table(never)) => Spec::from_toml(&never.to_string(), false)?,
            Some(_) => {
                return Err(SpecError::Value {
                    key: NEVER.to_owned(),
                    problem: "must be a table of the fields that are denied: [never]".to_owned(),
                });
            }
        };
        let allowed = Spec::from_toml(&table.to_string(), false)?;
        approved::check(&allowed)?;
        approved::check(&never)?;
        Ok(Self { allowed, never })
    }

    /// Adds other answers.
    pub fn merge(&mut self, more: &Self) {
        approved::merge(&mut self.allowed, &more.allowed);
        approved::merge(&mut self.never, &more.never);
    }

    /// Returns them as TOML, without the fields that add nothing.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut text = format!("{HEADER}{}", fields(&self.allowed));
        if self.never != Spec::default() {
            let mut table = Table::new();
            table.insert(NEVER.to_owned(), Value::Table(fields(&self.never)));
            text.push_str(&format!("\n{NEVER_HEADER}{table}"));
        }
        text
    }
}

fn fields(spec: &Spec) -> Table {
    let fields = changed(&Spec::default(), spec).into_iter();
    fields
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_it_is_written() {
        let given = "write = ['/a']\nnetwork = {hosts = ['a.org:443']}\n\
                     [never]\nread = ['/b']\nnetwork = {hosts = ['b.org:443']}\n";
        let kept = Kept::from_toml(given).unwrap();
        let text = kept.to_toml();
        assert_eq!(Kept::from_toml(&text).unwrap(), kept, "{text}");
        let mut merged = Kept::default();
        merged.merge(&kept);
        merged.merge(&kept);
        assert_eq!(merged, kept);
        let plain = Kept::from_toml("write = ['/a']").unwrap().to_toml();
        assert_eq!(plain, format!("{HEADER}write = [\"/a\"]\n"));
    }

    #[test]
    fn a_file_of_answers_holds_nothing_else() {
        for (text, told) in [
            ("never = 3", "never must be a table of the fields"),
            (
                "[never]\nblock = ['/x']",
                "block cannot be in a file of approvals",
            ),
            ("[never]\nblok = ['/x']", "blok"),
            ("[never.never]\nwrite = []", "never"),
            (
                "max_bytes = 5",
                "max_bytes cannot be in a file of approvals",
            ),
            ("write = [", "line 1"),
        ] {
            let error = Kept::from_toml(text).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }
}
