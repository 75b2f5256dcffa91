//! Reads forms that contain a file (`multipart/form-data`).

use std::convert::Infallible;
use std::future::ready;

use axum::body::Bytes;
use foundation::error::{Error, Result};
use futures_util::stream;
use multer::Multipart;
use request::body::BODY_LOCATION;

use super::form::{FIELDS_MAX, Form};

/// Returns the boundary between the fields, if this is the content type of such a form.
pub fn parse_boundary(content_type: &str) -> Option<String> {
    multer::parse_boundary(content_type).ok()
}

/// Parses a body that was read within its bounds. A file becomes a field whose value is its content. Bytes that are not
/// UTF-8 are replaced by U+FFFD.
pub async fn parse_form(body: Bytes, boundary: String) -> Result<Form> {
    let mut parts = Multipart::new(stream::once(ready(Ok::<_, Infallible>(body))), boundary);
    let mut fields = Vec::new();
    while let Some(part) = parts.next_field().await.map_err(|_| malformed())? {
        let name = part.name().unwrap_or_default().to_owned();
        let content = part.bytes().await.map_err(|_| malformed())?;
        if fields.len() < FIELDS_MAX {
            fields.push((name, String::from_utf8_lossy(&content).into_owned()));
        }
    }
    Ok(Form::from_fields(fields.into_iter()))
}

fn malformed() -> Error {
    Error::invalid(BODY_LOCATION, "the body is not valid multipart/form-data")
}
