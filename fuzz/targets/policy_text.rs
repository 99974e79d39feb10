//! Any text as a policy: it is refused, or means the same when it is written out and read again.
#![no_main]

use fastaudit_rs::policy::written::spec::Spec;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for in_pyproject in [false, true] {
        let Ok(policy) = Spec::from_toml(text, in_pyproject) else {
            continue;
        };
        let written = policy.to_toml().expect("what was read can be written");
        let again = Spec::from_toml(&written, false).expect("what was written can be read");
        assert_eq!(again, policy);
    }
});
