//! Tests the stack of replicas behind its load balancer, as `deploy/local-stack` starts it.

mod addresses;
mod secrets;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use foundation::clock::Stopwatch;
use serde_json::{Value, json};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use url::Url;

use crate::support::process::{Server, free_port, get, keyward_command, signal, v2};
use crate::support::{random_letters, redis_url, server_url};

const ROOT_KEY: &str = "a_root_key_of_an_operator_1";

struct LocalStack {
    child: Child,
    about: Value,
}

impl LocalStack {
    fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(options: &[&str]) -> Self {
        let mut child = Command::new("deploy/local-stack")
            .args(["--json", "--port", "0", "--binary", env!("CARGO_BIN_EXE_keyward")])
            .args(options)
            // The machine may be compiling at the same time.
            .env("KEYWARD_REDIS_TIMEOUT_MS", "2000")
            .stdout(Stdio::piped())
            .spawn()
            .expect("deploy/local-stack starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let about = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line:?}"));
        Self { child, about }
    }

    fn text(&self, field: &str) -> String {
        self.about[field].as_str().unwrap().to_owned()
    }
}

impl Drop for LocalStack {
    fn drop(&mut self) {
        // It ends the processes that it has started, which a kill would leave running.
        signal(self.child.id(), "TERM");
        let _ = self.child.wait();
    }
}

#[test]
fn calls_through_load_balancer_succeed_when_a_replica_ends() {
    let stack = LocalStack::start();
    let (url, root_key) = (stack.text("url"), stack.text("rootKey"));
    let address = url.trim_start_matches("http://").trim_end_matches('/').parse().unwrap();
    let call = |operation: &str, body: &Value| {
        let (status, answer) = v2(address, &root_key, operation, body).unwrap();
        assert_eq!(status, 200, "{operation}: {answer}");
        answer["data"].clone()
    };

    let api = call("apis.createApi", &json!({ "name": "payments" }))["apiId"].clone();
    call(
        "permissions.createRole",
        &json!({ "name": "editor", "permissions": ["documents.write"] }),
    );
    let issued = call(
        "keys.createKey",
        &json!({
            "apiId": api,
            "prefix": "prod",
            "roles": ["editor"],
            "credits": { "remaining": 15 },
            "ratelimits": [{ "name": "requests", "limit": 10, "duration": 86_400_000, "autoApply": true }],
        }),
    );
    let request = json!({ "key": issued["key"], "permissions": "documents.write" });
    let codes: Vec<_> = (0..12).map(|_| call("keys.verifyKey", &request)["code"].clone()).collect();
    let replicas = stack.about["pids"]["replicas"].as_array().unwrap();
    signal(u32::try_from(replicas[0].as_u64().unwrap()).unwrap(), "TERM");
    let rest: Vec<_> = (0..20).map(|_| call("keys.verifyKey", &request)["code"].clone()).collect();

    assert_eq!(codes[..10], vec![json!("VALID"); 10]);
    assert_eq!(codes[10..], vec![json!("RATE_LIMITED"); 2]);
    assert_eq!(rest, vec![json!("RATE_LIMITED"); 20]);
    assert_eq!(
        call("keys.getKey", &json!({ "keyId": issued["keyId"] }))["credits"]["remaining"],
        5
    );
    assert_eq!(get(address, "/v2/liveness").unwrap().0, 200);
    assert_eq!(get(address, "/metrics").unwrap().0, 404);
}

/// The database and the roles that the Compose file's Postgres creates, with names of this test, on the server of the
/// tests. They are deleted with it.
struct ComposeRoles {
    url: String,
    analytics_url: String,
    name: String,
}

