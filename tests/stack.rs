//! The stack of replicas behind its balancer, as `deploy/local-stack` starts it.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::support::process::{get, signal, v2};

struct LocalStack {
    child: Child,
    about: Value,
}

impl LocalStack {
    fn start() -> Self {
        let mut child = Command::new("deploy/local-stack")
            .args(["--json", "--port", "0", "--binary", env!("CARGO_BIN_EXE_keyward")])
            // A machine that compiles meanwhile is slow.
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
        // It ends what it has started, which a kill would leave behind.
        signal(self.child.id(), "TERM");
        let _ = self.child.wait();
    }
}

#[test]
fn the_main_job_runs_through_the_balancer_and_survives_the_end_of_a_replica() {
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
}
