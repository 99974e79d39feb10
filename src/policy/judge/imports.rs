//! Imports, and the acts that they excuse.

use super::event::Judge;
use super::surroundings::{Reason, Surroundings};
use crate::policy::operation::{Operation, Why};

#[cfg(unix)]
use super::arguments::{Arguments, Named, PathLikes};
#[cfg(unix)]
#[cfg(unix)]
use crate::policy::files::path::{self, Base, Name};
#[cfg(unix)]
use crate::policy::learn::Need;
#[cfg(unix)]
use crate::policy::operation::Verdict;

impl<S: Surroundings> Judge<'_, S> {
    pub(super) fn import(&self) -> Result<(), S::Error> {
        let Some(module) = self.args().text(0) else {
            return self.deny(Reason::Event);
        };
        #[cfg(unix)]
        if self.args().count() > 1 && !self.args().is_none(1) {
            self.load(&module)?;
        }
        if !self.0.records() && !self.0.policy().restricts_imports() {
            return Ok(());
        }
        self.import_of(&module)
    }

    /// Judges loading an extension module by the place of its file.
    #[cfg(unix)]
    fn load(&self, module: &str) -> Result<(), S::Error> {
        let name = self.args().name(1, false, PathLikes::CheckedAgain)?;
        let Name::Path(file) = name.name() else {
            return self.deny(Reason::Event);
        };
        let fs = self.0.fs();
        let Some(landing) = path::resolve(fs, file, Base::CurrentDir) else {
            return self.deny(Reason::Event);
        };
        let origin = self.0.origin(file, &landing);
        match self.0.policy().load(fs, module, &landing, origin) {
            Verdict::Allow => Ok(()),
            Verdict::Deny(Why::Native) => {
                self.0.need(Need::of_native(module));
                self.deny(Reason::Switch(Why::Native))
            }
            Verdict::Deny(_) => self.deny(Reason::Event),
        }
    }

    /// Judges the code of a module that is imported, by `importlib` too, which raises no `import`.
    pub(super) fn exec(&self) -> Result<(), S::Error> {
        if !self.0.policy().restricts_imports() {
            return Ok(());
        }
        self.0.with_module_being_loaded(|module| match module {
            Some(module) => self.import_of(module),
            None => Ok(()),
        })?
    }

    fn import_of(&self, module: &str) -> Result<(), S::Error> {
        self.0.note(Operation::Import {
            module,
            in_turn: false,
        });
        let denied = |in_turn| {
            let operation = Operation::Import { module, in_turn };
            !self.check(operation).allows()
        };
        // The importing code is looked at only where it matters.
        if denied(false) && (denied(true) || !self.0.is_in_turn()?) {
            return self.deny(Reason::Switch(Why::Import));
        }
        Ok(())
    }
}