impl ComposeRoles {
    fn create() -> Self {
        let name = format!("kw_{}", random_letters());
        let script = std::fs::read_to_string("deploy/postgres/keyward.sh").unwrap();
        let (_, sql) = script.split_once("<<'SQL'\n").unwrap();
        let (sql, _) = sql.split_once("\nSQL").unwrap();
        let sql = sql.replace(":'password'", "'p'").replace(":'analytics_password'", "'p'");
        // Commands of psql set the passwords.
        let is_statement = |line: &&str| !line.starts_with('\\');
        for statement in sql.replace("keyward", &name).lines().filter(is_statement) {
            run_as_admin(statement);
        }
        let url = |role: &str| {
            let mut url = Url::parse(&server_url("KEYWARD_TEST_DATABASE_URL")).unwrap();
            url.set_username(role).unwrap();
            url.set_password(Some("p")).unwrap();
            url.set_path(&name);
            url.to_string()
        };
        Self { url: url(&name), analytics_url: url(&format!("{name}_analytics")), name }
    }
}

impl Drop for ComposeRoles {
    fn drop(&mut self) {
        let name = &self.name;
        run_as_admin(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"));
        run_as_admin(&format!("DROP ROLE IF EXISTS {name}, {name}_analytics"));
    }
}

fn run_as_admin(statement: &str) {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let url = server_url("KEYWARD_TEST_DATABASE_URL");
        let mut admin = PgConnection::connect(&url).await.unwrap();
        admin.execute(AssertSqlSafe(statement)).await.expect(statement);
    });
}

#[test]
fn compose_roles_have_sufficient_privileges() {
    let roles = ComposeRoles::create();
    let mut command = keyward_command();
    command
        .env("KEYWARD_DATABASE_URL", &roles.url)
        .env("KEYWARD_DATABASE_ANALYTICS_URL", &roles.analytics_url)
        .env("KEYWARD_REDIS_URL", redis_url())
        .env("KEYWARD_REDIS_PREFIX", format!("t{}:", random_letters()))
        .env("KEYWARD_ROOT_KEY", ROOT_KEY)
        .env("KEYWARD_AD_HOC_COUNTERS", "10")
        .env("KEYWARD_DRAIN_SECONDS", "0");
    let keyward = Server::start(command);
    let ok = |operation: &str, body: &Value| {
        let (status, answer) = keyward.v2(ROOT_KEY, operation, body);
        assert_eq!(status, 200, "{operation}: {answer}");
        answer["data"].clone()
    };
    let api = ok("apis.createApi", &json!({ "name": "payments" }))["apiId"].clone();
    let issued = ok("keys.createKey", &json!({ "apiId": api, "credits": { "remaining": 1_000 } }));
    let limit =
        |n: u32| json!([{ "name": format!("limit_{n}"), "limit": 5, "duration": 3_600_000 }]);
    let verify = |n: u32| {
        let body = json!({ "key": issued["key"], "ratelimits": limit(n) });
        keyward.v2(ROOT_KEY, "keys.verifyKey", &body)
    };
    let (_, first) = verify(0);
    assert_eq!(first["data"]["code"], "VALID", "{first}");
    // Background tasks: the events are written, the role may read them, and ad-hoc limits are estimated.
    let query = json!({ "query": "SELECT COUNT(*) AS n FROM key_verifications_v1" });
    let counted = || keyward.v2(ROOT_KEY, "analytics.getVerifications", &query);
    wait_20_s("the event is read", || counted().1["data"][0]["n"] == 1);
    let mut limits = 1..;
    wait_20_s("no more ad-hoc limits are taken", || verify(limits.next().unwrap()).0 == 400);
    ok("keys.deleteKey", &json!({ "keyId": issued["keyId"] }));
}

fn wait_20_s(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Stopwatch::new();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(20), "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Returns the commands of README's quick start with Compose.
fn quick_start() -> Vec<String> {
    let readme = std::fs::read_to_string("README.md").unwrap();
    let (_, rest) = readme.split_once("\nWith Docker").expect("a quick start with Docker");
    let (_, rest) = rest.split_once("```sh\n").expect("its commands");
    let (block, _) = rest.split_once("```").unwrap();
    block.lines().map(str::to_owned).collect()
}

/// Returns the names that follow a prefix in a text.
fn names_after<'t>(text: &'t str, prefix: &str) -> Vec<&'t str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let names = text.split(prefix).skip(1);
    names.map(|rest| &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())]).collect()
}

