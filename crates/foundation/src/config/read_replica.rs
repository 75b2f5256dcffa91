//! Settings of the read replica of Postgres.

use std::path::PathBuf;

use clap::Args;

use super::values::{load_secret, validate_postgres_url};

/// The settings as written on the command line or in the environment.
#[derive(Args, Clone, Default)]
pub struct ReadReplicaConfig {
    /// Postgres URL of a read replica (hot standby) of the database, near this server, from which uncached keys are
    /// read
    #[arg(long, env = READ_URL, global = true, hide_env_values = true)]
    database_read_url: Option<String>,
    /// File that contains the database URL of the read replica
    #[arg(long, env = "KEYWARD_DATABASE_READ_URL_FILE", global = true)]
    database_read_url_file: Option<PathBuf>,
}

const READ_URL: &str = "KEYWARD_DATABASE_READ_URL";

impl ReadReplicaConfig {
    /// Returns the URL of the read replica; `None` if there is none.
    pub fn validate(&self, has_database: bool) -> Result<Option<String>, String> {
        let file = self.database_read_url_file.as_deref();
        let Some(url) = load_secret(READ_URL, self.database_read_url.as_ref(), file)? else {
            return Ok(None);
        };
        validate_postgres_url(READ_URL, &url)?;
        if !has_database {
            return Err(format!(
                "{READ_URL} is set and KEYWARD_DATABASE_URL is not: a read replica is a standby of that database"
            ));
        }
        Ok(Some(url))
    }
}
