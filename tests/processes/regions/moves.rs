//! Tests homes that move from one region to another under load.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::*;

#[test]
fn limit_is_exact_while_its_home_moves() {
    let _turn = acquire_turn();
    let regions = Regions::start(1);
    let check = json!({
        "namespace": "moving", "identifier": "customer", "limit": 200, "duration": 5_000, "cost": 1
    });
    regions.ok(0, "ratelimit.limit", &check);
    let list = regions.run(&["namespace", "list"]);
    let id = list[0]["namespaceId"].as_str().unwrap().to_owned();
    std::thread::sleep(Duration::from_secs(1));

    let admissions = Mutex::new(Vec::new());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for region in 0..3 {
            let (address, check) = (regions.replicas[region][0].address, &check);
            let (admissions, is_over) = (&admissions, &is_over);
            scope.spawn(move || {
                let mut client = Client::new(address);
                while !is_over.load(Ordering::Relaxed) {
                    let reply = client.v2(ROOT_KEY, "ratelimit.limit", check).expect("a reply");
                    assert_eq!(reply.status, 200, "{}", reply.body);
                    let reply: Value = serde_json::from_str(&reply.body).unwrap();
                    assert_ne!(reply["meta"]["degraded"], true, "{reply}");
                    if reply["data"]["success"] == true {
                        admissions.lock().unwrap().push(reply["data"]["reset"].as_i64().unwrap());
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
        }
        let moved = regions.run(&["region", "move", &id, "--to", "us"]);
        assert_eq!((&moved["from"], &moved["to"]), (&json!("eu"), &json!("us")), "{moved}");
        std::thread::sleep(Duration::from_secs(26));
        is_over.store(true, Ordering::Relaxed);
    });

    // By the end of each window: the first and the last may be in parts.
    let mut windows = BTreeMap::<i64, usize>::new();
    for end in admissions.into_inner().unwrap() {
        *windows.entry(end).or_default() += 1;
    }
    assert!(windows.values().all(|admitted| *admitted <= 200), "{windows:?}");
    let whole: Vec<_> = windows.values().skip(1).rev().skip(1).collect();
    // The sliding window admits about half of the limit while the one before was used up at its begin.
    assert!(whole.len() >= 4 && whole.iter().all(|admitted| **admitted >= 80), "{windows:?}");
    let moved = regions.run(&["region", "list"]);
    assert_eq!(
        (&moved[0]["namespaces"], &moved[1]["namespaces"]),
        (&json!(0), &json!(1)),
        "{moved}"
    );
    for (arguments, problem) in [
        (["region", "move", &id, "--to", "us"], "is us already"),
        (["region", "move", &id, "--to", "mars"], "must be one of the regions in KEYWARD_REGIONS"),
        (["region", "move", "key_1", "--to", "us"], "must be the ID of an API"),
        (["region", "move", "rlns_none", "--to", "us"], "does not exist"),
    ] {
        let output = regions.command(0, &NAMES).args(arguments).output().expect("it runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains(problem), "{error}");
    }
}