#[test]
fn compose_finds_every_secret_of_the_quick_start() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("deploy")).unwrap();
    std::fs::copy("deploy/make-secrets", directory.path().join("deploy/make-secrets")).unwrap();
    let (compose_up, others): (Vec<_>, Vec<_>) =
        quick_start().into_iter().partition(|line| line.starts_with("docker compose up"));
    let output = Command::new("sh")
        .args(["-ec", &others.join("\n")])
        .current_dir(directory.path())
        .output()
        .unwrap();
    let read = |name: &str| {
        let text = std::fs::read_to_string(directory.path().join("secrets").join(name)).unwrap();
        text.trim_end().to_owned()
    };
    let text = std::fs::read_to_string("docker-compose.yml").unwrap();
    let compose: Value = serde_saphyr::from_str(&text).expect("YAML");

    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let root_key = read("root_key");
    let script = directory.path().join("deploy/make-secrets");
    assert!(Command::new(script).output().unwrap().status.success());
    assert_eq!(read("root_key"), root_key, "an existing secret is kept");

    assert_eq!(compose_up.len(), 1);
    // Only variables with a default may be used.
    for variable in names_after(&text, "${") {
        assert!(text.contains(&format!("${{{variable}:-")), "{variable} must be set");
    }
    let secrets = compose["secrets"].as_object().unwrap();
    for (name, secret) in secrets {
        assert_eq!(secret["file"], format!("./secrets/{name}"));
        assert_eq!(read(name).lines().count(), 1, "{name}");
    }
    let role = std::fs::read_to_string("deploy/postgres/keyward.sh").unwrap();
    let used = [names_after(&text, "/run/secrets/"), names_after(&role, "/run/secrets/")].concat();
    for name in &used {
        assert!(secrets.contains_key(*name), "{name} is not a secret");
    }
    assert!(secrets.keys().all(|name| used.contains(&name.as_str())), "{used:?} of {secrets:?}");
    let of_replica = compose["x-replica"]["secrets"].as_array().unwrap();
    let environment = compose["x-replica"]["environment"].as_object().unwrap();
    let mut replica = Command::new(env!("CARGO_BIN_EXE_keyward"));
    replica.args(["openapi", "v2"]).env_clear();
    for (variable, value) in environment {
        let value = value.as_str().unwrap();
        match value.strip_prefix("/run/secrets/") {
            Some(name) => {
                assert!(of_replica.contains(&json!(name)), "{name} is not mounted");
                replica.env(variable, directory.path().join("secrets").join(name))
            }
            None => replica.env(variable, value.replace("${KEYWARD_LOG:-info}", "info")),
        };
    }
    let checked = replica.output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    assert!(read("database_url").contains(&read("keyward_password")));
    assert!(read("redis_url").contains(&read("redis_password")));
}

