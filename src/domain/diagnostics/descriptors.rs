//! File descriptors: whether the connections that are configured fit.

use foundation::config::Settings;
use foundation::descriptors;

use super::Finding;

/// Compares what a server with these settings needs with what this process may have. A server raises its soft limit to
/// the hard one at its start.
pub fn look(settings: &Settings) -> Finding {
    match descriptors::limits() {
        Ok((_, hard_limit)) => compare(settings, hard_limit),
        Err(e) => Finding::warning(
            "open-files",
            format!("the limit on open files could not be read: {e}"),
            "look with ulimit -Hn what it is",
        ),
    }
}

fn compare(settings: &Settings, hard_limit: u64) -> Finding {
    let configured = settings.security.connections_max;
    let max = descriptors::connections_max(settings, hard_limit);
    if max < configured {
        let needed = descriptors::needed(settings);
        return Finding::warning(
            "open-files",
            format!(
                "a process may open {hard_limit} files: a server with the same limit serves at most {max} connections \
                instead of {configured}"
            ),
            format!(
                "raise the hard limit to {needed} (LimitNOFILE of systemd, --ulimit of Docker), or lower \
                KEYWARD_CONNECTIONS_MAX"
            ),
        );
    }
    Finding::ok(
        "open-files",
        format!("{configured} connections fit: a process may open {hard_limit} files"),
    )
}
