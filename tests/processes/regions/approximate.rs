//! Tests an approximate limit of a counter whose home is another region.

use super::*;

#[test]
fn approximate_limit_is_shared_by_all_regions() {
    let _turn = acquire_turn();
    let regions = Regions::start(1);
    regions.ok(0, "ratelimit.limit", &check("warm", 10));
    std::thread::sleep(Duration::from_secs(1));
    let mut request = check("approximate", 60);
    request["async"] = json!(true);

    let mut admitted = 0;
    // The home comes last.
    for region in [1, 2, 0] {
        let mut client = Client::new(regions.replicas[region][0].address);
        for _ in 0..80 {
            let reply = client.post("/v1/ratelimits.limit", ROOT_KEY, &request).expect("a reply");
            assert_eq!(reply.status, 200, "{}", reply.body);
            let body: Value = serde_json::from_str(&reply.body).unwrap();
            admitted += usize::from(body["success"] == true);
        }
    }

    assert!((40..=60).contains(&admitted), "{admitted} of 60");
}