#[test]
fn compose_of_regions_extends_the_other_one() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("deploy")).unwrap();
    let script = directory.path().join("deploy/make-secrets");
    std::fs::copy("deploy/make-secrets", &script).unwrap();
    assert!(Command::new(script).output().unwrap().status.success());
    let text = std::fs::read_to_string("docker-compose.regions.yml").unwrap();
    // Compose's own tag: a list replaces the one that it extends.
    let regions: Value = serde_saphyr::from_str(&text.replace("!override", "")).expect("YAML");
    let text = std::fs::read_to_string("docker-compose.yml").unwrap();
    let compose: Value = serde_saphyr::from_str(&text).expect("YAML");

    let services = regions["services"].as_object().unwrap();
    let exists = |name: &str| services.contains_key(name) || !compose["services"][name].is_null();
    for (name, service) in services {
        let extended = service["extends"]["service"].as_str().unwrap_or(name);
        assert!(!compose["services"][extended].is_null(), "{name} extends {extended}");
        for dependency in service["depends_on"].as_object().iter().flat_map(|it| it.keys()) {
            assert!(exists(dependency), "{name} depends on {dependency}");
        }
        let variables = service["environment"].as_object();
        for replica in variables.iter().filter_map(|them| them.get("KEYWARD_REPLICA_1")) {
            assert!(exists(replica.as_str().unwrap().trim_end_matches(":3000")), "{replica}");
        }
        let Some(variables) = variables.filter(|them| them.contains_key("KEYWARD_REGION")) else {
            continue;
        };
        let mut replica = Command::new(env!("CARGO_BIN_EXE_keyward"));
        replica.args(["openapi", "v2"]).env_clear();
        for (variable, value) in compose["x-replica"]["environment"].as_object().unwrap() {
            if variable.ends_with("URL_FILE") {
                replica.env(variable, value.as_str().unwrap());
            }
        }
        replica.envs(variables.iter().map(|(name, value)| (name, value.as_str().unwrap())));
        let mounted = replica.get_envs().filter_map(|(variable, value)| {
            let secret = value?.to_str()?.strip_prefix("/run/secrets/")?;
            Some((variable.to_owned(), directory.path().join("secrets").join(secret)))
        });
        let mounted: Vec<_> = mounted.collect();
        let checked = replica.envs(mounted).output().unwrap();
        assert!(checked.status.success(), "{name}: {}", String::from_utf8_lossy(&checked.stderr));
    }
}

#[test]
fn compose_starts_redis_with_the_password() {
    let text = std::fs::read_to_string("docker-compose.yml").unwrap();
    let compose: Value = serde_saphyr::from_str(&text).expect("YAML");
    let command = compose["services"]["redis"]["command"][2].as_str().unwrap().to_owned();
    let directory = tempfile::tempdir().unwrap();
    let port = free_port();
    std::fs::write(directory.path().join("redis_password"), "a_password\n").unwrap();
    // As Compose reads it, with the file and the port of this machine.
    let command = command
        .replace("$$", "$")
        .replace("/run/secrets", directory.path().to_str().unwrap())
        .replace("redis-server -", &format!("redis-server - --bind 127.0.0.1 --port {port}"));
    let redis = Command::new("sh")
        .args(["-c", &format!("echo $$; {command}")])
        .current_dir(directory.path())
        .stdout(Stdio::piped())
        .spawn();
    let redis = EndedProcess(redis.unwrap());

    let ping = |url: &str| {
        let client = redis::Client::open(url).unwrap();
        client.get_connection().and_then(|mut c| redis::cmd("PING").query::<String>(&mut c))
    };
    let url = format!("redis://:a_password@127.0.0.1:{port}");
    let began = Stopwatch::new();
    while ping(&url).is_err() {
        assert!(began.elapsed().as_secs() < 20, "Redis does not reply");
        std::thread::sleep(Duration::from_millis(20));
    }
    let refused = ping(&format!("redis://127.0.0.1:{port}"));
    let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    let _ = redis::cmd("SHUTDOWN").arg("NOSAVE").query::<()>(&mut connection);
    drop(redis);

    assert!(refused.is_err());
}

/// A process that was told to end.
struct EndedProcess(Child);

impl Drop for EndedProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn local_stack_runs_regions_that_share_a_limit() {
    let stack = LocalStack::start_with(&["--regions", "2"]);
    let root_key = stack.text("rootKey");
    let regions = stack.about["regions"].as_array().unwrap();
    let check = json!({ "namespace": "shared", "identifier": "customer", "limit": 7, "duration": 3_600_000 });
    let is_admitted = |number: usize| {
        let url = regions[number % 2]["url"].as_str().unwrap();
        let address = url.trim_start_matches("http://").parse().unwrap();
        let (status, reply) = v2(address, &root_key, "ratelimit.limit", &check).unwrap();
        assert_eq!(status, 200, "{reply}");
        reply["data"]["success"] == true
    };

    assert_eq!(regions.len(), 2);
    assert_eq!((&regions[0]["name"], &regions[1]["name"]), (&json!("eu"), &json!("us")));
    assert_eq!((0..20).filter(|number| is_admitted(*number)).count(), 7);
}
