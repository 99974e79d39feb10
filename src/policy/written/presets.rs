//! Policies to begin with, each the TOML that it stands for.

/// The presets by name. A field that a text leaves out has its default.
pub const PRESETS: &[(&str, &str)] = &[
    (
        "readonly",
        "\
write = []
env = true
import_allow = [\"*\"]
threads = \"inherit\"
native = true
network = false
",
    ),
    (
        "workspace",
        // The network of this machine alone. Connections to it go nowhere else, and its servers are
        // reached from nowhere else.
        "\
write = [\".\"]
env = true
import_allow = [\"*\"]
threads = \"inherit\"
native = true
packages = [\"data\"]

[network]
hosts = [\"127.0.0.0/8\", \"::1\"]
listen = [\"127.0.0.0/8\", \"::1\"]
unix = [\".\"]
lookup = false
",
    ),
    (
        "notebook",
        "\
write = [\".\"]
env = true
import_allow = [\"*\"]
threads = \"inherit\"
native = true
network = true
packages = [\"data\"]
",
    ),
    (
        "sandbox",
        // The kernel holds the rest: what native code, threads and programs do.
        "\
write = []
read = []
env = true
import_allow = [\"*\"]
threads = \"inherit\"
native = true
network = false
",
    ),
    (
        "fastaudit-0.1",
        "\
write = []
protect = false
env = false
threads = \"deny\"
unknown_events = \"allow\"
native = false
network = true
",
    ),
    (
        "fastaudit-0.2",
        "\
write = []
protect = false
env = true
threads = \"deny\"
unknown_events = \"deny\"
native = false
network = false
",
    ),
];
