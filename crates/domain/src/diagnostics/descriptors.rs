//! The check that the limit on open files allows the configured number of connections.

use foundation::config::Settings;
use foundation::descriptors;

use super::Finding;

/// Compares the file descriptors that a server with these settings needs with the hard limit of this process. A server
/// raises its soft limit to the hard limit when it starts.
pub fn check_open_files(settings: &Settings) -> Finding {
    match descriptors::get_limits() {
        Ok((_, hard_limit)) => compare_limits(settings, hard_limit),
        Err(e) => Finding::warning(
            "open-files",
            format!("failed to read the limit on open files: {e}"),
            "check it with ulimit -Hn",
        ),
    }
}

fn compare_limits(settings: &Settings, hard_limit: u64) -> Finding {
    let configured = settings.security.connections_max;
    let max = descriptors::connections_max(settings, hard_limit);
    if max < configured {
        let needed = descriptors::needed_descriptors(settings);
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
