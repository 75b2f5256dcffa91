//! Fuzzes the cursor of a list, from the reply that contains it to the request that sends it back.

use api::decode;
use api::reply::{PageReply, Reply as _};
use api::v2::V2;
use api::v2::permissions::list_permissions::ListPermissions;
use api::v2::schemas::to_search_paging;
use domain::page::{Page, Paging};
use foundation::error::{Code, Error, FieldError};
use serde_json::{Value, json};

use crate::compose;

const CURSOR_MAX: usize = 1024;

const PIECES: &[&str] = &[
    "{",
    "}",
    "\"cursor\":",
    "\"perm_1\"",
    ",",
    "\"limit\":",
    "1",
    "2.0",
    "\"search\":",
    "null",
    "\"\\u0000\"",
    "[",
    "]",
    "1e2",
    "\"\\ud83d\\ude00\"",
    " ",
];

/// An input is a body.
#[test]
fn cursor_is_accepted_when_it_is_text_of_at_most_1024_characters() {
    bolero::check!(name = "cursor").for_each(|bytes: &[u8]| {
        assert_read_like_json(bytes);
        assert_read_like_json(compose(bytes, PIECES).concat().as_bytes());
        // In a body that is otherwise valid.
        let text = String::from_utf8_lossy(bytes);
        let full = CURSOR_MAX / text.chars().count().max(1);
        for times in [1, full, full + 1] {
            let body = json!({ "limit": 7, "cursor": text.repeat(times) });
            assert_read_like_json(body.to_string().as_bytes());
        }
    });
}

#[test]
fn pages_contain_every_item_once() {
    bolero::check!(name = "cursor").for_each(|bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        let is_id =
            |id: &&str| (1..=CURSOR_MAX).contains(&id.chars().count()) && !id.contains('\0');
        let mut ids: Vec<&str> = text.split([',', '"', 'a', '~']).filter(is_id).collect();
        ids.sort_unstable();
        ids.dedup();
        let limit = 1 + bytes.len() % 5;

        let mut body = json!({ "limit": limit });
        let mut listed = Vec::new();
        for _ in 0..=ids.len() / limit {
            let paging = read(body.to_string().as_bytes()).unwrap();
            let page = PageReply::<&str>::new(page(&ids, &paging));
            let pagination = serde_json::to_value(page.pagination()).unwrap();
            assert_eq!(pagination["hasMore"], pagination.get("cursor").is_some());
            listed.extend(page.0.items);
            match pagination.get("cursor") {
                Some(cursor) => body["cursor"] = cursor.clone(),
                None => break,
            }
        }

        assert_eq!(listed, ids);
    });
}

/// Returns the page as the store reads it.
fn page<'a>(ids: &[&'a str], paging: &Paging) -> Page<&'a str> {
    let rows = ids.iter().copied().filter(|id| *id >= paging.start.as_str());
    let rows = rows.take(usize::try_from(paging.limit_with_lookahead()).unwrap()).collect();
    Page::new(rows, paging, |id| id)
}

fn read(body: &[u8]) -> Result<Paging, Error> {
    let request: ListPermissions = decode::<V2, _>(body)?;
    Ok(to_search_paging(request.limit, request.cursor, request.search))
}

fn assert_read_like_json(body: &[u8]) {
    let parsed = read(body);

    let shown = String::from_utf8_lossy(body);
    match (parsed, expected(body)) {
        (Ok(parsed), Ok((from, limit))) => {
            assert_eq!((parsed.start, parsed.limit), (from, limit));
        }
        (Err(error), Err(fields)) => {
            assert_eq!(error.code(), Code::InvalidInput);
            let Error::Invalid(faults) = error else { panic!("{shown:?}: {error}") };
            assert!(!faults.is_empty() && faults.iter().all(|fault| !fault.message.is_empty()));
            for field in fields {
                assert!(faults.iter().any(|fault| is_in(fault, field)), "{shown:?}: {faults:?}");
            }
        }
        (parsed, expected_page) => {
            panic!("{shown:?} is {parsed:?}, and {expected_page:?} by the rules")
        }
    }
}

fn is_in(fault: &FieldError, field: &str) -> bool {
    fault.location.starts_with(&format!("/properties/{field}/")) && fault.message.contains(field)
}

/// Returns the start and the maximum length of the page, or the invalid fields.
fn expected(body: &[u8]) -> Result<(String, usize), Vec<&'static str>> {
    let body: Value = serde_json::from_slice(body).map_err(|_| vec![])?;
    let body = body.as_object().ok_or(vec![])?;
    let is_text = |value: &Value, max: usize| {
        value.as_str().is_some_and(|text| text.chars().count() <= max && !text.contains('\0'))
    };
    let limit = |value: &Value| (1..=100_u8).find(|n| value.as_f64() == Some(f64::from(*n)));
    let is_right = |field: &str, value: &Value| match field {
        "cursor" => is_text(value, CURSOR_MAX),
        "search" => is_text(value, 256),
        "limit" => limit(value).is_some(),
        _ => false,
    };
    let is_wrong = |field: &&str| body.get(*field).is_some_and(|value| !is_right(field, value));
    let wrong: Vec<_> = ["cursor", "limit", "search"].into_iter().filter(is_wrong).collect();
    if !wrong.is_empty() || !body.iter().all(|(field, value)| is_right(field, value)) {
        return Err(wrong);
    }
    let from = body.get("cursor").and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok((from, body.get("limit").and_then(limit).map_or(100, usize::from)))
}
