//! The answers to a denial that a host may give, and the permissions that each gives.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::policy::learn::Need;
use crate::policy::written::approved::{Extent, additions};
use crate::policy::written::spec::Spec;
use crate::policy::written::widening::Lack;
use crate::python::denials::denial::{Denial, Offers};
use crate::python::denials::hint::{self, Here};
use crate::python::values::wording;

/// An answer of the host that allows the operation, or is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This once.
    Once,
    /// This subject, or its pattern, for as long as the guard lives.
    Kept(Extent),
    /// None of this, for as long as the guard lives: nobody is asked any more.
    Never,
}

impl Answer {
    const KEPT: [(&'static str, Extent); 2] =
        [("guard", Extent::Alone), ("pattern", Extent::Pattern)];

    /// Reads an answer; `None` is a denial that is not kept.
    ///
    /// # Errors
    /// `Err` for anything else.
    pub fn read(answer: &str) -> Result<Option<Self>, ()> {
        match answer {
            "deny" => Ok(None),
            "once" => Ok(Some(Self::Once)),
            "never" => Ok(Some(Self::Never)),
            _ => {
                let kept = Self::KEPT.iter().find(|(name, _)| *name == answer);
                kept.map(|(_, extent)| Some(Self::Kept(*extent))).ok_or(())
            }
        }
    }
}

impl Denial {
    /// Returns the permissions that an answer would give; `None` if it cannot be kept.
    pub fn offer(&self, py: Python<'_>, extent: Extent) -> Option<Spec> {
        let asked = self.asked.as_ref()?;
        let lacks = asked.own_lacks(py, self);
        let is_blocked = |lack: &Lack| match &lack.need {
            Need::Module(module) => asked.policy.blocks_import(module),
            _ => false,
        };
        if lacks.iter().any(is_blocked) {
            return None;
        }
        let roots = asked.policy.approves_root_entries();
        let found = additions(lacks, extent, &Here::new(py, lacks), roots)?;
        // Another field may deny it all the same.
        self.why.is_some().then_some(found)
    }

    /// The same as values, for each answer that is kept.
    pub(super) fn offers(&self, py: Python<'_>) -> Offers {
        if let Some(known) = self.read().offers.get() {
            return known.each_ref().map(|offer| {
                let offer = offer.as_ref();
                offer.map(|offer| offer.clone_ref(py))
            });
        }
        [Extent::Alone, Extent::Pattern].map(|extent| {
            let spec = self.offer(py, extent)?;
            hint::fields(py, &Spec::default(), &spec)
        })
    }

    /// The same by the names of the answers.
    pub(super) fn offers_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for ((name, _), offer) in Answer::KEPT.iter().zip(self.offers(py)) {
            dict.set_item(name, offer)?;
        }
        Ok(dict)
    }

    /// Keeps the permissions of answers as another process told them.
    pub(super) fn keep_offers(&self, told: &Bound<'_, PyDict>) -> PyResult<()> {
        let mut offers = Offers::default();
        for ((name, _), offer) in Answer::KEPT.iter().zip(&mut offers) {
            if let Some(given) = told.get_item(name)?.filter(|given| !given.is_none()) {
                *offer = Some(wording::copied(&given)?.cast_into::<PyDict>()?.unbind());
            }
        }
        let _ = self.read().offers.set(offers);
        Ok(())
    }

    /// Notes the end of a question to the host.
    pub fn note_answer(&self, answer: String) {
        let _ = self.read().answer.set(answer);
    }
}
