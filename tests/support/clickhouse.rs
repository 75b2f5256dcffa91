//! Provides a ClickHouse database for each test, on the server that `./test` starts.

use store::clickhouse::ClickHouse;
use url::Url;

use super::{random_letters, server_url};

pub struct ClickHouseDatabase {
    pub url: Url,
    pub client: ClickHouse,
    name: String,
}

impl ClickHouseDatabase {
    /// Names a database that the server creates on first use.
    pub fn uninitialized() -> Self {
        let name = format!("kw_{}", random_letters());
        let mut url = Url::parse(&server_url("KEYWARD_TEST_CLICKHOUSE_URL")).expect("a URL");
        url.set_path(&name);
        let client = ClickHouse::new(&url).expect("a client");
        Self { url, client, name }
    }

    /// Creates a database with its tables.
    pub async fn create() -> Self {
        let warehouse = Self::uninitialized();
        warehouse.client.create_tables().await.expect("the tables are created");
        warehouse
    }
}

impl Drop for ClickHouseDatabase {
    fn drop(&mut self) {
        let (client, name) = (self.client.clone(), self.name.clone());
        // A separate runtime: that of the test may already have stopped.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let _ = client.execute(&format!("DROP DATABASE IF EXISTS {name}")).await;
            });
        });
    }
}
