//! Provides a Postgres database for each test, cloned from a template that is migrated once.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::LazyLock;
use std::thread;

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use store::{EventStore, Store};
use tokio::sync::{mpsc, oneshot};

use super::{random_letters, server_url};

/// Any number that is the same for every test process.
const LOCK: i64 = 7_305_811_921;

/// The thread that creates and drops databases. It has one connection, because Postgres starts a process for each.
static ADMIN: LazyLock<mpsc::UnboundedSender<Task>> = LazyLock::new(|| {
    let (tasks, receiver) = mpsc::unbounded_channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(administer(receiver));
    });
    tasks
});

enum Task {
    Create { name: String, contents: DatabaseContents, created: oneshot::Sender<()> },
    Drop { name: String },
}

/// What a new database has.
enum DatabaseContents {
    /// The current schema.
    Migrated,
    Empty,
    /// No schema, and a locale that orders texts as in English.
    EmptyWithLocale,
}

pub struct Database {
    pub url: String,
    /// Its name if it is dropped at the end.
    name: Option<String>,
}

impl Database {
    pub async fn create() -> Self {
        Self::create_with(DatabaseContents::Migrated).await
    }

    /// Creates a database without a schema.
    pub async fn empty() -> Self {
        Self::create_with(DatabaseContents::Empty).await
    }

    /// Creates a database without a schema, in which texts are ordered as in English: `a` is before `B`.
    pub async fn with_locale() -> Self {
        Self::create_with(DatabaseContents::EmptyWithLocale).await
    }

    async fn create_with(contents: DatabaseContents) -> Self {
        let name = format!("kw_{}", random_letters());
        let (created, is_created) = oneshot::channel();
        let task = Task::Create { name: name.clone(), contents, created };
        ADMIN.send(task).expect("the thread that creates databases runs");
        is_created.await.expect("the test's database is created");
        Self { url: database_url(&name), name: Some(name) }
    }

    /// Creates the schema of an empty database, which is not dropped.
    pub async fn migrate(url: String) -> Self {
        let store = Store::connect(&url, 2).await.expect("the database replies");
        store.migrate().await.expect("the database is migrated");
        store.close().await;
        let events = EventStore::connect(&url, None).expect("an address");
        events.migrate().await.expect("the database is migrated");
        events.close().await;
        Self { url, name: None }
    }

    pub fn name(&self) -> &str {
        self.name.as_deref().expect("a database of the shared server")
    }

    /// Returns the URL of another user of the server.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        let (scheme, rest) = self.url.split_once("://").expect("a URL");
        let (_, server) = rest.split_once('@').expect("a URL with a user");
        format!("{scheme}://{user}:{password}@{server}")
    }

    pub async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.expect("the test's database replies")
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            // Without waiting: a connection that the test was still opening could not be completed.
            let _ = ADMIN.send(Task::Drop { name });
        }
    }
}

async fn administer(mut tasks: mpsc::UnboundedReceiver<Task>) {
    let url = server_url("KEYWARD_TEST_DATABASE_URL");
    let mut admin = PgConnection::connect(&url)
        .await
        .expect("the Postgres of KEYWARD_TEST_DATABASE_URL replies");
    let template = migrated_template(&mut admin).await;
    while let Some(task) = tasks.recv().await {
        match task {
            Task::Create { name, contents, created } => {
                let template = match contents {
                    DatabaseContents::Migrated => template.as_str(),
                    DatabaseContents::Empty => "template1",
                    DatabaseContents::EmptyWithLocale => {
                        "template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US'"
                    }
                };
                // Copying files takes half the processor time of copying pages through the log.
                let sql = format!("CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy");
                admin.execute(AssertSqlSafe(sql)).await.expect("the test's database is created");
                let _ = created.send(());
            }
            Task::Drop { name } => {
                let sql = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
                let _ = admin.execute(AssertSqlSafe(sql)).await;
            }
        }
    }
}

/// Returns the URL of another database on the same server.
fn database_url(name: &str) -> String {
    let url = server_url("KEYWARD_TEST_DATABASE_URL");
    let (base, query) =
        url.split_once('?').map_or((url.as_str(), ""), |(base, query)| (base, query));
    let (server, _) = base.rsplit_once('/').expect("a URL with a database");
    if query.is_empty() { format!("{server}/{name}") } else { format!("{server}/{name}?{query}") }
}

/// Returns the migrated template. The first process creates it, and the others wait. Its name depends on the schema, so
/// a changed migration creates a new template.
async fn migrated_template(admin: &mut PgConnection) -> String {
    let mut hasher = DefaultHasher::new();
    for folder in ["migrations/postgres", "migrations/events/postgres"] {
        for entry in std::fs::read_dir(folder).expect("the migrations") {
            let path = entry.expect("an entry").path();
            std::fs::read_to_string(path).expect("a migration").hash(&mut hasher);
        }
    }
    let name = format!("kw_tmpl_{:016x}", hasher.finish());
    let lock = format!("SELECT pg_advisory_lock({LOCK})");
    admin.execute(AssertSqlSafe(lock)).await.expect("the lock");
    let exists: bool =
        sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)")
            .bind(&name)
            .fetch_one(&mut *admin)
            .await
            .expect("the list of databases");
    if !exists {
        // It has another name until it is complete.
        let draft = format!("kw_{}", random_letters());
        let sql = format!("CREATE DATABASE {draft}");
        admin.execute(AssertSqlSafe(sql)).await.expect("the template is created");
        Database::migrate(database_url(&draft)).await;
        let sql = format!("ALTER DATABASE {draft} RENAME TO {name}");
        admin.execute(AssertSqlSafe(sql)).await.expect("the template is renamed");
    }
    let unlock = format!("SELECT pg_advisory_unlock({LOCK})");
    admin.execute(AssertSqlSafe(unlock)).await.expect("the lock is released");
    name
}
